"""The room a database takes: the write-ahead log under load and beside readers, free pages, and blobs nobody names."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from bubbot.stores.sqlite.sizes import WalLimits, wal_size
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import event
from bubbot.tape.store import Batch, ForkRecord, ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.raw import raw
from tests.tapes import batch, note, notes, texts

MB = 1 << 20
SMALL = WalLimits(short=MB // 2, long=2 * MB, step=MB)
NEVER = WalLimits(short=1 << 40, long=1 << 40)


def wal(store: SqliteStore) -> int:
    return wal_size(store.path.with_name("bubbot.db-wal"))


async def write(store: SqliteStore, megabytes: int) -> int:
    """Appends so much; returns the greatest length of the write-ahead log meanwhile."""
    most = 0
    for _ in range(megabytes * 4):
        await store.append([Batch("load", tuple(event("filler", {"text": "x" * 16_000}) for _ in range(16)))])
        most = max(most, wal(store))
    return most


@asynccontextmanager
async def opened(path: Path, limits: WalLimits) -> AsyncIterator[SqliteStore]:
    """Open a store whose write-ahead log has these limits."""
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock(), limits=limits)
    try:
        yield store
    finally:
        await store.aclose()


@contextmanager
def a_reader(path: Path) -> Iterator[None]:
    """Somebody in the middle of a read transaction."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as conn:
        conn.execute("BEGIN")
        conn.execute("SELECT count(*) FROM tapes").fetchone()
        yield


@contextmanager
def readers_that_overlap(path: Path) -> Iterator[None]:
    """There is always one, and none stays long: each leaves when the next one has come."""
    ending = threading.Event()

    def keep_coming() -> None:
        with a_reader(path):
            pass
        inner = a_reader(path)
        inner.__enter__()
        while not ending.wait(0.02):
            following = a_reader(path)
            following.__enter__()
            inner.__exit__(None, None, None)
            inner = following
        inner.__exit__(None, None, None)

    thread = threading.Thread(target=keep_coming)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


async def until(so: Callable[[], bool]) -> None:
    """The writer sees to the log after it has said that something is written."""
    async with asyncio.timeout(60):
        while not so():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_the_log_stays_short_under_sustained_writes_and_is_empty_when_they_end(sqlite_store: SqliteStore) -> None:
    assert await write(sqlite_store, 12) < 12_582_912
    await until(lambda: wal(sqlite_store) <= 4_194_304)


async def test_the_log_stays_bounded_where_readers_overlap_and_never_leave_it_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "bubbot.db", SMALL) as store:
        with readers_that_overlap(store.path):
            assert await write(store, 10) < SMALL.long + 2 * MB


async def test_without_anybody_who_sees_to_it_the_log_grows_beside_them(tmp_path: Path) -> None:
    async with opened(tmp_path / "bubbot.db", NEVER) as store:
        with readers_that_overlap(store.path):
            assert await write(store, 10) > 6 * MB


async def test_a_long_reader_makes_the_log_grow_only_until_it_leaves_and_delays_nobody_for_long(tmp_path: Path) -> None:
    async with opened(tmp_path / "bubbot.db", WalLimits(short=MB // 2, long=64 * MB, step=MB)) as store:
        with a_reader(store.path):
            async with asyncio.timeout(60):
                await write(store, 5)
            assert wal(store) > 4 * MB
        await store.append([notes("one more")])
        await until(lambda: wal(store) <= SMALL.short)


async def test_room_that_was_erased_goes_back_to_the_disk(sqlite_store: SqliteStore) -> None:
    await write(sqlite_store, 4)
    await sqlite_store.reset("load", ResetBatch("load@old"), [event("tape/archived")])
    before = await sqlite_store.measure_size()
    await sqlite_store.erase_archive("load@old", batch(event("tape/erased"), tape="bubbot/home"), ())
    await sqlite_store.release_pages(allow_rewrite=False)
    after = await sqlite_store.measure_size()
    assert before.gives_back
    assert (before.file > 4 * MB, after.file < before.file / 3, after.free, after.wal) == (True, True, 0, 0)
    assert (await sqlite_store.audit()).findings[0].problem == "erased"


async def test_a_database_of_before_is_written_anew_once_and_then_gives_pages_back(tmp_path: Path) -> None:
    path = tmp_path / "bubbot.db"
    with raw(path) as conn:
        conn.execute("CREATE TABLE x (y)")  # from now on the file has no map of its pages
        conn.execute("DROP TABLE x")
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
    try:
        await store.append([notes("a", "b")])
        head = await store.deployment_head()
        assert not (await store.measure_size()).gives_back
        await store.release_pages(allow_rewrite=False)
        assert not (await store.measure_size()).gives_back
        await store.release_pages(allow_rewrite=True)
        assert (await store.measure_size()).gives_back
        assert (await store.deployment_head(), (await store.audit()).findings) == (head, ())
    finally:
        await store.aclose()


@pytest.mark.law("T17")
async def test_no_file_of_the_database_keeps_the_bytes_of_single_erased_entries(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("zqone", "zqkept", "zqtwo")])
    digest = await sqlite_store.put_blob("tape", b"zqblob")
    await sqlite_store.append([batch(event("file", {"digest": digest, "name": "zqname"}))])
    await sqlite_store.erase([batch(event("tape/erased"), tape="bubbot/home")], [("tape", (1, 3, 4))])
    found = await sqlite_store.audit()
    assert ([finding.id for finding in found.findings], found.damage) == ([1, 3, 4], ())
    held = b"".join(file.read_bytes() for file in sqlite_store.path.parent.iterdir() if file.is_file())
    assert [word for word in (b"zqone", b"zqkept", b"zqtwo", b"zqblob", b"zqname") if word in held] == [b"zqkept"]


@pytest.mark.law("T17")
async def test_an_archive_is_erased_by_a_fact_with_what_others_hold_of_it_and_nothing_else(
    sqlite_store: SqliteStore,
) -> None:
    await sqlite_store.append([notes("old"), notes("of old", "of new", tape="bubbot/inbox/x")])
    await sqlite_store.put_blob("tape", b"old")
    await sqlite_store.reset("tape", ResetBatch("tape@1"), [note("new")])
    await sqlite_store.reset("tape", ResetBatch("tape@2"), [note("newest")])
    fact = batch(event("tape/erased", {"archive": "tape@1"}), tape="bubbot/home")
    await sqlite_store.erase_archive("tape@1", fact, (("bubbot/inbox/x", (1,)),))
    erased = {(one.tape, one.id) for one in (await sqlite_store.audit()).findings}
    assert erased == {("tape@1", 1), ("bubbot/inbox/x", 1)}
    assert await texts(sqlite_store, "tape@2") == ["new", ""]
    assert {one.name: one.blobs for one in (await sqlite_store.measure_size()).tapes}["tape@1"] == 0


async def test_blobs_that_nothing_names_are_found_and_removed_and_no_others(sqlite_store: SqliteStore) -> None:
    loose = await sqlite_store.put_blob("tape", b"nobody names it")
    named = await sqlite_store.put_blob("tape", b"an entry names it")
    late = await sqlite_store.put_blob("tape", b"named after it was looked for")
    staged = await sqlite_store.put_blob("tape", b"a fork names it")
    await sqlite_store.append([batch(event("x", {"digest": named}))])
    await sqlite_store.open_fork(ForkRecord("f", "tape", 1, (batch(event("y", {"deep": [{"digest": staged}]})),)))
    found = await sqlite_store.find_unreferenced_blobs()
    assert {one for one, _ in found.tapes["tape"]} == {loose, late}
    await sqlite_store.append([batch(event("z", {"in words": f"it is {late}."}))])
    assert await sqlite_store.drop_blobs("tape", found, "2026-11-22") == 1
    assert (await sqlite_store.find_unreferenced_blobs()).tapes == {}
    assert [await sqlite_store.get_blob("tape", one) for one in (named, late, staged)]
