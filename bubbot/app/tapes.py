"""The tapes of a home for commands without a bot. It imports little, since people wait for commands."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from bubbot.app.stores import find_workspace, open_home_store
from bubbot.home import Home, WriterLock
from bubbot.settings.sections import DEFAULT_STORE, StoreSettings
from bubbot.tape.handle import Clock
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore

KEPT_ENTRIES = 10_000
"""Entries that a command keeps in memory while it reads: a few windows, which `export` and `context` read again and again."""


def now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - the only clock


def new_id() -> str:
    """Return a new random id, 32 hexadecimal digits."""
    return os.urandom(16).hex()


def tape_service(
    store: TapeStore, name: str, session: str = "", *, references: ReferenceRegistry | None = None
) -> TapeService:
    """Make the service of a tape. To merge forks, pass the `references` of installed features, too."""
    if references is None:
        # Imported here: loading the events of all features takes a fiftieth of a command's time.
        from bubbot.app.events import OWN_REFERENCES

        references = OWN_REFERENCES
    return TapeService(store, name, now=now, new_id=new_id, session=session, references=references)


@asynccontextmanager
async def open_tapes(
    home: Home,
    settings: StoreSettings = DEFAULT_STORE,
    *,
    write: bool = False,
    now: Clock = now,
) -> AsyncIterator[tuple[TapeStore, str]]:
    """Open the store and return it with the workspace label. Reading also works while a bot is running."""
    async with AsyncExitStack() as stack:
        if write:
            home.ensure()
            stack.enter_context(WriterLock(home))
        store = await open_home_store(settings, home, now=now, readonly=not write, keep=KEPT_ENTRIES)
        stack.push_async_callback(store.aclose)
        yield store, await find_workspace(store, home)
