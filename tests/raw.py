"""The database behind the store's back: what only a second connection can try."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def raw(path: Path, *, recursive_triggers: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that knows nothing of bubbot; each statement is a transaction."""
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        conn.execute(f"PRAGMA recursive_triggers = {int(recursive_triggers)}")
        yield conn
    finally:
        conn.close()


def tamper(path: Path, sql: str, values: Sequence[Any] = ()) -> None:
    """Changes the database as somebody would who takes the triggers away first, and puts them back."""
    with raw(path) as conn:
        triggers = conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            conn.execute(f"DROP TRIGGER {name}")
        assert conn.execute(sql, values).rowcount > 0, "the statement met no row"
        for _, made in triggers:
            conn.execute(made)


def rows(conn: sqlite3.Connection, *, after: int = 0) -> list[list[tuple[Any, ...]]]:
    """Everything that is append-only, column by column; entries after this global position only."""
    entries = conn.execute("SELECT * FROM entries WHERE seq > ? ORDER BY seq", (after,)).fetchall()
    return [
        entries,
        *[conn.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in ("tapes", "erased", "blobs")],
    ]
