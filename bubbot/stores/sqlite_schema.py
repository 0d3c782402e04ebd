"""The SQLite schema as numbered migrations, and the triggers that make history append-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from bubbot.errors import StoreTooNew, StoreUnavailable

APPLICATION_ID = 0x62756262
"""Marks the file as bubbot's (`PRAGMA application_id`): "bubb" in ASCII."""

_FIRST = """
CREATE TABLE migrations (version INTEGER PRIMARY KEY, applied TEXT NOT NULL);
CREATE TABLE deployment (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tapes (
    tape INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    archived_from TEXT
);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,             -- the global position
    tape INTEGER NOT NULL REFERENCES tapes,
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    name TEXT,                           -- copied out of anchors and events
    opens INTEGER,                       -- 1 for an anchor that opens a window
    at INTEGER,                          -- the date in microseconds since 1970, where it is one
    date TEXT NOT NULL,
    payload TEXT,                        -- NULL after erasure, as are meta, name, opens and salt
    meta TEXT,
    salt BLOB,
    digest BLOB NOT NULL,
    chain BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_id ON entries (tape, id);
CREATE UNIQUE INDEX entries_key ON entries (tape, key) WHERE key IS NOT NULL;
CREATE INDEX entries_window ON entries (tape, id) WHERE opens = 1;
CREATE INDEX entries_anchor ON entries (tape, id) WHERE kind = 'anchor';
CREATE INDEX entries_name ON entries (tape, name, id) WHERE name IS NOT NULL;
CREATE TABLE erased (
    tape INTEGER NOT NULL,
    id INTEGER NOT NULL,
    fact INTEGER NOT NULL REFERENCES entries,
    PRIMARY KEY (tape, id)
) WITHOUT ROWID;
CREATE TABLE blobs (
    tape INTEGER NOT NULL REFERENCES tapes,
    digest TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (tape, digest)
);
CREATE TABLE forks (
    fork TEXT PRIMARY KEY,
    tape TEXT NOT NULL,
    base INTEGER NOT NULL,
    reset TEXT
);
CREATE TABLE fork_batches (
    fork TEXT NOT NULL REFERENCES forks,
    place INTEGER NOT NULL,
    tape TEXT NOT NULL,
    keep_first INTEGER NOT NULL,
    entries TEXT NOT NULL,
    PRIMARY KEY (fork, place)
);

-- Without this one INSERT OR REPLACE would delete the old entry past the triggers below.
CREATE TRIGGER entries_insert BEFORE INSERT ON entries BEGIN
    SELECT RAISE(ABORT, 'append-only: a position has to follow the last one')
        WHERE NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries);
    SELECT RAISE(ABORT, 'append-only: an id has to follow the last one of its tape')
        WHERE NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM entries WHERE tape = NEW.tape);
    SELECT RAISE(ABORT, 'append-only: the key is already on the tape')
        WHERE NEW.key IS NOT NULL AND EXISTS (SELECT 1 FROM entries WHERE tape = NEW.tape AND key = NEW.key);
    SELECT RAISE(ABORT, 'append-only: an entry has content')
        WHERE NEW.payload IS NULL OR NEW.meta IS NULL OR NEW.salt IS NULL;
END;
CREATE TRIGGER entries_delete BEFORE DELETE ON entries BEGIN
    SELECT RAISE(ABORT, 'append-only: entries are never deleted');
END;
CREATE TRIGGER entries_update BEFORE UPDATE ON entries
WHEN NOT (
    NEW.payload IS NULL AND NEW.meta IS NULL AND NEW.name IS NULL AND NEW.opens IS NULL AND NEW.salt IS NULL
    AND OLD.payload IS NOT NULL
    AND NEW.seq IS OLD.seq AND NEW.tape IS OLD.tape AND NEW.id IS OLD.id AND NEW.kind IS OLD.kind
    AND NEW.key IS OLD.key AND NEW.at IS OLD.at AND NEW.date IS OLD.date
    AND NEW.digest IS OLD.digest AND NEW.chain IS OLD.chain
    AND EXISTS (
        SELECT 1 FROM erased JOIN entries AS fact ON fact.seq = erased.fact
        WHERE erased.tape = OLD.tape AND erased.id = OLD.id AND fact.name = 'tape/erased'
    )
) BEGIN
    SELECT RAISE(ABORT, 'append-only: entries are never changed');
END;
CREATE TRIGGER erased_insert BEFORE INSERT ON erased BEGIN
    SELECT RAISE(ABORT, 'append-only: an erasure has to name a stored fact, once')
        WHERE EXISTS (SELECT 1 FROM erased WHERE tape = NEW.tape AND id = NEW.id)
        OR NOT EXISTS (SELECT 1 FROM entries WHERE seq = NEW.fact AND kind = 'event' AND name = 'tape/erased');
END;
CREATE TRIGGER erased_update BEFORE UPDATE ON erased BEGIN
    SELECT RAISE(ABORT, 'append-only: an erasure is never changed');
END;
CREATE TRIGGER erased_delete BEFORE DELETE ON erased BEGIN
    SELECT RAISE(ABORT, 'append-only: an erasure is never deleted');
END;
CREATE TRIGGER tapes_insert BEFORE INSERT ON tapes
WHEN EXISTS (SELECT 1 FROM tapes WHERE tape = NEW.tape OR name = NEW.name) BEGIN
    SELECT RAISE(ABORT, 'append-only: the tape is already there');
END;
CREATE TRIGGER tapes_update BEFORE UPDATE ON tapes
WHEN NEW.tape IS NOT OLD.tape OR OLD.archived_from IS NOT NULL OR NEW.archived_from IS NOT OLD.name
    OR EXISTS (SELECT 1 FROM tapes WHERE name = NEW.name) BEGIN
    SELECT RAISE(ABORT, 'append-only: a tape is only renamed into an archive');
END;
CREATE TRIGGER tapes_delete BEFORE DELETE ON tapes BEGIN
    SELECT RAISE(ABORT, 'append-only: tapes are never deleted');
END;
"""

_SECOND = """
-- The oldest databases of version 1 let an archive say that it had been another tape.
DROP TRIGGER tapes_update;
CREATE TRIGGER tapes_update BEFORE UPDATE ON tapes
WHEN NEW.tape IS NOT OLD.tape OR OLD.archived_from IS NOT NULL OR NEW.archived_from IS NOT OLD.name
    OR EXISTS (SELECT 1 FROM tapes WHERE name = NEW.name) BEGIN
    SELECT RAISE(ABORT, 'append-only: a tape is only renamed into an archive');
END;
"""

MIGRATIONS = (_FIRST, _SECOND)
"""Migration N takes a database from version N - 1 to N; released ones are never edited."""


def migrate(conn: sqlite3.Connection, *, now: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Brings the schema to the newest version. All migrations and their records are one transaction: where one fails,
    the database is as it was."""
    version = check_version(conn, len(migrations))
    outstanding = [
        f"{script}\nINSERT INTO migrations (version, applied) VALUES ({number}, '{now}');\nPRAGMA user_version = {number};"
        for number, script in enumerate(migrations[version:], version + 1)
    ]
    if outstanding:
        try:
            # executescript commits what was begun before it, so it has to hold the transaction whole.
            conn.executescript("\n".join(["BEGIN IMMEDIATE;", *outstanding, "COMMIT;"]))
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
    if conn.execute("PRAGMA application_id").fetchone()[0] == 0:
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def check_version(conn: sqlite3.Connection, newest: int = len(MIGRATIONS)) -> int:
    """The schema version of the database. Raises `StoreTooNew`, or `StoreUnavailable` for another program's file."""
    version = int(conn.execute("PRAGMA user_version").fetchone()[0])
    application = int(conn.execute("PRAGMA application_id").fetchone()[0])
    if application not in (0, APPLICATION_ID):
        raise StoreUnavailable("the database belongs to another program; choose another --home")
    if version > newest:
        raise StoreTooNew(
            f"the database has version {version}, this bubbot knows versions up to {newest}: "
            "it was written by a newer bubbot. Install that one again, or choose another --home"
        )
    return version
