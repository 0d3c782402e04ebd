"""The search index of a running bot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bubbot.concurrency import Backoff, supervise
from bubbot.features.search.settings import SearchSettings
from bubbot.ports.store import IndexesTexts
from bubbot.tape.store import TapeStore


@asynccontextmanager
async def open_indexing(store: TapeStore, settings: SearchSettings, group: asyncio.TaskGroup) -> AsyncIterator[None]:
    """Fill the index until the block ends, if the store has one.

    Errors are logged and the work is retried; they affect nothing else.
    """
    if not isinstance(store, IndexesTexts):
        yield
        return
    if not settings.index:
        await store.forget_index()
        yield
        return
    indexer = store.build_indexer()
    task = group.create_task(supervise("search index", indexer.run, Backoff(random.random, max_seconds=600.0)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await indexer.aclose()
