"""The entries of a tape, a page at a time, and the turns that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from msgspec import Struct

from bubbot.features.trace.entries import ROW_CHARS, EntryRow, describe_entry
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

PAGE_ENTRIES = 100
READ_ENTRIES = 50
"""Entries in memory at once while a page is read."""


class Timeline(Struct, frozen=True):
    """A page of a tape, oldest entry first.

    Attributes:
        rows: its entries.
        first: the id of the first one.
        last: that of the last one; 0 on an empty tape.
        head: the newest entry of the tape.
    """

    rows: tuple[EntryRow, ...]
    first: int
    last: int
    head: int

    @property
    def is_newest(self) -> bool:
        """True if nothing comes after it."""
        return self.last >= self.head

    @property
    def is_oldest(self) -> bool:
        """True if nothing stands before it."""
        return self.first <= 1


class TurnGroup(Struct, frozen=True):
    """Entries that follow each other and belong to one turn; to none if `turn` is empty."""

    turn: str
    rows: tuple[EntryRow, ...]

    @property
    def first(self) -> int:
        """The first entry."""
        return self.rows[0].id


async def read_timeline(tape: TapeHandle, before: int | None, first: int | None) -> Timeline:
    """Read a page: the entries before one, or from one on; the newest if neither is given."""
    head = await tape.head()
    if first is not None:
        low = min(max(first, 1), max(head, 1))
        high = min(low + PAGE_ENTRIES - 1, head)
    else:
        high = head if before is None else min(max(before - 1, 1), head)
        low = max(high - PAGE_ENTRIES + 1, 1)
    rows = [row async for row in read_rows(tape, low, high)]
    return Timeline(tuple(rows), low, high, head)


async def read_rows(tape: TapeHandle, low: int, high: int, limit: int = ROW_CHARS) -> AsyncIterator[EntryRow]:
    """Read entries as rows, a few at a time: their whole texts may be long.

    Args:
        low: the id of the first.
        high: the id of the last.
        limit: characters of each text.
    """
    for start in range(max(low, 1), high + 1, READ_ENTRIES):
        part = IdRanges(((start, min(start + READ_ENTRIES - 1, high)),))
        entries = (await tape.fetch([TapeQuery(tape.name, part)]))[0]
        for row in await asyncio.to_thread(_describe, entries, limit):
            yield row


def _describe(entries: Sequence[TapeEntry], limit: int) -> list[EntryRow]:
    return [describe_entry(entry, limit) for entry in entries]


def group_turns(rows: Sequence[EntryRow]) -> tuple[TurnGroup, ...]:
    """Group entries that follow each other by their turns."""
    return tuple(TurnGroup(turn, tuple(group)) for turn, group in groupby(rows, key=lambda row: row.turn))


async def read_running(reader: TapeBoundary, tape: str) -> tuple[EntryRow, ...]:
    """Read what running turns of a tape have written so far: it is durable, and not merged."""
    rows: list[EntryRow] = []
    for fork in await reader.forks(tape):
        entries = [entry for batch in fork.staged if batch.tape == tape for entry in batch.entries]
        rows += [describe_entry(entry.with_id(fork.base + place)) for place, entry in enumerate(entries, 1)]
    return tuple(rows)
