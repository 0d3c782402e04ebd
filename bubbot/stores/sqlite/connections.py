"""Connections to the database: how each is set up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bubbot.errors import StoreUnavailable
from bubbot.stores.sqlite.schema import check_version
from bubbot.stores.sqlite.writer import read_only_error

BUSY_SECONDS = 10.0
"""Seconds a connection waits for another process."""
DECODE_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""Decodes stored text: bytes that are not UTF-8 any more have to reach the check of their digest."""


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
    """Prepare a new connection by `work`; close it if that fails."""
    conn.text_factory = DECODE_TEXT
    try:
        work(conn)
    except BaseException:
        conn.close()
        raise
    return conn
