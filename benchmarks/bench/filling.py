"""Filling a search index: at once, or in the background as the daemon does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from benchmarks.bench.measure import Figures
from bubbot.app.tapes import now
from bubbot.stores.sqlite.indexer import Indexer, IndexerTiming
from bubbot.stores.sqlite.store import SqliteStore, open_store


async def filled(home: Path) -> Figures:
    """Fills the index of a home: seconds, entries a second, bytes for each byte of text."""
    async with opened(home) as store:
        before, begun = await store.index_state(), time.perf_counter()
        await fill(store)
        took, state = time.perf_counter() - begun, await store.index_state()
        assert state is not None
        done = state.position - (before.position if before else 0)
        return {"seconds": took, "rate": done / took, "bytes": state.bytes, "texts": state.texts}


async def fill(store: SqliteStore) -> None:
    """Fills the index until it holds everything."""
    filler = Indexer(store)
    try:
        await filler.fill()
    finally:
        await filler.aclose()


@asynccontextmanager
async def filling(store: SqliteStore, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """The index is filled in the background for the block, with the manners of the daemon, from the first moment on.

    `clock` is asked before and after each batch.
    """
    filler = Indexer(store, IndexerTiming(start_delay=0.0), clock=clock)
    task = asyncio.create_task(filler.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await filler.aclose()


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[SqliteStore]:
    """The store of a home for the block."""
    store = await open_store(home / "bubbot.db", salt=os.urandom, now=now)
    try:
        yield store
    finally:
        await store.aclose()
