"""Looking over a database from outside, read-only and through SQLite alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bubbot.stores.sqlite_audit import DeploymentAudit, audit_all
from bubbot.stores.sqlite_rows import EPOCH
from bubbot.stores.sqlite_schema import check_version
from bubbot.stores.sqlite_writer import translated

_BUSY_SECONDS = 10.0
_COMPLAINTS = 5


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What a look showed. `complaints` are those of SQLite's own check; `oldest` and `newest` the dates of the first and
    the last entry; `size` and `slack` bytes of the file, and of its pages that hold nothing."""

    version: int
    tapes: int = 0
    entries: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    size: int = 0
    slack: int = 0
    complaints: tuple[str, ...] = ()
    audit: DeploymentAudit | None = None


def look_over(path: Path, *, deep: bool) -> DatabaseState:
    """The state of a database; `deep` also walks every hash chain.

    Raises `StoreError` where it cannot be opened or is not ours, `TapeCorrupt` where it is no database any more.
    """
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as conn:
            conn.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            conn.execute("PRAGMA query_only = ON")
            version = check_version(conn)
            complaints = [row[0] for row in conn.execute(f"PRAGMA quick_check({_COMPLAINTS})")]
            found = tuple(str(one) for one in complaints if one != "ok")
            if found or version == 0:
                return DatabaseState(version, complaints=found)
            return _content(conn, version, deep=deep)
    except sqlite3.Error as error:
        raise translated(error) from error


def _content(conn: sqlite3.Connection, version: int, *, deep: bool) -> DatabaseState:
    tapes = conn.execute("SELECT count(*) FROM tapes").fetchone()[0]
    entries = conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
    oldest, newest = _date(conn, "ASC"), _date(conn, "DESC")
    page, pages, free = (
        conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    audit = audit_all(conn) if deep else None
    return DatabaseState(version, tapes, entries, oldest, newest, size=page * pages, slack=page * free, audit=audit)


def _date(conn: sqlite3.Connection, order: str) -> datetime | None:
    row = conn.execute(f"SELECT at FROM entries ORDER BY seq {order} LIMIT 1").fetchone()
    return EPOCH + timedelta(microseconds=row[0]) if row and row[0] is not None else None
