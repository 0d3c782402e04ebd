"""The checks of the database, which only SQLite reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from bubbot.app.stores import (
    find_special_file,
    move_away,
    open_home_store,
    refuse_unusable_database,
    unused_clock,
)
from bubbot.errors import ConfigError, DatabaseLost, StoreError, StoreTooNew, TapeCorrupt
from bubbot.formatting import format_bytes
from bubbot.home import Home
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.settings.sections import StoreSettings
from bubbot.stores.sqlite.backups import list_backups
from bubbot.stores.sqlite.check import DatabaseState, check_database
from bubbot.stores.sqlite.schema import MIGRATIONS
from bubbot.tape.store import TapeSummary

NEGLIGIBLE_BYTES = 64_000_000
"""Bytes below which a journal or free space is not worth a finding."""
_MAX_JOURNAL_RATIO = 2
"""The tolerated size of the journal, as a multiple of the database."""
MAX_CLOCK_LEAD = timedelta(minutes=5)
"""The tolerated lead of the newest entry over the clock: clocks get adjusted."""


def read_database(home: Home, *, now: datetime, deep: bool) -> tuple[DatabaseState | None, list[Finding]]:
    """Read the state of the database, None if it is unusable, with findings about version, integrity and clock."""
    path = home.database
    if special_file := find_special_file(home):
        cause = f"{special_file} is not a regular file."
        return None, [Finding("database.unusable", "problem", cause, move_away(special_file))]
    try:
        refuse_unusable_database(home)
    except DatabaseLost as error:
        cause = str(error)
        told = f"{cause[:1].upper()}{cause[1:]}. Nothing starts here until then."
        return None, [Finding("database.lost", "problem", told, error.fix)]
    if not os.path.lexists(path):
        return None, [Finding("database.missing", "ok", "There is no database yet; the first chat makes it.")]
    try:
        state = check_database(path, deep=deep)
    except StoreTooNew as error:
        fix = "python -m pip install --upgrade bubbot"
        return None, [Finding("database.too_new", "problem", f"{path}: {error}.", fix)]
    except TapeCorrupt as error:
        return None, [_damaged(home, f"{path}: {error}.")]
    except StoreError as error:
        fix = f"ls -l {shell_quote(home.path)}"
        return None, [Finding("database.unusable", "problem", f"{path}: {error}.", fix)]
    findings = list(_check_state(home, state, now))
    return (None if state.complaints else state), findings


def read_store(settings: StoreSettings, home: Home) -> tuple[bool, Finding]:
    """Return true if a store other than SQLite holds entries, and a finding about it: only its own tools look deeper."""
    try:
        tapes = asyncio.run(_list_tapes(settings, home))
    except (ConfigError, StoreError) as error:
        cause = f"The store {settings.kind!r} cannot be read: {error}"
        return False, Finding("store.unusable", "problem", cause, edit_command(home.config))
    entries = sum(tape.head for tape in tapes)
    cause = f"The store {settings.kind!r} holds {entries} entries on {len(tapes)} tapes; its own tools check them."
    return entries > 0, Finding("store.ok", "ok", cause)


async def _list_tapes(settings: StoreSettings, home: Home) -> list[TapeSummary]:
    store = await open_home_store(settings, home, now=unused_clock, readonly=True)
    try:
        return await store.tapes()
    finally:
        await store.aclose()


def _check_state(home: Home, state: DatabaseState, now: datetime) -> Iterator[Finding]:
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
    yield from _check_size(home, state)
    if state.triggers:
        cause = (
            f"{home.database} no longer refuses to lose history: {', '.join(state.triggers)} missing or changed. "
            "Nothing is written to it; with the bot stopped, the command restores them."
        )
        yield Finding("database.triggers", "problem", cause, f"bubbot --home {shell_quote(home.path)} tape repair")
    if state.indexes:
        cause = (
            f"{', '.join(state.indexes)} of {home.database} do not hold what their tables hold, so that facts are hidden from whoever "
            "looks through them. None is lost: with the bot stopped, the command builds these indexes anew."
        )
        yield Finding("database.indexes", "problem", cause, f"bubbot --home {shell_quote(home.path)} tape repair")
    damage = state.audit.damage if state.audit else ()
    if damage:
        first = f"{damage[0].location} {damage[0].problem}"
        cause = f"{len(damage)} entries are not what was written; the first: {first}. Each is named by the command."
        yield Finding("database.altered", "problem", cause, "bubbot tape verify")
    elif not (state.triggers or state.indexes):
        checked = "every hash holds" if state.audit else "--deep checks every hash, too"
        summary = f"version {state.version}, {state.entries} entries on {state.tapes} tapes, whole; {checked}"
        yield Finding("database.ok", "ok", f"{home.database}: {summary}.")
    if state.newest is not None and state.newest > now + MAX_CLOCK_LEAD:
        cause = (
            f"The newest entry was written at {state.newest:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
            f"{now:%Y-%m-%d %H:%M}: one of the two times was wrong."
        )
        yield Finding("clock.behind", "warning", cause, "sudo timedatectl set-ntp true")
    else:
        yield Finding("clock.ok", "ok", f"The clock ({now:%Y-%m-%d %H:%M} UTC) is not behind the newest entry.")


def _check_size(home: Home, state: DatabaseState) -> Iterator[Finding]:
    """Compare the sizes of the files with that of their contents."""
    with suppress(OSError):  # stat opens no file
        journal = Path(f"{home.database}-wal").stat().st_size
        if journal > NEGLIGIBLE_BYTES and journal > _MAX_JOURNAL_RATIO * state.size:
            cause = (
                f"The journal {home.database}-wal has {format_bytes(journal)}, and the database {format_bytes(state.size)}: something "
                "keeps it from being written back, such as another program that reads the database for hours."
            )
            yield Finding("database.journal", "warning", cause, f"fuser -v {shell_quote(f'{home.database}-wal')}")
    if state.slack > NEGLIGIBLE_BYTES and state.slack > state.size / 4:
        cause = f"{format_bytes(state.slack)} of the {format_bytes(state.size)} of {home.database} are empty pages."
        yield Finding("database.slack", "warning", cause, "bubbot tape gc")


def _damaged(home: Home, cause: str) -> Finding:
    folder = home.path / "damaged"
    fix = f"mkdir {shell_quote(folder)} && mv {shell_quote(home.path)}/bubbot.db* {shell_quote(folder)}"
    with suppress(OSError):  # the check of the backups reports unreadable ones
        if existing := list_backups(home.path):
            fix += f" && bubbot --home {shell_quote(home.path)} restore {shell_quote(existing[-1].path)}"
            advice = f"With the bot stopped, put it aside whole; bubbot restore takes the backup of {existing[-1].created:%Y-%m-%d}."
            return Finding("database.damaged", "problem", f"{cause} {advice}", fix)
    advice = "With the bot stopped, put it aside whole, and then a backup in its place, where there is one elsewhere."
    return Finding("database.damaged", "problem", f"{cause} {advice}", fix)
