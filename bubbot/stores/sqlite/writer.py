"""The only writing connection: a task owns it and commits all queued jobs as one group."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import aiosqlite

from bubbot.errors import BubbotError, StoreFull, StoreUnavailable
from bubbot.stores.sqlite.connections import Connector, connected, translate_error, translated_errors
from bubbot.stores.sqlite.sizes import WalCheckpointer
from bubbot.stores.sqlite.transaction import Salt, Transaction
from bubbot.tape.store import Batch

log = logging.getLogger(__name__)

T = TypeVar("T")
Job: TypeAlias = Callable[[Transaction], Awaitable[T]]
"""Writes within the transaction of its group."""
MAX_GROUP_JOBS = 500
"""The most jobs in one transaction, so that the first of a long queue does not wait for the last."""
ROOM_RETRY_SECONDS = 5.0
"""Seconds between two attempts of a writer that waits for room."""
ALONG = 0.05
"""Seconds that a deferred job waits for another one to share a commit."""
RESULTS_AT_ONCE = 4
"""Results to deliver in one round of the event loop: each wakes a task."""
JOBS_AT_ONCE = 16
"""Jobs of a group to run in one round of the event loop, so that timers and sockets are served."""


@dataclass
class _WriteJob:
    """A job, the data that its group reads for it at the beginning, and the future of its result."""

    run: Callable[[Transaction], Awaitable[Any]]
    done: asyncio.Future[Any]
    batches: Sequence[Batch]
    asks_forks: bool


@dataclass
class _JobOutcome:
    job: _WriteJob
    result: Any = None
    error: BaseException | None = None


class CommitCounter:
    """The number of committed jobs, with a way to wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def increment(self) -> None:
        """Count one more commit."""
        self.count += 1
        self._news.set()

    async def wait_beyond(self, count: int) -> None:
        """Wait until the count is above `count`."""
        while self.count <= count:
            self._news.clear()
            await self._news.wait()


class GroupCommitWriter:
    """Runs writing jobs; those queued during a commit share the next one.

    A failed job does not affect the other jobs. There is no timer: the group forms while the last commit runs. One task
    opens, uses and closes the connection, and no other task has it: interleaved statements of two tasks would write
    into each other's transaction. The task ends at `aclose`, or when the ending event loop cancels the remaining tasks;
    an open transaction is then rolled back.
    """

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
            room_retry: seconds between two attempts while the disk is full; meanwhile all jobs wait in order and none
                fails. None: a job without room raises `StoreFull` at once.
        """
        self._connector = connector
        self._salt = salt
        self._checkpointer = checkpointer
        self._check_file = check_file
        self._room_retry = room_retry
        self._room = asyncio.Event()
        self._room.set()
        self._queue: deque[_WriteJob] = deque()
        self._alone: deque[tuple[Callable[[aiosqlite.Connection], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._finished: deque[_JobOutcome] = deque()
        self._news = asyncio.Event()
        self._is_group_due = self._is_closing = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.commits = 0
        """How many transactions were committed."""
        self.commit_counter = CommitCounter()

    async def open(self) -> None:
        """Open the connection. Raise the connector's error."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(opened))
        try:
            with translated_errors():
                await opened
        except BaseException:
            await self.aclose()
            raise

    async def submit(self, job: Job[T], batches: Sequence[Batch] = (), *, asks_forks: bool = False) -> T:
        """Run a job and return its result after the commit.

        If the caller is cancelled, its job is dropped unless it has started. The tapes and keys that `batches` name,
        and with `asks_forks` the forks, are read together with those of the other jobs.
        """
        done = self._enqueue(job, batches, asks_forks=asks_forks)
        if self._room.is_set() or self._room_retry is None:
            self.flush()
        return await done

    def submit_deferred(self, job: Job[T], batches: Sequence[Batch] = ()) -> asyncio.Future[T]:
        """Queue a job like `submit`, for the commit of the next submitted job if one comes soon."""
        done = self._enqueue(job, batches)
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(ALONG, self._flush_deferred)
        return done

    def _enqueue(self, job: Job[T], batches: Sequence[Batch], *, asks_forks: bool = False) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._expect_result()
        self._queue.append(_WriteJob(job, done, batches, asks_forks))
        return done

    def _expect_result(self) -> asyncio.Future[Any]:
        if self._task is None or self._task.done():
            raise StoreUnavailable("the store is closed")
        return asyncio.get_running_loop().create_future()

    def _flush_deferred(self) -> None:
        self._flush_timer = None
        self.flush()

    def flush(self) -> None:
        """Commit the queue soon: tasks that wake together share a commit."""
        self._is_group_due = True
        self._news.set()

    async def run_alone(self, work: Callable[[aiosqlite.Connection], Awaitable[T]]) -> T:
        """Run work outside of transactions between two groups, even while the disk is full."""
        done: asyncio.Future[T] = self._expect_result()
        self._alone.append((work, done))
        self._news.set()
        with translated_errors():
            return await done

    @property
    def is_full(self) -> bool:
        """True while all jobs wait for room on the disk."""
        return not self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until there seems to be room on the disk."""
        await self._room.wait()

    def stop_waiting(self) -> None:
        """Try once more to commit all queued jobs, which fail if the disk is still full.

        Later jobs without room fail at once. `wait_for_room` still waits.
        """
        self._room_retry = None
        self.flush()

    async def aclose(self) -> None:
        """Commit the queue and close, even if the caller is cancelled."""
        self._is_closing = True
        self.stop_waiting()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            async with connected(self._connector) as conn:
                if not opened.done():
                    opened.set_result(None)
                await self._checkpointer.on_open(conn)
                while await self._wait(conn):
                    await self._serve(conn)
                await self._checkpointer.on_close(conn)
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._fail_queued(StoreUnavailable("the store is closed"))

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

    async def _serve(self, conn: aiosqlite.Connection) -> None:
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
        if self._is_group_due:
            self._is_group_due = False
            try:
                await self._commit_queued(conn)
            except Exception as error:  # no caller may wait for ever
                log.exception("database writer failed", extra={"action": "store.failed"})
                self._fail_queued(_translate(error))

    def _fail_queued(self, error: BaseException) -> None:
        while self._queue:
            self._settle(_JobOutcome(self._queue.popleft(), error=error))
        while self._alone:
            _, done = self._alone.popleft()
            if not done.done():
                done.set_exception(error)

    async def _commit_queued(self, conn: aiosqlite.Connection) -> None:
        jobs: list[_WriteJob] = []
        while self._queue and len(jobs) < MAX_GROUP_JOBS:
            job = self._queue.popleft()
            if not job.done.cancelled():
                jobs.append(job)
        if self._queue:
            self.flush()
        if not jobs:
            if self._room_retry is not None:
                self._note_room(is_full=False)  # all callers that waited for room were cancelled
            return
        waits_for_room = self._room_retry is not None
        try:
            self._check_file()
            outcomes = await self._commit(conn, jobs, stop_when_full=waits_for_room)
        except Exception as error:  # noqa: BLE001 - the file is gone, or even the rollback failed: no caller may wait for ever
            outcomes = [_JobOutcome(job, error=_translate(error)) for job in jobs]
        except BaseException:
            self._queue.extendleft(reversed(jobs))  # their waiters learn that the store is closed
            raise
        finished = [outcome for outcome in outcomes if not (waits_for_room and isinstance(outcome.error, StoreFull))]
        decided = {id(outcome.job) for outcome in finished}
        self._queue.extendleft(reversed([job for job in jobs if id(job) not in decided]))
        self.commits += any(outcome.error is None for outcome in finished)
        self._deliver(finished)
        self._note_room(is_full=any(isinstance(outcome.error, StoreFull) for outcome in outcomes))
        await self._checkpointer.after_commit(conn, idle=not self._queue)

    async def _commit(
        self, conn: aiosqlite.Connection, jobs: Sequence[_WriteJob], *, stop_when_full: bool
    ) -> list[_JobOutcome]:
        """Commit jobs as one transaction, or one by one if that fails; return their outcomes.

        Few jobs fail, and usually before any change: then the others continue. Any other failure, of a statement or the
        commit, rolls back the whole group.

        With `stop_when_full`, jobs after one without room have no outcome: they keep their place.
        """
        transaction = Transaction(conn, self._salt)
        outcomes: list[_JobOutcome] = []
        try:
            batches = [batch for job in jobs for batch in job.batches]
            await transaction.begin(batches, asks_forks=any(job.asks_forks for job in jobs))
            for number, job in enumerate(jobs, 1):
                outcomes.append(await _run_job(transaction, job))
                if number % JOBS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await transaction.commit()
        except (sqlite3.Error, _JobLeftTraces) as failure:
            await conn.rollback()
            if len(jobs) == 1 or _is_locked(failure):  # each further attempt would wait as long again
                error = _translate(failure.__cause__ or failure)
                return [_JobOutcome(job, error=error) for job in jobs]
        except BaseException:
            with suppress(ValueError):  # closed, at the end of the event loop
                await conn.rollback()
            raise
        else:
            return outcomes
        outcomes = []
        for job in jobs:
            outcomes += await self._commit(conn, [job], stop_when_full=stop_when_full)
            if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                break  # no later job may overtake it
        return outcomes

    def _note_room(self, *, is_full: bool) -> None:
        """If the disk is full, try again later; if it no longer is, continue."""
        if is_full and self._room_retry is not None:
            if self._room.is_set():
                log.error(
                    "database disk full, nothing is accepted or sent until space is freed",
                    extra={"action": "store.full"},
                )
            self._room.clear()
            asyncio.get_running_loop().call_later(self._room_retry, self.flush)
        elif is_full:
            self.flush()
        elif not self._room.is_set():
            if self._room_retry is not None:
                log.warning("database disk has room again", extra={"action": "store.room"})
            self._room.set()
            self.flush()

    def _deliver(self, outcomes: Sequence[_JobOutcome]) -> None:
        """Deliver the results: some now, the others in later rounds of the event loop, while the next group is written."""
        is_handing_out = bool(self._finished)
        self._finished.extend(outcomes)
        if not is_handing_out:
            self._hand_out()

    def _hand_out(self) -> None:
        for _ in range(min(RESULTS_AT_ONCE, len(self._finished))):
            self._settle(self._finished.popleft())
        if self._finished:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _settle(self, outcome: _JobOutcome) -> None:
        if outcome.error is None:
            self.commit_counter.increment()
        if outcome.job.done.done():
            return
        if outcome.error is None:
            outcome.job.done.set_result(outcome.result)
        else:
            outcome.job.done.set_exception(outcome.error)


class _JobLeftTraces(Exception):
    """A job failed after it changed something."""


async def _run_job(transaction: Transaction, job: _WriteJob) -> _JobOutcome:
    """Run a job. Raise `_JobLeftTraces` if it fails after a change."""
    changes = transaction.changes
    try:
        return _JobOutcome(job, await job.run(transaction))
    except sqlite3.Error:
        raise
    except Exception as error:  # the job's caller receives it; the other jobs continue
        if transaction.changes != changes:
            raise _JobLeftTraces from error
        return _JobOutcome(job, error=_translate(error))


def _is_locked(error: Exception) -> bool:
    """Return true if another program holds the database."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_BUSY")


def _translate(error: BaseException) -> BaseException:
    if isinstance(error, sqlite3.Error):
        ours = translate_error(error)
        ours.__cause__ = error
        return ours
    return error if isinstance(error, BubbotError) else StoreUnavailable(f"the database failed: {error!r}")
