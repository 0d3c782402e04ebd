"""Walking the hash chains of a database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from bubbot.errors import EntryInvalid
from bubbot.tape.chain import Finding, StoredLink, audit, deployment_head
from bubbot.tape.entry import TapeEntry


@dataclass(frozen=True, slots=True)
class DeploymentAudit:
    """What an audit found, how much it read, and the deployment's head."""

    tapes: int
    entries: int
    findings: tuple[Finding, ...]
    head: str


def audit_all(conn: sqlite3.Connection, only: str | None = None) -> DeploymentAudit:
    """Walks the chain of one tape or of all, from one state of the database."""
    conn.execute("BEGIN")
    try:
        tapes = [
            (number, name)
            for number, name in conn.execute("SELECT tape, name FROM tapes ORDER BY tape")
            if only is None or name == only
        ]
        findings = [finding for number, name in tapes for finding in _tape(conn, number, name)]
        findings += [finding for number, name in tapes for finding in _disorder(conn, number, name)]
        count = sum(_count(conn, number) for number, _ in tapes)
        return DeploymentAudit(len(tapes), count, tuple(findings), head_at(conn))
    finally:
        conn.execute("COMMIT")


def _tape(conn: sqlite3.Connection, number: int, name: str) -> Iterator[Finding]:
    rows = conn.execute(
        "SELECT entries.id, kind, date, key, payload, meta, salt, digest, chain, fact FROM entries "
        "INDEXED BY entries_id LEFT JOIN erased ON erased.tape = entries.tape AND erased.id = entries.id "
        "WHERE entries.tape = ? ORDER BY entries.id",
        (number,),
    )
    return audit(name, (StoredLink(*row) for row in rows))


def _count(conn: sqlite3.Connection, number: int) -> int:
    row = conn.execute("SELECT count(*) FROM entries INDEXED BY entries_id WHERE tape = ?", (number,)).fetchone()
    return int(row[0])


def _disorder(conn: sqlite3.Connection, number: int, tape: str) -> Iterator[Finding]:
    """Columns copied out of the payload that no longer say what it says: an index built on a lie."""
    rows = conn.execute(
        "SELECT id, kind, payload, name, opens FROM entries INDEXED BY entries_id WHERE tape = ? "
        "AND payload IS NOT NULL AND (kind IN ('anchor', 'event') OR name IS NOT NULL OR opens IS NOT NULL)",
        (number,),
    )
    for entry_id, kind, payload, name, opens in rows:
        try:
            entry = TapeEntry(kind, json.loads(payload))
            told = entry.name, entry.opens_window
        except (ValueError, AttributeError, EntryInvalid):  # its digest has told already
            continue
        if told[0] != name:
            yield Finding(tape, entry_id, "altered", "its name is not the one in its payload")
        elif told[1] != bool(opens):
            yield Finding(tape, entry_id, "altered", "whether it opens a window is not what its payload says")


def head_at(conn: sqlite3.Connection, position: int | None = None) -> str:
    """The deployment head now, or as it was when the newest entry stood at this global position."""
    if position is None:
        position = conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
    heads = conn.execute(
        "SELECT tape, id, chain FROM entries WHERE seq IN "
        "(SELECT max(seq) FROM entries WHERE seq <= ? GROUP BY tape) ORDER BY tape",
        (position,),
    )
    return deployment_head(position or 0, heads)
