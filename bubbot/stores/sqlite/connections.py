"""Connections to the database: how each is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from bubbot.errors import BubbotError, StoreUnavailable
from bubbot.records import dataclass
from bubbot.stores.sqlite.schema import check_version
from bubbot.stores.sqlite.writer import damaged_schema_error, read_only_error

BUSY_SECONDS = 10.0
"""Seconds a connection waits for another process."""
DECODE_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""Decodes stored text: bytes that are not UTF-8 any more have to reach the check of their digest."""


@dataclass(frozen=True, slots=True)
class NewestEntry:
    """The end of a database.

    Attributes:
        version: of the schema; 0 for a database that holds nothing.
        position: of its newest entry; 0 without one.
        holds: it has the entry that it was asked for.
    """

    version: int
    position: int = 0
    holds: bool = False


def read_newest_entry(path: Path, position: int, chain: str) -> NewestEntry | None:
    """Find the newest entry, and whether the entry at a position has this hash; None if the file cannot be read.

    Whoever opens it then says why.
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
    """Open a connection that reads. Raises `StoreUnavailable` if there is no database, or its disk is read-only."""
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
    """Prepare a new connection by `work`; close it if that fails. Raises `TapeCorrupt` if the schema is damaged text."""
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
