"""Keeping the index full in the background: a thread of its own, small batches, and rests while others write."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bubbot.stores.sqlite.index.fill import BATCH, IndexWriter
from bubbot.stores.sqlite.index.schema import generation, index_path, open_for_filling, throw_away
from bubbot.stores.sqlite.store import SqliteStore, reading
from bubbot.stores.sqlite.writer import translated

log = logging.getLogger(__name__)

T = TypeVar("T")
MIN_FREE_BYTES = 200_000_000
"""Bytes that have to be free on the disk: the index takes nothing from the tapes."""
_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


@dataclass(frozen=True, slots=True)
class IndexerTiming:
    """How the index is filled beside other work, in seconds.

    `start` after the bot; `gather` after an append, so that a turn is indexed at once; after each batch it rests
    `rest` times as long as the batch took, and `busy` times where something was written meanwhile.
    """

    start: float = 1.0
    gather: float = 0.5
    rest: float = 0.25
    busy: float = 15.0

    def pause(self, took: float, *, disturbed: bool) -> float:
        """How long to rest after a batch; `disturbed`: something was written while it was indexed."""
        return took * (self.busy if disturbed else self.rest)


class Indexer:
    """Fills the search index of a store, in a thread of its own, until closed."""

    def __init__(
        self,
        store: SqliteStore,
        manners: IndexerTiming | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._manners = manners or IndexerTiming()
        self._clock = clock
        self._sleep = sleep
        self._thread = ThreadPoolExecutor(1, "search-index")
        self._work = _IndexerWork(store.path)

    async def run(self) -> None:
        """Goes on until cancelled. Raises what SQLite refuses; nothing that was indexed is lost then."""
        manners, written = self._manners, self._store.written
        await self._sleep(manners.start)
        while True:
            seen, began = written.count, self._clock()
            done = await self._do(self._work.step)
            took = self._clock() - began
            if done == 0:
                if written.count == seen and await self._do(self._work.tidy):
                    continue
                await written.beyond(seen)
                await self._sleep(manners.gather)
            else:
                await self._sleep(manners.pause(took, disturbed=written.count != seen))

    async def fill(self) -> None:
        """Indexes everything there is, at once."""
        while await self._do(self._work.step) or await self._do(self._work.tidy):
            pass

    async def forget(self) -> None:
        """Deletes the index; filling begins anew."""
        await self._do(self._work.forget)
        self._store.written.tell()

    async def aclose(self) -> None:
        """Closes the files and ends the thread."""
        if self._store.keeper is self:
            self._store.keeper = None
        with suppress(RuntimeError):
            await self._do(self._work.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise translated(error) from error


class _IndexerWork:
    """What happens in the thread. All its calls come from there."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = index_path(database)
        self._reads: sqlite3.Connection | None = None
        self._filler: IndexWriter | None = None
        self._full = False

    def step(self, most: int = BATCH) -> int:
        """Indexes the next entries, in a new file where the one there does not do; says how many."""
        if not self._has_room():
            return 0
        try:
            filler = self._filler or self._opened()
            done = filler.step(most)
            reason = "it does not belong to these tapes, or something was erased"
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") not in _DAMAGED:
                self.close()
                raise
            done, reason = None, f"it is damaged ({error})"
        if done is None:
            self.forget()
            log.warning("the search index is made anew: %s", reason, extra={"action": "index.anew"})
            done = self._opened().step(most)
        return done or 0

    def tidy(self) -> bool:
        """Merges what was written in many parts, some at a time; says whether there is more to do."""
        return self._filler is not None and self._filler.tidy()

    def forget(self) -> None:
        """Closes and deletes the file."""
        self.close()
        throw_away(self._path)

    def close(self) -> None:
        """Closes both databases."""
        filler, self._filler = self._filler, None
        reads, self._reads = self._reads, None
        for conn in (filler.index if filler else None, reads):
            if conn is not None:
                with suppress(sqlite3.Error):
                    conn.close()

    def _opened(self) -> IndexWriter:
        self.close()
        self._reads = reading(self._database)
        there = self._path.exists()
        index = open_for_filling(self._path, generation(self._reads))
        self._filler = IndexWriter(index, self._reads)
        if not there:
            log.info("the search index is being made", extra={"action": "index.new"})
        return self._filler

    def _has_room(self) -> bool:
        full = shutil.disk_usage(self._database.parent).free < MIN_FREE_BYTES
        if full and not self._full:
            log.warning("the disk is nearly full: search is not indexed", extra={"action": "index.no_room"})
        self._full = full
        return not full
