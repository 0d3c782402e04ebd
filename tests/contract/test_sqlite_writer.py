"""The one writer: groups of appends share a commit, and each of them still fails or succeeds on its own."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from msgspec import structs

from bubbot.errors import StoreError, StoreFull, StoreUnavailable, TapeConflict
from bubbot.stores.sqlite.sizes import WalCheckpointer
from bubbot.stores.sqlite.store import SqliteStore, open_store, open_writer
from bubbot.stores.sqlite.writer import GroupCommitWriter
from bubbot.stores.transaction import Salt, Transaction
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.references import Rebase
from bubbot.tape.store import Batch, ForkRecord
from tests.doubles import CountingSalt, SteppingClock
from tests.raw import raw
from tests.tapes import batch, note, notes, texts, whole

LIMIT = 10.0
BUSY_MS = 10_000
BIG = "x" * 200_000


async def open_with_writer(
    path: Path,
    *,
    salt: Salt | None = None,
    room_retry: float | None = None,
    checkpointer: WalCheckpointer | None = None,
) -> tuple[SqliteStore, GroupCommitWriter]:
    """Open a store as `open_store` does, and return its writer too."""
    salt, now = salt or CountingSalt(), SteppingClock()
    store = SqliteStore(path, salt)
    connector = partial(open_writer, path, now(), lambda *_: None)
    checkpointer = checkpointer or WalCheckpointer(path, BUSY_MS)
    writer = GroupCommitWriter(connector, salt, checkpointer, store.check_file, room_retry)
    await store.start(writer)
    return store, writer


@pytest.fixture
async def store_with_writer(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, GroupCommitWriter]]:
    store, writer = await open_with_writer(tmp_path / "bubbot.db")
    yield store, writer
    await store.aclose()


@pytest.fixture
def store(store_with_writer: tuple[SqliteStore, GroupCommitWriter]) -> SqliteStore:
    return store_with_writer[0]


@pytest.fixture
def writer(store_with_writer: tuple[SqliteStore, GroupCommitWriter]) -> GroupCommitWriter:
    return store_with_writer[1]


@asynccontextmanager
async def held(writer: GroupCommitWriter) -> AsyncIterator[None]:
    """Keeps the writer busy for the block, so that what is appended meanwhile becomes one group."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: aiosqlite.Connection) -> None:
        begun.set()
        await go_on.wait()

    waiting = asyncio.create_task(writer.run_alone(wait))
    await begun.wait()
    try:
        yield
    finally:
        go_on.set()
        await waiting


async def limit_pages(writer: GroupCommitWriter, spare: int | None) -> None:
    """Lets the database grow by so many pages only; None: by as many as it likes."""

    async def limit(conn: aiosqlite.Connection) -> None:
        ((used,),) = await conn.execute_fetchall("PRAGMA page_count")
        await conn.execute_fetchall(f"PRAGMA max_page_count = {2**30 if spare is None else used + spare}")

    await writer.run_alone(limit)


async def commits(writer: GroupCommitWriter, seen: list[str]) -> None:
    await writer.run_alone(lambda conn: conn.set_trace_callback(seen.append))


@pytest.mark.law("T3")
async def test_appends_that_wait_share_one_commit(store: SqliteStore, writer: GroupCommitWriter) -> None:
    seen: list[str] = []
    await commits(writer, seen)
    async with held(writer):
        jobs = [asyncio.create_task(store.append([notes(str(number))])) for number in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*jobs)
    assert seen.count("COMMIT") == 1
    assert await texts(store) == [str(number) for number in range(50)]


async def test_a_group_asks_once_for_all_tapes_and_writes_all_rows_at_once(
    store: SqliteStore, writer: GroupCommitWriter
) -> None:
    seen: list[str] = []
    await commits(writer, seen)
    async with held(writer):
        jobs = [asyncio.create_task(store.append([notes(f"{number}", tape=f"t{number}")])) for number in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*jobs)
    asked = [sql for sql in seen if sql.lstrip().startswith(("WITH", "SELECT")) and "hex(chain)" not in sql]
    assert len(asked) == 1  # beside the head of the database, which is noted now and then
    assert {sql.split("(")[0] for sql in seen if sql.startswith("INSERT")} == {
        "INSERT INTO tapes ",
        "INSERT INTO entries ",
    }


async def test_a_long_queue_is_committed_in_several_groups(store: SqliteStore, writer: GroupCommitWriter) -> None:
    seen: list[str] = []
    await commits(writer, seen)
    async with held(writer):
        jobs = [asyncio.create_task(store.append([notes("a")])) for _ in range(501)]
        await asyncio.sleep(0)
    await asyncio.gather(*jobs)
    assert seen.count("COMMIT") == 2
    assert await store.head("tape") == 501


@pytest.mark.law("T3", "T4")
async def test_a_conflict_in_a_group_fails_alone(store: SqliteStore, writer: GroupCommitWriter) -> None:
    async with held(writer):
        jobs = [
            asyncio.create_task(store.append([notes("a")])),
            asyncio.create_task(store.append([notes("lost", tape="new"), batch(note("lost"), expect_head=7)])),
            asyncio.create_task(store.append([notes("b")])),
        ]
        await asyncio.sleep(0)
    first, conflict, last = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(conflict, TapeConflict)
    assert [first, last] == [[(entry,)] for entry in await whole(store)]
    assert [tape.name for tape in await store.tapes()] == ["tape"]


@pytest.mark.law("T3")
@pytest.mark.parametrize(
    "refused",
    [
        pytest.param([batch(note("refused"), expect_head=7)], id="at its first batch"),
        pytest.param([notes("refused", tape="other"), batch(note("refused"), expect_head=7)], id="at its second batch"),
    ],
)
async def test_a_group_is_not_rolled_back_for_a_job_that_is_refused(
    store: SqliteStore, writer: GroupCommitWriter, refused: list[Batch]
) -> None:
    await store.append([notes("a")])
    seen: list[str] = []
    await commits(writer, seen)
    async with held(writer):
        jobs = [asyncio.create_task(store.append(batches)) for batches in ([notes("b")], refused, [notes("c")])]
        await asyncio.sleep(0)
    before, conflict, after = await asyncio.gather(*jobs, return_exceptions=True)
    assert [sql for sql in seen if sql.split()[0] in ("SAVEPOINT", "ROLLBACK", "COMMIT")] == ["COMMIT"]
    assert isinstance(conflict, TapeConflict)
    assert [before, after] == [[(entry,)] for entry in (await whole(store))[1:]]
    assert await texts(store) == ["a", "b", "c"]
    assert await whole(store, "other") == ()
    assert (await store.audit()).findings == ()


@pytest.mark.law("T3")
async def test_when_one_of_a_group_fills_the_disk_the_others_stand_or_fall_on_their_own(
    store: SqliteStore, writer: GroupCommitWriter
) -> None:
    await store.append([batch(note("first", key="k"))])
    await limit_pages(writer, 12)
    async with held(writer):
        jobs = [
            asyncio.create_task(store.append([notes("before")])),
            asyncio.create_task(store.append([notes("small", tape="other"), notes(BIG)])),
            asyncio.create_task(store.append([batch(note("conflict", key="k"))])),
            asyncio.create_task(store.append([notes("after")])),
        ]
        await asyncio.sleep(0)
    before, full, conflict, after = await asyncio.gather(*jobs, return_exceptions=True)
    assert (type(full), type(conflict)) == (StoreFull, TapeConflict)
    assert await texts(store) == ["first", "before", "after"]
    assert [before, after] == [[(entry,)] for entry in (await whole(store))[1:]]
    assert await whole(store, "other") == ()
    assert (await store.audit()).findings == ()


async def rolls_back(transaction: Transaction) -> None:
    """What SQLite does to the whole transaction when a disk is full at the wrong moment."""
    await transaction.execute("INSERT INTO tapes (name) VALUES ('lost')", ())
    await transaction.fetch("ROLLBACK")
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    raise error


async def spoils_the_commit(transaction: Transaction) -> None:
    """A write that is refused only when the transaction ends."""
    await transaction.fetch("PRAGMA defer_foreign_keys = ON")
    await transaction.execute("INSERT INTO blobs (tape, digest, data) VALUES (999, 'lost', x'')", ())


async def fails_after_it_wrote(transaction: Transaction) -> None:
    await transaction.append([notes("lost", tape="other")])
    raise StoreUnavailable("a job that fails late")


@pytest.mark.law("T3")
@pytest.mark.parametrize(
    ("spoiler", "told"),
    [(rolls_back, StoreFull), (spoils_the_commit, StoreUnavailable), (fails_after_it_wrote, StoreUnavailable)],
)
async def test_one_that_takes_the_whole_transaction_with_it_costs_its_neighbours_nothing(
    store: SqliteStore, writer: GroupCommitWriter, spoiler: Any, told: type[StoreError]
) -> None:
    await store.append([batch(note("first", key="k"))])
    async with held(writer):
        jobs = [
            asyncio.create_task(store.append([notes("before")])),
            asyncio.create_task(writer.submit(spoiler)),
            asyncio.create_task(store.append([batch(note("conflict", key="k"))])),
            asyncio.create_task(store.append([notes("after")])),
        ]
        await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT):
        before, spoilt, conflict, after = await asyncio.gather(*jobs, return_exceptions=True)
    assert (type(spoilt), type(conflict)) == (told, TapeConflict)
    assert [before, after] == [[(entry,)] for entry in (await whole(store))[1:]]
    assert await texts(store) == ["first", "before", "after"]
    assert [tape.name for tape in await store.tapes()] == ["tape"]


@pytest.mark.law("T3")
async def test_when_sqlite_ends_the_transaction_in_mid_group_no_later_statement_of_it_stands_alone(
    store: SqliteStore, writer: GroupCommitWriter, tmp_path: Path
) -> None:
    """As it does when the disk is full at the wrong moment: what comes after would be committed at once."""
    await store.open_fork(ForkRecord("f", "tape", 0, (notes("a"),)))
    refuse = "CREATE TEMP TRIGGER refuse BEFORE INSERT ON entries BEGIN SELECT RAISE(ROLLBACK, 'no room'); END"
    await writer.run_alone(lambda conn: conn.execute(refuse))
    jobs = [store.merge_fork("f", [notes("a")]), store.open_fork(ForkRecord("g", "tape", 0, (notes("b"),)))]
    merge, fork = await asyncio.gather(*jobs, return_exceptions=True)
    assert (isinstance(merge, StoreError), fork) == (True, None)
    assert [found.id for found in await store.forks()] == ["f", "g"]
    await writer.run_alone(lambda conn: conn.execute("DROP TRIGGER refuse"))
    await store.merge_fork("f", [notes("a")])
    assert await texts(store) == ["a"]


@pytest.mark.law("T3")
async def test_a_full_disk_is_an_error_of_its_own_and_nothing_is_written(
    store: SqliteStore, writer: GroupCommitWriter
) -> None:
    await store.append([notes("a")])
    await limit_pages(writer, 0)
    with pytest.raises(StoreFull, match="no room"):
        await store.append([notes("b", tape="other"), notes(BIG)])
    assert (await texts(store), await whole(store, "other")) == (["a"], ())
    assert [tape.name for tape in await store.tapes()] == ["tape"]


async def test_appends_work_again_when_there_is_room_again(store: SqliteStore, writer: GroupCommitWriter) -> None:
    await limit_pages(writer, 0)
    with pytest.raises(StoreFull):
        await store.append([notes(BIG)])
    await limit_pages(writer, None)
    await store.append([notes("a", BIG)])
    assert await texts(store) == ["a", BIG]


async def test_a_merge_onto_a_full_disk_leaves_the_fork_open(store: SqliteStore, writer: GroupCommitWriter) -> None:
    await store.append([notes("a")])
    await store.open_fork(ForkRecord("f", "tape", 1, (notes("b"),)))
    await limit_pages(writer, 0)
    with pytest.raises(StoreFull):
        await store.merge_fork("f", [notes("b", BIG)])
    assert (await texts(store), len(await store.forks())) == (["a"], 1)


@pytest.mark.law("T3")
async def test_a_caller_cancelled_before_its_append_began_wrote_nothing(
    store: SqliteStore, writer: GroupCommitWriter
) -> None:
    async with held(writer):
        kept = asyncio.create_task(store.append([notes("kept")]))
        gone = asyncio.create_task(store.append([notes("gone")]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
    await kept
    with pytest.raises(asyncio.CancelledError):
        await gone
    await store.append([notes("last")])
    assert await texts(store) == ["kept", "last"]


@pytest.mark.law("T3")
async def test_a_caller_cancelled_in_mid_append_wrote_everything(store: SqliteStore) -> None:
    began = asyncio.Event()

    class NoticedRebase(Rebase):
        """Tells when the transaction is under way."""

        def plan(self, *_: object) -> None:
            began.set()

    last = structs.replace(notes("c", tape="other"), rebase=NoticedRebase(0, KERNEL_REFERENCES))
    job = asyncio.create_task(store.append([notes("a", "b"), last]))
    await began.wait()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await store.append([notes("d")])
    assert (await texts(store), await texts(store, "other")) == (["a", "b", "d"], ["c"])


@pytest.mark.law("T3")
async def test_whenever_a_caller_is_cancelled_it_wrote_all_or_nothing_and_no_transaction_stays_open(
    store: SqliteStore, tmp_path: Path
) -> None:
    for rounds in range(40):
        tapes = [f"{rounds}a", f"{rounds}b"]
        job = asyncio.create_task(store.append([notes("x", tape=tape) for tape in tapes]))
        for _ in range(rounds):
            await asyncio.sleep(0)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        await store.append([notes("after")])
        assert len({await store.head(tape) for tape in tapes}) == 1
        with raw(tmp_path / "bubbot.db") as other:
            other.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
    assert (await store.audit()).findings == ()


@pytest.mark.law("T3")
async def test_a_writer_that_is_cancelled_in_mid_group_leaves_no_transaction_open(tmp_path: Path) -> None:
    """As at the end of an event loop, which cancels every task."""
    for rounds in range(25):
        path = tmp_path / f"{rounds}.db"
        others = asyncio.all_tasks()
        store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
        tasks_of_store = asyncio.all_tasks() - others
        jobs = [asyncio.create_task(store.append([notes("x"), notes("y", tape="other")])) for _ in range(5)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        for task in tasks_of_store:
            task.cancel()
        ends = await asyncio.gather(*jobs, return_exceptions=True)
        with pytest.raises(StoreUnavailable):
            await store.append([notes("z")])
        await store.aclose()
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            kept = other.execute("SELECT count(*) FROM entries").fetchone()[0]
        assert kept % 2 == 0
        assert kept >= 2 * sum(not isinstance(end, BaseException) for end in ends)


async def test_contents_are_encoded_and_hashed_before_they_wait_for_their_group(tmp_path: Path) -> None:
    sizes: list[int] = []

    def salt(size: int) -> bytes:
        sizes.append(size)
        return bytes([len(sizes)]) * size

    store, writer = await open_with_writer(tmp_path / "salted.db", salt=salt)
    try:
        async with held(writer):
            jobs = [asyncio.create_task(store.append([notes(text, text)])) for text in "ab"]
            await asyncio.sleep(0)
            assert sizes == [32, 32]
        await asyncio.gather(*jobs)
        assert sizes == [32, 32]
        assert (await store.audit()).findings == ()
    finally:
        await store.aclose()


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "close.db", salt=CountingSalt(), now=SteppingClock())
    jobs = [asyncio.create_task(store.append([notes(str(number))])) for number in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    assert [entries[0].id for (entries,) in await asyncio.gather(*jobs)] == list(range(1, 21))


async def test_closing_that_is_cancelled_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store, writer = await open_with_writer(tmp_path / "cancel.db")
    threads = set(threading.enumerate()) - before
    assert len(threads) == 3
    async with held(writer):
        closing = asyncio.create_task(store.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.gather(*[asyncio.to_thread(thread.join, LIMIT) for thread in threads])
    assert not any(thread.is_alive() for thread in threads)


class FaultyCheckpointer(WalCheckpointer):
    """Fails after the first commit, once `may_fail` is set."""

    def __init__(self, database: Path) -> None:
        super().__init__(database, BUSY_MS)
        self.commits = 0
        self.is_reached, self.may_fail = asyncio.Event(), asyncio.Event()

    async def after_commit(self, conn: aiosqlite.Connection, *, idle: bool) -> None:
        """See `WalCheckpointer.after_commit`."""
        self.commits += 1
        if self.commits == 1:
            self.is_reached.set()
            await self.may_fail.wait()
            raise RuntimeError("a fault of ours")
        await super().after_commit(conn, idle=idle)


async def test_a_fault_of_the_writer_fails_what_waits_and_hangs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = FaultyCheckpointer(tmp_path / "bubbot.db")
    store, _ = await open_with_writer(tmp_path / "bubbot.db", checkpointer=checkpointer)
    try:
        async with asyncio.timeout(LIMIT):
            await store.append([notes("a")])
            await checkpointer.is_reached.wait()
            jobs = [asyncio.create_task(store.append([notes("b")])) for _ in range(3)]
            await asyncio.sleep(0)
            checkpointer.may_fail.set()
            ends = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(end) for end in ends] == [StoreUnavailable] * 3
        assert "database writer failed" in caplog.text
        assert [entry.id for entry in (await store.append([notes("c")]))[0]] == [2]
    finally:
        await store.aclose()


async def test_a_connection_that_is_lost_fails_every_append_and_hangs_none(
    store: SqliteStore, writer: GroupCommitWriter
) -> None:
    await writer.run_alone(lambda conn: conn.close())
    async with asyncio.timeout(LIMIT):
        ends = await asyncio.gather(*[store.append([notes("a")]) for _ in range(3)], return_exceptions=True)
    assert [type(end) for end in ends] == [StoreUnavailable] * 3


async def test_another_program_that_holds_the_database_is_an_error_that_says_so(
    store: SqliteStore, writer: GroupCommitWriter, tmp_path: Path
) -> None:
    await writer.run_alone(lambda conn: conn.execute_fetchall("PRAGMA busy_timeout = 1"))
    other = sqlite3.connect(tmp_path / "bubbot.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        begins: list[str] = []
        await writer.run_alone(lambda conn: conn.set_trace_callback(begins.append))
        ends = await asyncio.gather(*[store.append([notes(text)]) for text in "abc"], return_exceptions=True)
        assert [(type(end), "locked" in str(end)) for end in ends] == [(StoreUnavailable, True)] * 3
        assert len([sql for sql in begins if sql.startswith("BEGIN")]) == 1, "each attempt waits as long again"
    finally:
        other.close()
    await store.append([notes("b")])
    assert await texts(store) == ["b"]


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, GroupCommitWriter]]:
    """A store that waits where the disk is full, and tries again at once."""
    store, writer = await open_with_writer(tmp_path / "patient.db", room_retry=0.0)
    yield store, writer
    await store.aclose()


async def full(store: SqliteStore) -> None:
    """Wait until the writer knows that there is no room."""
    async with asyncio.timeout(LIMIT):
        while not store.is_full:
            await store.head("tape")


@pytest.mark.law("T3")
async def test_a_patient_writer_waits_on_a_full_disk_and_goes_on_in_order_when_there_is_room(
    patient: tuple[SqliteStore, GroupCommitWriter], caplog: pytest.LogCaptureFixture
) -> None:
    store, writer = patient
    await store.append([notes("a")])
    await limit_pages(writer, 0)
    big = asyncio.create_task(store.append([notes(BIG)]))
    await full(store)
    small = asyncio.create_task(store.append([notes("b")]))
    room = asyncio.create_task(store.wait_for_room())
    for _ in range(20):  # tries that find no room
        await store.head("tape")
    assert (big.done(), small.done(), room.done(), await texts(store)) == (False, False, False, ["a"])
    await limit_pages(writer, None)
    await asyncio.gather(big, small, room)
    assert await texts(store) == ["a", BIG, "b"]
    assert not store.is_full
    told = [one for one in caplog.records if getattr(one, "action", "") in ("store.full", "store.room")]
    assert [(one.levelname, getattr(one, "action", "")) for one in told] == [
        ("ERROR", "store.full"),
        ("WARNING", "store.room"),
    ]


async def test_who_stops_waiting_for_room_wrote_nothing_and_holds_up_nobody(
    patient: tuple[SqliteStore, GroupCommitWriter],
) -> None:
    store, writer = patient
    await limit_pages(writer, 0)
    big = asyncio.create_task(store.append([notes(BIG)]))
    await full(store)
    big.cancel()
    await asyncio.gather(big, return_exceptions=True)
    await limit_pages(writer, None)
    await store.append([notes("b")])
    assert await texts(store) == ["b"]


async def test_what_waits_for_room_fails_when_the_store_is_closed(
    patient: tuple[SqliteStore, GroupCommitWriter],
) -> None:
    store, writer = patient
    await limit_pages(writer, 0)
    big = asyncio.create_task(store.append([notes(BIG)]))
    await full(store)
    await store.aclose()
    with pytest.raises(StoreError):
        await big


async def test_who_waits_for_room_no_longer_hears_so_at_once_and_not_at_the_next_try(tmp_path: Path) -> None:
    store, writer = await open_with_writer(tmp_path / "hour.db", room_retry=3600.0)
    await limit_pages(writer, 0)
    big = asyncio.create_task(store.append([notes(BIG)]))
    await full(store)
    store.stop_waiting_for_room()
    async with asyncio.timeout(LIMIT):
        with pytest.raises(StoreFull):
            await big
        with pytest.raises(StoreFull):
            await store.append([notes(BIG)])
        room = asyncio.create_task(store.wait_for_room())
        for _ in range(20):
            await store.head("tape")
        assert not room.done(), "nothing is sent while no receipt can be stored"
        room.cancel()
        await store.aclose()


LEFT_OPEN = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from bubbot.stores.sqlite.store import open_store
from tests.tapes import notes
async def main():
    store = await open_store(Path(sys.argv[1]), salt=bytes, now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
    {before}
    raise KeyError("a fault of the program")
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "before",
    [
        "await store.head('tape')",
        "await store.append([notes('a')])",
        "jobs = [asyncio.create_task(store.append([notes('a')])) for _ in range(50)]; await asyncio.sleep(0.001)",
        "jobs = [asyncio.create_task(store.fetch([])) for _ in range(50)]; await asyncio.sleep(0.001)",
        "indexer = store.build_indexer(); await store.append([notes('a')]); await indexer.fill()",
    ],
)
def test_a_program_that_fails_before_it_closes_its_store_ends(tmp_path: Path, before: str) -> None:
    """The threads of connections keep a process until each is closed."""
    command = [sys.executable, "-c", LEFT_OPEN.format(before=before), str(tmp_path / "bubbot.db")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"a fault of the program" in done.stderr
    assert b"never" not in done.stderr
    with raw(tmp_path / "bubbot.db") as conn:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("ROLLBACK")
