"""The facts about renamed tapes and erased entries, built and read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bubbot.tape.entry import TapeEntry, event, message, thaw
from bubbot.tape.erasure import (
    build_blob_removals,
    build_rename,
    is_rename,
)
from bubbot.tape.store import Batch

BLOBS_PER_FACT = 500


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


def test_many_removed_blobs_are_named_in_several_facts() -> None:
    digests = [f"{number:064x}" for number in range(BLOBS_PER_FACT + 1)]
    assert list(build_blob_removals("tape", [], "gc", "2026-11-06")) == []
    first, second = build_blob_removals("tape", reversed(digests), "gc", "2026-11-06")
    assert thaw(first.data) == {"tape": "tape", "digests": digests[:-1], "reason": "gc"}
    assert thaw(second.data) == {"tape": "tape", "digests": digests[-1:], "reason": "gc"}
    assert (first.name, first.date, second.date) == ("blob/removed", "2026-11-06", "2026-11-06")
