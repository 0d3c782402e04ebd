"""The only writing connection: a task owns it and commits all queued jobs as one group."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiosqlite

from bubbot.errors import StoreFull
from bubbot.stores.group import GroupWriter, JobLeftTraces, JobOutcome, WriteJob, run_jobs, translate_unknown
from bubbot.stores.sqlite.connections import Connector, connected, translate_error, translated_errors
from bubbot.stores.sqlite.sizes import WalCheckpointer
from bubbot.stores.sqlite.transaction import SqliteTransaction
from bubbot.stores.transaction import Needs, Salt

T = TypeVar("T")


class GroupCommitWriter(GroupWriter):
    """The writer of an SQLite database. See `GroupWriter`."""

    database_error = sqlite3.Error

    def __init__(
        self,
        connector: Connector,
        salt: Salt,
        checkpointer: WalCheckpointer,
        check_file: Callable[[], None],
        room_retry: float | None = None,
    ) -> None:
        """Create a writer; `open` starts it.

        Args:
            connector: opens the writing connection.
            salt: for new entries.
            checkpointer: gets the connection after each commit and when idle.
            check_file: runs before each group; its error fails all jobs of the group.
            room_retry: see `GroupWriter`.
        """
        super().__init__(room_retry)
        self._connector = connector
        self._salt = salt
        self._checkpointer = checkpointer
        self._check_file = check_file
        self._conn: aiosqlite.Connection
        self._alone: deque[tuple[Callable[[aiosqlite.Connection], Awaitable[Any]], asyncio.Future[Any]]] = deque()

    async def run_alone(self, work: Callable[[aiosqlite.Connection], Awaitable[T]]) -> T:
        """Run work outside of transactions between two groups, even while the disk is full."""
        done: asyncio.Future[T] = self._expect_result()
        self._alone.append((work, done))
        self._news.set()
        with translated_errors():
            return await done

    async def _run(self, opened: asyncio.Future[None]) -> None:
        async with connected(self._connector) as conn:
            self._conn = conn
            if not opened.done():
                opened.set_result(None)
            await self._checkpointer.on_open(conn)
            while await self._wait(conn):
                await self._serve_alone(conn)
                await self._serve_group()
            await self._checkpointer.on_close(conn)

    async def _wait(self, conn: aiosqlite.Connection) -> bool:
        """Wait for work; return false if no more will come."""
        while not self._news.is_set():
            if self._is_closing:
                return False
            try:
                async with asyncio.timeout(self._checkpointer.idle_seconds):
                    await self._news.wait()
            except TimeoutError:
                await self._checkpointer.on_idle(conn)
        self._news.clear()
        return True

    async def _serve_alone(self, conn: aiosqlite.Connection) -> None:
        while self._alone:
            work, done = self._alone.popleft()
            if done.cancelled():
                continue
            try:
                result = await work(conn)
            except Exception as error:  # noqa: BLE001 - its waiter gets it
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

    def _fail_queued(self, error: BaseException) -> None:
        super()._fail_queued(error)
        while self._alone:
            _, done = self._alone.popleft()
            if not done.done():
                done.set_exception(error)

    async def _commit_queued(self) -> None:
        commits = self.commits
        await super()._commit_queued()
        if self.commits != commits:
            await self._checkpointer.after_commit(self._conn, idle=not self._queue)

    async def _commit(self, jobs: Sequence[WriteJob], *, stop_when_full: bool) -> list[JobOutcome]:
        """See `GroupWriter`. A failure of a statement or of the commit rolls back the whole group."""
        self._check_file()
        transaction = SqliteTransaction(self._conn, self._salt)
        try:
            await transaction.begin(_all_needs(jobs))
            outcomes = await run_jobs(transaction, jobs, sqlite3.Error, self._translate)
            await transaction.commit()
        except (sqlite3.Error, JobLeftTraces) as failure:
            await self._conn.rollback()
            if len(jobs) == 1 or _is_locked(failure):  # each further attempt would wait as long again
                error = self._translate(failure.__cause__ or failure)
                return [JobOutcome(job, error=error) for job in jobs]
        except BaseException:
            with suppress(ValueError):  # closed, at the end of the event loop
                await self._conn.rollback()
            raise
        else:
            return outcomes
        outcomes = []
        for job in jobs:
            outcomes += await self._commit([job], stop_when_full=stop_when_full)
            if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                break  # no later job may overtake it
        return outcomes

    def _translate(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error):
            ours = translate_error(error)
            ours.__cause__ = error
            return ours
        return translate_unknown(error)


def _all_needs(jobs: Sequence[WriteJob]) -> Needs:
    return Needs(
        [batch for job in jobs for batch in job.needs.batches],
        [name for job in jobs for name in job.needs.names],
        [fork for job in jobs for fork in job.needs.forks],
    )


def _is_locked(error: Exception) -> bool:
    """Return true if another program holds the database."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_BUSY")
