"""What a format of exports is: it writes the turns of an episode one after another, and says what it could not hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from bubbot.features.learn.episodes import EpisodeTurn
from bubbot.features.learn.formats.reader import ReadsFormat
from bubbot.ports.people import Purpose


class EpisodeHead(Struct, frozen=True):
    """What is known of an episode before its turns.

    Attributes:
        id: unique among the episodes of an export.
        tape: the tape, and `session` its session; both are left out of files for others.
        first: the first entry of the slice, and `last` its last one.
        version: that of bubbot.
        rewards: the rewards of turns with those of later ones, by the ids of the turns.
    """

    id: str
    tape: str
    session: str
    first: int
    last: int
    version: str
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])


class FormatWriter(Protocol):
    """Writes episodes into one file. All of them have the same form if it is a file of lines.

    Attributes:
        records: what was written, in the format's own units.
        losses: what the format could not hold, counted by the reason.
    """

    records: int
    losses: Counter[str]

    def begin(self, head: EpisodeHead) -> Iterable[bytes]:
        """Begin an episode."""
        ...

    def write(self, turn: EpisodeTurn) -> Iterable[bytes]:
        """Write the next turn of the episode."""
        ...

    def end(self) -> Iterable[bytes]:
        """End the episode."""
        ...

    def close(self) -> None:
        """Drop what waits on the disk."""
        ...


class ExportFormat(Struct, frozen=True):
    """A format of exports.

    Attributes:
        name: as people type it.
        title: its name and version in words.
        purpose: what its files are for, unless somebody says otherwise: people have to allow that.
        open: makes a writer.
        read: reads what it wrote.
        is_single: a file holds one episode; of several, each gets a file of its own.
    """

    name: str
    title: str
    purpose: Purpose
    open: type[FormatWriter]
    read: ReadsFormat
    is_single: bool = False


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Write a record as a line of JSON."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
