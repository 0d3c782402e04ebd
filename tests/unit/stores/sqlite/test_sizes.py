"""When the write-ahead log is shortened, and what takes the room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest

from bubbot.stores.sqlite.sizes import WalCheckpointer, WalLimits, measure_size, wal_size
from bubbot.stores.sqlite.store import SqliteStore, open_store
from tests.doubles import CountingSalt, SteppingClock
from tests.raw import raw
from tests.tapes import notes

BUSY_MS = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
async def conn(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path, isolation_level=None) as opened:
        await opened.execute_fetchall("PRAGMA journal_mode = WAL")
        await opened.execute_fetchall("PRAGMA wal_autocheckpoint = 0")
        await opened.execute("CREATE TABLE a (x)")
        yield opened


async def grow(conn: aiosqlite.Connection, path: Path) -> int:
    """Write a page or more; return the size of the log."""
    await conn.execute("INSERT INTO a VALUES (zeroblob(9000))")
    return wal_size(path.with_name("a.db-wal"))


def checkpointer(path: Path, *, short: int, long: int, step: int = 1) -> WalCheckpointer:
    return WalCheckpointer(path, BUSY_MS, WalLimits(short, long, step))


async def test_a_log_is_shortened_once_nobody_waits_or_it_is_long(conn: aiosqlite.Connection, path: Path) -> None:
    wal, size = path.with_name("a.db-wal"), await grow(conn, path)
    for short, long, idle, kept in (
        (size, size + 1, True, True),
        (size - 1, size + 1, False, True),
        (size - 1, size + 1, True, False),
    ):
        await checkpointer(path, short=short, long=long).after_commit(conn, idle=idle)
        assert (wal_size(wal) == size, wal_size(wal) == 0) == (kept, not kept)
    assert await grow(conn, path) > 0
    await checkpointer(path, short=wal_size(wal), long=wal_size(wal)).after_commit(conn, idle=False)
    assert wal_size(wal) == 0
    assert [*await conn.execute_fetchall("PRAGMA busy_timeout")] == [(BUSY_MS,)]


async def test_a_log_that_a_reader_holds_is_tried_again_when_it_has_grown(
    conn: aiosqlite.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.stores.sqlite.sizes.CHECKPOINT_WAIT_MS", 1)
    held = await grow(conn, path)
    ours = checkpointer(path, short=1 << 30, long=held, step=1)
    with raw(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM a").fetchone()
        await grow(conn, path)
        await ours.after_commit(conn, idle=True)
    size = wal_size(path.with_name("a.db-wal"))
    assert size > held
    await ours.after_commit(conn, idle=True)
    assert wal_size(path.with_name("a.db-wal")) == size, "it has not grown by a step"
    await grow(conn, path)
    await ours.after_commit(conn, idle=True)
    assert wal_size(path.with_name("a.db-wal")) == 0
    for is_kept in (True, False):  # from here on the usual limit counts again
        assert (await grow(conn, path) < held) is is_kept
        await ours.after_commit(conn, idle=True)
        assert (wal_size(path.with_name("a.db-wal")) > 0) is is_kept


async def test_the_room_of_a_tape_is_that_of_its_entries_and_blobs(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("a", tape="b"), notes("a", "a", tape="a")])
    await sqlite_store.put_blob("b", b"12345")
    await sqlite_store.aclose()
    with raw(sqlite_store.path) as conn:
        conn.execute("INSERT INTO tapes (name) VALUES ('empty')")
        size = measure_size(conn, sqlite_store.path)
        pages = [conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size", "freelist_count")]
    found = {tape.name: tape for tape in size.tapes}
    assert list(found) == ["a", "b", "empty"]
    assert [(tape.count, tape.blobs) for tape in found.values()] == [(2, 0), (1, 5), (0, 0)]
    assert found["a"].entries == 2 * found["b"].entries > 0 == found["empty"].entries
    assert (size.file, size.free) == (pages[0] * pages[1], pages[2] * pages[1])


async def entries(path: Path, conn: aiosqlite.Connection, limits: WalLimits) -> tuple[WalCheckpointer, list[str]]:
    await conn.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, chain BLOB)")
    noted: list[str] = []
    return WalCheckpointer(path, BUSY_MS, limits, noted.append), noted


async def test_the_newest_entry_is_noted_soon_and_the_log_is_truncated_when_nothing_is_written(
    conn: aiosqlite.Connection, path: Path
) -> None:
    worker, noted = await entries(path, conn, WalLimits(note_seconds=3600.0, idle_seconds=7200.0))
    await worker.on_open(conn)
    assert worker.idle_seconds is None
    for _ in range(3):
        await conn.execute("INSERT INTO entries (chain) VALUES (x'AB')")
        await worker.after_commit(conn, idle=True)
    assert noted == ["1:ab"], "the first at once, the next ones together"
    assert worker.idle_seconds == 3600.0
    await worker.on_idle(conn)
    assert noted == ["1:ab", "3:ab"]
    assert wal_size(path.with_name("a.db-wal")) > 0
    assert worker.idle_seconds == 7200.0
    await worker.on_idle(conn)
    assert wal_size(path.with_name("a.db-wal")) == 0
    assert worker.idle_seconds is None
    await worker.on_close(conn)
    assert noted == ["1:ab", "3:ab"]
    await conn.execute("INSERT INTO entries (chain) VALUES (x'CD')")
    await worker.after_commit(conn, idle=True)
    await worker.on_close(conn)
    assert noted == ["1:ab", "3:ab", "4:cd"]


async def test_a_busy_writer_notes_too_and_one_that_starts_notes_what_is_on_the_disk_for_sure(
    conn: aiosqlite.Connection, path: Path
) -> None:
    worker, noted = await entries(path, conn, WalLimits(note_seconds=0.0))
    for _ in range(2):
        await conn.execute("INSERT INTO entries (chain) VALUES (x'AB')")
        await worker.after_commit(conn, idle=False)
    assert noted == ["1:ab", "2:ab"]
    with raw(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        seen: list[str] = []
        other = WalCheckpointer(path, BUSY_MS, WalLimits(), seen.append)
        await conn.execute(
            "INSERT INTO entries (chain) VALUES (x'EF')"
        )  # of a process that was killed before it synced it
        await other.on_open(conn)
        assert seen == [], "the log could not be written back, so it may not be on the disk"
    await other.on_open(conn)
    assert seen == ["3:ef"]


async def test_the_thread_of_a_writer_notes_when_it_has_nothing_to_do(path: Path) -> None:
    loop, noted = asyncio.get_running_loop(), asyncio.Queue[str]()

    def note(newest: str) -> None:
        loop.call_soon_threadsafe(noted.put_nowait, newest)

    store = await open_store(
        path,
        salt=CountingSalt(),
        now=SteppingClock(),
        on_newest=note,
        limits=WalLimits(note_seconds=0.01, idle_seconds=0.01),
    )
    for number in range(1, 4):
        await store.append([notes("a", "b")])
        assert (await asyncio.wait_for(noted.get(), 30)).startswith(f"{2 * number}:")
    await store.aclose()
