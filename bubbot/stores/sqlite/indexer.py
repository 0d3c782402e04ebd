"""Fills the search index in the background: its own thread, small batches, and pauses while others write."""

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
from typing import Protocol, TypeVar

from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.index.fill import BATCH_ENTRIES, IndexWriter
from bubbot.stores.sqlite.index.schema import delete_index, index_path, open_for_filling, read_generation
from bubbot.stores.sqlite.writer import CommitCounter, translate_error

log = logging.getLogger(__name__)

T = TypeVar("T")
MIN_FREE_BYTES = 200_000_000
"""Below this much free disk the index stops growing: the room is for the tapes."""
_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


@dataclass(frozen=True, slots=True)
class IndexerTiming:
    """Pauses of the indexer, so that it delays no other work.

    Attributes:
        start_delay: seconds from its start to the first batch.
        gather_delay: seconds to wait after an append, so that a turn becomes one batch.
        rest_factor: pause after a batch, in multiples of the time the batch took.
        busy_factor: the same, if something was written meanwhile.
    """

    start_delay: float = 1.0
    gather_delay: float = 0.5
    rest_factor: float = 0.25
    busy_factor: float = 15.0

    def pause(self, duration: float, *, disturbed: bool) -> float:
        """Return the seconds to rest after a batch; `disturbed`: something was written while it was indexed."""
        return duration * (self.busy_factor if disturbed else self.rest_factor)


class IndexedDatabase(Protocol):
    """The database whose texts are indexed.

    Attributes:
        indexer: the indexer that is at work.
    """

    indexer: Indexer | None

    @property
    def path(self) -> Path:
        """Its file."""
        ...

    @property
    def commit_counter(self) -> CommitCounter:
        """The counter of its commits."""
        ...


class Indexer:
    """A worker that fills the search index of a store, in its own thread, until closed."""

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
        self._thread = ThreadPoolExecutor(1, "search-index")
        self._work = _IndexerWork(store.path)

    async def run(self) -> None:
        """Index until cancelled. Raises the errors of SQLite; nothing already indexed is lost then."""
        timing, commits = self._timing, self._store.commit_counter
        await self._sleep(timing.start_delay)
        while True:
            seen_count, started_at = commits.count, self._clock()
            indexed = await self._do(self._work.step)
            duration = self._clock() - started_at
            if indexed == 0:
                if commits.count == seen_count and await self._do(self._work.tidy):
                    continue
                await commits.wait_beyond(seen_count)
                await self._sleep(timing.gather_delay)
            else:
                await self._sleep(timing.pause(duration, disturbed=commits.count != seen_count))

    async def fill(self) -> None:
        """Index all entries at once."""
        while await self._do(self._work.step) or await self._do(self._work.tidy):
            pass

    async def forget(self) -> None:
        """Delete the index and start filling again."""
        await self._do(self._work.forget)
        self._store.commit_counter.increment()

    async def aclose(self) -> None:
        """Close the files and end the thread."""
        if self._store.indexer is self:
            self._store.indexer = None
        with suppress(RuntimeError):
            await self._do(self._work.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise translate_error(error) from error


class _IndexerWork:
    """The work in the thread; every call comes from there."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = index_path(database)
        self._reader: sqlite3.Connection | None = None
        self._filler: IndexWriter | None = None
        self._full = False

    def step(self, limit: int = BATCH_ENTRIES) -> int:
        """Index the next entries, in a new file if the present one is unusable; return how many."""
        if not self._has_room():
            return 0
        try:
            filler = self._filler or self._open_files()
            indexed = filler.step(limit)
            reason = "it does not belong to these tapes, or something was erased"
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") not in _DAMAGED:
                self.close()
                raise
            indexed, reason = None, f"it is damaged ({error})"
        if indexed is None:
            self.forget()
            log.warning("rebuilding search index: %s", reason, extra={"action": "index.anew"})
            indexed = self._open_files().step(limit)
        return indexed or 0

    def tidy(self) -> bool:
        """Merge some parts of the index; return true if there is more to do."""
        return self._filler is not None and self._filler.tidy()

    def forget(self) -> None:
        """Close and delete the file."""
        self.close()
        delete_index(self._path)

    def close(self) -> None:
        """Close both databases."""
        filler, self._filler = self._filler, None
        reader, self._reader = self._reader, None
        for conn in (filler.index if filler else None, reader):
            if conn is not None:
                with suppress(sqlite3.Error):
                    conn.close()

    def _open_files(self) -> IndexWriter:
        self.close()
        self._reader = open_reader(self._database)
        exists = self._path.exists()
        index = open_for_filling(self._path, read_generation(self._reader))
        self._filler = IndexWriter(index, self._reader)
        if not exists:
            log.info("creating search index", extra={"action": "index.new"})
        return self._filler

    def _has_room(self) -> bool:
        full = shutil.disk_usage(self._database.parent).free < MIN_FREE_BYTES
        if full and not self._full:
            log.warning("disk nearly full, search indexing paused", extra={"action": "index.no_room"})
        self._full = full
        return not full
