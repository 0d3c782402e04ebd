"""The decoded window of a live tape, kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import EntryFinder, Opening, TapeQuery, Window, arrange, matcher

LIMIT = 20_000
"""Entries kept at most; a longer window is read from the store each time."""


@dataclass
class LiveWindow:
    """The opening anchor and every entry of its window, recalled ones included, as of `head`.

    History is append-only and one process writes, so it goes stale in no other way than by appends, which
    extend it. Decoding a window anew for each step costs more than everything else in a turn.
    """

    opening: TapeEntry
    entries: list[TapeEntry]
    head: int

    def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """What the query finds, where the window can tell; None where the store has to."""
        wanted = matcher(query)
        match query.part:
            case Window():
                found = [entry for entry in self.entries if wanted.passes(entry)]
            case Opening():
                found = [self.opening] if wanted.passes(self.opening) else []
            case _:
                return None
        return tuple(arrange(found, query))

    def extended(self, entries: Sequence[TapeEntry]) -> LiveWindow | None:
        """The window after these appends; None where they open another one, leave a gap, or grow it too long."""
        if not entries:
            return self
        if entries[0].id != self.head + 1 or EntryFinder(entries).opening() is not None:
            return None
        self.entries += entries
        self.head = entries[-1].id
        return self if len(self.entries) <= LIMIT else None
