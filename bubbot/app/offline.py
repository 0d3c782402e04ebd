"""Offline status: the health of a home whose bot does not run, and facts about a home in any state."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot import __version__
from bubbot.app.diagnostics import read_health
from bubbot.app.stores import open_home_tape, unused_clock
from bubbot.errors import ConfigError, StoreError
from bubbot.features.access.service import ACCESS_TAPE
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.health.snapshot import (
    BackupStatus,
    DatabaseStatus,
    HealthSnapshot,
    PendingDeliveries,
    pending_deliveries,
)
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.names import NameBook
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.gateway.quarantine import Quarantine
from bubbot.home import Home
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureProblem, HealthContext, RuntimeLoad
from bubbot.ports.store import CountsEntries
from bubbot.settings.loader import Settings
from bubbot.settings.sections import SQLITE_STORE, StoreSettings
from bubbot.tape.entry import timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited
from bubbot.tape.handle import Clock
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts


async def offline_snapshot(
    store: TapeStore | None,
    home: Home,
    settings: Settings,
    *,
    now: Clock,
    config: Path | None = None,
    texts: Texts | None = None,
) -> HealthSnapshot:
    """Return the snapshot of a home whose bot does not run, using only the database.

    Args:
        store: the tapes; None if there is no database.
        config: the settings file, if not the one in the home.
        texts: the language of the reader; None for English.
    """
    if store is None:
        # Imported here: few homes have no database.
        from bubbot.stores.inmemory import InMemoryStore

        tapes: TapeStore = InMemoryStore()
    else:
        tapes = store

    def open_tape(name: str) -> TapeService:
        return TapeService(tapes, name, now=unused_clock, new_id=str, session="")

    names = [tape.name for tape in await tapes.tapes()]
    waiting, pending = 0, list[PendingDeliveries]()
    for channel in _channels(names, inbox_tape("")):
        waiting += len(await Inbox(open_tape(inbox_tape(channel)), lambda: "").open_inbounds())
    for channel in _channels(names, outbox_tape("")):
        pending.append(pending_deliveries(channel, await Outbox(open_tape(outbox_tape(channel))).pending()))
    blank = blank_snapshot(settings, home, now)
    book = await NameBook.find(tapes, Texts(), [f"{channel}:" for channel in _channels(names, inbox_tape(""))])
    reader = HomeReader(
        home.path,
        config or home.config,
        None,
        now,
        ZoneInfo(blank.zone),
        lambda name: nullcontext(open_tape(name)),
        has_tapes=store is not None,
        store=store,
    )
    return structs.replace(
        blank,
        load=RuntimeLoad(waiting=waiting),
        owed=tuple(pending),
        database=None if store is None else await measure_database(home, store),
        backup=await asyncio.to_thread(newest_backup, home),
        quarantine=describe_backup(await Quarantine(open_tape(HOME_TAPE)).current_restore()),
        reports=await read_health(
            reader,
            settings,
            HealthContext(texts or Texts(), blank.at, blank.zone, chats=book.chats, people=book.people),
        ),
        features=unowned_sections(settings),
    )


async def has_grant(channel: str, home: Home, store_settings: StoreSettings) -> bool:
    """Return true if somebody has a role on this channel, or if a fault (reported elsewhere) hides it."""
    if store_settings.kind == SQLITE_STORE and not home.has_database:
        return False
    try:
        async with open_home_tape(store_settings, home, ACCESS_TAPE) as tape:
            state = await read_projection(ACCESS_PROJECTION, tape)
    except (ConfigError, StoreError):
        return True
    return any(grant.fact.channel == channel for grant in state.grants)


def blank_snapshot(settings: Settings, home: Home, now: Clock) -> HealthSnapshot:
    """Return the snapshot of a home without reading it."""
    return HealthSnapshot(__version__, str(home.path), settings.bot.timezone, timestamp(now()))


def unowned_sections(settings: Settings) -> tuple[FeatureProblem, ...]:
    """Return the sections of the settings that belong to no installed feature."""
    return tuple(
        FeatureProblem(
            section.name, f"[{section.name}] is in the settings, but no such feature is installed", "", is_left_out=True
        )
        for section in settings.unowned_sections
    )


def describe_backup(restored: Cited[HomeRestored] | None) -> BackupStatus | None:
    """Return the backup from which a home was restored, if any."""
    return None if restored is None else BackupStatus(restored.fact.backup, restored.fact.created)


def newest_backup(home: Home) -> BackupStatus | None:
    """Return the newest complete backup in the default folder; None without one."""
    if not home.backups.is_dir():
        return None
    # Imported here: a bot that answers one question needs no backups.
    from bubbot.stores.sqlite.backups import list_backups

    complete = []
    with suppress(OSError):  # the folder is unreadable or is being removed
        complete = list_backups(home.path)
    return BackupStatus(complete[-1].path.name, timestamp(complete[-1].created)) if complete else None


async def measure_database(home: Home, store: TapeStore) -> DatabaseStatus:
    """Measure the database of a home. Raise a `StoreError` if it is unreadable."""
    if isinstance(store, CountsEntries):
        entries = await store.count_entries()
    else:
        entries = sum(tape.head for tape in await store.tapes())
    size, wal, free = await asyncio.to_thread(_sizes, home)
    return DatabaseStatus(entries, size, wal, free)


def _sizes(home: Home) -> tuple[int, int, int]:
    """Return bytes: of the database, of its log, free on its disk. It opens no file: that would drop SQLite's locks."""

    def size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    wal = home.database.with_name(f"{home.database.name}-wal")
    free = 0
    with suppress(OSError):
        free = shutil.disk_usage(home.path).free
    return size(home.database), size(wal), free


def _channels(names: Sequence[str], prefix: str) -> list[str]:
    """Return the channels with a system tape; a tape may have shards, `PREFIX<channel>/<shard>`."""
    found = (name.removeprefix(prefix).partition("/")[0] for name in names if name.startswith(prefix))
    return list(dict.fromkeys(found))
