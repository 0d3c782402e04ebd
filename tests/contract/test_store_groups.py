"""What the writer promises to jobs that share a commit: order, their own outcome, and what each sees of the others.

Through the store's public names alone: whatever wakes together is one group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
from msgspec import structs
from psycopg import AsyncConnection

from bubbot.errors import EntryNotFound, LeaseLost, TapeConflict
from bubbot.stores.postgres.store import PostgresStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import event
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.query import TapeQuery
from bubbot.tape.references import Rebase
from bubbot.tape.store import Batch, ForkRecord, Lease, ResetBatch
from tests.raw import raw
from tests.tapes import batch, note, notes, texts, whole

pytestmark = pytest.mark.law("T3")


GroupStore: TypeAlias = SqliteStore | PostgresStore


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> GroupStore:
    found: GroupStore = request.getfixturevalue(f"{request.param}_store")
    return found


async def in_one_commit(store: GroupStore, *jobs: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run the jobs as one group; return their results and errors. A server resets a tape in a transaction of its own."""
    before, resets = store.commit_count, sum("reset" in repr(job) for job in jobs)
    ends = await asyncio.gather(*jobs, return_exceptions=True)
    assert store.commit_count == before + 1 or (resets and isinstance(store, PostgresStore))
    return ends


@asynccontextmanager
async def locked(store: GroupStore) -> AsyncIterator[None]:
    """Another connection has the database locked for the block: what is written meanwhile waits."""
    if isinstance(store, SqliteStore):
        with raw(store.path) as conn:
            conn.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                conn.execute("ROLLBACK")
        return
    async with await AsyncConnection.connect(**store.address.parameters) as other:
        await other.execute("SELECT bubbot.hold(ARRAY[]::text[], true)")
        yield
        await other.rollback()


async def sound(store: GroupStore) -> None:
    assert [found for found in (await store.audit()).findings if found.problem != "erased"] == []


async def positions(store: GroupStore) -> list[tuple[str, int]]:
    return [(found.tape, found.entry.id) for found in await store.read_after(0, 1000)]


async def test_jobs_of_a_group_have_the_positions_in_the_order_in_which_they_were_asked_for(store: GroupStore) -> None:
    await in_one_commit(store, *(store.append([notes("a", "b", tape=tape)]) for tape in ("x", "y", "x", "z")))
    expected = [("x", 1), ("x", 2), ("y", 1), ("y", 2), ("x", 3), ("x", 4), ("z", 1), ("z", 2)]
    assert await positions(store) == expected
    await sound(store)


async def test_results_come_in_the_order_in_which_the_jobs_were_asked_for(store: GroupStore) -> None:
    ended: list[int] = []

    async def append(number: int) -> None:
        await store.append([notes(str(number))])
        ended.append(number)

    await in_one_commit(store, *map(append, range(30)))
    assert ended == list(range(30))


async def test_a_job_that_fails_takes_no_position_and_no_id(store: GroupStore) -> None:
    await store.append([batch(note("first", key="k"))])
    refused = [
        [batch(note("lost"), expect_head=7)],
        [notes("lost", tape="other"), batch(note("lost", key="k"))],
        [notes("lost", "lost"), batch(note("lost"), expect_head=99)],
    ]
    ends = await in_one_commit(
        store,
        store.append([notes("a")]),
        *map(store.append, refused),
        store.append([notes("b")]),
        store.append([notes("c", tape="other")]),
    )
    assert [type(end) for end in ends] == [list, TapeConflict, TapeConflict, TapeConflict, list, list]
    assert (await texts(store), await texts(store, "other")) == (["first", "a", "b"], ["c"])
    assert await positions(store) == [("tape", 1), ("tape", 2), ("tape", 3), ("other", 1)]
    await sound(store)


@pytest.mark.law("T4")
async def test_of_two_jobs_that_expect_the_same_head_the_first_one_wins(store: GroupStore) -> None:
    first, second = await in_one_commit(
        store, *(store.append([batch(note(text), expect_head=0)]) for text in ("first", "second"))
    )
    assert (type(first), type(second)) == (list, TapeConflict)
    assert await texts(store) == ["first"]


@pytest.mark.law("T5")
async def test_a_key_that_an_earlier_job_of_the_group_has_written_counts_as_stored(store: GroupStore) -> None:
    same = batch(note("a", key="k"))
    written, again, other, kept = await in_one_commit(
        store,
        store.append([same]),
        store.append([same, notes("b")]),
        store.append([batch(note("else", key="k"))]),
        store.append([batch(note("else", key="k"), keep_first=True)]),
    )
    assert [entry.id for (entries) in again for entry in entries] == [1, 2]
    assert isinstance(other, TapeConflict)
    assert written[0] == again[0] == kept[0]
    assert await texts(store) == ["a", "b"]


@pytest.mark.law("T5")
async def test_a_key_of_a_job_that_failed_is_free(store: GroupStore) -> None:
    refused, written = await in_one_commit(
        store,
        store.append([batch(note("lost", key="k")), batch(note("lost"), expect_head=7)]),
        store.append([batch(note("a", key="k"))]),
    )
    assert (type(refused), await texts(store)) == (TapeConflict, ["a"])
    assert written[0] == await whole(store)


async def test_keys_with_any_sign_are_found_again(store: GroupStore) -> None:
    keys = ["", "a'b", 'a"b', "a\\b", "a\x00b", "a\x00c", "漢字", "\U0010ffff", "[]", "{}"]
    await store.append([batch(*(note(key, key=key) for key in keys))])
    stored = await whole(store)
    again = await store.append([batch(*(note(key, key=key) for key in keys))])
    assert again == [stored]
    await store.append([notes("a", tape=key) for key in keys])
    await store.append([notes("b", tape=key) for key in keys])
    assert [tape.head for tape in await store.tapes() if tape.name != "tape"] == [2] * len(keys)


async def test_a_tape_that_two_jobs_of_a_group_begin_is_one_tape(store: GroupStore) -> None:
    jobs = [store.append([notes(text, tape="new")]) for text in "ab"]
    digest, *_ = await in_one_commit(store, store.put_blob("new", b"blob"), *jobs)
    assert (await texts(store, "new"), [tape.name for tape in await store.tapes()]) == (["a", "b"], ["new"])
    assert await store.get_blob("new", digest) == b"blob"
    await sound(store)


@pytest.mark.law("T13")
async def test_a_fork_is_opened_extended_and_merged_within_one_group(store: GroupStore) -> None:
    await store.append([notes("a")])
    *_, merged = await in_one_commit(
        store,
        store.open_fork(ForkRecord("f", "tape", 1, (notes("b"),))),
        store.extend_fork("f", [notes("c")]),
        store.merge_fork("f", [notes("b", "c")]),
    )
    assert (await texts(store), await store.forks()) == (["a", "b", "c"], [])
    assert [entry.id for entry in merged[0]] == [2, 3]


@pytest.mark.law("T13")
async def test_a_fork_that_is_dropped_and_opened_again_within_a_group_is_open(store: GroupStore) -> None:
    await store.open_fork(ForkRecord("f", "tape", 0, (notes("old", "old"), notes("old"))))
    again = ForkRecord("f", "tape", 0, (notes("new"),))
    await in_one_commit(store, store.drop_fork("f"), store.open_fork(again))
    assert await store.forks() == [again]


@pytest.mark.law("T13")
async def test_forks_of_a_fork_and_the_fork_itself_are_merged_within_one_group(store: GroupStore) -> None:
    await store.open_fork(ForkRecord("f", "tape", 0, (notes("a"),)))
    ends = await in_one_commit(
        store,
        store.open_fork(ForkRecord("f/g", "tape", 1, ())),
        store.merge_fork("f", [notes("too early")]),
        store.merge_fork("f/g", [notes("b")]),
        store.extend_fork("f", [notes("c")]),
        store.extend_fork("f/g", [notes("too late")]),
    )
    assert [type(end) for end in ends] == [type(None), TapeConflict, list, type(None), EntryNotFound]
    (fork,) = await store.forks()
    assert [entry.payload["content"] for staged in fork.staged for entry in staged.entries] == ["a", "b", "c"]
    await store.merge_fork("f", fork.staged)
    assert await texts(store) == ["a", "b", "c"]


@pytest.mark.law("T13")
async def test_a_merge_that_conflicts_leaves_its_fork_open_and_its_neighbours_alone(store: GroupStore) -> None:
    await store.open_fork(ForkRecord("f", "tape", 0, (notes("a"),)))
    await store.open_fork(ForkRecord("g", "tape", 0, (notes("b"),)))
    ends = await in_one_commit(
        store,
        store.append([notes("first")]),
        store.merge_fork("f", [notes("staged", tape="other"), batch(note("a"), expect_head=0)]),
        store.merge_fork("g", [notes("b")]),
    )
    assert [type(end) for end in ends] == [list, TapeConflict, list]
    assert ([fork.id for fork in await store.forks()], await texts(store)) == (["f"], ["first", "b"])
    assert [tape.name for tape in await store.tapes()] == ["tape"]


@pytest.mark.law("T13")
async def test_forks_that_merge_in_one_group_are_rebased_one_after_the_other(store: GroupStore) -> None:
    await store.append([notes("a")])
    deltas = {
        fork: structs.replace(
            batch(note(fork), event("turn/start", {"messages": [2]})), rebase=Rebase(1, KERNEL_REFERENCES)
        )
        for fork in ("f", "g")
    }
    for fork, delta in deltas.items():
        await store.open_fork(ForkRecord(fork, "tape", 1, (delta,)))
    await in_one_commit(store, *(store.merge_fork(fork, [delta]) for fork, delta in deltas.items()))
    entries = await whole(store)
    assert [entry.payload["data"]["messages"] for entry in entries if entry.kind == "event"] == [(2,), (4,)]
    await sound(store)


async def test_a_lease_that_is_raised_in_a_group_is_lost_for_later_jobs_of_it(store: GroupStore) -> None:
    epoch = await store.raise_epoch("tape")
    under = Lease("tape", epoch)
    before, raised, after, twice = await in_one_commit(
        store,
        store.append([structs.replace(notes("a"), lease=under)]),
        store.raise_epoch("tape"),
        store.append([structs.replace(notes("b"), lease=under)]),
        store.raise_epoch("tape"),
    )
    assert (type(before), raised, type(after), twice) == (list, epoch + 1, LeaseLost, epoch + 2)
    assert await texts(store) == ["a"]


async def test_a_tape_that_is_put_aside_in_a_group_is_begun_again_by_later_jobs_of_it(store: GroupStore) -> None:
    await store.append([batch(note("old", key="k"))])
    ends = await in_one_commit(
        store,
        store.append([notes("last")]),
        store.reset("tape", ResetBatch("tape@1"), [note("new")]),
        store.append([batch(note("newer", key="k"), expect_head=1)]),
        store.append([notes("lost", tape="tape@1")]),
        store.reset("tape", ResetBatch("tape@2"), []),
        store.append([notes("newest")]),
    )
    assert [type(end).__name__ for end in ends] == ["list", "tuple", "list", "TapeConflict", "tuple", "list"]
    found = [await texts(store, tape) for tape in ("tape", "tape@2", "tape@1")]
    assert found == [["newest"], ["new", "newer", ""], ["old", "last", ""]]
    await sound(store)


@pytest.mark.law("T17")
async def test_an_erasure_among_appends_blanks_what_was_there_and_nothing_else(store: GroupStore) -> None:
    await store.append([notes("old")])
    await store.put_blob("tape", b"blob")
    appends = [store.append([notes(text, tape="other")]) for text in "ab"]
    await asyncio.gather(*appends, store.reset("tape", ResetBatch("tape@1", erase=True), [event("tape/erased")]))
    assert (await texts(store), await texts(store, "tape@1")) == ([""], ["", ""])
    assert await texts(store, "other") == ["a", "b"]
    await sound(store)


async def test_many_jobs_of_all_kinds_at_once_are_each_as_if_alone(store: GroupStore) -> None:
    async def talk(number: int) -> None:
        tape, fork = f"chat/{number % 7}", f"fork{number}"
        await store.append([batch(note("in", key=f"in{number}"), tape="inbox")])
        head = await store.head(tape)
        delta = structs.replace(batch(note(f"said {number}"), tape=tape), rebase=Rebase(head, KERNEL_REFERENCES))
        await store.open_fork(ForkRecord(fork, tape, head, (delta,)), expect_head=False)
        await store.extend_fork(fork, [notes("step", tape="outbox")])
        if number % 5:
            await store.merge_fork(fork, [delta, notes("out", tape="outbox")])
        else:
            await store.drop_fork(fork)
        with pytest.raises(TapeConflict):
            await store.append([batch(note("again", key=f"in{number}"), tape="inbox")])

    await asyncio.gather(*map(talk, range(60)))
    assert (await store.head("inbox"), await store.head("outbox"), await store.forks()) == (60, 48, [])
    assert sum([await store.head(f"chat/{number}") for number in range(7)]) == 48
    await sound(store)


async def test_a_job_that_was_cancelled_while_it_waited_is_dropped_and_its_neighbours_are_not(
    store: GroupStore,
) -> None:
    async with locked(store):
        under_way = asyncio.create_task(store.append([notes("under way")]))
        for _ in range(5):
            await asyncio.sleep(0)
        jobs = [asyncio.create_task(store.append([notes(text)])) for text in ("a", "gone", "b")]
        deferred = store.append_deferred([notes("gone, too")])
        await asyncio.sleep(0)
        jobs[1].cancel()
        assert isinstance(deferred, asyncio.Future)
        deferred.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(under_way, *jobs, return_exceptions=True)
    assert [job.cancelled() for job in jobs] == [False, True, False]
    assert await texts(store) == ["under way", "a", "b"]


async def test_what_is_deferred_is_committed_with_the_next_job_and_before_it(store: GroupStore) -> None:
    before = store.commit_count
    deferred = store.append_deferred([notes("first")])
    await store.append([notes("second")])
    assert (await deferred)[0][0].id == 1
    assert (await texts(store), store.commit_count) == (["first", "second"], before + 1)


async def test_what_is_deferred_is_committed_though_nothing_follows(store: GroupStore) -> None:
    async with asyncio.timeout(60):
        await store.append_deferred([notes("alone")])
    assert await texts(store) == ["alone"]


async def test_whoever_heard_of_a_commit_reads_what_it_wrote_whatever_others_are_reading(store: GroupStore) -> None:
    await store.append([notes("a")])

    async def write_and_read(number: int) -> None:
        tape = f"t{number}"
        for head in range(1, 6):
            await store.append([notes("x", tape=tape)])
            assert (await store.head(tape), len(await whole(store, tape))) == (head, head)

    async def read() -> None:
        for _ in range(20):
            await store.tapes()
            await whole(store)

    await asyncio.gather(*map(write_and_read, range(10)), *(read() for _ in range(5)))


async def test_a_reading_of_several_tapes_sees_one_state(store: GroupStore) -> None:
    async def write() -> None:
        for _ in range(30):
            await store.append([notes("x", tape="a"), notes("x", tape="b")])

    writing = asyncio.create_task(write())
    while not writing.done():
        first, second = await store.fetch([TapeQuery("a"), TapeQuery("b")])
        assert len(first) == len(second)
    await writing


def put(tape: str) -> Batch:
    return notes("x", tape=tape)


async def test_a_cancelled_writer_of_many_jobs_leaves_no_transaction_open(store: GroupStore) -> None:
    jobs = [asyncio.create_task(store.append([put(f"t{number}")])) for number in range(100)]
    for _ in range(7):
        await asyncio.sleep(0)
        jobs.pop().cancel()
    await asyncio.gather(*jobs)
    async with asyncio.timeout(60), locked(store):
        pass
    await sound(store)
