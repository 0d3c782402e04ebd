"""The facts about renamed tapes and erased entries, built and read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bubbot.tape.entry import TapeEntry, event, message, thaw
from bubbot.tape.erasure import (
    build_blob_removals,
    build_further_erasure,
    build_rename,
    erasure_date,
    is_rename,
    split_covers,
    with_covers,
)
from bubbot.tape.store import Batch

BLOBS_PER_FACT = 500
SPANS_PER_FACT = 100


def dated(entry: TapeEntry, day: int) -> TapeEntry:
    return replace(entry, date=f"2026-11-{day:02}")


NOTE, STARTED = dated(message("user", "a"), 1), dated(event("started", {}), 2)
ARCHIVED, ERASED = dated(event("tape/archived", {}), 3), dated(event("tape/erased", {"entries": 2}), 4)


@pytest.mark.parametrize(
    ("batches", "day"),
    [
        ([], ""),
        ([Batch("tape", ())], ""),
        ([Batch("tape", (NOTE, STARTED))], "2026-11-01"),
        ([Batch("tape", (NOTE, ARCHIVED, STARTED))], "2026-11-03"),
        ([Batch("tape", (NOTE, ARCHIVED)), Batch("tape", (ERASED, NOTE))], "2026-11-04"),
        ([Batch("other", (ERASED,)), Batch("tape", (STARTED,))], "2026-11-02"),
        ([Batch("other", (ERASED,))], ""),
    ],
)
def test_a_rename_has_the_date_of_the_fact_that_says_why(batches: list[Batch], day: str) -> None:
    rename = build_rename("tape", "tape@old", batches)
    assert (rename.date, thaw(rename.meta)) == (day, {})
    assert is_rename(rename.kind, rename.payload, "tape", "tape@old")


RENAMED: dict[str, Any] = {"name": "tape/renamed", "data": {"from": "a", "to": "b"}}


@pytest.mark.parametrize(
    ("kind", "payload", "is_one"),
    [
        ("event", RENAMED, True),
        ("message", RENAMED, False),
        ("event", {**RENAMED, "name": "tape/named"}, False),
        ("event", {"name": "tape/renamed"}, False),
        ("event", {**RENAMED, "data": "from a to b"}, False),
        ("event", {**RENAMED, "data": {"from": "a", "to": "c"}}, False),
        ("event", {**RENAMED, "data": {"from": "c", "to": "b"}}, False),
    ],
)
@pytest.mark.law("T16")
def test_only_a_fact_with_both_names_renames_a_tape(kind: str, payload: dict[str, Any], is_one: bool) -> None:
    assert is_rename(kind, payload, "a", "b") is is_one


@pytest.mark.law("T17")
def test_the_covers_of_a_fact_have_so_many_ranges_and_the_next_fact_has_the_rest() -> None:
    assert split_covers({}) == [{}]
    assert split_covers({"a": [3, 1, 2], "b": [], "c": [7, 5]}) == [{"a": [[1, 3]], "c": [[5, 5], [7, 7]]}]
    for count, facts in ((SPANS_PER_FACT, 1), (SPANS_PER_FACT + 1, 2), (2 * SPANS_PER_FACT + 1, 3)):
        covers = split_covers({"a": range(0, 2 * count, 2)})
        assert len(covers) == facts
        assert [span for fact in covers for span in fact["a"]] == [[at, at] for at in range(0, 2 * count, 2)]
        assert max(len(fact["a"]) for fact in covers) == SPANS_PER_FACT
    assert split_covers({"a": range(0, 2 * SPANS_PER_FACT, 2), "b": [1]})[1:] == [{"b": [[1, 1]]}]


@pytest.mark.law("T17")
def test_covers_go_into_the_newest_fact_of_the_tape() -> None:
    covers = {"tape": [[1, 2]]}
    batches = [Batch("tape", (ERASED, NOTE)), Batch("tape", (ERASED, ERASED, NOTE)), Batch("other", (ERASED,))]
    changed = with_covers(batches, "tape", covers)
    assert (changed[0], changed[2]) == (batches[0], batches[2])
    first, fact, note = changed[1].entries
    assert (first, note) == (ERASED, NOTE)
    assert thaw(fact.payload) == {"name": "tape/erased", "data": {"entries": 2, "covers": covers}}
    assert fact.date == ERASED.date
    none = [Batch("tape", (NOTE, ARCHIVED, TapeEntry("anchor", {"name": "tape/erased"}))), Batch("other", (ERASED,))]
    assert with_covers(none, "tape", covers) == none


def test_further_facts_have_the_date_of_the_newest_erasure() -> None:
    assert erasure_date([Batch("a", (NOTE,))]) == ""
    assert erasure_date([Batch("a", (NOTE, dated(ERASED, 5))), Batch("b", (dated(ERASED, 6), NOTE))]) == "2026-11-06"
    fact = build_further_erasure({"a": [[1, 2]]}, "2026-11-06")
    assert (fact.name, thaw(fact.data), fact.date) == ("tape/erased", {"covers": {"a": [[1, 2]]}}, "2026-11-06")


def test_many_removed_blobs_are_named_in_several_facts() -> None:
    digests = [f"{number:064x}" for number in range(BLOBS_PER_FACT + 1)]
    assert list(build_blob_removals("tape", [], "gc", "2026-11-06")) == []
    first, second = build_blob_removals("tape", reversed(digests), "gc", "2026-11-06")
    assert thaw(first.data) == {"tape": "tape", "digests": digests[:-1], "reason": "gc"}
    assert thaw(second.data) == {"tape": "tape", "digests": digests[-1:], "reason": "gc"}
    assert (first.name, first.date, second.date) == ("blob/removed", "2026-11-06", "2026-11-06")
