"""Generated entries and queries, drawn from few names, keys and texts so that they often meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any, TypeVar

from hypothesis import strategies as st

from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, canonical, event
from bubbot.tape.query import (
    AfterAnchor,
    BetweenAnchors,
    IdRanges,
    NewestAnchors,
    OpeningAnchor,
    Slice,
    TapeQuery,
    WholeTape,
    Window,
    ZoneSlice,
)

T = TypeVar("T")

KINDS = ("message", "tool_result", "anchor", "event", "system", "hologram")
NAMES = ("a", "b", "memory/open", "memory/seal")
PREFIXES = ("", "a", "memory/", "memory/seal", "\U0010ffff")
KEYS = tuple(f"k{number}" for number in range(8))
TEXTS = ("", "a", "straße", "STRASSE", "Grüße", "gru\u0308sse", "①②", "12", "x\x00y", "漢字👍", "50%_'\"\\")
DATES = (
    "",
    "some day",
    "2026-11-21",
    "2026-11-21T08:00:00+00:00",
    "2026-11-21T08:00:00.000001+00:00",
    "2026-11-21T17:00:00+09:00",
    "2026-11-21T23:30:00-05:00",
    "2026-11-22T04:30:00.5Z",
    "1969-12-31T23:59:59.999999+00:00",
)
INSTANTS = (
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(2026, 11, 21, tzinfo=UTC),
    datetime(2026, 11, 21, 8, tzinfo=UTC),
    datetime(2026, 11, 21, 17, 0, 0, 1, timezone(timedelta(hours=9))),
    datetime(2026, 11, 22, 4, 30, 0, 500000, UTC),
    datetime.max.replace(tzinfo=UTC),
)

names = st.sampled_from(NAMES)
texts = st.sampled_from(TEXTS)
dates = st.sampled_from(DATES)
small_ids = st.integers(-1, 16)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
metas = st.one_of(
    st.just({}),
    st.builds(lambda name: {"sender": {"id": "7", "name": name}, "turn": "t1"}, texts),
    st.dictionaries(st.sampled_from(["sender", "origin"]), json_values, max_size=2),
)
spans = st.tuples(small_ids, small_ids | st.none())
recalls = st.lists(st.tuples(small_ids, small_ids), max_size=2)


@st.composite
def entries(draw: st.DrawFn, keys: st.SearchStrategy[str | None]) -> TapeEntry:
    """Any entry a tape may hold, well formed or not."""
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2:
            made = TapeEntry(draw(st.sampled_from(KINDS)), {"content": draw(texts), "role": "user"})
        case 3 | 4:
            made = anchor(draw(st.sampled_from("ab")), recalls=draw(recalls))
        case 5 | 6:
            made = anchor(draw(names), window=draw(st.booleans()), recalls=draw(recalls))
        case 7:
            made = event(draw(names), {"text": draw(texts)})
        case 8:
            made = event("correction", {"corrects": draw(st.integers(1, 9)), "content": draw(texts)})
        case _:
            made = TapeEntry(draw(st.sampled_from(KINDS)), {"name": draw(json_values), "recalls": draw(json_values)})
    return replace(made, date=draw(dates), key=draw(keys), meta=draw(metas))


def unkeyed(max_size: int = 12) -> st.SearchStrategy[list[TapeEntry]]:
    return st.lists(entries(st.none()), max_size=max_size)


def keyed_apart(found: Sequence[TapeEntry]) -> list[TapeEntry]:
    """Every second entry under a key of its own."""
    return [replace(entry, key=f"k{place}") if place % 2 else entry for place, entry in enumerate(found)]


parts: st.SearchStrategy[Slice] = st.one_of(
    st.just(WholeTape()),
    st.just(OpeningAnchor()),
    st.just(Window()),
    st.builds(AfterAnchor, names),
    st.builds(BetweenAnchors, names, names),
    st.builds(ZoneSlice, names, names),
    st.just(ZoneSlice("memory/open", "memory/seal")),
    st.builds(NewestAnchors, st.sampled_from(PREFIXES)),
    st.builds(IdRanges, st.lists(spans, max_size=4).map(tuple)),
)


def rarely(absent: T, *filters: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Mostly no filter: with all of them at once hardly anything would ever be found."""
    return st.one_of(*[st.just(absent)] * 4, *filters)


def some(values: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3).map(tuple)


def queries(tape: str) -> st.SearchStrategy[TapeQuery]:
    """Any query on the tape."""
    return st.builds(
        TapeQuery,
        tape=st.just(tape),
        part=parts,
        kinds=rarely((), some(KINDS), st.just(("anchor",)), st.sampled_from([("anchor", "event"), ("event",)])),
        names=rarely((), some(NAMES), some(NAMES)),
        keys=rarely((), some(KEYS)),
        since=rarely(None, st.sampled_from(INSTANTS)),
        until=rarely(None, st.sampled_from(INSTANTS)),
        text=rarely("", texts, st.sampled_from("a1")),
        searchable_text=rarely("", texts, st.sampled_from("a1")),
        phrase_text=rarely("", texts, st.sampled_from("a1")),
        words_text=rarely("", texts),
        similar_text=rarely("", texts),
        newest=st.booleans(),
        limit=st.none() | st.integers(-1, 5),
        missing=st.sampled_from(["error", "empty"]),
        as_of=rarely(None, small_ids),
    )


EVERY_PART: tuple[Slice, ...] = (
    WholeTape(),
    OpeningAnchor(),
    Window(),
    *[AfterAnchor(name) for name in NAMES],
    *[BetweenAnchors(first, second) for first, second in product(NAMES, NAMES)],
    *[ZoneSlice(first, second) for first, second in product(NAMES, NAMES)],
    *[NewestAnchors(prefix) for prefix in PREFIXES],
)


def thorough(asked: Sequence[TapeQuery]) -> list[TapeQuery]:
    """The queries, and their filters and their orders over every part there is."""
    filtered = [replace(query, part=part) for query in asked for part in EVERY_PART]
    ordered = [
        TapeQuery(query.tape, part, newest=query.newest, limit=query.limit, missing=query.missing, as_of=query.as_of)
        for query in asked
        for part in EVERY_PART
    ]
    return [*asked, *filtered, *ordered]


def exactly(found: Sequence[TapeEntry]) -> list[tuple[object, ...]]:
    """Entries in a form in which 1, 1.0 and True are three things."""
    return [
        (
            entry.id,
            str(entry.kind),
            canonical(entry.payload),
            canonical(entry.meta),
            entry.date,
            entry.key,
            entry.erased,
        )
        for entry in found
    ]
