"""Datasets of TRL, lines of JSON for `datasets`: for imitation (SFT), pairs (DPO), and good or bad (KTO).

Arguments of calls are objects, contents are texts, and the tools are a text, so that each column has one type. Needs `datasets` 4.7 or
newer, as TRL 1 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, TypeVar

from msgspec import Struct

from bubbot.features.learn.episodes import EpisodeTurn
from bubbot.features.learn.formats.chats import (
    NO_REWARD,
    LineWriter,
    Message,
    merge_assistants,
    name_results,
    split_turn,
    with_object_arguments,
)
from bubbot.features.learn.formats.pairs import find_pairs, read_pair
from bubbot.features.learn.formats.reader import (
    MessageRow,
    ReadTurn,
    ToolRow,
    count_inherited,
    decode,
    decode_lines,
    make_turn,
    read_chat,
    read_tools,
)
from bubbot.features.learn.formats.writer import ExportFormat
from bubbot.ports.model import ToolSpec, ToolSpecs

T = TypeVar("T")
_SAID: Message = {"role": "user"}


class SftWriter(LineWriter):
    """Writes what was shown as `prompt`, and what the models of the turn wrote as `completion`, which alone is learned."""

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """See `LineWriter`."""
        reward = self.reward(turn)
        for prompt, completion, tools in self.split(turn):
            yield {
                "prompt": prompt,
                "completion": completion,
                "tools": write_tools(tools),
                "reward": 0.0 if reward is None else reward,
            }

    def split(self, turn: EpisodeTurn) -> Iterator[tuple[list[Any], list[Any], tuple[ToolSpec, ...]]]:
        """Yield the prompts and completions of a turn with the tools that could be called.

        What people said meanwhile ends a completion: nobody is to learn to write it.
        """
        for step, before, own in split_turn(turn, self.losses):
            messages = name_results([with_object_arguments(each, self.losses) for each in [*before, *own]])
            start = end = len(before)
            for place, message in enumerate([*messages[start:], _SAID], start):
                if message["role"] == "assistant":
                    end = place + 1
                elif message["role"] == "user":
                    if start < end:
                        yield merge_assistants(messages[:start]), messages[start:end], step.request.tools
                    start = end = place + 1


class KtoWriter(SftWriter):
    """Writes turns with a reward as good, if it is above 0, or bad."""

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """See `LineWriter`."""
        reward = self.reward(turn)
        if not reward:
            self.losses[NO_REWARD] += 1
            return
        for prompt, completion, tools in self.split(turn):
            yield {"prompt": prompt, "completion": completion, "label": reward > 0, "tools": write_tools(tools)}


class DpoWriter(LineWriter):
    """Writes pairs of answers of which somebody chose one."""

    def make_records(self, turn: EpisodeTurn) -> Iterator[Mapping[str, Any]]:
        """See `LineWriter`."""
        for pair in find_pairs(turn):
            yield {
                "prompt": name_results([with_object_arguments(each, self.losses) for each in pair.prompt]),
                "chosen": [{"role": "assistant", "content": pair.chosen}],
                "rejected": [{"role": "assistant", "content": pair.rejected}],
                "tools": write_tools(pair.tools),
            }


def write_tools(tools: tuple[ToolSpec, ...]) -> str:
    """Return the tools as a text, which TRL reads."""
    return ToolSpecs.of(tools).encoded.decode()


class SftRow(Struct, forbid_unknown_fields=True):
    """A line of `SftWriter`; a reward of 0 may be none."""

    prompt: list[MessageRow]
    completion: list[MessageRow]
    tools: str
    reward: float


class KtoRow(Struct, forbid_unknown_fields=True):
    """A line of `KtoWriter`."""

    prompt: list[MessageRow]
    completion: list[MessageRow]
    tools: str
    label: bool


class DpoRow(Struct, forbid_unknown_fields=True):
    """A line of `DpoWriter`."""

    prompt: list[MessageRow]
    chosen: list[MessageRow]
    rejected: list[MessageRow]
    tools: str


def read_sft(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `SftWriter` wrote; each line is a turn."""
    first = 1
    for place, number, row in _count_lines(SftRow, file):
        turn = _read_turn(row, number, first, place)
        first += len(turn.steps)
        yield ReadTurn(turn, row.reward or None)


def read_kto(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `KtoWriter` wrote: a good turn has the reward 1, a bad one -1."""
    first = 1
    for place, number, row in _count_lines(KtoRow, file):
        turn = _read_turn(row, number, first, place)
        first += len(turn.steps)
        yield ReadTurn(turn, 1.0 if row.label else -1.0)


def read_dpo(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `DpoWriter` wrote; each line is a turn."""
    for place, number, row in _count_lines(DpoRow, file):
        tools = decode(list[ToolRow], row.tools.encode(), f"{place}, tools")
        yield read_pair(number, row.prompt, row.chosen, row.rejected, tools=tools, place=place)


def _count_lines(kind: type[T], file: BinaryIO) -> Iterator[tuple[str, int, T]]:
    return ((place, number, row) for number, (place, row) in enumerate(decode_lines(kind, file), 1))


def _read_turn(row: SftRow | KtoRow, number: int, first: int, place: str) -> EpisodeTurn:
    tools = read_tools(decode(list[ToolRow], row.tools.encode(), f"{place}, tools"))
    messages = [each.as_message() for each in (*row.prompt, *row.completion)]
    steps = read_chat(messages, len(row.prompt), tools, place, first=first)
    return make_turn(f"line{number}", steps, inherited=count_inherited(steps[0].request.messages))


TRL_SFT = ExportFormat("trl-sft", "TRL prompts and completions, JSON lines", "training", SftWriter, read_sft)
TRL_PREFERENCE = ExportFormat("trl-preference", "TRL preferences, JSON lines", "training", DpoWriter, read_dpo)
TRL_KTO = ExportFormat("trl-kto", "TRL good and bad completions, JSON lines", "training", KtoWriter, read_kto)
