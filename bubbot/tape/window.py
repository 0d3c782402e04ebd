"""The decoded window of a live tape, kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import EntryFinder, OpeningAnchor, TapeQuery, WholeTape, Window, ZoneSlice, arrange, matcher

WINDOW_CACHE_ENTRIES = 20_000
"""Entries kept at most; a longer window is read from the store each time."""
ANSWERS = 16
"""Answers from beyond the window that are kept at most; a turn asks the same few again and again."""
MAX_ANSWER_ENTRIES = 500
"""Entries of such an answer at most."""


@dataclass
class LiveWindow:
    """The opening anchor and every entry of its window, recalled ones included, as of `head`.

    History is append-only and one process writes, so it goes stale in no other way than by appends, which
    extend it. Decoding a window anew for each step costs more than everything else in a turn.
    """

    opening: TapeEntry
    entries: list[TapeEntry]
    head: int
    _answers: dict[TapeQuery, tuple[TapeEntry, ...]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """How many entries it holds."""
        others = [found for query, found in self._answers.items() if not isinstance(query.part, Window)]
        return len(self.entries) + sum(map(len, others))

    def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """What the query finds, where the window can tell; None where the store has to."""
        known = self._answers.get(query)
        if known is not None or not isinstance(query.part, (Window, OpeningAnchor)):
            return known
        wanted = matcher(query)
        entries = self.entries if isinstance(query.part, Window) else [self.opening]
        found = tuple(arrange([entry for entry in entries if wanted.passes(entry)], query))
        self.keep(query, found)
        return found

    def keep(self, query: TapeQuery, found: tuple[TapeEntry, ...]) -> None:
        """Keeps an answer where later appends say how it changes: the newest of a name, a sealed zone, the window."""
        few = len(found) <= MAX_ANSWER_ENTRIES or isinstance(query.part, Window)
        newest = max((entry.id for entry in found), default=0)
        if len(self._answers) < ANSWERS and few and newest <= self.head and _is_standing(query):
            self._answers[query] = found

    def extended(self, entries: Sequence[TapeEntry]) -> LiveWindow | None:
        """The window after these appends; None where they open another one, leave a gap, or grow it too long."""
        if not entries:
            return self
        if entries[0].id != self.head + 1 or EntryFinder(entries).opening() is not None:
            return None
        self._answers = {
            query: after
            for query, found in self._answers.items()
            if (after := _continued(query, found, entries)) is not None
        }
        self.entries += entries
        self.head = entries[-1].id
        return self if len(self.entries) <= WINDOW_CACHE_ENTRIES else None


def _is_standing(query: TapeQuery) -> bool:
    """Whether `_continued` can tell what becomes of its answer, and few others are like it."""
    if query.text or query.said or query.keys or query.since or query.until:
        return False
    match query.part:
        case Window():
            return not query.newest and query.limit is None
        case WholeTape():
            return (
                query.newest and bool(query.names) and query.limit is not None and 0 < query.limit <= MAX_ANSWER_ENTRIES
            )
    return isinstance(query.part, ZoneSlice)


def _continued(
    query: TapeQuery, found: tuple[TapeEntry, ...], entries: Sequence[TapeEntry]
) -> tuple[TapeEntry, ...] | None:
    """The answer after these appends; None where it has to be asked for anew."""
    if isinstance(query.part, ZoneSlice):
        seals = query.part.seal
        return None if any(entry.kind == Kind.ANCHOR and entry.name == seals for entry in entries) else found
    wanted = matcher(query)
    newer = tuple([entry for entry in entries if wanted.passes(entry)])
    return found + newer if isinstance(query.part, Window) else (newer[::-1] + found)[: query.limit]
