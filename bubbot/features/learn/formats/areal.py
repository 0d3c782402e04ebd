"""Interactions as AReaL's proxy exports them without tokens (its first API): what was shown, what was written, and the reward.

AReaL trains on what it sampled itself; such records are for reward models, evaluation and imitation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeTurn
from bubbot.features.learn.formats.chats import (
    COMMANDS_ALONE,
    NOTHING_WRITTEN,
    SUBTASK,
    shown_messages,
    written_message,
)
from bubbot.features.learn.formats.reader import (
    MessageRow,
    ReadTurn,
    count_inherited,
    decode,
    make_turn,
    read_chat,
)
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, encode_line


class ArealWriter:
    """Writes one interaction for each call of a model; the reward of a turn is that of its last one."""

    def __init__(self) -> None:
        self.records = 0
        self.losses = Counter[str]()
        self._head = EpisodeHead("", "", "", 0, 0, "")

    def begin(self, head: EpisodeHead) -> Iterable[bytes]:
        """See `FormatWriter`."""
        self._head = head
        yield b'{"interactions": {\n'

    def write(self, turn: EpisodeTurn) -> Iterable[bytes]:
        """See `FormatWriter`."""
        self.losses[SUBTASK] += len(turn.subtasks)
        self.losses[COMMANDS_ALONE] += not turn.steps and not turn.subtasks
        self.losses += Counter()  # without what is 0
        for step in turn.steps:
            if step.wrote_nothing:
                self.losses[NOTHING_WRITTEN] += 1
                continue
            self.records += 1
            name = f"{self._head.id}-{step.record.id}"
            interaction = {
                "messages": shown_messages(step, step.request.messages),
                "output_message_list": [written_message(step)],
                "reward": self._head.rewards.get(turn.record.id) if step is turn.steps[-1] else None,
                "interaction_id": name,
            }
            lead = b"" if self.records == 1 else b",\n"
            yield lead + encode_line({name: interaction}).strip()[1:-1]

    def end(self) -> Iterable[bytes]:
        """See `FormatWriter`."""
        yield b"\n}}\n"

    def close(self) -> None:
        """See `FormatWriter`."""


class InteractionRow(Struct, forbid_unknown_fields=True):
    """An interaction of `ArealWriter`."""

    messages: list[MessageRow]
    output_message_list: list[MessageRow]
    reward: float | None
    interaction_id: str


class InteractionsFile(Struct, forbid_unknown_fields=True):
    """What `ArealWriter` wrote."""

    interactions: dict[str, InteractionRow]


def read_interactions(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `ArealWriter` wrote; each interaction is a turn, since none says which turn it was of."""
    for name, row in decode(InteractionsFile, file.read(), "the file").interactions.items():
        number, place = name.rpartition("-")[2], f"interaction {name}"
        if not _ENTRY.fullmatch(number):
            raise ConfigError(f"{place}: no entry at the end of its id: give a file as bubbot export wrote it")
        messages = [each.as_message() for each in (*row.messages, *row.output_message_list)]
        (step,) = read_chat(messages, len(messages) - 1, (), place, first=int(number))
        yield ReadTurn(make_turn(name, [step], inherited=count_inherited(step.request.messages)), row.reward)


_ENTRY = re.compile(r"[0-9]{1,18}")
AREAL = ExportFormat(
    "areal", "AReaL interactions without tokens (API 1)", "training", ArealWriter, read_interactions, is_single=True
)
