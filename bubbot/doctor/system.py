"""What bubbot runs on: Python, SQLite, and the versions of libraries that are known to be unsafe."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from bubbot.doctor.finding import Finding, quoted

OLDEST_PYTHON = (3, 11)
WAL_RESET = ((3, 7, 0), (3, 51, 2))
"""SQLite from here to there may lose a write where two connections write or checkpoint at once."""
MALICIOUS = ("1.82.7", "1.82.8")
SAFE_LITELLM = (1, 83, 7)


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


def check_litellm() -> Iterator[Finding]:
    """Whether the litellm that is installed is one to stay away from. Read from its metadata; it is not imported."""
    try:
        found = version("litellm")
    except PackageNotFoundError:
        yield Finding("litellm.absent", "ok", "litellm is not installed; the models of providers need it.")
        return
    fix = f"{quoted(sys.executable)} -m pip install --upgrade 'litellm>=1.83.7'"
    if found in MALICIOUS:
        cause = (
            f"litellm {found} is malicious: it steals secrets. Replace it, and then every key and password that this "
            "machine knew."
        )
        yield Finding("litellm.malicious", "problem", cause, fix)
    elif (numbers := _numbers(found)) < SAFE_LITELLM:
        cause = f"litellm {found} has a known hole; 1.83.7 is the first version without it."
        if not numbers:
            cause = f"litellm says that its version is {found!r}, so nobody can tell whether it is safe."
        yield Finding("litellm.unsafe", "problem", cause, fix)
    else:
        yield Finding("litellm.ok", "ok", f"litellm {found}, none of the versions known to be unsafe.")


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version; a pre-release counts as before its release."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(.*)", text)
    if not found:
        return ()
    last = int(found[3] or 0) - bool(re.match(r"\.?(a|b|rc|dev)", found[4]))
    return (int(found[1]), int(found[2]), last)
