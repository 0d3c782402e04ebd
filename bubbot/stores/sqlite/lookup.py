"""Names in a database for shell completion, read within milliseconds, so this module imports little.

It checks nothing and skips unreadable names.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

LOOKUP_BUSY_SECONDS = 0.05
"""Seconds that a connection waits for another process: a person waits for the shell."""


class TapeName(NamedTuple):  # importing dataclasses takes longer than all the rest
    """The name of a tape and its session; empty if it has none."""

    name: str
    is_archive: bool
    session: str


def list_tape_names(file: Path) -> list[TapeName]:
    """List the tapes of a database, the newest first."""
    query = """
        SELECT tapes.name, archived_from IS NOT NULL, (
            SELECT meta FROM entries WHERE tape = tapes.tape AND name = 'session/start' ORDER BY id LIMIT 1
        ) FROM tapes ORDER BY tapes.tape DESC
    """
    with _open(file) as database:
        rows = database.execute(query).fetchall()
    return [TapeName(name, bool(archive), str(_parse(meta).get("session") or "")) for name, archive, meta in rows]


def list_events(file: Path, tape: str, names: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """List the events with these names on a tape of a database, oldest first, with their data."""
    marks = ", ".join("?" * len(names))
    query = f"""
        SELECT entries.name, payload FROM entries JOIN tapes USING (tape)
        WHERE tapes.name = ? AND entries.name IN ({marks}) ORDER BY id
    """
    with _open(file) as database:
        rows = database.execute(query, (tape, *names)).fetchall()
    return [(name, _parse(payload).get("data") or {}) for name, payload in rows]


def _open(file: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=LOOKUP_BUSY_SECONDS))


def _parse(text: str | None) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}
