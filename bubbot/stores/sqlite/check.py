"""Checks of a database from outside the store: read-only, with SQLite alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import UNSET, Struct

from bubbot.errors import StoreUnavailable, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DeploymentAudit
from bubbot.stores.names import tape_names
from bubbot.stores.rows import COUNT_ENTRIES, UNIX_EPOCH
from bubbot.stores.sqlite.audit import audit_all, check_integrity
from bubbot.stores.sqlite.connections import BUSY_SECONDS, damaged_schema_error, read_only_error, translate_error
from bubbot.stores.sqlite.names import append_fact
from bubbot.stores.sqlite.schema import (
    NAMED_SINCE,
    check_version,
    expected_indexes,
    restore_triggers,
    wrong_definitions,
    wrong_triggers,
)
from bubbot.stores.transaction import Salt
from bubbot.tape.entry import EMPTY_OBJECT
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.events import TriggersRestored

_COMPLAINTS = 5


class DatabaseState(Struct, frozen=True):
    """The result of a check.

    Attributes:
        version: of the schema; 0 for an empty database.
        tapes: their number.
        entries: their number.
        oldest: the date of the first entry; None without one.
        newest: the date of the last entry; None without one.
        size: bytes of the file.
        slack: bytes of empty pages.
        complaints: of SQLite's own check; if there are any, only `version` was read, too.
        triggers: the names of missing or changed triggers.
        indexes: the names of missing or changed indexes and, after a deep check, of those that disagree with their
            tables; if there are any, data that needs them was not read.
        audit: of the hash chains; None unless asked for.
    """

    version: int
    tapes: int = 0
    entries: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    size: int = 0
    slack: int = 0
    complaints: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    audit: DeploymentAudit | None = None


def check_database(path: Path, *, deep: bool, on_progress: OnProgress = ignore_progress) -> DatabaseState:
    """Check a database; `deep` also checks every hash chain and reports checked entries as progress.

    Raise `StoreError` if it cannot be opened or is not bubbot's, `TapeCorrupt` if the file is no longer a database.
    """
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
            conn.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            conn.execute("PRAGMA query_only = ON")
            version = check_version(conn)
            results = [row[0] for row in conn.execute(f"PRAGMA quick_check({_COMPLAINTS})")]
            complaints = tuple(str(result) for result in results if result != "ok")
            if complaints or version == 0:
                return DatabaseState(version, complaints=complaints)
            audit = audit_all(conn, on_progress=on_progress) if deep else None
            if indexes := audit.indexes if audit else wrong_definitions(conn):
                return DatabaseState(version, triggers=wrong_triggers(conn), indexes=indexes, audit=audit)
            return _content(conn, version, audit)
    except UnicodeDecodeError as error:  # from SQLite's text about a damaged schema
        raise damaged_schema_error() from error
    except sqlite3.Error as error:
        read_only = read_only_error(path) if isinstance(error, sqlite3.OperationalError) else None
        raise read_only or translate_error(error) from error


def _content(conn: sqlite3.Connection, version: int, audit: DeploymentAudit | None) -> DatabaseState:
    tapes = conn.execute("SELECT count(*) FROM tapes").fetchone()[0]
    entries = conn.execute(COUNT_ENTRIES).fetchone()[0]
    oldest, newest = _date(conn, "ASC"), _date(conn, "DESC")
    page, pages, free = (
        conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return DatabaseState(
        version,
        tapes,
        entries,
        oldest,
        newest,
        size=page * pages,
        slack=page * free,
        triggers=wrong_triggers(conn),
        audit=audit,
    )


def _date(conn: sqlite3.Connection, order: str) -> datetime | None:
    row = conn.execute(f"SELECT at FROM entries ORDER BY seq {order} LIMIT 1").fetchone()
    return UNIX_EPOCH + timedelta(microseconds=row[0]) if row and row[0] is not None else None


class Repair(Struct, frozen=True):
    """The changes of a repair.

    Attributes:
        triggers: the names of restored triggers.
        indexes: the names of rebuilt indexes.
    """

    triggers: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()


def repair_database(path: Path, now: str, salt: Salt) -> Repair:
    """Restore the triggers and indexes of a database; no entry changes.

    The home tape records it. The caller must hold the home's lock. Raise `StoreError`, or `TapeCorrupt` if a table
    itself is damaged.
    """
    if not path.exists():
        raise StoreUnavailable(f"there is no database at {path} yet: talk to the bot once with bubbot chat")
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
            conn.execute("BEGIN IMMEDIATE")
            version = check_version(conn)
            if not version:
                return Repair()
            indexes = _rebuild_indexes(conn)  # first: triggers use them
            repair = Repair(restore_triggers(conn), indexes)
            if (repair.triggers or repair.indexes) and version >= NAMED_SINCE:
                fact = TriggersRestored(tuple(repair.triggers), tuple(repair.indexes) or UNSET).to_entry()
                conn.execute(
                    "INSERT INTO tapes (name) SELECT ?1 WHERE ?1 NOT IN (SELECT name FROM tapes)", (HOME_TAPE,)
                )
                home = next(tape for tape in tape_names(conn) if tape.name == HOME_TAPE)
                append_fact(conn, home, fact.with_meta(EMPTY_OBJECT, now), salt(16))
            conn.execute("COMMIT")
            return repair
    except sqlite3.IntegrityError as error:
        raise TapeCorrupt(
            f"{path} is damaged: {error}, so that an index cannot be built anew: restore a backup, `bubbot doctor --deep` says how"
        ) from error
    except sqlite3.Error as error:
        raise translate_error(error) from error


def _rebuild_indexes(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Rebuild wrong indexes from their tables, in the caller's transaction; return their names.

    Raise `sqlite3.IntegrityError` if a table has two rows that its index cannot both hold.
    """
    wrong = check_integrity(conn).indexes
    expected = expected_indexes(check_version(conn))
    for name in wrong:
        quoted = '"' + name.replace('"', '""') + '"'
        if name.startswith("sqlite_autoindex_"):  # of a constraint
            conn.execute(f"REINDEX {quoted}")
            continue
        conn.execute(f"DROP INDEX IF EXISTS {quoted}")
        if name in expected:
            conn.execute(expected[name])
    return wrong
