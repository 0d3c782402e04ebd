"""The one writing connection: everything that waits is committed as one group."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, TypeVar

import aiosqlite

from bubbot.errors import BubbotError, StoreError, StoreFull, StoreUnavailable, TapeCorrupt

log = logging.getLogger(__name__)

T = TypeVar("T")
GROUP = 500
"""Jobs in one transaction at most, so that the first of a long queue does not wait for the last."""
ROOM_RETRY_SECONDS = 5.0
"""Between two tries of a writer that waits for room."""
ALONG = 0.05
"""Seconds that a job waits for another one to be committed with."""


class ThreadedConnection(aiosqlite.Connection):
    """A connection in a thread of its own that runs whole functions.

    One hop between threads costs far more than a statement (80 to 110 microseconds on an idle machine), so a
    transaction is one function and not one awaited call per statement.
    """

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of the function, run in the connection's thread."""
        try:
            result: T = await self._execute(job, self._connection)  # type: ignore[no-untyped-call]  # aiosqlite
        except ValueError as error:
            if self._connection is None or not self._running:
                raise StoreUnavailable("the store is closed") from error
            raise
        except sqlite3.Error as error:
            raise translated(error) from error
        return result

    def post(self, job: Callable[[sqlite3.Connection], None]) -> None:
        """Runs the function in the connection's thread, later, without waiting for it."""
        connection = self._connection
        if connection is None or not self._running:
            raise StoreUnavailable("the store is closed")
        self._tx.put_nowait((None, lambda: job(connection)))

    async def ended(self) -> None:
        """Waits for the thread, which reports its end to the event loop: it must not find the loop closed."""
        await asyncio.to_thread(self._thread.join)


async def connect(connector: Callable[[], sqlite3.Connection]) -> ThreadedConnection:
    """A connection made by `connector` in its own thread."""
    conn = _in_daemon_thread(lambda: ThreadedConnection(connector, iter_chunk_size=64))
    try:
        await conn
    except BaseException as error:
        await conn.ended()
        if isinstance(error, sqlite3.Error):
            raise translated(error) from error
        raise
    return conn


def _in_daemon_thread(make: Callable[[], T]) -> T:
    """Run `make` in a daemon thread: threads made there are daemons too, and keep no program from ending that failed
    before it closed its store."""
    made: list[T] = []
    thread = Thread(target=lambda: made.append(make()), daemon=True)
    thread.start()
    thread.join()
    return made[0]


def translated(error: sqlite3.Error) -> StoreError | TapeCorrupt:
    """The error of ours that a driver error stands for."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL":
        return StoreFull("there is no room left for the database: free some space; nothing was lost")
    if name.startswith("SQLITE_IOERR"):
        return StoreFull(f"the database could not be written ({error}): the disk is full or failing; nothing was lost")
    if name in ("SQLITE_NOTADB",) or name.startswith("SQLITE_CORRUPT"):
        return TapeCorrupt(f"the database is damaged ({error}): keep the file and restore a backup")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreUnavailable(f"the database cannot be opened or written ({error}): check the home folder's owner")
    return StoreUnavailable(f"the database failed: {error}")


def read_only_disk(path: Path) -> StoreUnavailable | None:
    """Return what to raise for a database that cannot be read because its disk is read-only; None if it is not."""
    try:
        read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
    except OSError:
        return None
    if not read_only:
        return None
    return StoreUnavailable(
        f"the home {path.parent} is on a read-only disk, and SQLite has to write beside a database to read it: make the "
        "disk writable, or copy the home to another disk and name the copy with --home, or read an export that "
        "`bubbot tape export` wrote earlier"
    )


@dataclass
class _WriteJob:
    run: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]


@dataclass
class _JobOutcome:
    job: _WriteJob
    result: Any = None
    error: BaseException | None = None


class CommitHook(Protocol):
    """What the writer's thread sees to between two groups."""

    def __call__(self, conn: sqlite3.Connection, *, idle: bool) -> None:
        """`idle`: nobody waits for the next one. Raises nothing."""


def no_care(conn: sqlite3.Connection, *, idle: bool) -> None:
    """For writers that nobody looks after."""


class CommitCounter:
    """How many jobs were committed, and waiting for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def tell(self) -> None:
        """One more."""
        self.count += 1
        self._news.set()

    async def beyond(self, count: int) -> None:
        """Waits until there are more."""
        while self.count <= count:
            self._news.clear()
            await self._news.wait()


class GroupCommitWriter:
    """Runs writing jobs; those that wait while a commit is under way share the next one.

    Each job has its own savepoint. No timer: the group forms while the last commit runs.
    """

    def __init__(self, conn: ThreadedConnection, after: CommitHook = no_care, room_retry: float | None = None) -> None:
        """`room_retry`: seconds between two tries where the disk is full. Everybody waits meanwhile, in order, and
        nothing fails; None: whoever finds the disk full gets `StoreFull` at once."""
        self._conn = conn
        self._after = after
        self._room_retry = room_retry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._waiting: deque[_WriteJob] = deque()
        self.commits = 0
        """Transactions that were committed; counted in the connection's thread."""
        self.written = CommitCounter()

    async def submit(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The job's result, after the commit. A cancelled caller's job is left out unless it has started."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WriteJob(job, done))
        if self._room.is_set() or self._room_retry is None:
            self._conn.post(self._drain)
        result = await done
        self.written.tell()
        return result

    async def submit_along(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """As `submit`, but in the commit of the next job that is submitted, if one comes soon."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_WriteJob(job, done))
        loop.call_later(ALONG, self.hasten)
        return await done

    @property
    def is_full(self) -> bool:
        """Whether everybody waits for room on the disk."""
        return not self._room.is_set()

    async def has_room(self) -> None:
        """Wait until there is room on the disk, as far as is known."""
        await self._room.wait()

    def end(self) -> None:
        """Try once more what waits, for room or for the next job; then it fails, and so does at once whatever is
        submitted later and finds the disk full. `has_room` still waits for room."""
        self._room_retry = None
        self.hasten()

    def _retry(self) -> None:
        with suppress(StoreUnavailable):  # closed: which tries everything first
            self._conn.post(self._drain)

    def hasten(self) -> None:
        """What waits for the next job waits no longer."""
        if self._waiting:
            with suppress(StoreUnavailable):  # closed: which writes everything first
                self._conn.post(self._drain)

    def _drain(self, conn: sqlite3.Connection) -> None:
        """In the connection's thread: commits what waits. A later call that finds nothing does nothing."""
        jobs: list[_WriteJob] = []
        while self._waiting and len(jobs) < GROUP:
            job = self._waiting.popleft()
            if not job.done.cancelled():
                jobs.append(job)
        if not jobs:
            if self._loop is not None and not self._room.is_set():  # who waited for room has left
                self._loop.call_soon_threadsafe(partial(self._deliver, [], full=False))
            return
        waits = self._room_retry is not None
        try:
            outcomes = _commit(conn, jobs, stop_when_full=waits)
        except sqlite3.Error as error:  # not even the rollback worked: nobody may wait for ever
            outcomes = [_JobOutcome(job, error=_ours(error)) for job in jobs]
        done = [one for one in outcomes if not (waits and isinstance(one.error, StoreFull))]
        decided = {id(one.job) for one in done}
        left = [job for job in jobs if id(job) not in decided]
        self._waiting.extendleft(reversed(left))
        self.commits += any(one.error is None for one in done)
        full = any(isinstance(one.error, StoreFull) for one in outcomes)
        jobs[0].done.get_loop().call_soon_threadsafe(partial(self._deliver, done, full=full))
        self._after(conn, idle=not self._waiting)

    def _deliver(self, outcomes: list[_JobOutcome], *, full: bool) -> None:
        """In the event loop: gives the results out; where the disk is full, tries again later."""
        _deliver(outcomes)
        if full and self._room_retry is not None:
            if self._room.is_set():
                log.error(
                    "the disk of the database is full: nothing is accepted or sent until there is room; free some",
                    extra={"action": "store.full"},
                )
            self._room.clear()
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(self._room_retry, self._retry)
        elif full:
            self.hasten()
        elif not self._room.is_set():
            if self._room_retry is not None:
                log.warning("there is room for the database again", extra={"action": "store.room"})
            self._room.set()
            self.hasten()


def _deliver(outcomes: list[_JobOutcome]) -> None:
    for outcome in outcomes:
        if outcome.job.done.done():
            continue
        if outcome.error is None:
            outcome.job.done.set_result(outcome.result)
        else:
            outcome.job.done.set_exception(outcome.error)


class _GroupRolledBack(Exception):
    """SQLite rolled back the whole transaction, as it does when the disk is full."""


def _commit(conn: sqlite3.Connection, jobs: list[_WriteJob], *, stop_when_full: bool = False) -> list[_JobOutcome]:
    """What became of each job; of those behind one that found the disk full nothing, where `stop_when_full`."""
    try:
        conn.execute("BEGIN IMMEDIATE")
        outcomes = []
        for job in jobs:
            outcomes.append(_attempt(conn, job))
            if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                break  # nobody overtakes it
        conn.execute("COMMIT")
    except (sqlite3.Error, _GroupRolledBack) as lost:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        if len(jobs) > 1:
            outcomes = []
            for job in jobs:
                outcomes += _commit(conn, [job])
                if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                    break
            return outcomes
        cause = lost.__cause__ if isinstance(lost, _GroupRolledBack) else lost
        return [_JobOutcome(jobs[0], error=_ours(cause))]
    return outcomes


def _attempt(conn: sqlite3.Connection, job: _WriteJob) -> _JobOutcome:
    conn.execute("SAVEPOINT job")
    try:
        outcome = _JobOutcome(job, job.run(conn))
    except Exception as error:  # the job's caller receives it; its neighbours go on
        if not conn.in_transaction:
            raise _GroupRolledBack from error
        conn.execute("ROLLBACK TO job")
        outcome = _JobOutcome(job, error=_ours(error))
    conn.execute("RELEASE job")
    return outcome


def _ours(error: BaseException | None) -> BaseException:
    if isinstance(error, sqlite3.Error):
        ours = translated(error)
        ours.__cause__ = error
        return ours
    return error if isinstance(error, BubbotError) else StoreUnavailable(f"the database failed: {error!r}")
