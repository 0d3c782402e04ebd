"""The SQLite schema as numbered migrations, and the triggers that make history append-only."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from bubbot.errors import StoreTooNew, StoreUnavailable, TapeCorrupt
from bubbot.stores.sqlite.names import name_tapes

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

_THIRD = """
CREATE INDEX erased_fact ON erased (fact);
DROP TRIGGER IF EXISTS entries_insert;
DROP TRIGGER IF EXISTS entries_update;
DROP TRIGGER IF EXISTS erased_insert;
DROP TRIGGER IF EXISTS tapes_insert;
DROP TRIGGER IF EXISTS tapes_update;
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
    SELECT RAISE(ABORT, 'append-only: an entry belongs to a tape, and an archive takes none')
        WHERE NOT EXISTS (SELECT 1 FROM tapes WHERE tape = NEW.tape AND archived_from IS NULL);
END;
CREATE TRIGGER entries_update BEFORE UPDATE ON entries
WHEN NOT (
    NEW.payload IS NULL AND NEW.meta IS NULL AND NEW.name IS NULL AND NEW.opens IS NULL AND NEW.salt IS NULL
    AND OLD.payload IS NOT NULL
    AND NEW.seq IS OLD.seq AND NEW.tape IS OLD.tape AND NEW.id IS OLD.id AND NEW.kind IS OLD.kind
    AND NEW.key IS OLD.key AND NEW.at IS OLD.at AND NEW.date IS OLD.date
    AND NEW.digest IS OLD.digest AND NEW.chain IS OLD.chain
    AND EXISTS (SELECT 1 FROM erased WHERE tape = OLD.tape AND id = OLD.id)
) BEGIN
    SELECT RAISE(ABORT, 'append-only: entries are never changed');
END;
-- The fact names what it covers: {"covers": {tape: [[first id, last id], ...]}}.
CREATE TRIGGER erased_insert BEFORE INSERT ON erased BEGIN
    SELECT RAISE(ABORT, 'append-only: an entry is erased once')
        WHERE EXISTS (SELECT 1 FROM erased WHERE tape = NEW.tape AND id = NEW.id);
    SELECT RAISE(ABORT, 'append-only: an erasure has to name a stored fact that covers the entry')
        WHERE NOT EXISTS (
            SELECT 1 FROM entries AS fact, json_each(fact.payload, '$.data.covers') AS cover, json_each(cover.value) AS span
            WHERE fact.seq = NEW.fact AND fact.kind = 'event' AND fact.name = 'tape/erased'
            AND cover.key = (SELECT name FROM tapes WHERE tape = NEW.tape)
            AND NEW.id BETWEEN json_extract(span.value, '$[0]') AND json_extract(span.value, '$[1]')
        );
    SELECT RAISE(ABORT, 'append-only: facts about tapes and erasures stay')
        WHERE NOT EXISTS (
            SELECT 1 FROM entries WHERE tape = NEW.tape AND id = NEW.id AND payload IS NOT NULL
            AND NOT (name IS 'tape/erased' AND EXISTS (SELECT 1 FROM erased WHERE fact = entries.seq))
            AND NOT (name IS 'tape/renamed' AND id = (SELECT max(id) FROM entries WHERE tape = NEW.tape)
                AND EXISTS (SELECT 1 FROM tapes WHERE tape = NEW.tape AND archived_from IS NOT NULL))
        );
END;
CREATE TRIGGER tapes_insert BEFORE INSERT ON tapes
WHEN NEW.archived_from IS NOT NULL OR EXISTS (SELECT 1 FROM tapes WHERE tape = NEW.tape OR name = NEW.name) BEGIN
    SELECT RAISE(ABORT, 'append-only: the tape is already there, or is no archive yet');
END;
CREATE TRIGGER tapes_update BEFORE UPDATE ON tapes
WHEN NEW.tape IS NOT OLD.tape OR OLD.archived_from IS NOT NULL OR NEW.archived_from IS NOT OLD.name
    OR EXISTS (SELECT 1 FROM tapes WHERE name = NEW.name)
    OR NOT EXISTS (
        SELECT 1 FROM entries WHERE tape = OLD.tape AND id = (SELECT max(id) FROM entries WHERE tape = OLD.tape)
        AND kind = 'event' AND name = 'tape/renamed'
        AND json_extract(payload, '$.data.from') IS OLD.name AND json_extract(payload, '$.data.to') IS NEW.name
    ) BEGIN
    SELECT RAISE(ABORT, 'append-only: a tape is only renamed into the archive that its last entry names');
END;
CREATE TRIGGER blobs_insert BEFORE INSERT ON blobs
WHEN EXISTS (SELECT 1 FROM blobs WHERE tape = NEW.tape AND digest = NEW.digest)
    OR NOT EXISTS (SELECT 1 FROM tapes WHERE tape = NEW.tape) BEGIN
    SELECT RAISE(ABORT, 'append-only: the blob is already there, or belongs to no tape');
END;
CREATE TRIGGER blobs_update BEFORE UPDATE ON blobs BEGIN
    SELECT RAISE(ABORT, 'append-only: blobs are never changed');
END;
-- The newest entry of all has to be the fact that names the blob: nothing can cite it again in between.
CREATE TRIGGER blobs_delete BEFORE DELETE ON blobs
WHEN NOT EXISTS (
    SELECT 1 FROM entries AS fact WHERE fact.seq = (SELECT max(seq) FROM entries)
    AND fact.kind = 'event' AND fact.name = 'blob/removed'
    AND json_extract(fact.payload, '$.data.tape') IS (SELECT name FROM tapes WHERE tape = OLD.tape)
    AND instr(fact.payload, '"' || OLD.digest || '"') > 0
) BEGIN
    SELECT RAISE(ABORT, 'append-only: a blob goes only with a fact that names it');
END;
"""

_FOURTH = """
CREATE TABLE leases (
    tape TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER leases_insert BEFORE INSERT ON leases
WHEN EXISTS (SELECT 1 FROM leases WHERE tape = NEW.tape) BEGIN
    SELECT RAISE(ABORT, 'leases: an epoch is raised, never replaced');
END;
CREATE TRIGGER leases_update BEFORE UPDATE ON leases
WHEN NEW.tape IS NOT OLD.tape OR NEW.epoch <= OLD.epoch BEGIN
    SELECT RAISE(ABORT, 'leases: an epoch only rises');
END;
CREATE TRIGGER leases_delete BEFORE DELETE ON leases BEGIN
    SELECT RAISE(ABORT, 'leases: an epoch is never forgotten');
END;
ALTER TABLE forks ADD COLUMN session TEXT NOT NULL DEFAULT '';
ALTER TABLE forks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
CREATE INDEX forks_tape ON forks (tape, session);
"""

MIGRATIONS = (_FIRST, _SECOND, _THIRD, _FOURTH)
"""Migration N takes a database from version N - 1 to N; never edit a released one."""
NAMED_SINCE = 3
"""From this version on a tape must keep its name, and an erasure must match its fact."""
LEASED_SINCE = 4
"""From this version on there are leases, and forks name their session and epoch."""
_TRIGGER = r"(?m)^(?P<action>CREATE|DROP) TRIGGER (?:IF EXISTS )?(?P<name>\w+)"
"""The beginning of a statement that creates or drops a trigger, after its comments."""
_INDEX = r"(?m)^(?P<action>CREATE|DROP) (?:UNIQUE )?INDEX (?:IF EXISTS )?(?P<name>\w+)"
"""The beginning of a statement that creates or drops an index, after its comments."""


def migrate(conn: sqlite3.Connection, *, now: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Migrate the schema to the newest version.

    All migrations and their records are one transaction: if one fails, the database is unchanged.
    """
    version = check_version(conn, len(migrations))
    if version < len(migrations):
        conn.execute("BEGIN IMMEDIATE")
        try:
            for number, script in enumerate(migrations[version:], version + 1):
                if number == NAMED_SINCE and version:
                    name_tapes(conn, now)
                for statement in statements(script):
                    conn.execute(statement)
                conn.execute("INSERT INTO migrations (version, applied) VALUES (?, ?)", (number, now))
            conn.execute(f"PRAGMA user_version = {len(migrations)}")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
    if conn.execute("PRAGMA application_id").fetchone()[0] == 0:
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def statements(script: str) -> Iterator[str]:
    """Split a script into its statements; a trigger with inner statements is a single one."""
    statement = ""
    for piece in script.split(";"):
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip("; \n"):
        yield statement.removesuffix(";")


def check_version(conn: sqlite3.Connection, newest: int = len(MIGRATIONS)) -> int:
    """Return the schema version. Raise `StoreTooNew`, or `StoreUnavailable` for another program's file."""
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


@cache
def expected_triggers(version: int) -> Mapping[str, str]:
    """Return the statements that create the triggers of a database of this version, by name, as SQLite stores them.

    They are read from the migrations: running these would take ten times as long and delay every writing command.
    """
    triggers: dict[str, str] = {}
    for statement in itertools.chain.from_iterable(map(statements, MIGRATIONS[:version])):
        if found := re.search(_TRIGGER, statement):
            triggers.pop(found["name"], None)
            if found["action"] == "CREATE":
                triggers[found["name"]] = statement[found.start() :].removesuffix(";")
    return MappingProxyType(triggers)


def wrong_triggers(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of triggers that are missing, changed, or not ours; empty for none."""
    version = check_version(conn)
    triggers, expected = _stored_triggers(conn), expected_triggers(version)
    if version == 1:  # version 1 had two forms, which the second migration unifies
        triggers["tapes_update"] = expected["tapes_update"] if "tapes_update" in triggers else ""
    return tuple(sorted(name for name in triggers.keys() | expected.keys() if triggers.get(name) != expected.get(name)))


@cache
def expected_indexes(version: int) -> Mapping[str, str]:
    """Return the statements that create the indexes of a database of this version, by name, as SQLite stores them."""
    indexes: dict[str, str] = {}
    for statement in itertools.chain.from_iterable(map(statements, MIGRATIONS[:version])):
        if found := re.search(_INDEX, statement):
            indexes.pop(found["name"], None)
            if found["action"] == "CREATE":
                indexes[found["name"]] = statement[found.start() :].removesuffix(";")
    return MappingProxyType(indexes)


def wrong_definitions(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of missing or changed indexes of existing tables; their content is not checked."""
    rows = conn.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index')").fetchall()
    stored, expected = dict(rows), expected_indexes(check_version(conn))
    wrong = {
        name: sql.partition(" ON ")[2].partition(" ")[0] for name, sql in expected.items() if stored.get(name) != sql
    }
    return tuple(sorted(name for name, table in wrong.items() if table in stored))


def refuse_unguarded(conn: sqlite3.Connection, path: Path) -> None:
    """Raise `TapeCorrupt` for a database without its protecting triggers, since it must not be written to."""
    if wrong := wrong_triggers(conn):
        raise TapeCorrupt(
            f"the database {path} no longer protects its history ({', '.join(wrong)} missing or changed), so "
            "nothing is written to it: bubbot tape verify looks for what was changed, bubbot tape repair restores them"
        )
    if indexes := wrong_definitions(conn):
        raise TapeCorrupt(
            f"the database {path} has not the indexes that it is read through ({', '.join(indexes)} missing or changed): "
            "bubbot tape repair builds them anew"
        )


def restore_triggers(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Restore the triggers in the caller's transaction; return the names of the wrong ones."""
    wrong = wrong_triggers(conn)
    expected = expected_triggers(check_version(conn))
    for name in wrong:
        quoted = name.replace('"', '""')
        conn.execute(f'DROP TRIGGER IF EXISTS "{quoted}"')
        if name in expected:
            conn.execute(expected[name])
    return wrong


def _stored_triggers(conn: sqlite3.Connection) -> dict[str, str]:
    return dict(conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
