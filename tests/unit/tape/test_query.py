"""`evaluate`, the one definition of what a query means, and the readers of dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.errors import AnchorNotFound
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, encode, event, message
from bubbot.tape.handle import ids_of, spans_of
from bubbot.tape.query import (
    AfterAnchor,
    BetweenAnchors,
    IdRanges,
    OpeningAnchor,
    Slice,
    TapeQuery,
    Window,
    ZoneSlice,
    build_matcher,
    date_bounds,
    evaluate,
    is_inside,
    parse_moment,
    union,
)
from bubbot.tape.store import Batch, TapeStore
from bubbot.tape.words import fold_text
from tests.tapes import note


def tape(*entries: TapeEntry) -> list[TapeEntry]:
    return [entry.with_id(place) for place, entry in enumerate(entries, 1)]


def ids(entries: list[TapeEntry], part: Slice, **filters: Any) -> list[int]:
    return [entry.id for entry in evaluate(entries, TapeQuery("tape", part, **filters))]


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([], ()),
        ([(1, 3)], ((1, 3),)),
        ([(4, 6), (1, 3)], ((1, 6),)),
        ([(1, 2), (4, 5)], ((1, 2), (4, 5))),
        ([(1, 5), (2, 3)], ((1, 5),)),
        ([(1, None), (5, 9)], ((1, None),)),
        ([(5, 9), (7, None), (1, 2)], ((1, 2), (5, None))),
        ([(5, 3)], ()),
        ([(-4, 2)], ((1, 2),)),
        ([(-4, -2), (0, 0)], ()),
        ([(3, 3), (3, 3), (4, 4)], ((3, 4),)),
    ],
)
def test_ranges_are_joined_into_ascending_ones_that_do_not_touch(
    spans: list[tuple[int, int | None]], wanted: tuple[tuple[int, int | None], ...]
) -> None:
    assert union(spans) == wanted


def test_both_ends_of_a_range_belong_to_it() -> None:
    assert [is_inside(place, [(2, 3), (5, None)]) for place in range(1, 7)] == [False, True, True, False, True, True]


@pytest.mark.law("T9")
def test_a_filter_lets_through_what_every_one_of_its_values_allows() -> None:
    entries = tape(note("a", key="x"), event("e"), anchor("a"), note("b", key="y"))
    assert ids(entries, IdRanges(((1, 4),)), kinds=("message", "anchor")) == [1, 3, 4]
    assert ids(entries, IdRanges(((1, 4),)), keys=("x", "z")) == [1]
    assert ids(entries, IdRanges(((1, 4),)), kinds=("message",), keys=("y",), text="b") == [4]


@pytest.mark.law("T9")
def test_names_choose_among_anchors_and_events_and_let_other_kinds_pass() -> None:
    entries = tape(note("a"), event("e"), anchor("a"), event("f"), TapeEntry("anchor", {"name": 7}))
    assert ids(entries, IdRanges(((1, None),)), names=("e", "a")) == [1, 2, 3]


@pytest.mark.law("T9")
def test_the_limit_counts_after_the_filters_and_in_the_order_asked_for() -> None:
    entries = tape(*[note(text) for text in "abab"])
    assert ids(entries, IdRanges(((1, None),)), text="a", limit=1) == [1]
    assert ids(entries, IdRanges(((1, None),)), text="a", limit=1, newest=True) == [3]


@pytest.mark.parametrize("limit", [0, -1, -5])
def test_a_limit_below_one_finds_nothing(limit: int) -> None:
    assert ids(tape(note("a")), IdRanges(((1, None),)), limit=limit) == []


@pytest.mark.law("T9")
def test_a_zone_is_the_newest_sealed_run_and_an_unsealed_one_does_not_count() -> None:
    entries = tape(*[anchor(name) for name in ("open", "seal", "open", "open", "seal", "open")])
    assert ids(entries, ZoneSlice("open", "seal")) == [4, 5]


@pytest.mark.law("T9")
def test_a_zone_of_one_name_runs_between_its_two_newest_anchors() -> None:
    assert ids(tape(anchor("m"), note("a"), anchor("m"), note("b"), anchor("m")), ZoneSlice("m", "m")) == [3, 4, 5]


def test_between_one_name_needs_a_second_anchor_after_the_newest() -> None:
    with pytest.raises(AnchorNotFound):
        ids(tape(anchor("m"), note("a"), anchor("m")), BetweenAnchors("m", "m"))


def test_between_neighbours_there_is_nothing() -> None:
    assert ids(tape(anchor("a"), anchor("b"), note("x")), BetweenAnchors("a", "b")) == []


@pytest.mark.parametrize(
    "part", [OpeningAnchor(), Window(), AfterAnchor("a"), BetweenAnchors("a", "b"), ZoneSlice("a", "b")]
)
def test_a_missing_anchor_is_an_error_that_names_it_and_the_tape(part: Slice) -> None:
    with pytest.raises(AnchorNotFound, match="the tape tape has no anchor"):
        ids([], part)
    assert ids([], part, missing="empty") == []


@pytest.mark.law("T11", "T17")
def test_an_erased_anchor_neither_opens_a_window_nor_has_a_name() -> None:
    entries = [*tape(anchor("a"), note("x")), TapeEntry("anchor", EMPTY_OBJECT, id=3, erased=True)]
    assert (ids(entries, OpeningAnchor()), ids(entries, Window()), ids(entries, AfterAnchor("a"))) == (
        [1],
        [2, 3],
        [2, 3],
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("STRASSE", "straße"), ("ﬁne", "FINE"), ("①", "1"), ("E\u0301", "é"), ("Ａ", "a"), ("㌔", "キロ")],
)
def test_texts_are_folded_so_that_equal_looks_are_equal(one: str, other: str) -> None:
    assert fold_text(one) == fold_text(other)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T20:21:00Z", datetime(2026, 11, 21, 20, 21, tzinfo=UTC)),
        ("2026-11-21T20:21:00+09:00", datetime(2026, 11, 21, 11, 21, tzinfo=UTC)),
        ("2026-11-21 20:21", datetime(2026, 11, 21, 20, 21, tzinfo=UTC)),
        ("", None),
        ("yesterday", None),
        ("2026-13-01", None),
    ],
)
def test_a_date_on_a_tape_is_an_instant_or_none(text: str, wanted: datetime | None) -> None:
    assert parse_moment(text) == wanted


def test_a_date_alone_means_its_whole_day() -> None:
    since, until = date_bounds("2026-11-21", "2026-11-21")
    assert since == datetime(2026, 11, 21, tzinfo=UTC)
    assert until == datetime(2026, 11, 21, 23, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize("nothing", [None, ""])
def test_either_date_may_be_left_out(nothing: str | None) -> None:
    assert date_bounds(nothing, nothing) == (None, None)


def test_a_time_is_that_instant_and_without_an_offset_in_the_zone() -> None:
    zone = timezone(timedelta(hours=9))
    assert date_bounds("2026-11-21T18:00", "2026-11-21T18:00+00:00", zone) == (
        datetime(2026, 11, 21, 18, tzinfo=zone),
        datetime(2026, 11, 21, 18, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", 25),
        ("Europe/Berlin", "2026-03-29", 23),
        ("Asia/Tokyo", "2026-11-21", 24),
        ("America/Havana", "2026-11-01", 25),
    ],
)
def test_a_day_is_as_long_as_the_clocks_make_it(zone: str, day: str, hours: int) -> None:
    since, until = date_bounds(day, day, ZoneInfo(zone))
    assert since is not None
    assert until is not None
    assert until.astimezone(UTC) - since.astimezone(UTC) == timedelta(hours=hours) - timedelta(microseconds=1)


def test_the_first_and_the_last_day_there_is_are_days() -> None:
    assert date_bounds("0001-01-01", "9999-12-31") == (
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    )


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "21.11.2026", "2026-11-21T25:00", "1234567890"])
def test_what_is_no_date_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not a date"):
        date_bounds(text, None)


def test_ids_and_ranges_turn_into_each_other() -> None:
    assert spans_of([5, 1, 2, 2, 9]) == [(1, 2), (5, 5), (9, 9)]
    assert spans_of([]) == []
    assert ids_of([(1, 2), (5, None)], 7) == [1, 2, 5, 6, 7]


ESCAPED = ("\n", "\\", '"', "\t", "\r", "\b", "\f", "\x01", "\\\\", '\\"', "\\n", " ")


def test_no_text_that_holds_a_needle_is_left_out_before_it_is_decoded() -> None:
    """Signs that JSON escapes stand beside letters, and beside signs that folding joins to the letter before."""
    needles = ["nab", "n\u0303ab", "\u0303ab", "\u0307ab", "tab", "\u00f1", "ab", "\u6570"]
    for sign, other, needle in product(ESCAPED, ESCAPED, needles):
        text = f"n{sign}{needle}{other}z{other}{sign}n\u0303"
        for typed in needles:
            matcher = build_matcher(TapeQuery("tape", searchable_text=typed))
            precheck = matcher.build_precheck()
            entry = message("user", text)
            if matcher.matches(entry):
                assert precheck(encode(entry.payload).encode(), b"{}"), (text, typed)


@pytest.mark.parametrize("text", ['caf\u00e9 "it"', "caf\u00e9\nC:\\new\tx"])
def test_a_text_without_the_needle_is_left_out_in_spite_of_its_escapes(text: str) -> None:
    stored = encode(message("user", text).payload).encode()
    for query in (TapeQuery("tape", searchable_text="mandolin"), TapeQuery("tape", similar_text="mandolin")):
        assert not build_matcher(query).build_precheck()(stored, b"{}")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (TapeQuery("tape", phrase_text="cafe"), [1]),
        (TapeQuery("tape", phrase_text="créáted"), [2]),
        (TapeQuery("tape", phrase_text="creat"), []),
        (TapeQuery("tape", words_text="hope"), [3]),
        (TapeQuery("tape", words_text="ponies rode"), [4]),
        (TapeQuery("tape", words_text="relation"), []),
        (TapeQuery("tape", sender="zoe"), [3]),
    ],
)
async def test_accents_and_endings_make_no_difference_where_a_filter_says_so(
    store: TapeStore, query: TapeQuery, found: list[int]
) -> None:
    entries = [
        message("user", "au café"),
        message("user", "created today"),
        message("user", "hoping", sender={"id": "7", "name": "Zoë"}),
        message("user", "she rode a pony"),
    ]
    await store.append([Batch("tape", tuple(entries))])
    assert [entry.id for entry in (await store.fetch([query]))[0]] == found
