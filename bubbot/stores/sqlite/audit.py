"""Audits of an SQLite database: SQLite's own check, the triggers and indexes, and what all audits check."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from msgspec import Struct

from bubbot.errors import TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DeploymentAudit
from bubbot.stores.audit import AuditRun
from bubbot.stores.names import tape_ends, tape_names
from bubbot.stores.rows import LARGEST, NEWEST_POSITION
from bubbot.stores.sqlite.schema import NAMED_SINCE, check_version, wrong_definitions, wrong_triggers
from bubbot.tape.chain import AuditFinding, deployment_head, older_head
from bubbot.tape.erasure import TAPE_NAMED, TAPE_RENAMED

MAX_NAMED = 5
"""The most complaints of SQLite that an error names."""
MAX_COMPLAINTS = 1000
"""The most complaints of SQLite to read; an index can have one per row."""
_OF_INDEX = re.compile(
    r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in|values differ from|rowid not at end-of-record for row \d+ of)"
    r" index (?P<name>\S+)|row \d+ values differ from index (?P<other>\S+)"
)


class Integrity(Struct, frozen=True):
    """The result of SQLite's check.

    Attributes:
        indexes: the names of indexes that are missing, changed, or disagree with their table.
        damage: every other complaint, in SQLite's words.
    """

    indexes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


def check_integrity(conn: sqlite3.Connection) -> Integrity:
    """Check all pages and compare every index with its table and its definition. It reads the whole file."""
    indexes = {*wrong_definitions(conn)}
    damage: list[str] = []
    for (row,) in conn.execute(f"PRAGMA integrity_check({MAX_COMPLAINTS})"):
        text = " ".join(str(row).split())
        if found := _OF_INDEX.fullmatch(text):
            indexes.add(found["name"] or found["other"])
        elif text != "ok":
            damage.append(text)
    return Integrity(tuple(sorted(indexes)), tuple(damage))


def audit_all(
    conn: sqlite3.Connection, only: str | None = None, on_progress: OnProgress = ignore_progress
) -> DeploymentAudit:
    """Audit one tape or all, from one state of the database; report the entries whose hashes were checked.

    If an index is wrong, it reads nothing else. Raise `TapeCorrupt` if SQLite finds damaged pages.
    """
    conn.execute("BEGIN")
    try:
        integrity = check_integrity(conn)
        if integrity.damage:
            raise TapeCorrupt(f"SQLite's check of the database says: {'; '.join(integrity.damage[:MAX_NAMED])}")
        if integrity.indexes:  # reads through them may be wrong
            return DeploymentAudit(0, 0, (), "", wrong_triggers(conn), integrity.indexes)
        run = AuditRun(conn, _holds_names(conn), tape_names(conn))
        tapes = [tape for tape in run.names if only is None or tape.name == only]
        count, findings = run.check_tapes(tapes, on_progress)
        if only is None:
            has_gaps = any(finding.problem == "missing" for finding in findings)
            findings += run.check_lone_rows()
            if not has_gaps:
                findings += _check_positions(conn)
            findings += run.check_database_rows(check_version(conn))
        return DeploymentAudit(
            len(tapes), count, tuple(findings), head_at(conn), wrong_triggers(conn), integrity.indexes
        )
    finally:
        conn.execute("COMMIT")


def _holds_names(conn: sqlite3.Connection) -> bool:
    """Return true if the database checks names: by its version, or by facts that older versions did not write."""
    facts = conn.execute(
        "SELECT 1 FROM entries WHERE kind = 'event' AND name IN (?, ?) LIMIT 1", (TAPE_NAMED, TAPE_RENAMED)
    )
    return check_version(conn) >= NAMED_SINCE or facts.fetchone() is not None


def _check_positions(conn: sqlite3.Connection) -> Iterator[AuditFinding]:
    """Check for gaps in the global positions.

    Readers must tolerate gaps, but this store leaves none: a gap is evidence that an entry was removed.
    """
    low, high, count = conn.execute(
        "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0), count(*) FROM entries"
    ).fetchone()
    if low != 1 or high != count:
        yield AuditFinding("the database", 0, "missing", f"{count} entries have positions from {low} to {high}")


def head_at(conn: sqlite3.Connection, position: int | None = None, *, older: bool = False) -> str:
    """Return the deployment head now, or at this global position.

    `older`: in the form of databases up to version 2, which does not cover names; those databases have only this form.
    """
    if position is None:
        position = int(conn.execute(NEWEST_POSITION).fetchone()[0])
    position = min(position or 0, LARGEST)
    head_of = older_head if older or check_version(conn) < NAMED_SINCE else deployment_head
    return head_of(position, tape_ends(conn, position))
