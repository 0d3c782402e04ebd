"""The only writing connection: all queued jobs are committed as one group."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from bubbot.errors import BubbotError, StoreError, StoreFull, StoreUnavailable, TapeCorrupt
from bubbot.records import dataclass

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_GROUP_JOBS = 500
"""The most jobs in one transaction, so that the first of a long queue does not wait for the last."""
ROOM_RETRY_SECONDS = 5.0
"""Between two attempts of a writer that waits for room."""
ALONG = 0.05
"""How long a deferred job waits for another one to share a commit with."""


class _Answer(Generic[T]):
    """The result of a function that runs in another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def run(self, job: Callable[[sqlite3.Connection], T], conn: sqlite3.Connection) -> None:
        """Run the function, in its thread, and report its result or its error."""
        try:
            result = job(conn)
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            self.report(partial(self.future.set_exception, error))
        else:
            self.report(partial(self.future.set_result, result))

    def report(self, settle: Callable[[], None]) -> None:
        """Settle the future in its event loop."""
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._settle, settle)

    def _settle(self, settle: Callable[[], None]) -> None:
        if not self.future.done():  # its caller is still there
            settle()


class IdleWork(Protocol):
    """What the thread of a connection does between its jobs, and at its end. The methods raise nothing."""

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without a job after which there is something to do; None if there is nothing."""

    def on_idle(self, conn: sqlite3.Connection) -> None:
        """Do it."""

    def on_close(self, conn: sqlite3.Connection) -> None:
        """Do what is left, before the connection closes."""


class DatabaseThread:
    """A connection in its own thread, which runs whole functions in the order in which they come. Made by `connect`.

    One hop between threads costs far more than a statement (80 to 110 microseconds on an idle machine), so a transaction
    is one function and not one awaited call per statement.
    """

    def __init__(
        self, connector: Callable[[], sqlite3.Connection], opened: _Answer[None], idle_work: IdleWork | None = None
    ) -> None:
        self._idle_work = idle_work
        self._jobs: SimpleQueue[Callable[[sqlite3.Connection], object] | None] = SimpleQueue()
        self._is_open = True
        # A daemon: a program that failed before it closed its store can still exit.
        self._thread = Thread(target=self._serve, args=(connector, opened), daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the connection's thread and return its result."""
        answer: _Answer[T] = _Answer()
        self.post(partial(answer.run, job))
        try:
            return await answer.future
        except sqlite3.Error as error:
            raise translate_error(error) from error

    def post(self, job: Callable[[sqlite3.Connection], object]) -> None:
        """Run a function that raises nothing; while it returns true, run it again behind what came meanwhile."""
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        self._jobs.put(job)

    def post_soon(self, job: Callable[[sqlite3.Connection], object]) -> None:
        """Post a function in the next round of the event loop."""
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        asyncio.get_running_loop().call_soon(self._jobs.put, job)

    async def aclose(self) -> None:
        """Close the connection after all posted work, and wait for the thread."""
        self._is_open = False
        try:
            await asyncio.sleep(0)  # what was posted for this round
        finally:
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _serve(self, connector: Callable[[], sqlite3.Connection], opened: _Answer[None]) -> None:
        try:
            conn = connector()
        except BaseException as error:  # noqa: BLE001 - as for functions
            opened.report(partial(opened.future.set_exception, error))
            return
        opened.report(partial(opened.future.set_result, None))
        while self._run_next(conn):
            pass
        while not self._jobs.empty():  # what runs again
            self._run_next(conn)
        if self._idle_work is not None:
            self._idle_work.on_close(conn)
        conn.close()

    def _run_next(self, conn: sqlite3.Connection) -> bool:
        """Run the next function; return false if there will be none."""
        idle_work = self._idle_work
        try:
            job = self._jobs.get(timeout=None if idle_work is None else idle_work.idle_seconds)
        except Empty:
            if idle_work is not None:
                idle_work.on_idle(conn)
            return True
        if job is None:
            return False
        if job(conn):
            self._jobs.put(job)
        return True


async def connect(connector: Callable[[], sqlite3.Connection], idle_work: IdleWork | None = None) -> DatabaseThread:
    """Open a connection in its own thread, where `connector` makes it."""
    opened: _Answer[None] = _Answer()
    thread = DatabaseThread(connector, opened, idle_work)
    try:
        await opened.future
    except BaseException as error:
        await thread.aclose()
        if isinstance(error, sqlite3.Error):
            raise translate_error(error) from error
        raise
    return thread


def translate_error(error: sqlite3.Error) -> StoreError | TapeCorrupt:
    """Return our error for an error of the driver."""
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


def damaged_schema_error() -> TapeCorrupt:
    """Return the error for a schema whose text is damaged, which makes even what SQLite says about it no text."""
    return TapeCorrupt("the database is damaged (its schema is no text): keep the file and restore a backup")


def read_only_error(path: Path) -> StoreUnavailable | None:
    """Return the error for a database that cannot be read because its disk is read-only; None if it is not."""
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


RESULTS_AT_ONCE = 4
"""Results of a commit that are handed out in one round of the event loop."""


class CommitHook(Protocol):
    """A callable that the writer's thread runs between two groups."""

    def __call__(self, conn: sqlite3.Connection, *, idle: bool) -> None:
        """Run after a commit; `idle`: no job is queued. Raises nothing."""


def no_hook(conn: sqlite3.Connection, *, idle: bool) -> None:
    """Do nothing: the hook of writers that need none."""


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

    A job that fails takes nothing of its neighbours with it. There is no timer: the group forms while the last commit
    runs.
    """

    def __init__(
        self,
        conn: DatabaseThread,
        on_commit: CommitHook = no_hook,
        room_retry: float | None = None,
        check_file: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a writer on a connection.

        Args:
            conn: the writing connection.
            on_commit: runs after each commit.
            room_retry: seconds between two attempts while the disk is full; meanwhile all jobs wait in order, and none
                fails. None: a job that finds the disk full fails with `StoreFull` at once.
            check_file: runs before each group, in the connection's thread; its error is that of all jobs of the group.
        """
        self._conn = conn
        self._check_file = check_file
        self._after = on_commit
        self._room_retry = room_retry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._queue: deque[_WriteJob] = deque()
        self._finished: deque[_JobOutcome] = deque()
        self._is_group_posted = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self.commits = 0
        """How many transactions were committed; the connection's thread counts them."""
        self.commit_counter = CommitCounter()

    async def submit(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job and return its result after the commit.

        If the caller is cancelled, its job is dropped unless it has started.
        """
        self._loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.append(_WriteJob(job, done))
        if self._room.is_set() or self._room_retry is None:
            self._post_group()
        return await done

    def submit_deferred(self, job: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Queue a job as `submit` does, but for the commit of the next submitted job if one comes soon."""
        self._loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.append(_WriteJob(job, done))
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(ALONG, self._flush_deferred)
        return done

    def _flush_deferred(self) -> None:
        self._flush_timer = None
        self.flush()

    @property
    def is_full(self) -> bool:
        """True while all jobs wait for room on the disk."""
        return not self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until there is room on the disk, as far as is known."""
        await self._room.wait()

    def stop_waiting(self) -> None:
        """Try once more to commit all queued jobs, which fail if the disk is still full.

        Later jobs that find the disk full fail at once. `has_room` still waits for room.
        """
        self._room_retry = None
        self.flush()

    def _retry(self) -> None:
        with suppress(StoreUnavailable):  # closed; closing has tried everything
            self._post_group()

    def flush(self) -> None:
        """Commit deferred jobs now instead of waiting for the next one."""
        if self._queue:
            with suppress(StoreUnavailable):  # closed; closing has written everything
                self._post_group()

    def _post_group(self) -> None:
        """Start a commit of everything queued, soon: what wakes together writes together, and the first would not wait for them.

        A group that has not begun yet takes along what is queued later.
        """
        if not self._is_group_posted:
            self._conn.post_soon(self._commit_group)
            self._is_group_posted = True

    def _commit_group(self, conn: sqlite3.Connection) -> bool:
        """Commit a group, in the connection's thread; return true if there are more jobs than fit into it."""
        try:
            return self._commit_queued(conn)
        except Exception as error:  # no caller may wait for ever
            log.exception("database writer failed", extra={"action": "store.failed"})
            self._report(partial(self._fail_queued, _translate(error)))
            return False

    def _report(self, callback: Callable[[], None]) -> None:
        """Call back in the event loop."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(callback)

    def _fail_queued(self, error: BaseException) -> None:
        self._is_group_posted = False
        while self._queue:
            job = self._queue.popleft()
            if not job.done.done():
                job.done.set_exception(error)

    def _commit_queued(self, conn: sqlite3.Connection) -> bool:
        # First: what is queued from now on needs a group of its own, if this one misses it.
        self._is_group_posted = False
        jobs: list[_WriteJob] = []
        while self._queue and len(jobs) < MAX_GROUP_JOBS:
            job = self._queue.popleft()
            if not job.done.cancelled():
                jobs.append(job)
        if not jobs:
            if not self._room.is_set():  # the callers that waited for room were cancelled
                self._report(partial(self._deliver, [], full=False))
            return False
        waits_for_room = self._room_retry is not None
        try:
            self._check_file()
            outcomes = _commit(conn, jobs, stop_when_full=waits_for_room)
        except Exception as error:  # noqa: BLE001 - the file is gone, or even the rollback failed: no caller may wait for ever
            outcomes = [_JobOutcome(job, error=_translate(error)) for job in jobs]
        finished = [outcome for outcome in outcomes if not (waits_for_room and isinstance(outcome.error, StoreFull))]
        decided = {id(outcome.job) for outcome in finished}
        remaining = [job for job in jobs if id(job) not in decided]
        self._queue.extendleft(reversed(remaining))
        self.commits += any(outcome.error is None for outcome in finished)
        is_full = any(isinstance(outcome.error, StoreFull) for outcome in outcomes)
        self._report(partial(self._deliver, finished, full=is_full))
        self._after(conn, idle=not self._queue)
        return len(jobs) == MAX_GROUP_JOBS

    def _deliver(self, outcomes: list[_JobOutcome], *, full: bool) -> None:
        """Hand out the results, in the event loop; if the disk is full, try again later."""
        is_handing_out = bool(self._finished)
        self._finished.extend(outcomes)
        if not is_handing_out:
            self._hand_out()
        if full and self._room_retry is not None:
            if self._room.is_set():
                log.error(
                    "database disk full, nothing is accepted or sent until space is freed",
                    extra={"action": "store.full"},
                )
            self._room.clear()
            asyncio.get_running_loop().call_later(self._room_retry, self._retry)
        elif full:
            self.flush()
        elif not self._room.is_set():
            if self._room_retry is not None:
                log.warning("database disk has room again", extra={"action": "store.room"})
            self._room.set()
            self.flush()

    def _hand_out(self) -> None:
        """Hand out some results, and the others in the next rounds of the event loop.

        Each wakes a task, and a hundred of them at once would keep timers and sockets waiting for as many turns.
        """
        for _ in range(min(RESULTS_AT_ONCE, len(self._finished))):
            outcome = self._finished.popleft()
            if outcome.error is None:
                self.commit_counter.increment()
            if outcome.job.done.done():
                continue
            if outcome.error is None:
                outcome.job.done.set_result(outcome.result)
            else:
                outcome.job.done.set_exception(outcome.error)
        if self._finished:
            asyncio.get_running_loop().call_soon(self._hand_out)


class _JobLeftTraces(Exception):
    """A job failed after it wrote something, and it had no savepoint to roll back to."""


class _GroupRolledBack(Exception):
    """SQLite rolled back the whole transaction, as it does when the disk is full."""


def _commit(
    conn: sqlite3.Connection, jobs: list[_WriteJob], *, stop_when_full: bool = False, savepoints: bool = False
) -> list[_JobOutcome]:
    """Commit jobs as one transaction, or one by one if that fails; return their outcomes.

    Hardly any job fails, and a savepoint for each costs a quarter of a commit: SQLite copies every page that a job
    changes. So jobs get savepoints only if one of them failed after it wrote something; then all run once more.

    With `stop_when_full`, jobs after one that found the disk full have no outcome: they keep their turn.
    """
    run = _run_in_savepoint if savepoints else _run_job
    try:
        conn.execute("BEGIN IMMEDIATE")
        outcomes = []
        for job in jobs:
            outcomes.append(run(conn, job))
            if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                break  # no later job overtakes it
        conn.execute("COMMIT")
    except _JobLeftTraces:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        return _commit(conn, jobs, stop_when_full=stop_when_full, savepoints=True)
    except (sqlite3.Error, _GroupRolledBack) as failure:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        if len(jobs) > 1:
            outcomes = []
            for job in jobs:
                outcomes += _commit(conn, [job])
                if stop_when_full and isinstance(outcomes[-1].error, StoreFull):
                    break
            return outcomes
        cause = failure.__cause__ if isinstance(failure, _GroupRolledBack) else failure
        return [_JobOutcome(jobs[0], error=_translate(cause))]
    return outcomes


def _run_job(conn: sqlite3.Connection, job: _WriteJob) -> _JobOutcome:
    """Run a job without a savepoint. Raises `_JobLeftTraces` if it fails, unless it wrote nothing."""
    changes = conn.total_changes
    try:
        return _JobOutcome(job, job.run(conn))
    except Exception as error:  # the job's caller receives it; the other jobs continue
        if isinstance(error, sqlite3.Error) or conn.total_changes != changes or not conn.in_transaction:
            raise _JobLeftTraces from error
        return _JobOutcome(job, error=_translate(error))


def _run_in_savepoint(conn: sqlite3.Connection, job: _WriteJob) -> _JobOutcome:
    """Run a job so that nothing of it stays if it fails. Raises `_GroupRolledBack`."""
    conn.execute("SAVEPOINT job")
    try:
        outcome = _JobOutcome(job, job.run(conn))
    except Exception as error:  # the job's caller receives it; the other jobs continue
        if not conn.in_transaction:
            raise _GroupRolledBack from error
        conn.execute("ROLLBACK TO job")
        outcome = _JobOutcome(job, error=_translate(error))
    conn.execute("RELEASE job")
    return outcome


def _translate(error: BaseException | None) -> BaseException:
    if isinstance(error, sqlite3.Error):
        ours = translate_error(error)
        ours.__cause__ = error
        return ours
    return error if isinstance(error, BubbotError) else StoreUnavailable(f"the database failed: {error!r}")
