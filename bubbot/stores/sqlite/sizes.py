"""Disk usage of a database: measure it, keep the write-ahead log short, and release free pages."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import aiosqlite
from msgspec import Struct

from bubbot.ports.store import DatabaseSize, TapeSize

SHORT_WAL_BYTES = 4 << 20
"""A write-ahead log of up to this size is never truncated."""
CHECKPOINT_WAIT_MS = 1000
TRUNCATE_WAL = "PRAGMA wal_checkpoint(TRUNCATE)"
VACUUM_STEP_PAGES = 2000
"""Free pages released in one step; other writes run between steps."""


class WalLimits(Struct, frozen=True):
    """Sizes of a write-ahead log, in bytes.

    Attributes:
        short: up to this size it is never truncated.
        long: from this size on a writer waits for readers so that the log can restart.
        step: after a failed attempt, try again when the log has grown by this much.
        note_seconds: seconds after a commit within which the newest entry is noted outside of the database.
        idle_seconds: seconds without a commit after which the log is truncated at any size.
    """

    short: int = SHORT_WAL_BYTES
    long: int = 64 << 20
    step: int = 16 << 20
    note_seconds: float = 5.0
    idle_seconds: float = 60.0


OnNewest: TypeAlias = Callable[[str], None]
"""Notes the newest entry of a database, `POSITION:HASH`, outside of it. It must not raise."""


def ignore_newest(_newest: str) -> None:
    """Do nothing."""


class WalCheckpointer:
    """Truncates the write-ahead log after commits and when idle, and notes the newest entry outside of the database.

    A checkpoint copies the log into the database, but the log restarts only at a moment without readers. If readers
    overlap, that moment never comes by itself.

    A database that lost its log is shorter, but nothing in it shows that. The note does; it is never ahead of the disk,
    because a commit and a whole checkpoint end with a synced log. The writer calls all methods between its groups.
    """

    def __init__(
        self,
        database: Path,
        busy_ms: int,
        limits: WalLimits = WalLimits(),
        on_newest: OnNewest = ignore_newest,
    ) -> None:
        self._wal = database.with_name(f"{database.name}-wal")
        self._busy_ms = busy_ms
        self._limits = limits
        self._next_attempt = limits.long
        self._on_newest = on_newest
        self._noted = ""
        self._noted_at = -limits.note_seconds  # note the first commit of a new home at once
        self._has_news = self._has_log = self._is_unsynced = False

    async def on_open(self, conn: aiosqlite.Connection) -> None:
        """Truncate the log without waiting for readers and note the newest entry: a killed process may not have synced
        the log. If a reader keeps it from being truncated, that is done later.
        """
        self._is_unsynced = self._has_log = True
        await self._sync(conn, 0)

    async def after_commit(self, conn: aiosqlite.Connection, *, idle: bool) -> None:
        """Shorten the log if it is long; `idle`: no job is queued."""
        self._has_news = self._has_log = True
        if monotonic() - self._noted_at >= self._limits.note_seconds:
            await self._note(conn)
        size = wal_size(self._wal)
        if size >= self._next_attempt:
            is_empty = await self._truncate(conn, CHECKPOINT_WAIT_MS)
            self._next_attempt = self._limits.long if is_empty else size + self._limits.step
        elif idle and size > self._limits.short:
            await self._truncate(conn, 0)

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without a job until `on_idle` has work; None for never."""
        if self._has_news:
            return self._limits.note_seconds
        return self._limits.idle_seconds if self._has_log else None

    async def on_idle(self, conn: aiosqlite.Connection) -> None:
        """Note the newest entry; later, truncate the log, so that a copy of the database file alone is complete."""
        if self._has_news:
            await self._note(conn)
        else:
            self._has_log = False
            await self._sync(conn, 0)

    async def on_close(self, conn: aiosqlite.Connection) -> None:
        """Note the newest entry."""
        if self._has_news:
            await self._note(conn)
        elif self._is_unsynced:
            await self._sync(conn, CHECKPOINT_WAIT_MS)

    async def _sync(self, conn: aiosqlite.Connection, wait_ms: int) -> None:
        """Truncate the log, and note the newest entry if that was not certain to be on the disk before."""
        if await self._truncate(conn, wait_ms):
            self._has_log = False
            if self._is_unsynced:
                await self._note(conn)

    async def _note(self, conn: aiosqlite.Connection) -> None:
        self._has_news = self._is_unsynced = False
        with suppress(sqlite3.Error):
            rows = await conn.execute_fetchall("SELECT seq, hex(chain) FROM entries ORDER BY seq DESC LIMIT 1")
            newest = "".join(f"{seq}:{chain.lower()}" for seq, chain in rows)
            if newest != self._noted:
                await asyncio.to_thread(self._on_newest, newest)
                self._noted, self._noted_at = newest, monotonic()

    async def _truncate(self, conn: aiosqlite.Connection, wait_ms: int) -> bool:
        """Truncate the log; return true if it is empty now.

        A failure loses nothing: the entries are durable in the log itself.
        """
        with suppress(sqlite3.Error):
            await conn.execute(f"PRAGMA busy_timeout = {wait_ms}")
            try:
                ((is_busy, *_),) = await conn.execute_fetchall(TRUNCATE_WAL)
                return not is_busy
            finally:
                await conn.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        return False


def wal_size(wal: Path) -> int:
    """Return the bytes of a write-ahead log without opening it: only SQLite may open the file."""
    try:
        return wal.stat().st_size
    except OSError:
        return 0


def measure_size(conn: sqlite3.Connection, database: Path) -> DatabaseSize:
    """Measure the disk usage. It reads the lengths of all entries."""
    columns = ("kind", "key", "name", "date", "payload", "meta", "salt", "digest", "chain")
    length = " + ".join(f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns)
    entries = {tape: (count, size) for tape, count, size in conn.execute(
        f"SELECT tape, count(*), sum({length}) FROM entries GROUP BY tape"
    )}  # fmt: skip
    blobs = dict(conn.execute("SELECT tape, sum(length(data)) FROM blobs GROUP BY tape").fetchall())
    tapes = tuple(
        TapeSize(name, source, *entries.get(tape, (0, 0)), blobs.get(tape, 0))
        for tape, name, source in conn.execute("SELECT tape, name, archived_from FROM tapes ORDER BY name")
    )
    page, pages, free, vacuum = (
        int(conn.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_size", "page_count", "freelist_count", "auto_vacuum")
    )
    wal = wal_size(database.with_name(f"{database.name}-wal"))
    return DatabaseSize(pages * page, free * page, wal, vacuum == INCREMENTAL, tapes)


INCREMENTAL = 2
"""The value of `PRAGMA auto_vacuum` for a database that can release pages."""


async def release_pages(conn: aiosqlite.Connection) -> bool:
    """Release a few free pages to the disk; return true if there may be more."""
    if await _pragma(conn, "auto_vacuum") != INCREMENTAL or not (before := await _pragma(conn, "freelist_count")):
        return False
    await conn.execute_fetchall(f"PRAGMA incremental_vacuum({VACUUM_STEP_PAGES})")
    return 0 < await _pragma(conn, "freelist_count") < before


async def vacuum_database(conn: aiosqlite.Connection) -> None:
    """Rewrite a database that cannot release free pages yet; afterwards it can.

    It needs as much free space as the database has.
    """
    await conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    await conn.execute("VACUUM")
    await truncate_wal(conn)


async def truncate_wal(conn: aiosqlite.Connection) -> None:
    """Copy the log into the database; empty the log unless a reader needs it."""
    await conn.execute_fetchall(TRUNCATE_WAL)


async def _pragma(conn: aiosqlite.Connection, name: str) -> int:
    ((value,),) = await conn.execute_fetchall(f"PRAGMA {name}")
    return int(value)
