"""The versions of Python and SQLite, and the time service. The check of the database compares the clock with the tapes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator

from bubbot.ops.doctor.tools import parse_properties, read_output
from bubbot.ports.checks import Finding

OLDEST_PYTHON = (3, 11)
WAL_RESET = ((3, 7, 0), (3, 51, 2))
"""SQLite in this range may lose a write if two connections write or checkpoint at the same time."""


def check_python() -> Iterator[Finding]:
    """Check that bubbot's tests cover this version of Python."""
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        cause = f"Python {text} is too old; bubbot needs 3.11."
        yield Finding("python.old", "problem", cause, "make install PYTHON=python3.11 VENV=.venv-3.11")
    else:
        yield Finding("python.ok", "ok", f"Python {text}.")


def check_sqlite() -> Iterator[Finding]:
    """Report the version of SQLite; the WAL-reset bug is mentioned, but does not affect bubbot."""
    text = ".".join(map(str, sqlite3.sqlite_version_info))
    low, high = WAL_RESET
    if low <= sqlite3.sqlite_version_info <= high:
        bug = (
            f"SQLite {text} has the WAL-reset bug (3.7.0 to 3.51.2): two connections that write at the same time can lose a "
            "write. bubbot writes with one connection, so the bug cannot occur. Let no other program write to bubbot.db."
        )
        yield Finding("sqlite.wal_reset", "ok", bug)
    else:
        yield Finding("sqlite.ok", "ok", f"SQLite {text}.")


def check_time_service() -> Iterator[Finding]:
    """Check that the system synchronises its clock; report nothing if the system does not tell."""
    answer = read_output(["timedatectl", "show", "-p", "NTP", "-p", "NTPSynchronized"])
    properties = parse_properties(answer or "")
    if properties.get("NTPSynchronized") == "yes":
        yield Finding("clock.set", "ok", "The system sets its clock by a time server.")
    elif properties.get("NTPSynchronized") == "no":
        reason = "is switched off" if properties.get("NTP") == "no" else "has not reached a time server"
        cause = (
            f"The clock of this machine is not set by others: its time service {reason}. Schedules follow this clock."
        )
        yield Finding("clock.unset", "warning", cause, "sudo timedatectl set-ntp true")
