"""The database, asked through SQLite and never opened by other means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from bubbot.errors import StoreError, StoreTooNew, TapeCorrupt
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, quoted, size
from bubbot.stores.sqlite.backups import backups
from bubbot.stores.sqlite.check import DatabaseState, look_over
from bubbot.stores.sqlite.schema import MIGRATIONS

LARGE = 64_000_000
"""Bytes that are nothing to speak of."""
_TIMES = 2
"""How much larger than the database its journal may be."""
AHEAD = timedelta(minutes=5)
"""How far the newest entry may be ahead of the clock: clocks are set."""


def read_database(home: Home, *, now: datetime, deep: bool) -> tuple[DatabaseState | None, list[Finding]]:
    """The state of the database, None where it cannot be used, and whether it is ours, whole, and not from the future."""
    path = home.database
    if not os.path.lexists(path):
        return None, [Finding("database.missing", "ok", "There is no database yet; the first chat makes it.")]
    odd = next(
        (one for one in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if one.exists() and not one.is_file()), None
    )
    if odd:  # SQLite would wait for whoever writes into a pipe
        cause = f"{odd} is no ordinary file."
        return None, [Finding("database.unusable", "problem", cause, f"mv {quoted(odd)} {quoted(f'{odd}.old')}")]
    try:
        state = look_over(path, deep=deep)
    except StoreTooNew as error:
        fix = "python -m pip install --upgrade bubbot"
        return None, [Finding("database.too_new", "problem", f"{path}: {error}.", fix)]
    except TapeCorrupt as error:
        return None, [_damaged(home, f"{path}: {error}.")]
    except StoreError as error:
        fix = f"ls -l {quoted(home.path)}"
        return None, [Finding("database.unusable", "problem", f"{path}: {error}.", fix)]
    found = list(_looked_over(home, state, now))
    return (None if state.complaints else state), found


def _looked_over(home: Home, state: DatabaseState, now: datetime) -> Iterator[Finding]:
    if state.complaints:
        yield _damaged(home, f"SQLite's check of {home.database} says: {'; '.join(state.complaints)}.")
        return
    if state.version == 0:
        cause = f"{home.database} is empty; the next chat fills it."
        yield Finding("database.empty", "warning", cause, "bubbot chat")
        return
    if state.version < len(MIGRATIONS):
        cause = f"{home.database} is of version {state.version}; the next start brings it to {len(MIGRATIONS)}."
        yield Finding("database.older", "ok", cause)
    yield from _room(home, state)
    if state.triggers:
        cause = (
            f"{home.database} does not refuse to lose history any more: {', '.join(state.triggers)} missing or changed. "
            "Nothing is written to it; with the bot stopped, the command restores them."
        )
        yield Finding("database.triggers", "problem", cause, f"bubbot --home {quoted(home.path)} tape repair")
    wrong = state.audit.damage if state.audit else ()
    if wrong:
        first = f"{wrong[0].place} {wrong[0].what}"
        cause = f"{len(wrong)} entries are not what was written; the first: {first}. Each is named by the command."
        yield Finding("database.altered", "problem", cause, "bubbot tape verify")
    elif not state.triggers:
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


def _room(home: Home, state: DatabaseState) -> Iterator[Finding]:
    """Whether the files are much larger than what is in them."""
    with suppress(OSError):  # a look at its size opens nothing
        journal = Path(f"{home.database}-wal").stat().st_size
        if journal > LARGE and journal > _TIMES * state.size:
            cause = (
                f"The journal {home.database}-wal has {size(journal)}, and the database {size(state.size)}: something "
                "keeps it from being written back, such as another program that reads the database for hours."
            )
            yield Finding("database.journal", "warning", cause, f"fuser -v {quoted(f'{home.database}-wal')}")
    if state.slack > LARGE and state.slack > state.size / 4:
        cause = f"{size(state.slack)} of the {size(state.size)} of {home.database} are empty pages."
        yield Finding("database.slack", "warning", cause, "bubbot tape gc")


def _damaged(home: Home, cause: str) -> Finding:
    aside = home.path / "damaged"
    fix = f"mkdir {quoted(aside)} && mv {quoted(home.path)}/bubbot.db* {quoted(aside)}"
    with suppress(OSError):  # what cannot be looked at is told with the backups
        if found := backups(home.path):
            fix += f" && bubbot --home {quoted(home.path)} restore {quoted(found[-1].path)}"
            way = f"With the bot stopped, put it aside whole; bubbot restore takes the backup of {found[-1].created:%Y-%m-%d}."
            return Finding("database.damaged", "problem", f"{cause} {way}", fix)
    way = "With the bot stopped, put it aside whole, and then a backup in its place, where there is one elsewhere."
    return Finding("database.damaged", "problem", f"{cause} {way}", fix)
