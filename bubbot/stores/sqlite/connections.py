"""Connections to the database: their setup, and those that a running bot keeps open."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import aiosqlite
from msgspec import Struct

from bubbot.errors import BubbotError, StoreError, StoreFull, StoreUnavailable, TapeCorrupt
from bubbot.stores.sqlite.schema import check_version

BUSY_SECONDS = 10.0
"""Seconds a connection waits for another process."""
DECODE_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""Decodes stored text: bytes that are no longer UTF-8 must reach the check of their digest."""


class NewestEntry(Struct, frozen=True):
    """The end of a database.

    Attributes:
        version: of the schema; 0 for an empty database.
        position: of its newest entry; 0 without one.
        holds: it has the requested entry.
    """

    version: int
    position: int = 0
    holds: bool = False


def read_newest_entry(path: Path, position: int, chain: str) -> NewestEntry | None:
    """Find the newest entry, and if the entry at a position has this hash; None if the file is unreadable.

    The code that opens the database then reports the reason.
    """
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
            conn.execute("PRAGMA query_only = ON")
            version = check_version(conn)
            if version == 0:
                return NewestEntry(0)
            newest = conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
            row = conn.execute("SELECT hex(chain) FROM entries WHERE seq = ?", (position,)).fetchone()
            return NewestEntry(version, newest, position == 0 or (row is not None and row[0].lower() == chain))
    except (sqlite3.Error, BubbotError, UnicodeDecodeError):  # the last: SQLite quotes a damaged schema
        return None


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a reading connection. Raise `StoreUnavailable` if there is no database or its disk is read-only."""
    if not path.exists():
        raise StoreUnavailable(f"there is no database at {path} yet: talk to the bot once with bubbot chat")
    # Never immutable: the database is in use. In WAL mode reading needs the -shm file next to it.
    uri = f"{path.resolve().as_uri()}?mode=ro"
    conn = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        return prepare(conn, _prepare_reading)
    except sqlite3.OperationalError as error:
        if read_only := read_only_error(path):
            raise read_only from error
        raise


def _prepare_reading(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA query_only = ON")
    if check_version(conn) == 0:
        raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")


def prepare(conn: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Prepare a new connection by `work`; close it if that fails. Raise `TapeCorrupt` if the schema is damaged text."""
    conn.text_factory = DECODE_TEXT
    try:
        work(conn)
    except UnicodeDecodeError as error:
        conn.close()
        raise damaged_schema_error() from error
    except BaseException:
        conn.close()
        raise
    return conn


Connector: TypeAlias = Callable[[], sqlite3.Connection]
"""Opens a connection, in its aiosqlite thread."""
CHUNK_ROWS = 64
"""Rows that a cursor fetches at a time from its connection's thread."""


@asynccontextmanager
async def connected(connector: Connector) -> AsyncIterator[aiosqlite.Connection]:
    """Open a connection for the block. Raise the error of `connector`.

    aiosqlite does not wait for the thread of a failed connection, which then reports to an event loop that may have
    ended. So it always gets a connection, which is closed like any other.
    """
    failures: list[Exception] = []

    def connect() -> sqlite3.Connection:
        try:
            return connector()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
            return sqlite3.connect(":memory:")

    async with aiosqlite.Connection(connect, CHUNK_ROWS) as conn:
        for error in failures:
            raise error
        yield conn


class HeldConnection:
    """An open connection for one task at a time.

    Its own task closes it: at `aclose`, or when the ending event loop cancels the remaining tasks. Otherwise its thread
    would keep a process alive that failed before it closed its store.
    """

    def __init__(self, connector: Connector) -> None:
        self._lock = asyncio.Lock()
        self._is_closing = asyncio.Event()
        self._conn: asyncio.Future[aiosqlite.Connection] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_open(connector))

    @classmethod
    async def open(cls, connector: Connector) -> HeldConnection:
        """Open a connection. Raise the error of `connector`, with driver errors translated."""
        held = cls(connector)
        try:
            with translated_errors():
                await held._conn
        except BaseException:
            await held.aclose()
            raise
        return held

    async def _keep_open(self, connector: Connector) -> None:
        try:
            async with connected(connector) as conn:
                if not self._conn.done():
                    self._conn.set_result(conn)
                await self._is_closing.wait()
                async with self._lock:  # earlier requests end first
                    pass
        except Exception as error:
            if self._conn.done():
                raise
            self._conn.set_exception(error)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[aiosqlite.Connection]:
        """Yield the connection to one user at a time."""
        async with self._lock:
            with translated_errors():
                yield self._conn.result()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[aiosqlite.Connection]:
        """Yield the connection to one user; all statements see the same state.

        If the block is cancelled, the running statement ends at once.
        """
        async with self.exclusive() as conn:
            try:
                await conn.execute("BEGIN")
                yield conn
            except (asyncio.CancelledError, TimeoutError):
                with suppress(ValueError):  # closed, at the end of the event loop
                    await conn.interrupt()
                raise
            finally:
                with suppress(ValueError, sqlite3.ProgrammingError):  # closed, at the end of the event loop
                    await conn.rollback()

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        async with self.exclusive() as conn:
            return list(await conn.execute_fetchall(sql, values))  # type: ignore[arg-type]  # rows are plain tuples

    async def aclose(self) -> None:
        """Close the connection after all work, even if the caller is cancelled."""
        self._is_closing.set()
        await asyncio.wait([self._task])


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the driver."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error) from error


def translate_error(error: sqlite3.Error) -> StoreError | TapeCorrupt:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL":
        return StoreFull("there is no room left for the database: free some space; nothing was lost")
    if name.startswith("SQLITE_IOERR"):
        return StoreFull(f"the database could not be written ({error}): the disk is full or failing; nothing was lost")
    if name in ("SQLITE_NOTADB",) or name.startswith("SQLITE_CORRUPT"):
        return TapeCorrupt(f"the database is damaged ({error}): keep the file and restore a backup")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreUnavailable(f"the database cannot be opened or written ({error}): check the home folder's owner")
    return StoreUnavailable(f"the database failed: {error}")


def damaged_schema_error() -> TapeCorrupt:
    """Return the error for a schema with damaged text, which even SQLite's message cannot quote."""
    return TapeCorrupt("the database is damaged (its schema is no text): keep the file and restore a backup")


def read_only_error(path: Path) -> StoreUnavailable | None:
    """Return the error for a database that is unreadable because its disk is read-only; None otherwise."""
    try:
        read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
    except OSError:
        return None
    if not read_only:
        return None
    return StoreUnavailable(
        f"the home {path.parent} is on a read-only disk, and SQLite has to write beside a database to read it: make the "
        "disk writable, or copy the home to another disk and name the copy with --home, or read an export that "
        "`bubbot tape export` wrote earlier"
    )
