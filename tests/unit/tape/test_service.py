"""The tape as the rest of bubbot sees it."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta, timezone
from itertools import pairwise

import pytest

from bubbot.errors import AnchorNotFound, EntryInvalid, EntryNotFound, LeaseLost, TapeConflict
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor, find_parents
from bubbot.tape.entry import event, thaw
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import Lease
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import note, notes, texts, whole


async def test_an_entry_without_a_date_is_dated_by_the_clock(tape: TapeService) -> None:
    first, second, third = await tape.append([note("a"), note("b", date="2020-01-01"), note("c")])
    assert [entry.date for entry in (first, second, third)] == [
        "2026-11-21T20:21:00.000000+00:00",
        "2020-01-01",
        "2026-11-21T20:21:01.000000+00:00",
    ]


async def test_a_clock_of_another_zone_dates_in_utc(memory_store: InMemoryStore, ids: CountingIds) -> None:
    clock = SteppingClock()
    clock.moment = clock.moment.astimezone(timezone(timedelta(hours=9)))
    tape = TapeService(memory_store, "tape", now=clock, new_id=ids)
    assert (await tape.append([note("a")]))[0].date == "2026-11-21T20:21:00.000000+00:00"


async def test_a_stamp_goes_into_the_meta_of_every_entry_and_yields_to_its_own(
    memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds
) -> None:
    tape = TapeService(memory_store, "tape", now=clock, new_id=ids, stamp={"turn": 1, "origin": "human"})
    first, second = await tape.append([note("a"), note("b", origin="system")])
    assert (thaw(first.meta), thaw(second.meta)) == (
        {"turn": 1, "origin": "human"},
        {"turn": 1, "origin": "system"},
    )


@pytest.mark.law("T5")
async def test_an_append_by_key_is_done_once(tape: TapeService) -> None:
    first = await tape.append_event("seen", {"n": 1}, key="k")
    assert await tape.append_event("seen", {"n": 1}, key="k") == first
    assert await tape.append([event("seen", {"n": 2}, key="k")], if_absent=True) == (first,)
    with pytest.raises(TapeConflict):
        await tape.append_event("seen", {"n": 2}, key="k")


@pytest.mark.law("T4")
async def test_an_append_at_a_head_that_moved_is_a_conflict(tape: TapeService) -> None:
    await tape.append_at(0, [note("a")])
    with pytest.raises(TapeConflict):
        await tape.append_at(0, [note("b")])
    assert await tape.head() == 1


async def test_a_system_message_is_an_entry(tape: TapeService) -> None:
    stored = await tape.append_system("be kind")
    assert (stored.kind, thaw(stored.payload)) == ("system", {"content": "be kind"})


async def test_the_bootstrap_anchor_is_written_once_with_the_session(tape: TapeService) -> None:
    await tape.ensure_bootstrap_anchor()
    await tape.ensure_bootstrap_anchor()
    (found,) = await tape.fetch([TapeQuery("tape")])
    assert [(entry.name, thaw(entry.meta)) for entry in found] == [("session/start", {"session": "stdin:default"})]


@pytest.mark.law("T11")
async def test_a_tape_of_memory_anchors_only_is_given_a_bootstrap_anchor(tape: TapeService) -> None:
    await tape.append([anchor("memory/open", window=False)])
    await tape.ensure_bootstrap_anchor()
    assert await tape.from_last_anchor() == ()


@pytest.mark.law("T7")
async def test_a_handoff_is_the_anchor_and_then_its_event(tape: TapeService) -> None:
    await tape.append([note("a")])
    opened = await tape.handoff("phase/two", {"phase": "two", "source_ids": [1]}, recalls=[(1, 1)])
    (found,) = await tape.fetch([TapeQuery("tape")])
    state = {"phase": "two", "source_ids": [1]}
    assert [(entry.id, entry.kind, thaw(entry.payload)) for entry in found[1:]] == [
        (2, "anchor", {"name": "phase/two", "state": state, "recalls": [[1, 1]]}),
        (3, "event", {"name": "handoff", "data": {"name": "phase/two", "state": state}}),
    ]
    assert opened == found[1]


@pytest.mark.law("T7")
async def test_nothing_comes_between_the_two_entries_of_a_handoff(tape: TapeService) -> None:
    jobs = [tape.handoff(f"phase/{number}") if number % 2 else tape.append([note("x")]) for number in range(40)]
    await asyncio.gather(*jobs)
    (found,) = await tape.fetch([TapeQuery("tape")])
    follows = {first.id: second for first, second in pairwise(found)}
    anchors = [entry for entry in found if entry.kind == "anchor"]
    assert len(anchors) == 20
    assert [follows[entry.id].payload["data"]["name"] for entry in anchors] == [entry.name for entry in anchors]


@pytest.mark.law("T7")
@pytest.mark.parametrize("state", [{"source_ids": [2]}, {"phase": 1}, {"next_steps": "x"}])
async def test_a_handoff_that_breaks_the_contract_writes_nothing(tape: TapeService, state: dict[str, object]) -> None:
    await tape.append([note("a")])
    with pytest.raises(EntryInvalid):
        await tape.handoff("phase/two", state)
    assert await tape.head() == 1


@pytest.mark.law("T7")
async def test_a_handoff_may_have_several_parents_on_any_tape(
    tape: TapeService, memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds
) -> None:
    await tape.append([anchor("session/start"), note("a"), anchor("topic/b", window=False)])
    await TapeService(memory_store, "other", now=clock, new_id=ids).append([anchor("theirs")])
    opened = await tape.handoff("both", {"parents": [1, 3, ["other", 1], ["tape", 3]]})
    assert find_parents(opened, "tape") == (("tape", 1), ("tape", 3), ("other", 1))


@pytest.mark.law("T7")
@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        (2, "parents names entry 2, which is not an anchor"),
        (3, "parents names entry 3; this tape has entries 1 to 2"),
        (["other", 1], "parents names entry 1 of the tape other, which does not exist"),
        (["other", -7], "parents names entry -7 of the tape other, which does not exist"),
        (["other", 2**70], f"parents names entry {2**70} of the tape other, which does not exist"),
    ],
)
async def test_the_parents_of_a_handoff_are_anchors_that_exist(tape: TapeService, parent: object, reason: str) -> None:
    await tape.append([anchor("session/start"), note("a")])
    with pytest.raises(EntryInvalid, match=re.escape(reason)):
        await tape.handoff("phase/two", {"parents": [1, parent]})
    assert await tape.head() == 2


async def test_a_handoff_needs_a_name(tape: TapeService) -> None:
    with pytest.raises(EntryInvalid):
        await tape.handoff(" ")
    assert await tape.head() == 0


@pytest.mark.law("T11")
async def test_a_handoff_cannot_take_a_name_that_opens_no_window(tape: TapeService) -> None:
    with pytest.raises(EntryInvalid, match="memory"):
        await tape.handoff("memory/mine")
    assert await tape.head() == 0


@pytest.mark.law("T6")
async def test_a_correction_names_the_entry_and_leaves_it_as_it_was(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    await tape.append([note("teh cat"), note("b")])
    before = await whole(memory_store)
    correction = await tape.correct(1, "the cat")
    hidden = await tape.hide(2)
    assert thaw(correction.payload) == {"name": "correction", "data": {"corrects": 1, "content": "the cat"}}
    assert thaw(hidden.payload) == {"name": "correction", "data": {"corrects": 2, "hide": True}}
    assert await whole(memory_store) == (*before, correction, hidden)


@pytest.mark.law("T6")
@pytest.mark.parametrize("entry_id", [0, -1, 2])
async def test_only_an_entry_that_exists_is_corrected(tape: TapeService, entry_id: int) -> None:
    await tape.append([note("a")])
    with pytest.raises(EntryNotFound, match="1 to 1"):
        await tape.correct(entry_id, "x")
    with pytest.raises(EntryNotFound):
        await tape.hide(entry_id)
    assert await tape.head() == 1


async def test_an_entry_is_read_by_its_id(tape: TapeService) -> None:
    stored = (await tape.append([note("a"), note("b")]))[1]
    assert await tape.entry(2) == stored
    for missing in (0, 3, -1, 10**30):
        with pytest.raises(EntryNotFound, match=f"no entry {missing}; this tape has entries 1 to 2"):
            await tape.entry(missing)


@pytest.fixture
async def days(tape: TapeService) -> TapeService:
    """A tape of two phases over two days."""
    await tape.append(
        [
            anchor("one", meta={}),
            note("a", date="2026-11-20T23:30:00+00:00"),
            event("e"),
            anchor("two"),
            note("b", date="2026-11-21T08:00:00+00:00"),
        ]
    )
    return tape


async def test_the_readers_of_the_window_cut_the_tape_at_anchors(days: TapeService) -> None:
    readers = [
        days.from_last_anchor(),
        days.after_anchor("one"),
        days.after_anchor("one", ["message", "anchor"]),
        days.between_anchors("one", "two"),
        days.between_anchors("one", "two", ["event"]),
    ]
    found = [[entry.id for entry in entries] for entries in await asyncio.gather(*readers)]
    assert found == [[5], [2, 3, 4, 5], [2, 4, 5], [2, 3], [3]]


async def test_a_reader_of_a_missing_anchor_raises(days: TapeService, memory_store: InMemoryStore) -> None:
    with pytest.raises(AnchorNotFound):
        await days.after_anchor("three")
    with pytest.raises(AnchorNotFound):
        await days.between_anchors("two", "one")
    await memory_store.append([notes("a", tape="bare")])
    with pytest.raises(AnchorNotFound):
        await memory_store.fetch([TapeQuery("bare", Window())])


async def test_dates_are_read_in_the_zone_that_was_asked_for(days: TapeService) -> None:
    tokyo = timezone(timedelta(hours=9))
    reading = [
        days.between_dates("2026-11-20", "2026-11-20", ["message"]),
        days.between_dates("2026-11-21", "2026-11-21", ["message"]),
        days.between_dates("2026-11-21", "2026-11-21", ["message"], zone=tokyo),
        days.between_dates(end="2026-11-20", kinds=["message"]),
    ]
    found = [[entry.id for entry in entries] for entries in await asyncio.gather(*reading)]
    assert found == [[2], [5], [2, 5], [2]]


async def test_a_text_that_is_no_date_is_named(days: TapeService) -> None:
    with pytest.raises(ValueError, match="'soon' is not a date"):
        await days.between_dates("soon")


@pytest.mark.law("T1")
async def test_a_reset_keeps_the_old_entries_in_an_archive_named_by_its_time(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    await tape.append([note("a")])
    archive = await tape.reset()
    assert archive == "tape@20261121T202101.000000"
    assert await texts(memory_store, archive) == ["a", ""]
    start, fact = await whole(memory_store)
    assert (start.name, thaw(start.meta)) == ("session/start", {"session": "stdin:default"})
    assert thaw(fact.payload) == {"name": "tape/archived", "data": {"archive": archive, "entries": 1}}


@pytest.mark.law("T17")
async def test_a_reset_without_an_archive_erases_and_says_so(tape: TapeService, memory_store: InMemoryStore) -> None:
    await tape.append([note("a"), note("b")])
    await memory_store.append([notes("in", tape="inbox")])
    archive = await tape.reset(archive=False, erase_also=(("inbox", (1,)),))
    assert [entry.erased for entry in await whole(memory_store, archive)] == [True, True, False]
    assert [entry.erased for entry in await whole(memory_store, "inbox")] == [True]
    fact = (await whole(memory_store))[1]
    assert thaw(fact.payload) == {
        "name": "tape/erased",
        "data": {"archive": archive, "entries": 2, "covers": {archive: [[1, 2]], "inbox": [[1, 1]]}},
    }


async def test_a_tape_writes_under_its_lease_and_not_once_it_is_lost(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    await (await tape.open_fork()).append([note("without a lease")])
    assert [fork.epoch for fork in await memory_store.forks()] == [0]
    lease = Lease("tape", await memory_store.raise_epoch("tape"))
    tape.write_under(lease)
    for append in (tape.append, tape.append_deferred):
        await append([note("a")])
    await (await tape.open_fork()).append([note("b")])
    assert [fork.epoch for fork in await memory_store.forks()] == [0, 1]
    other = Lease("other", await memory_store.raise_epoch("other"))
    await memory_store.raise_epoch("tape")
    await memory_store.raise_epoch("tape")
    for append in (tape.append, tape.append_deferred):
        with pytest.raises(LeaseLost):
            await append([note("c")])
        await append([note("d")], lease=other)
    with pytest.raises(LeaseLost):
        await tape.append_at(4, [note("c")])
    assert await texts(memory_store) == ["a", "a", "d", "d"]


@pytest.mark.law("T13")
async def test_a_forked_block_is_merged_at_its_end(tape: TapeService, memory_store: InMemoryStore) -> None:
    async with tape.fork_tape() as fork:
        await fork.append([note("a")])
        assert await tape.head() == 0
    assert (await texts(memory_store), await memory_store.forks()) == (["a"], [])


@pytest.mark.law("T13")
async def test_a_forked_block_that_is_not_merged_back_leaves_no_trace(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    async with tape.fork_tape(merge_back=False) as fork:
        await fork.append([note("a")])
    with pytest.raises(EntryNotFound):
        await append_and_fail(tape, merge_back=False)
    assert (await memory_store.tapes(), await memory_store.forks()) == ([], [])


async def append_and_fail(tape: TapeService, *, merge_back: bool) -> None:
    async with tape.fork_tape(merge_back=merge_back) as fork:
        await fork.append([note("a")])
        await fork.entry(9)


@pytest.mark.law("T14")
async def test_a_block_that_failed_is_a_fact_with_what_it_had_done(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    with pytest.raises(EntryNotFound):
        await append_and_fail(tape, merge_back=True)
    done, failure = await whole(memory_store)
    assert done.payload["content"] == "a"
    assert (failure.kind, failure.payload["kind"]) == ("error", "entry_not_found")
    assert "no entry 9" in failure.payload["message"]


@pytest.mark.law("T14")
async def test_a_block_that_was_cancelled_is_a_fact_with_what_it_had_done(
    tape: TapeService, memory_store: InMemoryStore
) -> None:
    began = asyncio.Event()

    async def block() -> None:
        async with tape.fork_tape() as fork:
            await fork.append([note("a")])
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done, failure = await whole(memory_store)
    assert (done.payload["content"], failure.kind, failure.payload["kind"]) == ("a", "error", "CancelledError")


async def test_blobs_are_kept_beside_the_tape(tape: TapeService) -> None:
    assert await tape.get_blob(await tape.put_blob(b"x")) == b"x"
    with pytest.raises(EntryNotFound):
        await tape.get_blob("absent")


def test_the_name_of_a_sessions_tape_is_that_of_the_upstream_format() -> None:
    assert session_tape("/home/me", "telegram:42") == "d3ccf200f137886f__bd8cdd776d6ba381"
    assert session_tape("home", "a") != session_tape("home", "b")
