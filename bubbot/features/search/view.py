"""Search over a whole tape: whole words first, then parts of words, then near misses; the newest first among each."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Any

from msgspec import Struct

from bubbot.ports.agents import THE_BOT, Agent, writer_of
from bubbot.runtime.context.selectors import format_agent
from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL
from bubbot.tape.corrections import Corrections, hides
from bubbot.tape.entry import Kind, TapeEntry, list_searchable, sender_id, sender_name
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import (
    IdRanges,
    IndexProposals,
    NotIndexed,
    Span,
    TapeQuery,
    WholeTape,
    ZoneSlice,
    build_matcher,
)
from bubbot.tape.spelling import WordFilter, find_misspelt, find_stems, share_room
from bubbot.tape.view import QueryAnswers
from bubbot.tape.words import fold_text, holds_phrase, stem, strip_accents, tokens

SEARCH_TOOL = "tape.search"
"""The search tool, whose earlier answers are not hits; a provider writes its name with an underscore."""

SEARCHED_KINDS = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ANCHOR, Kind.EVENT)
"""The kinds that are searched by default."""

_ZONE_MARKS = frozenset({MEMORY_OPEN, MEMORY_SEAL})
"""The anchors around a memory: nobody said their names."""

SNIPPET_CHARS = 160
MIN_PART_LETTERS = 3
"""The fewest letters that are looked for within words: two are a part of every fifth one."""
_LEAD = 60
_NAMES = (SEARCH_TOOL, SEARCH_TOOL.replace(".", "_"))
ECHOES = frozenset(
    {
        "branch.ask",
        "branch.choose",
        "branch.list",
        SEARCH_TOOL,
        "tape.anchors",
        "tape.around",
        "tape.read",
        "chat.read",
        "memory.recall",
        "memory.show",
        "session.context",
        "session.explain",
        "session.help",
        "session.why",
        "topic.list",
    }
)
"""Commands whose output repeats other parts of the tape."""
_CALLS_BEFORE = ((1, 8), (9, 24))
"""How many entries before a result its calls are looked for, first and then: they are neighbours, except for entries that
came in between."""
_SPARE = 6  # entries read at first beyond those wanted, because some may be left out


class Match(StrEnum):
    """How an entry holds what is looked for, the best first: as typed, all its words, within words, or misspelt."""

    PHRASE = "phrase"
    WORDS = "words"
    PART = "part"
    SPELLING = "spelling"


_ORDER = {match: number for number, match in enumerate(Match)}


class SearchHit(Struct, frozen=True):
    """An entry that matches.

    Attributes:
        snippet: one line around the match, without the name of who wrote it.
        exact: the text is there as it was typed.
        superseded_by: the correction's id.
        author: who wrote it: name and id as shown, or the name of an agent; empty if neither did.
        match: how it matches.
    """

    id: int
    kind: str
    date: str
    name: str | None
    snippet: str
    exact: bool
    superseded_by: int | None = None
    author: str = ""
    match: Match = Match.PHRASE

    @property
    def order(self) -> int:
        """The number of how it matches, the best first."""
        return _ORDER[self.match]


class SearchResult(Struct, frozen=True):
    """The hits, and the numbers of matches that were left out.

    Attributes:
        hits: by `Match`, the best first, and then the newest first.
        exact: the number of exact hits.
        own_output: left out: earlier answers of the search tool and of commands that repeat the tape.
        hidden: left out: entries that a person deleted.
        old_memory: left out: replaced versions of the memory zone.
        incomplete: so much was left out that unread older matches may exist; a narrower search (kinds, dates, a person)
            reaches them.
        spelling_from: entries before this id were not compared by spelling; 0 if none remain.
    """

    hits: tuple[SearchHit, ...] = ()
    exact: int = 0
    own_output: int = 0
    hidden: int = 0
    old_memory: int = 0
    incomplete: bool = False
    spelling_from: int = 0


@dataclass(frozen=True, slots=True)
class SearchView:
    """A search for `text` on the whole tape, in any script, after NFKC and casefold.

    The newest entries that have the text as it is, between words, come first; then those with all its words in any order
    and with any ending; then those with the text within longer words; then, if all that is less than `limit`, those with
    all words misspelt: one edit from 4 letters on and two if 8 were meant, accents aside; a run of 4 or more Chinese,
    Japanese or Korean characters may have one wrong. Spelling is compared with the proposals of a search index, and with
    the entries that it does not cover yet: the newest `typo_newest` of them, or of all without an index.

    Every step reads a few entries more than `limit`, the newest first, and many more only if too few of those are hits:
    what is not shown is not worth reading.

    Attributes:
        sender: see `TapeQuery.sender`.
        spans: only entries with these ids; None for all.
        excluded_ids: what is no hit, such as the question itself.
        agent: who searches; what it may not read is no hit.
    """

    text: str
    kinds: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20
    typo_newest: int = 2000
    excluded_ids: frozenset[int] = frozenset()
    sender: str = ""
    spans: tuple[Span, ...] | None = None
    agent: Agent = THE_BOT

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, SearchResult]:
        """Search, one tier after the other until there are enough hits; see `StepwiseView.steps`."""
        text, needle = self.text.strip(), fold_text(self.text.strip()).strip()
        if not needle or self.limit <= 0:
            return SearchResult()
        base = replace(self._base(tape), newest=True)
        phrase = replace(base, phrase_text=text, limit=self._few)
        corrections, zone, phrases = yield (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(CORRECTION,)),
            TapeQuery(tape, ZoneSlice(MEMORY_OPEN, MEMORY_SEAL), missing="empty"),
            phrase,
        )
        found = _Hits(needle, Corrections.of(corrections), zone[0].id if zone else 0)
        cut = yield from self._complete(tape, found, phrase, phrases, Match.PHRASE)
        # Each further tier has what the one before it has, too.
        if tokens(needle) and found.count(Match.PHRASE) < self.limit:
            words = replace(base, words_text=text, limit=self._few + len(found.seen))
            (entries,) = yield (words,)
            cut = yield from self._complete(tape, found, words, entries, Match.WORDS)
        if len(needle) >= MIN_PART_LETTERS and found.count(Match.WORDS) < self.limit:
            part = replace(base, searchable_text=text, limit=self._few + len(found.seen))
            (entries,) = yield (part,)
            cut = max(cut, (yield from self._complete(tape, found, part, entries, Match.PART)))
        compared = 0
        if found.count(Match.PART) < self.limit:
            yield from self._sift(tape, found, [zone])  # it may have been written long ago, and count today
            compared = yield from self._compare(tape, found, base)
        hits = found.best(self.limit)
        return SearchResult(
            tuple(hits),
            exact=sum(hit.exact for hit in hits),
            own_output=len(found.own_output),
            hidden=len(found.hidden),
            old_memory=len(found.old_memory),
            incomplete=cut > 0 and (len(hits) < self.limit or min(hit.id for hit in hits) < cut),
            spelling_from=compared,
        )

    @property
    def max_read(self) -> int:
        """The number of entries read of a tier at most, since some of them may be left out."""
        return self.limit * 4 + 50

    @property
    def max_proposals(self) -> int:
        """The number of the index's proposals to read, closest first."""
        return self.limit * 3 + 20

    @property
    def _few(self) -> int:
        """The number to read at first, since most of it are hits."""
        return self.limit + _SPARE

    def _base(self, tape: str) -> TapeQuery:
        return TapeQuery(
            tape,
            WholeTape() if self.spans is None else IdRanges(self.spans),
            kinds=tuple(self.kinds) or SEARCHED_KINDS,
            since=self.since,
            until=self.until,
            sender=self.sender,
        )

    def _complete(
        self, tape: str, found: _Hits, query: TapeQuery, entries: Sequence[TapeEntry], match: Match
    ) -> Generator[tuple[TapeQuery, ...], QueryAnswers, int]:
        """Take the newest entries of a tier, and many more if too few of them are hits.

        Return the id of the oldest one if there may be more, else 0.
        """
        size = query.limit or 0
        yield from self._sift(tape, found, [entries])
        if len(entries) < size or found.count(match) >= self.limit:
            return 0
        size += self.max_read - self._few
        (entries,) = yield (replace(query, limit=size),)
        yield from self._sift(tape, found, [entries])
        return entries[-1].id if len(entries) == size else 0

    def _compare(self, tape: str, found: _Hits, base: TapeQuery) -> Generator[tuple[TapeQuery, ...], QueryAnswers, int]:
        """Take entries with other spellings; return the first id that was compared if older ones were not, else 0."""
        text = self.text.strip()
        unindexed, newest = yield (TapeQuery(tape, NotIndexed(), limit=1), TapeQuery(tape, newest=True, limit=1))
        compared = 0
        queries = [replace(base, part=IndexProposals(text), limit=self.max_proposals)]
        if unindexed:
            start = max(unindexed[0].id, newest[0].id - self.typo_newest + 1)
            compared = start if start > unindexed[0].id else 0
            queries.append(replace(base, part=IdRanges(((start, None),)), similar_text=text))
        answers = yield tuple(queries)
        yield from self._sift(tape, found, answers)
        return compared

    def _sift(
        self, tape: str, found: _Hits, answers: QueryAnswers
    ) -> Generator[tuple[TapeQuery, ...], QueryAnswers, None]:
        """Sort the entries in, those of results with their calls."""
        accepts = build_matcher(self._base(""))
        entries = {
            entry.id: entry
            for answer in answers
            for entry in answer
            if entry.id not in found.seen and self._is_candidate(entry) and accepts.matches(entry)
        }
        pool = sorted(entries.values(), key=_ID, reverse=True)
        calls, unanswered = [*pool], [entry for entry in pool if entry.kind == Kind.TOOL_RESULT]
        for near, far in _CALLS_BEFORE:
            spans = tuple((max(1, entry.id - far), entry.id - near) for entry in unanswered if entry.id > near)
            if spans:
                (earlier,) = yield (TapeQuery(tape, IdRanges(spans), kinds=(Kind.TOOL_CALL,)),)
                calls += earlier
                index = _ToolCallIndex.of(calls)
                unanswered = [entry for entry in unanswered if not index.has_all_calls(entry, entry.id - far)]
        found.add(pool, _ToolCallIndex.of(calls))

    def _is_candidate(self, entry: TapeEntry) -> bool:
        is_content = entry.name not in _ZONE_MARKS and not (entry.name == CORRECTION and hides(entry))
        is_inside = self.spans is None or any(
            low <= entry.id and (high is None or entry.id <= high) for low, high in self.spans
        )
        return is_content and is_inside and entry.id not in self.excluded_ids and self.agent.may_read(entry)


_ID = attrgetter("id")


def _data(entry: TapeEntry) -> Mapping[str, Any]:
    data = entry.payload.get("data")
    return data if isinstance(data, Mapping) else {}


class _ToolCallIndex(Struct, frozen=True):
    """Tool calls by call id: entry id, turn, and true for a search. Ids may be used again later."""

    calls: Mapping[str, Sequence[tuple[int, object, bool]]]

    @classmethod
    def of(cls, entries: Iterable[TapeEntry]) -> _ToolCallIndex:
        calls: dict[str, dict[int, tuple[int, object, bool]]] = {}
        for entry in entries:
            if entry.kind == Kind.TOOL_CALL:
                for call in _objects(entry, "calls"):
                    line = (entry.id, entry.meta.get("turn"), _calls_search(call))
                    calls.setdefault(str(call.get("id")), {})[entry.id] = line
        return cls({name: sorted(lines.values(), key=lambda line: line[0]) for name, lines in calls.items()})

    def answers_search(self, entry: TapeEntry, result: Mapping[str, Any]) -> bool:
        """Return true if the result answers a search: the newest call of its id before the entry, in its turn."""
        call = self._call(entry, result)
        return call is not None and call[2] and call[1] == entry.meta.get("turn")

    def has_all_calls(self, entry: TapeEntry, since: int) -> bool:
        """Return true if there is a call for each result of the entry, from this id on."""
        calls = [self._call(entry, result) for result in _objects(entry, "results")]
        return all(call is not None and call[0] >= since for call in calls)

    def _call(self, entry: TapeEntry, result: Mapping[str, Any]) -> tuple[int, object, bool] | None:
        calls = self.calls.get(str(result.get("tool_call_id")), ())
        place = bisect_left(calls, entry.id, key=lambda call: call[0]) - 1
        return calls[place] if place >= 0 else None


def _objects(entry: TapeEntry, key: str) -> list[Mapping[str, Any]]:
    items = entry.payload.get(key)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, tuple) else []


def _calls_search(call: Mapping[str, Any]) -> bool:
    function = call.get("function")
    return isinstance(function, Mapping) and function.get("name") in _NAMES


@dataclass
class _Hits:
    """What a search has read, each entry once: the hits by how they match, the rest, and what is left out, by id.

    Attributes:
        needle: the folded text.
        corrections: what they hide and supersede.
        zone: the id of the newest memory opening.
        exact: the entries that match other than by spelling.
        rest: the texts of the others, which spelling may match.
        own_output: left out: earlier answers of the search tool that hold the text.
        hidden: left out: entries that a person deleted.
        old_memory: left out: replaced versions of the memory zone.
    """

    needle: str
    corrections: Corrections
    zone: int
    exact: dict[int, SearchHit] = field(default_factory=dict)
    rest: dict[int, TapeEntry] = field(default_factory=dict)
    own_output: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    old_memory: set[int] = field(default_factory=set)
    _texts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._words = WordFilter(self.needle, find_stems)

    @property
    def seen(self) -> Mapping[int, object]:
        """The ids of all entries that were added."""
        return self._texts

    def count(self, match: Match) -> int:
        """Count the hits that match so well or better."""
        return sum(hit.order <= _ORDER[match] for hit in self.exact.values())

    def add(self, entries: Iterable[TapeEntry], calls: _ToolCallIndex) -> None:
        """Sort entries in; `calls` has those that their results answer."""
        for entry in entries:
            content, own = _split(entry, calls)
            text = self._texts[entry.id] = unicodedata.normalize("NFKC", content)
            if match := self._match(text.casefold()):
                if hit := self._hit(entry, self.needle, match):
                    self.exact[entry.id] = hit
                continue
            self.rest[entry.id] = entry
            if own and self._match(fold_text(own)):
                self.own_output.add(entry.id)

    def best(self, limit: int) -> list[SearchHit]:
        """Return the hits, best first."""
        hits = sorted(self.exact.values(), key=lambda hit: (hit.order, -hit.id))[:limit]
        return [*hits, *self._by_spelling(limit - len(hits))]

    def _match(self, text: str) -> Match | None:
        if holds_phrase(strip_accents(text), strip_accents(self.needle)):
            return Match.PHRASE
        if self._words.matches([text]):
            return Match.WORDS
        return Match.PART if len(self.needle) >= MIN_PART_LETTERS and self.needle in text else None

    def _by_spelling(self, limit: int) -> list[SearchHit]:
        """Return the entries of the rest that have every word of the text, spelling mistakes allowed, newest first.

        If there are too many, those with the fewest mistakes are chosen, in turns of each word that may be meant, and
        others have some of their room.
        """
        entries = sorted(self.rest.values(), key=_ID, reverse=True) if limit > 0 else []
        matches = find_misspelt(self.needle, {entry.id: self._texts[entry.id].casefold() for entry in entries})
        turns: Counter[str] = Counter()
        levels: defaultdict[float, list[tuple[int, SearchHit]]] = defaultdict(list)
        for entry in entries:
            if (near := matches.get(entry.id)) and (hit := self._hit(entry, near.piece, Match.SPELLING)):
                turns[near.piece] += 1
                levels[near.mistakes].append((turns[near.piece], hit))
        ranked = [sorted(levels[mistakes], key=itemgetter(0)) for mistakes in sorted(levels)]
        return sorted((hit for _, hit in share_room(ranked, limit)), key=_ID, reverse=True)

    def _hit(self, entry: TapeEntry, piece: str, match: Match) -> SearchHit | None:
        if entry.id in self.corrections.hidden:
            self.hidden.add(entry.id)
            return None
        if entry.id < self.zone and entry.kind == Kind.EVENT and (entry.name or "").startswith("memory."):
            self.old_memory.add(entry.id)
            return None
        name = "".join(sender_name(entry.meta))
        text = self._texts[entry.id]  # its last line is the name
        words = text.removesuffix(unicodedata.normalize("NFKC", f"\n{name}")) if name else text
        return SearchHit(
            entry.id,
            entry.kind,
            entry.date,
            entry.name,
            _cut_snippet(words or text, piece, self.needle),
            self.needle in text.casefold(),
            self.corrections.superseded.get(entry.id),
            _author(entry, name),
            match,
        )


def _author(entry: TapeEntry, name: str) -> str:
    """Return the name of a person with the id, since a name proves nothing, or that of an agent; empty if neither wrote it."""
    if entry.kind == Kind.MESSAGE and (writer := writer_of(entry)):
        return format_agent(writer)
    line, number = " ".join(name.split()), sender_id(entry.meta)
    return f"{line} ({number})" if line and number else line


def _split(entry: TapeEntry, calls: _ToolCallIndex) -> tuple[str, str]:
    """Return the entry's own text, and its text that is an earlier answer of the search tool.

    Calls of the search tool are neither.
    """
    content, own = dict(entry.payload), {}
    if entry.kind == Kind.TOOL_CALL:
        content["calls"] = tuple(call for call in _objects(entry, "calls") if not _calls_search(call))
    elif entry.kind == Kind.TOOL_RESULT:
        results = _objects(entry, "results")
        answers = [calls.answers_search(entry, result) for result in results]
        if any(answers):
            own["results"] = tuple(result for result, answer in zip(results, answers, strict=True) if answer)
            content["results"] = tuple(result for result, answer in zip(results, answers, strict=True) if not answer)
    elif entry.name == "command" and _data(entry).get("name") in ECHOES:
        content, own = {}, content
    texts = [*list_searchable(entry.kind, content, entry.meta), *sender_name(entry.meta)]
    return "\n".join(texts), "\n".join(list_searchable(entry.kind, own, entry.meta))


def _cut_snippet(text: str, piece: str, needle: str) -> str:
    """Cut about 160 characters of the (NFKC) text around the casefolded piece, on one line.

    If the piece is not there as it is, the line of the text with the most words of the needle is shown.
    """
    folded = text.casefold()
    place = folded.find(piece)
    if place < 0:
        place, piece = _find_best_line(folded, needle)
    if len(folded) != len(text):  # casefold makes some letters longer, such as the German sharp s
        grown = 0
        for place_in_text, letter in enumerate(text):
            if grown >= place:
                place = place_in_text
                break
            grown += len(letter.casefold())
    start = max(min(place - _LEAD, len(text) - SNIPPET_CHARS), 0)
    end = start + SNIPPET_CHARS
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def _find_best_line(folded: str, needle: str) -> tuple[int, str]:
    """Return the place and the text of the first word of the line that has the most words of a needle."""
    wanted, best, start = {stem(word) for word in tokens(needle)}, (0, 0, ""), 0
    for line in folded.splitlines(keepends=True):
        words = [word for word in tokens(line) if stem(word) in wanted]
        if len({stem(word) for word in words}) > best[0]:
            best = len({stem(word) for word in words}), start + line.find(words[0]), words[0]
        start += len(line)
    return best[1], best[2]
