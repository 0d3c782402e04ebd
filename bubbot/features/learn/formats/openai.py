"""Chats as OpenAI's fine-tuning and those who follow it read them: lines of JSON, for imitation or as pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any, BinaryIO

from msgspec import Struct

from bubbot.features.learn.episodes import EpisodeTurn
from bubbot.features.learn.formats.chats import (
    LineWriter,
    Message,
    describe_tools,
    read_object,
    split_turn,
    with_object_arguments,
)
from bubbot.features.learn.formats.pairs import find_pairs, read_pair
from bubbot.features.learn.formats.reader import (
    MessageRow,
    ReadTurn,
    ToolRow,
    count_inherited,
    decode_lines,
    make_turn,
    read_chat,
    read_tools,
    write_arguments,
)
from bubbot.features.learn.formats.writer import ExportFormat
from bubbot.tape.entry import JsonObject


class ChatWriter(LineWriter):
    """Writes one record for each turn: what the last request of it showed, and what the models wrote then.

    What was there before the turn has `weight` 0, so that only the turn itself is learned. A turn whose requests do not go on from
    each other has a record for each of them. Calls that could not be made have `weight` 0, too.
    """

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """See `LineWriter`."""
        for step, before, own in split_turn(turn, self.losses):
            names = {each.name for each in step.request.tools}
            learned = [each if _can_be_learned(each, names) else _weigh_nothing(each) for each in own]
            messages = [self._with_objects(each) for each in [*map(_weigh_nothing, before), *learned]]
            record: dict[str, Any] = {"messages": messages}
            if step.request.tools:
                record["tools"] = describe_tools(step.request.tools)
            yield record

    def _with_objects(self, message: Message) -> Message:
        """Return a message whose arguments are all objects: what else a model wrote is refused by those who read the file."""
        calls = message.get("tool_calls", ())
        if all(read_object(call["function"]["arguments"]) is not None for call in calls):
            return message
        made = with_object_arguments({"role": "assistant", "content": "", "tool_calls": calls}, self.losses)[
            "tool_calls"
        ]
        texts = [json.dumps(call["function"]["arguments"], ensure_ascii=False) for call in made]
        return {
            **message,
            "tool_calls": [
                {**call, "function": {**call["function"], "arguments": text}}
                for call, text in zip(calls, texts, strict=True)
            ],
        }


class PreferenceWriter(LineWriter):
    """Writes one record for each answer that somebody chose, and each one beside it that was not chosen."""

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """See `LineWriter`."""
        for pair in find_pairs(turn):
            shown: dict[str, Any] = {"messages": pair.prompt}
            if pair.tools:
                shown["tools"] = describe_tools(pair.tools)
            yield {
                "input": shown,
                "preferred_output": [{"role": "assistant", "content": pair.chosen}],
                "non_preferred_output": [{"role": "assistant", "content": pair.rejected}],
            }


class ChatRow(Struct, forbid_unknown_fields=True):
    """A line of `ChatWriter`."""

    messages: list[MessageRow]
    tools: list[ToolRow] = []


class ShownRow(Struct, forbid_unknown_fields=True):
    """What was shown before two answers."""

    messages: list[MessageRow]
    tools: list[ToolRow] = []


class PreferenceRow(Struct, forbid_unknown_fields=True):
    """A line of `PreferenceWriter`."""

    input: ShownRow
    preferred_output: list[MessageRow]
    non_preferred_output: list[MessageRow]


def read_chats(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `ChatWriter` wrote; each line is a turn."""
    first = 1
    for number, (place, row) in enumerate(decode_lines(ChatRow, file), 1):
        answers = [at for at, each in enumerate(row.messages) if each.role == "assistant"]
        shown = next((at for at in answers if row.messages[at].weight), max(len(row.messages) - 1, 0))
        names = {tool.function.name for tool in row.tools}
        messages = [
            each.as_message() if at < shown or each.weight else _read_unlearned(each, names)
            for at, each in enumerate(row.messages)
        ]
        steps = read_chat(messages, shown, read_tools(row.tools), place, first=first)
        first += len(steps)
        inherited = count_inherited(steps[0].request.messages)
        yield ReadTurn(make_turn(f"line{number}", steps, inherited=inherited), None)


def read_preferences(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `PreferenceWriter` wrote; each line is a turn."""
    for number, (place, row) in enumerate(decode_lines(PreferenceRow, file), 1):
        shown = row.input
        yield read_pair(
            number, shown.messages, row.preferred_output, row.non_preferred_output, tools=shown.tools, place=place
        )


def _read_unlearned(message: MessageRow, names: Set[str]) -> JsonObject:
    """Return a message whose calls could not be made.

    If it is not for want of a tool, some have no object of arguments: these stand there as an object with the `text`.
    """
    for call in message.tool_calls if all(each.function.name in names for each in message.tool_calls) else ():
        arguments = read_object(write_arguments(call.function.arguments)) or {}
        text = arguments.get("text")
        if len(arguments) == 1 and isinstance(text, str) and read_object(text) is None:
            call.function.arguments = text
    return message.as_message()


def _can_be_learned(message: Message, names: Set[str]) -> bool:
    """Return false for calls that could not be made, of tools that there are not or without an object of arguments."""
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return all(each["name"] in names and read_object(each["arguments"]) is not None for each in functions)


def _weigh_nothing(message: Message) -> Message:
    return {**message, "weight": 0} if message["role"] == "assistant" else message


OPENAI_CHAT = ExportFormat("openai-chat", "OpenAI chat fine-tuning, JSON lines", "training", ChatWriter, read_chats)
OPENAI_PREFERENCE = ExportFormat(
    "openai-preference", "OpenAI preference fine-tuning, JSON lines", "training", PreferenceWriter, read_preferences
)
