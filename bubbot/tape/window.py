"""The decoded window of a live tape, kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import EntryFinder, Opening, TapeQuery, Whole, Window, Zone, arrange, matcher

LIMIT = 20_000
"""Entries kept at most; a longer window is read from the store each time."""
ANSWERS = 8
"""Answers kept beside the window: what every step asks again, such as the newest memory."""
ANSWER = 500
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
    answers: dict[TapeQuery, tuple[TapeEntry, ...]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Entries held in memory."""
        return len(self.entries) + sum(len(found) for found in self.answers.values())

    def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """What the query finds, where the window can tell; None where the store has to."""
        if (kept := self.answers.get(query)) is not None:
            return kept
        wanted = matcher(query)
        match query.part:
            case Window():
                found = [entry for entry in self.entries if wanted.passes(entry)]
            case Opening():
                found = [self.opening] if wanted.passes(self.opening) else []
            case _:
                return None
        return tuple(arrange(found, query))

    def keep(self, query: TapeQuery, found: tuple[TapeEntry, ...]) -> None:
        """Keeps what the store has found as of `head`, where later entries can be told to change it or not."""
        if len(self.answers) < ANSWERS and len(found) <= ANSWER and _lasting(query):
            self.answers[query] = found

    def extended(self, entries: Sequence[TapeEntry]) -> LiveWindow | None:
        """The window after these appends; None where they open another one, leave a gap, or grow it too long."""
        if not entries:
            return self
        if entries[0].id != self.head + 1 or EntryFinder(entries).opening() is not None:
            return None
        for query in list(self.answers):
            self._bring_up_to_date(query, entries)
        self.entries += entries
        self.head = entries[-1].id
        return self if len(self.entries) <= LIMIT else None

    def _bring_up_to_date(self, query: TapeQuery, entries: Sequence[TapeEntry]) -> None:
        """Of a zone everything may change with one entry; elsewhere the entry joins the others."""
        wanted = matcher(query)
        fresh = [entry for entry in entries if wanted.passes(entry)]
        if not fresh:
            return
        before = self.answers.pop(query)
        if query.part == Whole() and (query.newest or query.limit is None):
            after = tuple(arrange([*(before[::-1] if query.newest else before), *fresh], query))
            self.keep(query, after)


def _lasting(query: TapeQuery) -> bool:
    """Whether the query asks for entries by kind and name alone: then what it finds changes with such entries only."""
    if not (query.kinds and query.names) or query.text or query.keys or query.since or query.until:
        return False
    if isinstance(query.part, Zone):
        return Kind.ANCHOR in query.kinds and {query.part.open, query.part.seal} <= set(query.names)
    return query.part == Whole()
