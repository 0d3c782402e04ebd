"""Copies of entries on other tapes, by declared references."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.tape.anchor import anchor
from bubbot.tape.copies import CopyIndex, KnownCopies, find_copies_of_tape, find_copies_of_tapes
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fact import Fact
from bubbot.tape.references import TapeSpans
from bubbot.tape.store import ResetBatch, TapeStore
from tests.tapes import batch, note, notes

pytestmark = pytest.mark.law("T17")


class Digest(Fact):
    """Quotes what it cites."""

    EVENTS = ("digest",)
    of: TapeSpans


REFERENCES = KERNEL_REFERENCES.with_events({"digest": Digest})


def numbered(*entries: TapeEntry) -> list[TapeEntry]:
    """The entries as a tape has them."""
    return [entry.with_id(number) for number, entry in enumerate(entries, 1)]


def copies_of(*entries: TapeEntry, tape: str = "other", of: Any = None) -> set[int]:
    """The ids of those entries of a tape that are copies of the entries 2 and 3 of `tape`."""
    index = CopyIndex(REFERENCES, ("digest",))
    index.add(tape, numbered(*entries))
    found = index.find_copies(of or {"tape": {2, 3}})
    assert found.keys() <= {tape}
    return found.get(tape, set())


def test_a_copy_names_its_source_in_its_meta() -> None:
    assert copies_of(note("a", source=["tape", 2]), note("b", source=["tape", 4]), note("c", source=["else", 2])) == {1}


def test_a_summary_and_a_handoff_are_copies_of_their_sources_and_not_of_their_parents() -> None:
    state = {"summary": "…", "source_ids": [1, 3]}
    entries = (
        anchor("summary", state),
        event("handoff", {"name": "x", "state": state}),
        anchor("topic/x", {"parents": [2]}),
    )
    assert copies_of(note("0"), note("0"), note("0"), *entries, tape="tape") == {4, 5}
    elsewhere = {"summary": "…", "source_ids": [1, ["tape", 3]]}
    assert copies_of(anchor("a", elsewhere), event("handoff", {"name": "x", "state": elsewhere}), anchor("b")) == {1, 2}


def test_a_correction_is_a_copy_of_what_it_corrects() -> None:
    assert copies_of(event("correction", {"corrects": 2, "content": "x"}), tape="tape") == {1}


def test_an_event_of_a_feature_that_quotes_is_a_copy_and_one_that_only_names_is_none() -> None:
    start = event("turn/start", {"attempt": 1, "session": "s", "inbounds": [["tape", 2]]})
    step = event("loop.step", {"shown": [["tape", [[1, 9]]]]})
    assert copies_of(
        event("digest", {"of": {"tape": [[3, 7]]}}), event("digest", {"of": {"tape": [[4, 7]]}}), start, step
    ) == {1}


def test_a_copy_of_a_copy_is_found_across_tapes_and_a_circle_ends() -> None:
    index = CopyIndex(REFERENCES)
    index.add("one", numbered(note("a", source=["two", 1])))
    index.add(
        "two", numbered(note("b", source=["tape", 2]), note("c", source=["one", 1]), note("d", source=["two", 3]))
    )
    assert index.find_copies({"tape": {2}}) == {"two": {1, 2}, "one": {1}}


@pytest.mark.parametrize("source", [None, 5, "tape", ["tape"], ["tape", "2"], [["tape", 2]]])
def test_a_source_of_another_shape_is_none(source: object) -> None:
    assert copies_of(note("a", source=source)) == ({1} if source == [["tape", 2]] else set())


async def test_what_other_chats_hold_of_a_tape_and_its_archives(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    await store.reset("tape", ResetBatch("tape@old"), [event("tape/archived")])
    await store.append(
        [batch(note("of now", source=["tape", 1]), note("of then", source=["tape@old", 2]), note("own"), tape="one")]
    )
    shown = event("loop.step", {"shown": [[1, 2], ["tape", [[1, 1]]]]})
    await store.append([batch(event("loop.step", {"shown": [[1, 2]]}), shown, tape="two"), notes("x", tape="three")])
    await store.append([batch(note("the system's", source=["tape", 1]), tape="bubbot/x")])
    found = await find_copies_of_tape(store, "tape", KERNEL_REFERENCES)
    assert found == [KnownCopies("one", (1, 2)), KnownCopies("two", (), (2,))]


async def test_copies_of_a_tape_that_was_archived_since_are_copies_of_the_archive(store: TapeStore) -> None:
    def day(number: int) -> str:
        return f"2026-11-{number:02}T00:00:00.000000+00:00"

    await store.append([batch(note("a", date=day(1)), note("b", date=day(1)))])
    copied = note("of the first", source=["tape", 2], date=day(2))
    shown = event("loop.step", {"shown": [["tape", [[1, 2]]]]}).with_meta({}, day(2))
    await store.append([batch(copied, shown, tape="one")])
    await store.reset("tape", ResetBatch("tape@1"), [event("tape/archived").with_meta({}, day(3))])
    await store.append([batch(note("of the second", source=["tape", 1], date=day(4)), tape="one")])
    together = {"first": ("tape@1",), "second": ("tape",)}
    assert await find_copies_of_tapes(store, together, KERNEL_REFERENCES) == {
        "first": [KnownCopies("one", (1,), (2,))],
        "second": [KnownCopies("one", (3,))],
    }
    assert await find_copies_of_tape(store, "tape", KERNEL_REFERENCES) == [KnownCopies("one", (1, 3), (2,))]
