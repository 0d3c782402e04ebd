"""Search over a whole tape: exact in any script, then by spelling, newest first."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from msgspec import Struct

from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL
from bubbot.tape.corrections import Corrections, hides
from bubbot.tape.entry import Kind, TapeEntry, sender_name
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import (
    IdRanges,
    IndexProposals,
    Matcher,
    NotIndexed,
    TapeQuery,
    ZoneSlice,
    build_matcher,
    fold_text,
)
from bubbot.tape.spelling import find_misspelt, share_room
from bubbot.tape.view import QueryAnswers

SEARCH_TOOL = "tape.search"
"""The search tool, whose earlier answers are not hits; a provider writes its name with an underscore."""

SEARCHED_KINDS = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ANCHOR, Kind.EVENT)
"""The kinds that are searched by default."""

BOOKKEEPING_EVENTS = frozenset({"loop.step", "turn/start", "turn/joined", "turn/end", MEMORY_OPEN, MEMORY_SEAL})
"""Names of events and anchors that record how the bot ran and not what was said; they are never hits."""

SNIPPET_CHARS = 160
_LEAD = 60
_NAMES = (SEARCH_TOOL, SEARCH_TOOL.replace(".", "_"))
_ECHOES = frozenset({SEARCH_TOOL, "tape.anchors", "session.context", "session.why", "session.help"})
"""Commands whose output repeats other parts of the tape."""
_STRUCTURE: dict[str, frozenset[str]] = {
    Kind.MESSAGE: frozenset({"role", "type"}),
    Kind.TOOL_CALL: frozenset({"id", "type"}),
    Kind.TOOL_RESULT: frozenset({"tool_call_id", "type"}),
}
_CALLS_BEFORE = ((1, 8), (9, 24))
"""How many entries before a result its calls are looked for, first and then: they are neighbours, except for entries that
came in between."""
_SPARE = 6  # entries read at first beyond those wanted, because some may be left out


class SearchHit(Struct, frozen=True):
    """An entry that matches.

    Attributes:
        snippet: one line around the match, without the name of who wrote it.
        author: who wrote it, as shown; empty if no person did.
        superseded_by: the correction's id.
    """

    id: int
    kind: str
    date: str
    name: str | None
    snippet: str
    exact: bool
    superseded_by: int | None = None
    author: str = ""


class SearchResult(Struct, frozen=True):
    """The hits, newest first, and the numbers of matches that were left out.

    Attributes:
        hits: newest first.
        exact: the number of exact hits.
        own_output: left out: earlier answers of the search tool and of commands that repeat the tape.
        hidden: left out: entries that a person deleted.
        old_memory: left out: replaced versions of the memory zone.
        incomplete: so much was left out that unread older exact matches may exist; a narrower search (kinds, dates)
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
    """A search for `text` on the whole tape: exact substrings after NFKC and casefold, in any script.

    If there are fewer exact hits than `limit`, entries are compared by spelling: the proposals of a search index, the
    entries that it does not cover yet (the newest `typo_newest` of them, or of all without an index), and the newest
    memory. Every word of the query has to be there, with one edit from 4 letters on and two if 8 were meant, accents aside; a
    run of 4 or more Chinese, Japanese or Korean characters may have one wrong. `excluded_ids` has ids that are not hits,
    such as the question itself.

    Every step reads a few entries more than `limit`, newest or closest first, and many more only if too few of those
    are hits: what is not shown is not worth reading.
    """

    text: str
    kinds: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20
    typo_newest: int = 2000
    excluded_ids: frozenset[int] = frozenset()

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, SearchResult]:
        """Search: exact matches, then other spellings if those are too few; see `StepwiseView.steps`."""
        needle = fold_text(self.text.strip()).strip()
        if not needle or self.limit <= 0:
            return SearchResult()
        base = TapeQuery(tape, since=self.since, until=self.until, newest=True)
        corrections, zone, newest_exact = yield (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(CORRECTION,)),
            TapeQuery(tape, ZoneSlice(MEMORY_OPEN, MEMORY_SEAL), missing="empty"),
            replace(base, kinds=self._kinds(), searchable_text=self.text.strip(), limit=self._few),
        )
        matches = _MatchFilter(needle, Corrections.of(corrections), zone[0].id if zone else 0)
        exact: QueryAnswers = [newest_exact]
        yield from self._sift(tape, matches, [newest_exact, zone])
        if len(matches.hits) < self.limit and len(newest_exact) >= self._few:
            # By groups: bookkeeping among the events must not use up the limit of the others.
            exact = yield tuple(
                replace(base, kinds=group, searchable_text=self.text.strip(), limit=self.max_exact_matches)
                for group in self._groups()
            )
            yield from self._sift(tape, matches, exact)
        hits, compared = self._newest(matches.hits.values()), 0
        if len(hits) < self.limit:
            unindexed, newest = yield (
                TapeQuery(tape, NotIndexed(), limit=1),
                TapeQuery(tape, newest=True, limit=1),
            )
            tail: tuple[TapeQuery, ...] = ()
            if unindexed:
                start = max(unindexed[0].id, newest[0].id - self.typo_newest + 1)
                compared = start if start > unindexed[0].id else 0
                tail = (
                    replace(base, part=IdRanges(((start, None),)), kinds=self._kinds(), similar_text=self.text.strip()),
                )
            for size in (self._few, self.max_proposals):
                part = IndexProposals(self.text.strip())
                *others, proposed = yield (*tail, replace(base, part=part, kinds=self._kinds(), limit=size))
                yield from self._sift(tape, matches, [*others, proposed])
                hits = self._newest(matches.hits.values())  # a proposal may hold the text exactly
                similar = matches.by_spelling(self.limit - len(hits))
                if len(hits) + len(similar) >= self.limit or len(proposed) < size:
                    break
                tail = ()
            hits += similar
        exact_count = sum(hit.exact for hit in hits)
        hits.sort(key=_by_id, reverse=True)
        return SearchResult(
            tuple(hits),
            exact=exact_count,
            own_output=len(matches.own_output),
            hidden=len(matches.hidden),
            old_memory=len(matches.old_memory),
            incomplete=self._is_incomplete(exact, hits),
            spelling_from=compared,
        )

    @property
    def max_exact_matches(self) -> int:
        """The number of exact matches read of each group of kinds, since some of them may be left out."""
        return self.limit * 4 + 50

    @property
    def max_proposals(self) -> int:
        """The number of the index's proposals to read, closest first."""
        return self.limit * 4 + 220

    @property
    def _few(self) -> int:
        """The number to read at first, since most of it are hits."""
        return min(self.limit + _SPARE, self.max_exact_matches)

    def _sift(
        self, tape: str, matches: _MatchFilter, answers: QueryAnswers
    ) -> Generator[tuple[TapeQuery, ...], QueryAnswers, None]:
        """Put the entries through the filter, those of results with their calls."""
        accepts = build_matcher(TapeQuery("", kinds=self._kinds(), since=self.since, until=self.until))
        entries = {
            entry.id: entry
            for answer in answers
            for entry in answer
            if entry.id not in matches.seen and self._is_candidate(entry, accepts)
        }
        pool = sorted(entries.values(), key=_by_id, reverse=True)
        calls, unanswered = [*pool], [entry for entry in pool if entry.kind == Kind.TOOL_RESULT]
        for near, far in _CALLS_BEFORE:
            spans = tuple((max(1, entry.id - far), entry.id - near) for entry in unanswered if entry.id > near)
            if spans:
                (found,) = yield (TapeQuery(tape, IdRanges(spans), kinds=(Kind.TOOL_CALL,)),)
                calls += found
                index = _ToolCallIndex.of(calls)
                unanswered = [entry for entry in unanswered if not index.has_all_calls(entry, entry.id - far)]
        matches.add(pool, _ToolCallIndex.of(calls))

    def _newest(self, hits: Iterable[SearchHit]) -> list[SearchHit]:
        return sorted(hits, key=_by_id, reverse=True)[: self.limit]

    def _kinds(self) -> tuple[str, ...]:
        return tuple(self.kinds) or SEARCHED_KINDS

    def _groups(self) -> list[tuple[str, ...]]:
        """Split events from the other kinds."""
        kinds = self._kinds()
        parts = tuple(kind for kind in kinds if kind != Kind.EVENT), tuple(kind for kind in kinds if kind == Kind.EVENT)
        return [part for part in parts if part]

    def _is_candidate(self, entry: TapeEntry, matches: Matcher) -> bool:
        is_content = entry.name not in BOOKKEEPING_EVENTS and not (entry.name == CORRECTION and hides(entry))
        return is_content and entry.id not in self.excluded_ids and matches.matches(entry)

    def _is_incomplete(self, exact: QueryAnswers, hits: Sequence[SearchHit]) -> bool:
        """Return true if a query was cut before it reached as far back as the hits do."""
        cut = max((part[-1].id for part in exact if len(part) >= self.max_exact_matches), default=0)
        return cut > 0 and (len(hits) < self.limit or hits[-1].id < cut)


def _by_id(item: TapeEntry | SearchHit) -> int:
    return item.id


def _data(entry: TapeEntry) -> Mapping[str, Any]:
    data = entry.payload.get("data")
    return data if isinstance(data, Mapping) else {}


@dataclass(frozen=True, slots=True)
class _ToolCallIndex:
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
class _MatchFilter:
    """A filter that sorts entries into exact hits, the rest, and what is left out, by id.

    Attributes:
        needle: the folded text.
        corrections: what they hide and supersede.
        zone: the id of the newest memory opening.
        hits: the exact ones.
        rest: entries without the text.
        own_output: left out: earlier answers of the search tool that hold the text.
        hidden: left out: entries that a person deleted.
        old_memory: left out: replaced versions of the memory zone.
    """

    needle: str
    corrections: Corrections
    zone: int
    hits: dict[int, SearchHit] = field(default_factory=dict)
    rest: dict[int, TapeEntry] = field(default_factory=dict)
    own_output: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    old_memory: set[int] = field(default_factory=set)
    _texts: dict[int, str] = field(default_factory=dict)

    @property
    def seen(self) -> Mapping[int, object]:
        """The ids of all entries that were put through."""
        return self._texts

    def add(self, entries: Iterable[TapeEntry], calls: _ToolCallIndex) -> None:
        """Sort entries; `calls` has those that their results answer."""
        for entry in entries:
            content, own = self._split(entry, calls)
            text = self._texts[entry.id] = unicodedata.normalize("NFKC", content)
            if self.needle in text.casefold():
                if hit := self._hit(entry, self.needle, exact=True):
                    self.hits[entry.id] = hit
                continue
            self.rest[entry.id] = entry
            if own and self.needle in fold_text(own):
                self.own_output.add(entry.id)

    def by_spelling(self, limit: int) -> list[SearchHit]:
        """Return the entries of the rest that have every word of the text, spelling mistakes allowed.

        Those with the fewest mistakes come first, then in turns of each word that may be meant, then the newest. If those
        with the fewest are too many, others have some of their room.
        """
        entries = sorted(self.rest.values(), key=_by_id, reverse=True)
        matches = find_misspelt(self.needle, {entry.id: self._texts[entry.id].casefold() for entry in entries})
        turns: Counter[str] = Counter()
        levels: defaultdict[float, list[tuple[int, SearchHit]]] = defaultdict(list)
        for entry in entries:
            if (near := matches.get(entry.id)) and (hit := self._hit(entry, near.piece, exact=False)):
                turns[near.piece] += 1
                levels[near.mistakes].append((turns[near.piece], hit))
        ranked = [sorted(levels[mistakes], key=itemgetter(0)) for mistakes in sorted(levels)]
        return [hit for _, hit in share_room(ranked, limit)]

    def _hit(self, entry: TapeEntry, piece: str, *, exact: bool) -> SearchHit | None:
        if entry.id in self.corrections.hidden:
            self.hidden.add(entry.id)
            return None
        if entry.id < self.zone and entry.kind == Kind.EVENT and (entry.name or "").startswith("memory."):
            self.old_memory.add(entry.id)
            return None
        name = "".join(sender_name(entry.meta))
        text = self._texts[entry.id]  # its last line is the name
        words = text.removesuffix(unicodedata.normalize("NFKC", f"\n{name}")) if name else text
        snippet = _cut_snippet(words or text, piece)
        superseded = self.corrections.superseded.get(entry.id)
        return SearchHit(
            entry.id, entry.kind, entry.date, entry.name, snippet, exact, superseded, " ".join(name.split())
        )

    def _split(self, entry: TapeEntry, calls: _ToolCallIndex) -> tuple[str, str]:
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
                content["results"] = tuple(
                    result for result, answer in zip(results, answers, strict=True) if not answer
                )
        elif entry.name == "command" and _data(entry).get("name") in _ECHOES:
            content, own = {}, content
        skip = _STRUCTURE.get(entry.kind, frozenset())
        return "\n".join([*_strings(content, skip), *sender_name(entry.meta)]), "\n".join(_strings(own, skip))


def _strings(value: object, skip: frozenset[str]) -> list[str]:
    """Return the texts of a JSON value, except those under structural keys (a role, a call's id)."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() if key not in skip for text in _strings(item, skip)]
    if isinstance(value, tuple):
        return [text for item in value for text in _strings(item, skip)]
    return []


def _cut_snippet(text: str, piece: str) -> str:
    """Cut about 160 characters of the (NFKC) text around the casefolded piece, on one line."""
    folded = text.casefold()
    place = max(folded.find(piece), 0)
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
