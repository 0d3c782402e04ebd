"""Chats in the messages of OpenAI's protocol, which most formats are written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn
from bubbot.features.learn.formats.writer import EpisodeHead, encode_line
from bubbot.ports.model import ToolCall, ToolSpec, ToolSpecs
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.turns import CallRecord, read_call
from bubbot.tape.entry import JsonObject, objects_of, text_field, thaw

Message = dict[str, Any]
COMMANDS_ALONE, SUBTASK, NOTHING_WRITTEN = "a turn of commands alone", "a sub-task", "a step that wrote nothing"
IMAGE, ARGUMENTS, NO_REWARD = "an image", "arguments that are no JSON object", "a turn without a reward"


class LineWriter:
    """The part that writers of lines share: each record is a line, and an episode begins and ends with nothing."""

    def __init__(self) -> None:
        self.records = 0
        self.losses = Counter[str]()
        self.head = EpisodeHead("", "", "", 0, 0, "")

    def begin(self, head: EpisodeHead) -> Iterable[bytes]:
        """See `FormatWriter`."""
        self.head = head
        return ()

    def write(self, turn: EpisodeTurn) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if not turn.steps and not turn.subtasks:
            self.losses[COMMANDS_ALONE] += 1
            return
        for record in self.make_records(turn):
            self.records += 1
            yield encode_line(record)

    def end(self) -> Iterable[bytes]:
        """See `FormatWriter`."""
        return ()

    def close(self) -> None:
        """See `FormatWriter`."""

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """Yield the records of a turn in which a model was asked."""
        raise NotImplementedError

    def reward(self, turn: EpisodeTurn) -> float | None:
        """Return the reward of a turn; None without one."""
        return self.head.rewards.get(turn.record.id)


def split_turn(turn: EpisodeTurn, losses: Counter[str]) -> list[tuple[EpisodeStep, list[Message], list[Message]]]:
    """Return what there was before a turn and what its models wrote, with the results of their calls.

    It is one pair if each request goes on from the one before, and a pair for each request if not, each with its step. What has no
    words and no calls is left out, and counted as lost.
    """
    if turn.subtasks:
        losses[SUBTASK] += len(turn.subtasks)
    if not turn.steps:
        return []
    if not turn.is_continuous:
        pairs = [(step, list(step.request.messages), [written_message(step)]) for step in turn.steps]
    else:
        last = turn.steps[-1]
        shown = len(next((step for step in turn.steps if not step.wrote_nothing), last).request.messages)
        own = [*map(clean_message, last.request.messages[shown:]), written_message(last)]
        # Later requests may show what a model wrote in another form, such as without arguments that are no JSON.
        for step in turn.steps[:-1]:
            if not step.wrote_nothing:
                own[len(step.request.messages) - shown] = written_message(step)
        pairs = [(last, list(last.request.messages[:shown]), own)]
    found = []
    for step, before, own in pairs:
        if step.wrote_nothing:
            losses[NOTHING_WRITTEN] += 1
            continue
        found.append((step, merge_assistants(shown_messages(step, before)), own))
    return found


def shown_messages(step: EpisodeStep, messages: Iterable[JsonObject]) -> list[Message]:
    """Return messages of a request, the system prompt first."""
    system = [{"role": "system", "content": step.request.system}] if step.request.system else []
    return [*system, *map(clean_message, messages)]


def written_message(step: EpisodeStep) -> Message:
    """Return what a model wrote."""
    message: Message = {"role": "assistant", "content": step.text}
    if step.calls:
        message["tool_calls"] = [_write_call(call) for call in step.calls]
    return message


def _write_call(call: ToolCall | CallRecord) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def clean_message(message: JsonObject) -> Message:
    """Return a message without what one provider alone reads, its fields in one order."""
    found: Message = {"role": message["role"], "content": thaw(message.get("content")) or ""}
    if calls := [read_call(call) for call in objects_of(message.get("tool_calls"))]:
        found["tool_calls"] = [_write_call(call) for call in calls]
    return {**found, **{key: message[key] for key in ("tool_call_id", "name") if key in message}}


def merge_assistants(messages: Sequence[Message]) -> list[Message]:
    """Put assistant messages without calls that follow each other into one: readers want them to alternate with others."""
    merged: list[Message] = []
    for message in messages:
        before = merged[-1] if merged else {}
        if message["role"] == before.get("role") == "assistant" and not before.get("tool_calls"):
            words = [text for each in (before, message) if (text := text_of(each["content"]))]
            merged[-1] = {**message, "content": "\n\n".join(words)}
        else:
            merged.append(message)
    return merged


def describe_tools(tools: tuple[ToolSpec, ...]) -> list[JsonObject]:
    """Return the tools that a model could call, for a record."""
    return ToolSpecs.of(tools).described


def read_object(text: str) -> dict[str, Any] | None:
    """Return the object that arguments are; None if they are none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text.strip() else {}
    except (
        msgspec.DecodeError,
        ValueError,
        RecursionError,
    ):  # also what JSON cannot hold, such as infinity and half a pair
        return None


def without_images(content: object, losses: Counter[str]) -> str:
    """Return the words of a content; its images are lost."""
    if isinstance(content, list):
        losses[IMAGE] += sum(part.get("type") == "image_url" for part in objects_of(content))
    return text_of(tuple(content) if isinstance(content, list) else content)


def with_object_arguments(message: Message, losses: Counter[str]) -> Message:
    """Return a message whose calls have their arguments as objects, and whose content is a text."""
    made = {**message, "content": without_images(message["content"], losses)}
    if calls := message.get("tool_calls"):
        made["tool_calls"] = []
        for call in calls:
            function = call["function"]
            arguments = read_object(text_field(function, "arguments"))
            if arguments is None:
                losses[ARGUMENTS] += 1
                arguments = {"text": text_field(function, "arguments")}
            made["tool_calls"].append({**call, "function": {"name": function["name"], "arguments": arguments}})
    return made


def name_results(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose results name the tool that they are of."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
        named.append(
            {**message, "name": names.get(message.get("tool_call_id", ""), "")}
            if message["role"] == "tool"
            else message
        )
    return named
