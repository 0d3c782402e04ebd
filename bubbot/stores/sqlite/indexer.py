"""Fill the search index in the background, in small batches with pauses while others write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.stores.group import CommitCounter
from bubbot.stores.sqlite.index.fill import BATCH_ENTRIES, IndexWriter


class IndexerTiming(Struct, frozen=True):
    """Pauses of the indexer, so that it does not delay other work.

    Attributes:
        start_delay: seconds from its start to the first batch.
        gather_delay: seconds to wait after an append, so that a turn becomes one batch.
        rest_factor: pause after a batch, in multiples of the batch's duration.
        busy_factor: the same, if others wrote meanwhile.
    """

    start_delay: float = 1.0
    gather_delay: float = 0.5
    rest_factor: float = 0.25
    busy_factor: float = 15.0

    def pause(self, duration: float, *, disturbed: bool) -> float:
        """Return the seconds to rest after a batch; `disturbed`: others wrote during the batch."""
        return duration * (self.busy_factor if disturbed else self.rest_factor)


class IndexedDatabase(Protocol):
    """The database whose texts are indexed.

    Attributes:
        indexer: the running indexer.
    """

    indexer: Indexer | None

    @property
    def path(self) -> Path: ...

    @property
    def commit_counter(self) -> CommitCounter: ...


class Indexer:
    """A worker that fills the search index of a store, until closed."""

    def __init__(
        self,
        store: IndexedDatabase,
        manners: IndexerTiming | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._timing = manners or IndexerTiming()
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._writer = IndexWriter(store.path)

    async def run(self) -> None:
        """Index until cancelled. Raise `StoreError`; indexed entries stay indexed."""
        timing, commits = self._timing, self._store.commit_counter
        await self._sleep(timing.start_delay)
        while True:
            seen_count, started_at = commits.count, self._clock()
            indexed = await self.step()
            duration = self._clock() - started_at
            if indexed == 0:
                if commits.count == seen_count and await self._tidy():
                    continue
                await commits.wait_beyond(seen_count)
                await self._sleep(timing.gather_delay)
            else:
                await self._sleep(timing.pause(duration, disturbed=commits.count != seen_count))

    async def fill(self, on_progress: OnProgress = ignore_progress, total: int = 0) -> None:
        """Index all entries at once. See `FillsIndex.fill`."""
        done = 0
        while (indexed := await self.step()) or await self._tidy():
            done += indexed
            on_progress(done, total)

    async def forget(self) -> None:
        """Delete the index and start filling again."""
        async with self._lock:
            await self._writer.forget()
        self._store.commit_counter.increment()

    async def aclose(self) -> None:
        """Close the files."""
        if self._store.indexer is self:
            self._store.indexer = None
        async with self._lock:
            await self._writer.aclose()

    async def step(self, limit: int = BATCH_ENTRIES) -> int:
        """Index the next entries; return how many. Raise `StoreError`."""
        async with self._lock:
            return await self._writer.step(limit)

    async def _tidy(self) -> bool:
        async with self._lock:
            return await self._writer.tidy()
