"""The search index of a bot: filled while it runs, or thrown away where nobody wants one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bubbot.concurrency import Backoff, supervise
from bubbot.settings.sections import SearchSettings
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.stores.sqlite.store import SqliteStore


@asynccontextmanager
async def indexing(store: SqliteStore, settings: SearchSettings, group: asyncio.TaskGroup) -> AsyncIterator[None]:
    """Fills the index until the block ends. What goes wrong is logged and tried again, and is nobody else's trouble."""
    if not settings.index:
        await store.forget_index()
        yield
        return
    filler = Indexer(store)
    store.keeper = filler
    task = group.create_task(supervise("search index", filler.run, Backoff(random.random, longest=600.0)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await filler.aclose()
