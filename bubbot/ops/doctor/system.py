"""What bubbot runs on: Python and SQLite."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator

from bubbot.ops.doctor.finding import Finding

OLDEST_PYTHON = (3, 11)
WAL_RESET = ((3, 7, 0), (3, 51, 2))
"""SQLite from here to there may lose a write where two connections write or checkpoint at once."""


def check_python(found: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """Whether this Python is one of those bubbot is tested on."""
    shown = ".".join(map(str, found))
    if found[:2] < OLDEST_PYTHON:
        cause = f"Python {shown} is too old; bubbot needs 3.11."
        yield Finding("python.old", "problem", cause, "make install PYTHON=python3.11 VENV=.venv-3.11")
    else:
        yield Finding("python.ok", "ok", f"Python {shown}.")


def check_sqlite(found: tuple[int, ...] = sqlite3.sqlite_version_info) -> Iterator[Finding]:
    """Which SQLite this is. One in the range of the WAL-reset bug is told, and is no fault here."""
    shown = ".".join(map(str, found))
    low, high = WAL_RESET
    if low <= found <= high:
        bug = (
            f"SQLite {shown} has the WAL-reset bug (3.7.0 to 3.51.2), which takes two connections that write at once. "
            "bubbot has one, so it is not met; keep other programs from writing to bubbot.db."
        )
        yield Finding("sqlite.wal_reset", "ok", bug)
    else:
        yield Finding("sqlite.ok", "ok", f"SQLite {shown}.")
