"""The decoded window of a live tape, cached in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import (
    EntryFinder,
    IdRanges,
    OpeningAnchor,
    Slice,
    TapeQuery,
    WholeTape,
    Window,
    ZoneSlice,
    arrange,
    select,
)

WINDOW_CACHE_ENTRIES = 20_000
"""Entries cached at most: the newest of a longer window."""
MAX_ANSWERS = 16
"""Answers from beyond the window to cache at most; a turn repeats the same few queries."""
MAX_ANSWER_ENTRIES = 500
"""Entries of a cached answer at most."""
_GROWING = (Window, IdRanges)
"""The parts to which any append may belong."""


@dataclass
class LiveWindow:
    """The decoded window of a tape whose newest id is `head`.

    History is append-only and one process writes, so only appends change it, and they extend it. Decoding a window
    again for each step costs more than everything else in a turn.

    Attributes:
        opening: the anchor that opens the window.
        entries: every entry of the window, recalled ones included; only the newest if `is_partial`.
        is_partial: the window is too long to be cached whole: queries about all of it go to the store.
    """

    opening: TapeEntry
    entries: list[TapeEntry]
    head: int
    is_partial: bool = False
    _answers: dict[TapeQuery, tuple[TapeEntry, ...]] = field(default_factory=dict)
    _packed: int = 0

    def __post_init__(self) -> None:
        self._pack()

    def _pack(self) -> None:
        """Pack entries that are not packed yet, except the last append: the next turn reads their payloads."""
        for entry in reversed(self.entries):
            if entry.id <= self._packed:
                break
            entry.pack()
        self._packed = self.head

    @property
    def cached_entries(self) -> int:
        others = [answer for query, answer in self._answers.items() if type(query.part) not in _GROWING]
        return len(self.entries) + sum(map(len, others))

    def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """Answer the query; None if the store must."""
        cached = self._answers.get(query)
        if cached is not None:
            return cached
        entries = self._entries_of(query.part)
        if entries is None:
            return self._answer_newest(query)
        result = tuple(arrange(select(entries, query), query))
        self.cache_answer(query, result)
        return result

    def _entries_of(self, part: Slice) -> Sequence[TapeEntry] | None:
        """Return the entries of a part that is cached whole; None for others."""
        match part:
            case OpeningAnchor(""):
                return [self.opening]
            case Window("") if not self.is_partial:
                return self.entries
            case IdRanges(((low, None),)) if self._has_all_from(low):
                return self.entries[bisect_left(self.entries, low, key=lambda entry: entry.id) :]
            case IdRanges(spans) if all(self._has_all_from(low) for low, _ in spans):
                return [
                    entry
                    for entry in self.entries
                    if any(low <= entry.id and (high is None or entry.id <= high) for low, high in spans)
                ]
        return None

    def _answer_newest(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """Answer with the newest entries of a part that reaches the head, if enough of them are cached."""
        match query.part:
            case Window("") | IdRanges(((_, None),)) if query.newest and query.limit is not None:
                found = arrange(select(self.entries, query), query)
                # Before the opening anchor not all are cached.
                is_whole = isinstance(query.part, Window) or not found or found[-1].id > self.opening.id
                return tuple(found) if len(found) == query.limit and is_whole else None
        return None

    def _has_all_from(self, low: int) -> bool:
        """Return true if all entries of the tape from this id on are cached."""
        return low > self.opening.id and (not self.is_partial or low >= self.entries[0].id)

    def cache_answer(self, query: TapeQuery, answer: tuple[TapeEntry, ...]) -> None:
        """Cache an answer if it can be updated by later appends.

        These are the newest entries of a name, a sealed zone, the window with its anchor, and its end from some entry
        on.
        """
        part = query.part
        if not _is_cacheable(query):
            return
        if isinstance(part, IdRanges):
            if self._entries_of(part) is None or part.spans[0][0] > self.head + 1:  # not all appends would belong to it
                return
            # Queries from an earlier entry on do not come again.
            self._answers = {
                other: kept for other, kept in self._answers.items() if not isinstance(other.part, IdRanges)
            }
        is_short = len(answer) <= MAX_ANSWER_ENTRIES or type(part) in _GROWING
        newest = max((entry.id for entry in answer), default=0)
        if len(self._answers) < MAX_ANSWERS and is_short and newest <= self.head:
            self._answers[query] = answer

    def extend(self, entries: Sequence[TapeEntry]) -> LiveWindow | None:
        """Extend the window by these appends. If one opens another window, keep what its anchor recalls and what
        follows.

        Return None if the appends leave a gap, or open a window that recalls entries that are not cached.
        """
        if not entries:
            return self
        # Some entries of a rebased delta may have been on the tape already.
        if (entries[0].id, entries[-1].id) != (self.head + 1, self.head + len(entries)):
            return None
        opening = EntryFinder(entries).opening_anchor()
        recalled = () if opening is None else recalled_ranges(opening)
        if recalled and (self.is_partial or min(low for low, _ in recalled) <= self.opening.id):
            return None
        for query, answer in list(self._answers.items()):
            updated = _updated_answer(query, answer, entries)
            if updated is None:
                del self._answers[query]
            elif updated is not answer:
                self._answers[query] = updated
        self._pack()
        self.entries += entries
        self.head = entries[-1].id
        if opening is not None:
            self._reopen(opening, recalled)
        if len(self.entries) > WINDOW_CACHE_ENTRIES:
            del self.entries[: len(self.entries) - WINDOW_CACHE_ENTRIES // 2]
            self.is_partial = True
            self._forget_answers(_GROWING)
        return self

    def _reopen(self, opening: TapeEntry, recalled: Sequence[tuple[int, int]]) -> None:
        """Continue as the window of an anchor among the entries, with the entries that it recalls."""
        self.opening, self.is_partial = opening, False
        self.entries = [
            entry
            for entry in self.entries
            if entry.id > opening.id or any(low <= entry.id <= high for low, high in recalled)
        ]
        self._forget_answers((*_GROWING, OpeningAnchor))

    def _forget_answers(self, parts: tuple[type[Slice], ...]) -> None:
        self._answers = {query: answer for query, answer in self._answers.items() if type(query.part) not in parts}


def _is_cacheable(query: TapeQuery) -> bool:
    """Return true if `_updated_answer` can update the answer, and similar queries are few."""
    if query.reads_texts or query.keys or query.since or query.until:
        return False
    match query.part:
        case Window(fork) | OpeningAnchor(fork) if fork:
            return False
        case Window() | IdRanges(((_, None),)):
            return not query.newest and query.limit is None
        case WholeTape():
            return (
                query.newest and bool(query.names) and query.limit is not None and 0 < query.limit <= MAX_ANSWER_ENTRIES
            )
    return isinstance(query.part, ZoneSlice | OpeningAnchor)


def _updated_answer(
    query: TapeQuery, answer: tuple[TapeEntry, ...], entries: Sequence[TapeEntry]
) -> tuple[TapeEntry, ...] | None:
    """Return the answer after these appends; None if the store must answer again."""
    if type(query.part) is OpeningAnchor:
        return answer  # an append that opens another window replaces this one
    if type(query.part) is ZoneSlice:
        seals = query.part.seal
        return None if EntryFinder(entries).newest_anchor(seals) else answer
    newer = tuple(select(entries, query))
    if not newer:
        return answer
    return answer + newer if type(query.part) in _GROWING else (newer[::-1] + answer)[: query.limit]
