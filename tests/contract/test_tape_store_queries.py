"""What every tape store promises about queries: each answers as `evaluate` does, filter by filter."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from bubbot.errors import AnchorNotFound
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event
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
    date_bounds,
    evaluate,
)
from bubbot.tape.store import TapeStore
from tests.tapes import batch, note, whole

DAY = "2026-11-21T{:02}:00:00+00:00"

TAPE = (
    anchor("session/start"),
    note("Grüße aus Köln", key="a", date=DAY.format(8)),
    event("turn/start", {"note": "ﬁne"}),
    anchor("phase/one", {"phase": "one"}),
    note("STRASSE", date=DAY.format(10)),
    anchor("memory/open", window=False),
    note("remembered", key="b", date="2026-11-21"),
    anchor("memory/seal"),
    TapeEntry("hologram", {"name": "phase/one", "content": "unknown"}, date="some day"),
    anchor("phase/two", recalls=[(2, 3), (5, 5)]),
    note("①②③ done", key="c", date="2026-11-22T00:00:00+09:00"),
    anchor("mark", window=False),
    event("phase/one", {"no": "anchor"}),
    anchor("phase/one", window=False),
    note("last", date=DAY.format(12)),
)

PARTS: tuple[Slice, ...] = (
    WholeTape(),
    OpeningAnchor(),
    Window(),
    AfterAnchor("phase/one"),
    AfterAnchor("memory/seal"),
    BetweenAnchors("phase/two", "phase/one"),
    BetweenAnchors("session/start", "mark"),
    ZoneSlice("memory/open", "memory/seal"),
    NewestAnchors("phase/"),
    NewestAnchors(""),
    IdRanges(((3, 5), (4, 9), (14, None))),
    IdRanges(((0, 2), (9, 3), (1000, 2000))),
)

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "kinds": {"kinds": ("message", "hologram")},
    "anchors": {"kinds": ("anchor",)},
    "named kinds": {"kinds": ("anchor", "event"), "names": ("phase/one", "mark", "absent")},
    "names": {"names": ("phase/one",)},
    "keys": {"keys": ("a", "c", "absent")},
    "since": {"since": datetime(2026, 11, 21, 10, tzinfo=UTC)},
    "until": {"until": datetime(2026, 11, 21, 10, tzinfo=UTC)},
    "dates": {"since": datetime(2026, 11, 21, 8, tzinfo=UTC), "until": datetime(2026, 11, 21, 11, tzinfo=UTC)},
    "text": {"text": "strasse"},
    "all": {
        "kinds": ("message", "event"),
        "names": ("x",),
        "keys": ("a", "b"),
        "since": datetime(2026, 11, 21, tzinfo=UTC),
        "until": datetime(2026, 11, 22, tzinfo=UTC),
        "text": "e",
    },
}


@pytest.fixture
async def filled(store: TapeStore) -> TapeStore:
    await store.append([batch(*TAPE), batch(*TAPE[:3], tape="other")])
    return store


def found(query: TapeQuery) -> list[TapeEntry]:
    """What the query means, over the tape as it was written."""
    return evaluate([entry.with_id(place) for place, entry in enumerate(TAPE, 1)], query)


@pytest.mark.sampled(2)
@pytest.mark.law("T9")
@pytest.mark.parametrize("name", FILTERS)
async def test_every_filter_over_every_part_equals_evaluate(filled: TapeStore, name: str) -> None:
    orders: list[dict[str, Any]] = [{}, {"newest": True}, {"limit": 2}, {"newest": True, "limit": 2}, {"limit": 0}]
    queries = [TapeQuery("tape", part, **FILTERS[name], **order) for part, order in product(PARTS, orders)]
    answers = await filled.fetch(queries)
    assert [list(answer) for answer in answers] == [found(query) for query in queries]


@pytest.mark.sampled(3)
@pytest.mark.law("T9")
@pytest.mark.parametrize("first", FILTERS)
async def test_two_filters_together_equal_evaluate(filled: TapeStore, first: str) -> None:
    for second in FILTERS.values():
        queries = [TapeQuery("tape", part, **{**FILTERS[first], **second}) for part in PARTS]
        assert [list(answer) for answer in await filled.fetch(queries)] == [found(query) for query in queries]


@pytest.mark.parametrize(
    "part",
    [
        AfterAnchor("absent"),
        BetweenAnchors("absent", "mark"),
        BetweenAnchors("mark", "absent"),
        ZoneSlice("absent", "mark"),
    ],
)
async def test_a_missing_anchor_raises_and_finds_nothing_where_asked_to(filled: TapeStore, part: Slice) -> None:
    with pytest.raises(AnchorNotFound, match="absent"):
        await filled.fetch([TapeQuery("tape", part)])
    assert await filled.fetch([TapeQuery("tape", part, missing="empty")]) == [()]


@pytest.mark.parametrize("part", [OpeningAnchor(), Window(), AfterAnchor("mark"), ZoneSlice("a", "b")])
async def test_a_tape_without_entries_has_no_anchors(store: TapeStore, part: Slice) -> None:
    with pytest.raises(AnchorNotFound):
        await store.fetch([TapeQuery("tape", part)])
    assert await store.fetch([TapeQuery("tape", part, missing="empty")]) == [()]


async def test_a_fetch_goes_on_working_after_one_that_raised(filled: TapeStore) -> None:
    with pytest.raises(AnchorNotFound):
        await filled.fetch([TapeQuery("tape"), TapeQuery("tape", AfterAnchor("absent"))])
    assert len(await whole(filled)) == len(TAPE)


async def test_an_anchor_after_the_other_is_missing_where_it_stands_only_before(filled: TapeStore) -> None:
    with pytest.raises(AnchorNotFound, match="session/start after mark"):
        await filled.fetch([TapeQuery("tape", BetweenAnchors("mark", "session/start"))])


async def test_an_event_is_no_anchor_of_its_name(filled: TapeStore) -> None:
    with pytest.raises(AnchorNotFound, match="turn/start"):
        await filled.fetch([TapeQuery("tape", AfterAnchor("turn/start"))])


async def ids(store: TapeStore, part: Slice, **filters: Any) -> list[int]:
    return [entry.id for entry in (await store.fetch([TapeQuery("tape", part, **filters)]))[0]]


async def test_the_newest_anchor_of_a_name_wins(filled: TapeStore) -> None:
    assert await ids(filled, AfterAnchor("phase/one")) == [15]


async def test_between_leaves_both_anchors_out(filled: TapeStore) -> None:
    assert await ids(filled, BetweenAnchors("phase/two", "phase/one")) == [11, 12, 13]


async def test_between_ends_at_the_first_of_the_second_name(filled: TapeStore) -> None:
    assert await ids(filled, BetweenAnchors("session/start", "phase/one")) == [2, 3]


async def test_a_zone_includes_both_its_anchors(filled: TapeStore) -> None:
    assert await ids(filled, ZoneSlice("memory/open", "memory/seal")) == [6, 7, 8]


async def test_the_newest_anchor_of_each_name_is_found_by_the_beginning_of_the_names(store: TapeStore) -> None:
    names = ["topic/a", "topic/b", "topic/a", "topic", "topic0", "topic/旅行", "topic/\U0010ffff", "top"]
    await store.append([batch(*map(anchor, names), event("topic/event"))])
    assert await ids(store, NewestAnchors("topic/")) == [2, 3, 6, 7]
    assert await ids(store, NewestAnchors("topic/旅")) == [6]
    assert await ids(store, NewestAnchors("topic/\U0010ffff")) == [7]
    assert await ids(store, NewestAnchors("nothing")) == []
    newest = TapeQuery("tape", NewestAnchors("topic/"), newest=True, limit=1)
    assert [entry.id for entry in (await store.fetch([newest]))[0]] == [7]
    earlier = TapeQuery("tape", NewestAnchors("topic/"), as_of=2)
    assert [entry.id for entry in (await store.fetch([earlier]))[0]] == [1, 2]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("2026-11-21", None, [2, 5, 7, 11, 15]),
        ("2026-11-21T10:00", None, [5, 11, 15]),
        (None, "2026-11-21T08:00", [2, 7]),
        ("2026-11-21", "2026-11-21", [2, 5, 7, 11, 15]),
        ("2026-11-22", "2026-11-22", []),
        ("2026-11-21T10:00:00+00:00", "2026-11-21T12:00:00+02:00", [5]),
    ],
)
async def test_dates_are_included_and_a_day_is_the_whole_day(
    filled: TapeStore, start: str | None, end: str | None, wanted: list[int]
) -> None:
    since, until = date_bounds(start, end)
    assert await ids(filled, WholeTape(), since=since, until=until) == wanted


async def test_an_entry_without_a_date_matches_no_date(filled: TapeStore) -> None:
    assert await ids(filled, WholeTape(), since=datetime.min.replace(tzinfo=UTC), kinds=("hologram", "anchor")) == []


@pytest.mark.parametrize("text", ["grüsse", "GRU\u0308SSE", "köln"])
async def test_text_is_compared_after_normalising_and_casefolding(filled: TapeStore, text: str) -> None:
    assert await ids(filled, WholeTape(), text=text) == [2]


async def test_text_is_an_exact_substring_and_no_pattern(filled: TapeStore) -> None:
    assert [await ids(filled, WholeTape(), text=text) for text in ("123 done", "fine", "l%t", "l_st")] == [
        [11],
        [3],
        [],
        [],
    ]


@pytest.mark.law("T11")
async def test_the_window_starts_after_the_newest_anchor_that_opens_one(store: TapeStore) -> None:
    await store.append([batch(anchor("one"), note("a"), anchor("two"), note("b"), note("c"))])
    assert (await ids(store, OpeningAnchor()), await ids(store, Window())) == ([3], [4, 5])


@pytest.mark.law("T11")
@pytest.mark.parametrize(
    "quiet",
    [anchor("mark", window=False), TapeEntry("anchor", {"name": "memory/seal", "state": {}}), anchor("memory/x")],
)
async def test_a_window_stays_where_it_is_at_an_anchor_that_says_so_or_is_memory(
    store: TapeStore, quiet: TapeEntry
) -> None:
    await store.append([batch(anchor("one"), note("a"), quiet, note("b"))])
    assert (await ids(store, OpeningAnchor()), await ids(store, Window())) == ([1], [2, 3, 4])


@pytest.mark.law("T11")
async def test_a_window_begins_with_what_its_anchor_recalls(store: TapeStore) -> None:
    await store.append([batch(anchor("one"), note("a"), note("b"), anchor("two", recalls=[(2, 2)]), note("c"))])
    assert await ids(store, Window()) == [2, 5]


async def test_recalls_that_make_no_sense_are_left_out(store: TapeStore) -> None:
    odd = [[1, 1], [1], "x", [2, 3, 4], [3, 9], [True, 2], [-5, 0]]
    opening = TapeEntry("anchor", {"name": "two", "state": {}, "recalls": odd})
    await store.append([batch(note("a"), note("b"), opening, note("c"))])
    assert await ids(store, Window()) == [1, 4]


@pytest.mark.law("T9")
async def test_ids_and_limits_beyond_every_database_find_what_there_is(filled: TapeStore) -> None:
    huge = 10**30
    assert await ids(filled, IdRanges(((14, huge), (huge, huge), (huge, None))), limit=huge) == [14, 15]


@pytest.mark.law("T9")
@pytest.mark.parametrize("newest", [False, True])
async def test_thousands_of_ranges_are_a_query_like_any_other(store: TapeStore, newest: bool) -> None:
    await store.append([batch(*[note(str(number), key=str(number)) for number in range(600)])])
    part = IdRanges(tuple((place, place) for place in range(1, 3000, 2)))
    wanted = list(range(1, 601, 2))[:: -1 if newest else 1]
    assert await ids(store, part, newest=newest) == wanted
    assert await ids(store, part, newest=newest, limit=130) == wanted[:130]
    assert (
        await ids(store, part, newest=newest, text="7", limit=3)
        == [place for place in wanted if "7" in str(place - 1)][:3]
    )
