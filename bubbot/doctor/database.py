"""The database, asked through SQLite and never opened by other means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta

from bubbot.doctor.finding import Finding, quoted
from bubbot.errors import StoreError, StoreTooNew, TapeCorrupt
from bubbot.home import Home
from bubbot.stores.sqlite_check import DatabaseState, look_over

AHEAD = timedelta(minutes=5)
"""How far the newest entry may be ahead of the clock: clocks are set."""


def check_database(home: Home, *, now: datetime, deep: bool) -> Iterator[Finding]:
    """Whether the database opens, is ours, whole, and not from the future."""
    path = home.database
    if not os.path.lexists(path):
        yield Finding("database.missing", "ok", "There is no database yet; the first chat makes it.")
        return
    try:
        state = look_over(path, deep=deep)
    except StoreTooNew as error:
        yield Finding("database.too_new", "problem", f"{path}: {error}.", "python -m pip install --upgrade bubbot")
    except TapeCorrupt as error:
        yield _damaged(home, f"{path}: {error}.")
    except StoreError as error:
        yield Finding("database.unusable", "problem", f"{path}: {error}.", f"ls -l {quoted(home.path)}")
    else:
        yield from _looked_over(home, state, now)


def _looked_over(home: Home, state: DatabaseState, now: datetime) -> Iterator[Finding]:
    if state.complaints:
        yield _damaged(home, f"SQLite's check of {home.database} says: {'; '.join(state.complaints)}.")
        return
    if state.version == 0:
        cause = f"{home.database} is empty; the next chat fills it."
        yield Finding("database.empty", "warning", cause, "bubbot chat")
        return
    wrong = [one for one in state.audit.findings if one.what != "erased"] if state.audit else []
    if wrong:
        first = f"{wrong[0].tape} #{wrong[0].id} {wrong[0].what}"
        cause = f"{len(wrong)} entries are not what was written; the first: {first}. Each is named by the command."
        yield Finding("database.altered", "problem", cause, "bubbot tape verify")
    else:
        checked = "every hash holds" if state.audit else "--deep checks every hash, too"
        what = f"version {state.version}, {state.entries} entries on {state.tapes} tapes, whole; {checked}"
        yield Finding("database.ok", "ok", f"{home.database}: {what}.")
    if state.newest is not None and state.newest > now + AHEAD:
        cause = (
            f"The newest entry was written at {state.newest:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
            f"{now:%Y-%m-%d %H:%M}: one of the two times was wrong."
        )
        yield Finding("clock.behind", "warning", cause, "sudo timedatectl set-ntp true")
    else:
        yield Finding("clock.ok", "ok", f"The clock ({now:%Y-%m-%d %H:%M} UTC) is not behind the newest entry.")


def _damaged(home: Home, cause: str) -> Finding:
    aside = home.path / "damaged"
    fix = f"mkdir {quoted(aside)} && mv {quoted(home.path)}/bubbot.db* {quoted(aside)}"
    way = "With the bot stopped, put it aside whole, and then the newest backup in its place."
    return Finding("database.damaged", "problem", f"{cause} {way}", fix)
