"""Copies of a database in use, and checks of the copy.

SQLite's online backup copies within one read transaction: in WAL mode a reader blocks no writer. Without the
transaction, a write between two steps would restart the copy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bubbot.errors import StoreFull, StoreUnavailable, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseContent, TapeHead
from bubbot.stores.sqlite.audit import Integrity, check_integrity, head_at
from bubbot.stores.sqlite.connections import BUSY_SECONDS, translate_error
from bubbot.stores.sqlite.schema import check_version

_PAGES = 1000
"""Pages copied in one step; the process can be interrupted between steps."""


def copy_database(source: Path, target: Path, on_progress: OnProgress = ignore_progress) -> DatabaseContent:
    """Copy a database into a new file, check the copy, and return the source's content at that moment.

    It reports copied pages as progress and works while the bot runs.

    Raise `StoreUnavailable` if there is nothing to copy, `TapeCorrupt` if the source is damaged, `StoreFull` if there
    is no room for the copy.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with open_read_only(source) as conn:
        conn.execute("BEGIN")
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on the source does not change
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            try:
                copy.execute("PRAGMA synchronous = OFF")  # the file is synced as a whole when it is complete
                conn.backup(copy, pages=_PAGES, progress=lambda _, left, all_: on_progress(all_ - left, all_))
                # A single file, which can also be read from a read-only disk.
                copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            except sqlite3.Error as error:
                raise _copy_error(error, target) from error
        with open_read_only(target) as copied:
            integrity = check_integrity(copied)
            _refuse_damage(target, integrity)
            if integrity.indexes:
                raise TapeCorrupt(
                    f"the indexes {', '.join(integrity.indexes)} of {source} do not hold what their tables hold: with the bot stopped, "
                    "`bubbot tape repair` builds them anew; then make the backup again"
                )
            content = _content(copied)
        expected = _content(conn)
        conn.execute("COMMIT")
    if content != expected:
        raise TapeCorrupt("the copy does not hold what was copied: the disk of the backup is failing")
    return expected


def read_content(path: Path) -> DatabaseContent:
    """Check a database with SQLite and read its content. Raise `TapeCorrupt`, or `StoreError` like `check_version`."""
    with open_read_only(path) as conn:
        _refuse_damage(path, check_integrity(conn))
        return _content(conn)


def _refuse_damage(path: Path, integrity: Integrity) -> None:
    if integrity.damage:
        raise TapeCorrupt(f"{path} is damaged: {integrity.damage[0]}")


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection; translate errors of the driver."""
    if not path.exists():
        raise StoreUnavailable(f"there is no database at {path} yet: talk to the bot once with bubbot chat")
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
            conn.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            conn.execute("PRAGMA query_only = ON")
            yield conn
    except sqlite3.Error as error:
        raise translate_error(error) from error


def _content(conn: sqlite3.Connection) -> DatabaseContent:
    version = check_version(conn)
    if version == 0:
        raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")
    label = conn.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
    rows = conn.execute(
        "SELECT tapes.name, coalesce(head.id, 0), coalesce(hex(head.chain), '') FROM tapes "
        "LEFT JOIN entries AS head ON head.tape = tapes.tape AND head.id = "
        "(SELECT max(id) FROM entries WHERE tape = tapes.tape) ORDER BY tapes.name"
    )
    heads = tuple(TapeHead(name, head, chain.lower()) for name, head, chain in rows)
    return DatabaseContent(version, label[0] if label else "", heads, head_at(conn))


def _copy_error(error: sqlite3.Error, target: Path) -> Exception:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
        return StoreFull(no_room_message(target.parent.parent))
    return translate_error(error)


def no_room_message(folder: Path) -> str:
    """Build the error message for a full disk."""
    return (
        f"there is no room for the backup in {folder}, or that disk is failing: free some space, or name another folder; "
        "the part that was written is removed"
    )
