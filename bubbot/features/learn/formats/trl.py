"""Datasets of TRL, lines of JSON for `datasets`: for imitation (SFT), pairs (DPO), and good or bad (KTO).

Arguments of calls are objects, contents are texts, and the tools are a text, so that each column has one type. Needs `datasets` 4.7 or
newer, as TRL 1 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bubbot.features.learn.episodes import EpisodeTurn
from bubbot.features.learn.formats.chats import (
    NO_REWARD,
    LineWriter,
    name_results,
    split_turn,
    with_object_arguments,
)
from bubbot.features.learn.formats.pairs import find_pairs
from bubbot.features.learn.formats.writer import ExportFormat
from bubbot.ports.model import ToolSpec, ToolSpecs


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
        """Yield the prompts and completions of a turn with the tools that could be called."""
        for step, before, own in split_turn(turn, self.losses):
            messages = name_results([with_object_arguments(each, self.losses) for each in [*before, *own]])
            yield messages[: len(before)], messages[len(before) :], step.request.tools


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


TRL_SFT = ExportFormat("trl-sft", "TRL prompts and completions, JSON lines", "training", SftWriter)
TRL_PREFERENCE = ExportFormat("trl-preference", "TRL preferences, JSON lines", "training", DpoWriter)
TRL_KTO = ExportFormat("trl-kto", "TRL good and bad completions, JSON lines", "training", KtoWriter)
