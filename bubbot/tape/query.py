"""Queries and their meaning: `evaluate` is the one definition that every store and every fork follows."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, tzinfo
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from bubbot.errors import AnchorNotFound
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, sender_id, sender_name
from bubbot.tape.ranking import order_scores, score_entries
from bubbot.tape.spelling import WordFilter, find_alike, find_stems
from bubbot.tape.words import fold_text, holds_phrase, is_run, stem, strip_accents, tokens

T = TypeVar("T")
Span: TypeAlias = tuple[int, int | None]
"""Inclusive ids, first and last; None: up to the head."""


@dataclass(frozen=True, slots=True)
class WholeTape:
    """Every entry."""


class OpeningAnchor(Struct, frozen=True):
    """Only the anchor that opens the window; see `Window`."""

    fork: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The entries that the newest window-opening anchor recalls, then those after the anchor, without it.

    Attributes:
        fork: the fork of a sub-task; empty: the window of the tape or, on a sub-task's fork, its own.
    """

    fork: str = ""


@dataclass(frozen=True, slots=True)
class AfterAnchor:
    """The entries after the newest anchor of this name."""

    anchor: str


@dataclass(frozen=True, slots=True)
class BetweenAnchors:
    """The entries from the newest anchor `first` to the first `second` after it, without both."""

    first: str
    second: str


class ZoneSlice(Struct, frozen=True):
    """The newest sealed run: from the newest `seal` back to the newest `open` before it, both included."""

    open: str
    seal: str


class NewestAnchors(Struct, frozen=True):
    """The newest anchor of each name that begins with `prefix`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class IdRanges:
    """These id ranges."""

    spans: tuple[Span, ...]


class IndexProposals(Struct, frozen=True):
    """The entries that a search index proposes as holding the words of `text` in other spellings.

    The caller must check them. Without an index it is empty.
    """

    text: str


class Ranked(Struct, frozen=True):
    """The entries that share words with `text`, best first; the words of most entries bring none of them, but order them.

    A store with an index ranks by the words of all its tapes, and only so many of the entries that share a word.
    """

    text: str


class NotIndexed(Struct, frozen=True):
    """The entries that no search index covers yet: without an index, all."""


Slice: TypeAlias = (
    WholeTape
    | OpeningAnchor
    | Window
    | AfterAnchor
    | BetweenAnchors
    | ZoneSlice
    | NewestAnchors
    | IdRanges
    | IndexProposals
    | Ranked
    | NotIndexed
)


@dataclass(frozen=True, slots=True)
class TapeQuery:
    """A selection of entries of one tape, and their order.

    `part` selects a slice, all filters together choose within it, then the order applies, then `limit`.

    Attributes:
        part: the slice of the tape; see `missing`.
        kinds: any of these.
        names: an anchor or event must have one of these names; other kinds pass.
        keys: any of these.
        since: an aware datetime, included; undated entries do not match.
        until: an aware datetime, included; undated entries do not match.
        text: an exact substring, after NFKC and casefold, of the texts of payload and meta, one per line.
        searchable_text: the same within `TapeEntry.searchable_text`; a search index covers it, as the following ones.
        phrase_text: the same, and not only as a part of longer words; accents make no difference.
        words_text: all its words, in any order and with any ending (`stem`).
        similar_text: all its words, spelling mistakes allowed (`find_misspelt`).
        sender: a word of the name of the person who wrote the entry, or the whole name, or the id on the platform.
        newest: newest first.
        limit: entries at most; None for all.
        missing: if the anchor of `part` is missing, raise `AnchorNotFound` or find nothing.
        as_of: answer as if this id were the newest (erased content stays erased); None: as the tape is now.
    """

    tape: str
    part: Slice = field(default=WholeTape(), hash=False)  # hashing it takes as long as the other fields together
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    searchable_text: str = ""
    phrase_text: str = ""
    words_text: str = ""
    similar_text: str = ""
    sender: str = ""
    newest: bool = False
    limit: int | None = None
    missing: Literal["error", "empty"] = "error"
    as_of: int | None = None

    @property
    def reads_texts(self) -> bool:
        """True if a filter looks at texts."""
        return bool(
            self.text or self.searchable_text or self.phrase_text or self.words_text or self.similar_text or self.sender
        )


class AnchorFinder(Protocol):
    """A store's search for anchors, as slices need it."""

    async def opening_anchor(self, fork: str = "") -> TapeEntry | None:
        """Return the newest anchor that opens the window of the tape, or that of a sub-task."""
        ...

    async def newest_anchor(self, name: str, before: int | None = None) -> TapeEntry | None:
        """Return the newest anchor of this name, below id `before` if given."""
        ...

    async def first_anchor(self, name: str, after: int) -> TapeEntry | None:
        """Return the oldest anchor of this name above id `after`."""
        ...

    async def newest_anchor_ids(self, prefix: str, wanted: int | None = None) -> Sequence[int]:
        """Return the id of the newest anchor of each name that begins with `prefix`, in any order.

        It may omit all but the `wanted` newest ones.
        """
        ...


async def resolve(query: TapeQuery, find: AnchorFinder) -> tuple[Span, ...]:
    """Resolve the query's part to ascending, disjoint id ranges up to `as_of`. Raise `AnchorNotFound`.

    `find` must look only at entries up to `as_of`.
    """
    if isinstance(query.part, IndexProposals):  # without an index
        return ()
    if isinstance(query.part, NotIndexed | Ranked):
        return cut_spans(((1, None),), query.as_of)
    try:
        return cut_spans(await _spans(query, find), query.as_of)
    except AnchorNotFound:
        if query.missing == "empty":
            return ()
        raise


async def _spans(query: TapeQuery, find: AnchorFinder) -> tuple[Span, ...]:
    def require(anchor: TapeEntry | None, name: str, where: str = "") -> TapeEntry:
        if anchor is None:
            raise AnchorNotFound(f"the tape {query.tape} has no anchor {name}{where}; ,anchors lists those it has")
        return anchor

    match query.part:
        case WholeTape():
            return ((1, None),)
        case IdRanges(spans):
            return union(spans)
        case OpeningAnchor(fork):
            opening = require(await find.opening_anchor(fork), "that opens a window")
            return ((opening.id, opening.id),)
        case Window(fork):
            opening = require(await find.opening_anchor(fork), "that opens a window")
            return union([*recalled_ranges(opening), (opening.id + 1, None)])
        case AfterAnchor(name):
            return ((require(await find.newest_anchor(name), name).id + 1, None),)
        case BetweenAnchors(first, second):
            start = require(await find.newest_anchor(first), first)
            end = require(await find.first_anchor(second, start.id), second, f" after {first} (entry {start.id})")
            return ((start.id + 1, end.id - 1),)
        case ZoneSlice(open_name, seal_name):
            seal = require(await find.newest_anchor(seal_name), seal_name)
            start = require(
                await find.newest_anchor(open_name, seal.id), open_name, f" before {seal_name} (entry {seal.id})"
            )
            return ((start.id, seal.id),)
        case NewestAnchors(prefix):
            # A filter may reject the newest ones.
            is_plain = query == TapeQuery(query.tape, query.part, newest=True, limit=query.limit, as_of=query.as_of)
            wanted = query.limit if is_plain else None
            return union([(entry_id, entry_id) for entry_id in await find.newest_anchor_ids(prefix, wanted)])
        case _:
            raise TypeError(f"{type(query.part).__name__} has no ranges of its own")


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge ranges into ascending ones that do not touch."""
    merged: list[Span] = []
    for low, high in sorted(((max(low, 1), high) for low, high in spans), key=lambda span: span[0]):
        if high is not None and high < low:
            continue
        last = merged[-1] if merged else None
        if last is not None and (last[1] is None or low <= last[1] + 1):
            merged[-1] = (last[0], None if last[1] is None or high is None else max(last[1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def cut_spans(spans: Iterable[Span], head: int | None) -> tuple[Span, ...]:
    """Cut ranges to the ids up to `head`; None: all."""
    if head is None:
        return tuple(spans)
    return tuple((low, head if high is None else min(high, head)) for low, high in spans if low <= head)


def intersect_spans(spans: Iterable[Span], within: Span) -> tuple[Span, ...]:
    """Cut ranges to the ids of another one."""
    first, last = within
    return tuple((max(low, first), high) for low, high in cut_spans(spans, last) if high is None or high >= first)


def select(entries: Sequence[TapeEntry], query: TapeQuery) -> list[TapeEntry]:
    """Return the entries that all filters of a query accept, in the given order."""
    kinds, names = query.kinds, query.names
    if query.keys or query.since or query.until or query.reads_texts:
        matcher = build_matcher(query)
        return [entry for entry in entries if matcher.matches(entry)]
    return [
        entry
        for entry in entries
        if (not kinds or entry.kind in kinds) and (not names or entry.kind not in _NAMED or entry.name in names)
    ]


def evaluate(entries: Sequence[TapeEntry], query: TapeQuery) -> list[TapeEntry]:
    """Return what the query finds; `entries` are all entries of its tape by ascending id."""
    if query.as_of is not None:
        entries = entries[: bisect_right(entries, query.as_of, key=_ID)]
    spans = _complete(resolve(query, _FinderInMemory(EntryFinder(entries))))
    return arrange(select(_cut_out(entries, spans), query), query)


def _complete(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a finder of anchors in memory waited for something")


def _cut_out(entries: Sequence[TapeEntry], spans: Iterable[Span]) -> list[TapeEntry]:
    """Return the entries whose ids lie in the ranges; entries and disjoint ranges ascend."""
    inside: list[TapeEntry] = []
    for low, high in spans:
        end = None if high is None else bisect_right(entries, high, key=_ID)
        inside += entries[bisect_left(entries, low, key=_ID) : end]
    return inside


def arrange(entries: list[TapeEntry], query: TapeQuery) -> list[TapeEntry]:
    """Put ascending entries into the query's order and cut them to its limit."""
    if isinstance(query.part, Ranked):
        by_id = {entry.id: entry for entry in entries}
        ordered = [by_id[entry_id] for entry_id in order_scores(score_entries(query.part.text, entries))]
    else:
        ordered = entries[::-1] if query.newest else entries
    return ordered if query.limit is None else ordered[: max(query.limit, 0)]


def is_inside(entry_id: int, spans: Iterable[Span]) -> bool:
    return any(low <= entry_id and (high is None or entry_id <= high) for low, high in spans)


_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_NAMED = (Kind.ANCHOR, Kind.EVENT)
_ID = attrgetter("id")


class Matcher(Struct, frozen=True):
    """The filters of a query, ready to check entry by entry.

    Attributes:
        needle: the folded `text`.
        part: the folded `searchable_text`.
        phrase: the folded `phrase_text`, without accents.
        words: for `words_text` and `similar_text`.
    """

    query: TapeQuery
    needle: str
    part: str = ""
    phrase: str = ""
    words: tuple[WordFilter, ...] = ()

    @property
    def reads_texts(self) -> bool:
        """True if a filter looks at texts."""
        return self.query.reads_texts

    @property
    def raw_needles(self) -> tuple[str, ...]:
        """The needles that JSON does not escape: without quotes, backslashes and control characters."""
        needles = (self.needle, self.phrase, self.part, self._shared_beginning)
        return tuple(needle for needle in needles if needle and not _ESCAPED.search(needle))

    @property
    def _shared_beginning(self) -> str:
        """The letters with which every text begins a word that has all of `words_text`; empty if they are too few."""
        stems = [stem(word) for word in tokens(fold_text(self.query.words_text)) if not is_run(word)]
        return max((each[:-1] for each in stems if each.isascii()), key=len, default="")

    def build_precheck(self) -> Callable[[bytes | None, bytes | None], bool]:
        """Build a check that returns false if the JSON texts of payload and meta, in UTF-8, cannot match.

        It costs much less than decoding them. If the query allows other spellings, it also accepts the payloads of many
        entries joined as lines.
        """
        needles, filters = self.raw_needles, self.words

        def may_match(payload: bytes | None, meta: bytes | None) -> bool:
            if payload is None or meta is None:
                return True
            for needle in needles:
                if not (_may_hold(payload, needle) or _may_hold(meta, needle)):
                    return False
            return all(_may_have(payload + b" " + meta, words) for words in filters)

        return may_match

    def matches(self, entry: TapeEntry) -> bool:
        """Return true if all filters accept the entry."""
        query = self.query
        if query.kinds and entry.kind not in query.kinds:
            return False
        if query.names and entry.kind in _NAMED and entry.name not in query.names:
            return False
        if query.keys and entry.key not in query.keys:
            return False
        if query.since is not None or query.until is not None:
            at = parse_moment(entry.date)
            if at is None or (query.since and at < query.since) or (query.until and at > query.until):
                return False
        if self.needle and self.needle not in fold_text(entry.all_text()):
            return False
        if query.sender and not is_sent_by(entry, query.sender):
            return False
        if not (self.part or self.phrase or self.words):
            return True
        text = fold_text(entry.searchable_text())
        if self.part not in text or (self.phrase and not holds_phrase(strip_accents(text), self.phrase)):
            return False
        return all(words.matches([text]) for words in self.words)


def is_sent_by(entry: TapeEntry, person: str) -> bool:
    """Return true if the person's name has the words, or its id is this one; accents and an `@` before it do not count."""
    name, wanted = (
        strip_accents(fold_text(text)) for text in ("".join(sender_name(entry.meta)), person.strip().removeprefix("@"))
    )
    return holds_phrase(name, wanted) or sender_id(entry.meta) == person.strip()


_PLAIN_ESCAPES = (b"\\\\", b"\\n", b'\\"', b"\\t", b"\\r")


def _outside_escapes(stored: bytes) -> str | None:
    """Replace the escapes in a JSON text that stand for signs outside of words; None if it has other escapes.

    Backslashes come first: a letter follows two of them.
    """
    if b"\\" in stored:
        for escape in _PLAIN_ESCAPES:
            stored = stored.replace(escape, b" ")
        if b"\\" in stored:
            return None
    return stored.decode("utf-8", "surrogateescape")


def _may_hold(stored: bytes, needle: str) -> bool:
    """Return false if the JSON text cannot hold the folded needle, in which JSON escapes nothing, with accents or without."""
    text = _outside_escapes(stored)
    if text is None:
        return True
    if text.isascii():
        return needle in text.lower()
    folded = fold_text(text)
    return needle in folded or needle in strip_accents(folded)


def _may_have(stored: bytes, words: WordFilter) -> bool:
    """Return false if the lines of JSON together cannot hold the words, to which quotes and escapes never belong."""
    texts = [_outside_escapes(line) for line in stored.split(b"\n")]
    known = [text for text in texts if text is not None]
    return len(known) < len(texts) or words.matches(
        text.lower() if text.isascii() else fold_text(text) for text in known
    )


def build_matcher(query: TapeQuery) -> Matcher:
    """Build the query's filters and normalise its texts once."""
    words: list[WordFilter] = []
    if query.words_text:
        words.append(WordFilter(fold_text(query.words_text), find_stems))
    if query.similar_text:
        words.append(WordFilter(fold_text(query.similar_text), find_alike))
    needle, part, phrase = (text and fold_text(text) for text in (query.text, query.searchable_text, query.phrase_text))
    return Matcher(query, needle, part, strip_accents(phrase), tuple(words))


class EntryFinder(Struct, frozen=True):
    """Finds anchors in a list of entries by ascending id."""

    entries: Sequence[TapeEntry]

    def opening_anchor(self, fork: str = "") -> TapeEntry | None:
        """Return the newest anchor that opens the window. An erased one does not: its content is gone."""
        for entry in reversed(self.entries):
            if entry.kind == Kind.ANCHOR and entry.opens_window_of(fork):
                return entry
        return None

    def newest_anchor(self, name: str, before: int | None = None) -> TapeEntry | None:
        for entry in reversed(self.entries):
            if entry.kind == Kind.ANCHOR and entry.name == name and (before is None or entry.id < before):
                return entry
        return None

    def first_anchor(self, name: str, after: int) -> TapeEntry | None:
        return next(
            (entry for entry in self.entries if entry.kind == Kind.ANCHOR and entry.name == name and entry.id > after),
            None,
        )

    def newest_anchors(self, prefix: str) -> dict[str, int]:
        """Return the id of the newest anchor of each name that begins with `prefix`, by name."""
        return {
            entry.name: entry.id
            for entry in self.entries
            if entry.kind == Kind.ANCHOR and entry.name is not None and entry.name.startswith(prefix)
        }


class _FinderInMemory(Struct, frozen=True):
    """An `AnchorFinder` that never waits."""

    find: EntryFinder

    async def opening_anchor(self, fork: str = "") -> TapeEntry | None:
        return self.find.opening_anchor(fork)

    async def newest_anchor(self, name: str, before: int | None = None) -> TapeEntry | None:
        return self.find.newest_anchor(name, before)

    async def first_anchor(self, name: str, after: int) -> TapeEntry | None:
        return self.find.first_anchor(name, after)

    async def newest_anchor_ids(self, prefix: str, wanted: int | None = None) -> Sequence[int]:  # noqa: ARG002 - all of them
        return [*self.find.newest_anchors(prefix).values()]


def parse_moment(text: str) -> datetime | None:
    """Parse an ISO 8601 text (without an offset: UTC); None if it is not one."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def is_later(date: str, until: str) -> bool:
    """Return true if both are times, and the first is the later one."""
    moment, limit = parse_moment(date), parse_moment(until)
    return moment is not None and limit is not None and moment > limit


def date_bounds(start: str | None, end: str | None, zone: tzinfo = UTC) -> tuple[datetime | None, datetime | None]:
    """Parse two dates or times to instants, both included; a date without a time means its whole day.

    Raises:
        ValueError: names the text that is not a date.
    """

    def parse(text: str, *, last: bool) -> datetime:
        try:
            if len(text) == 10:
                # fold: if the clocks are set back at midnight, the last hour of the day comes twice
                return datetime.combine(date.fromisoformat(text), time.max.replace(fold=1) if last else time(), zone)
            parsed = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a date such as 2026-11-21 or 2026-11-21T18:00") from None
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)

    return (parse(start, last=False) if start else None, parse(end, last=True) if end else None)


def without_limit(query: TapeQuery, part: Slice) -> TapeQuery:
    """Return the query with the same filters over another part, ascending and without a limit."""
    return replace(query, part=part, newest=False, limit=None)


def format_date(text: str | None, zone: tzinfo, *, undated: str = "undated") -> str:
    """Format date and minute in a time zone; return text that is not a date unchanged, and `undated` for none."""
    at = parse_moment(text or "")
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M") if at else (text or undated)
