"""The writing connection of one process: groups of jobs, the lost server, and commits that nobody has answered."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import psycopg

from bubbot.errors import StoreFull, StoreUnavailable
from bubbot.stores.group import GroupWriter, JobLeftTraces, JobOutcome, WriteJob, run_jobs, translate_unknown
from bubbot.stores.postgres.connections import SHARE_WRITING, AsyncConnection, ServerLost, is_lost, translate_error
from bubbot.stores.postgres.transaction import CommitRefused, PostgresTransaction
from bubbot.stores.transaction import Needs, Salt

log = logging.getLogger(__name__)

AsyncConnector: TypeAlias = Callable[[], Awaitable[AsyncConnection]]
"""Opens the writing connection. Raises `StoreError`."""
MAX_ATTEMPTS = 5
"""Attempts at a group that the server aborts because of a deadlock or a serialization failure."""


class PostgresWriter(GroupWriter):
    """The writer of one process. Other processes write to the same database. See `GroupWriter`.

    A job that chooses its tapes only as it runs has a transaction of its own, in which nobody else writes.
    """

    database_error = psycopg.Error

    def __init__(self, connector: AsyncConnector, salt: Salt, room_retry: float | None = None) -> None:
        super().__init__(room_retry)
        self._connector = connector
        self._salt = salt
        self._conn: AsyncConnection | None = None
        self._reason: BaseException | None = None
        self._name, self._group = os.urandom(16).hex(), 0
        self.newest_position = 0
        """The position of the newest entry that this process committed."""
        self.queue_of: Callable[[str], str] | None = None
        """Returns the queue of the workers that run a chat; None: this process runs its turns itself."""

    @property
    def is_full(self) -> bool:
        return super().is_full and isinstance(self._reason, StoreFull)

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            await self._connected()
            if not opened.done():
                opened.set_result(None)
            while await self._wait():
                await self._serve_group()
        finally:
            if self._conn is not None:
                with suppress(psycopg.Error):
                    await self._conn.execute("DELETE FROM writers WHERE writer = %s", (self._name,))
                    await self._conn.close()

    async def _wait(self) -> bool:
        """Wait for work; return false if no more will come."""
        if not self._news.is_set():
            if self._is_closing:
                return False
            await self._news.wait()
        self._news.clear()
        return True

    async def _connected(self) -> AsyncConnection:
        if self._conn is None or self._conn.closed:
            conn = await self._connector()
            if (await (await conn.execute(SHARE_WRITING)).fetchone()) != (True,):
                await conn.close()
                raise ServerLost(
                    "the tapes of this database are being copied to another store: nobody writes meanwhile"
                )
            self._conn = conn
            await self._conn.execute("INSERT INTO writers VALUES (%s, 0) ON CONFLICT DO NOTHING", (self._name,))
        return self._conn

    def _take_group(self) -> list[WriteJob]:
        jobs = super()._take_group()
        first = next((place for place, job in enumerate(jobs) if job.needs.is_exclusive), len(jobs))
        group = jobs[: first or 1]
        self._queue.extendleft(reversed(jobs[len(group) :]))
        return group

    async def _commit(self, jobs: Sequence[WriteJob], *, stop_when_full: bool) -> list[JobOutcome]:
        """See `GroupWriter`. A failure of a statement or of the commit rolls back the whole group."""
        try:
            outcomes = await self._try_commit(jobs)
        except (psycopg.Error, JobLeftTraces, CommitRefused, ServerLost) as failure:
            error = self._translate(failure.__cause__ if isinstance(failure, JobLeftTraces) else failure)
            if len(jobs) == 1 or isinstance(error, ServerLost):  # each further attempt would wait as long again
                return [JobOutcome(job, error=error) for job in jobs]
        else:
            return outcomes
        outcomes = []
        for job in jobs:
            outcomes += await self._commit([job], stop_when_full=stop_when_full)
            if stop_when_full and self._waits(outcomes[-1].error):
                break  # no later job may overtake it
        return outcomes

    async def _try_commit(self, jobs: Sequence[WriteJob]) -> list[JobOutcome]:
        """Commit jobs as one transaction. Raise what failed, with nothing written."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            self._group += 1
            transaction = PostgresTransaction(
                await self._connected(), self._salt, self._name, self._group, self.queue_of
            )
            outcomes: list[JobOutcome] = []
            try:
                await transaction.begin(_all_needs(jobs))
                outcomes = await run_jobs(transaction, jobs, psycopg.Error, self._translate)
                await transaction.commit()
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                await self._drop_connection()
                if attempt == MAX_ATTEMPTS:
                    raise
                log.info("transaction tried again", extra={"action": "store.again"})
                continue
            except psycopg.Error as error:
                if is_lost(error) and transaction.is_committing:
                    if await self._was_committed(self._group):
                        self.newest_position = max(self.newest_position, transaction.seq)
                        return outcomes
                    raise ServerLost(
                        "the PostgreSQL server went away before the commit; nothing was written"
                    ) from error
                # The driver no longer knows which statements the server has prepared: some of a pipeline were skipped.
                await self._drop_connection()
                raise
            except JobLeftTraces:
                await transaction.rollback()
                raise
            except BaseException:
                await self._drop_connection()
                raise
            self.newest_position = max(self.newest_position, transaction.seq)
            return outcomes
        raise AssertionError("the last attempt returns or raises")

    async def _drop_connection(self) -> None:
        if self._conn is not None:
            with suppress(psycopg.Error):
                await self._conn.close()
            self._conn = None

    async def _was_committed(self, group: int) -> bool:
        """Return true if a commit was written, though its answer was lost.

        The update of `writers` waits for a transaction that still runs, and makes one that the server gets later fail. The
        transaction's own number would not identify it: after a crash another one may get it.
        """
        while True:
            await self._drop_connection()
            try:
                conn = await self._connected()
                over = "UPDATE writers SET is_over = true WHERE writer = %s RETURNING groups"
                row = await (await conn.execute(over, (self._name,))).fetchone()
                self._name = os.urandom(16).hex()
                await self._drop_connection()  # the next one goes on under the new name
                return row is not None and bool(row[0] == group)
            except (psycopg.Error, ServerLost) as error:
                if self._room_retry is None:
                    raise StoreUnavailable(
                        "the PostgreSQL server went away during a commit, and nobody knows yet whether it was written"
                    ) from error
                if self._room.is_set():
                    self._reason = self._translate(error)
                    self._log_waiting()
                    self._room.clear()
                await asyncio.sleep(min(self._room_retry, 1.0))

    def _waits(self, error: BaseException | None) -> bool:
        if isinstance(error, StoreFull | ServerLost):
            self._reason = error
            return True
        return False

    def _log_waiting(self) -> None:
        if isinstance(self._reason, StoreFull):
            super()._log_waiting()
            return
        log.error(
            "database server lost, nothing is accepted or sent until it is back",
            extra={"action": "store.lost", "reason": str(self._reason)},
        )

    def _log_waited(self) -> None:
        if isinstance(self._reason, StoreFull):
            super()._log_waited()
            return
        log.warning("database server is back", extra={"action": "store.back"})

    def _translate(self, error: BaseException | None) -> BaseException:
        if isinstance(error, psycopg.Error):
            ours = translate_error(error)
            ours.__cause__ = error
            return ours
        return translate_unknown(error or StoreUnavailable("the database failed"))


def _all_needs(jobs: Sequence[WriteJob]) -> Needs:
    return Needs(
        [batch for job in jobs for batch in job.needs.batches],
        [name for job in jobs for name in job.needs.names],
        [fork for job in jobs for fork in job.needs.forks],
        is_exclusive=any(job.needs.is_exclusive for job in jobs),
    )
