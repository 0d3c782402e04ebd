"""Group commit: one task commits all queued jobs as one transaction. A store adds its connection."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from bubbot.errors import BubbotError, StoreFull, StoreUnavailable
from bubbot.stores.transaction import Needs, Transaction

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
NO_NEEDS = Needs()


@dataclass
class WriteJob:
    """A job, the data that its group reads for it at the beginning, and the future of its result."""

    run: Job[Any]
    done: asyncio.Future[Any]
    needs: Needs


@dataclass
class JobOutcome:
    job: WriteJob
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


class GroupWriter(ABC):
    """Runs writing jobs; those queued during a commit share the next one.

    A failed job does not affect the other jobs. There is no timer: the group forms while the last commit runs. One task
    opens, uses and closes the connection, and no other task has it: interleaved statements of two tasks would write
    into each other's transaction. The task ends at `aclose`, or when the ending event loop cancels the remaining tasks;
    an open transaction is then rolled back.

    Attributes:
        commits: how many transactions were committed.
        database_error: what the driver of the database raises.
    """

    database_error: ClassVar[type[Exception]]

    def __init__(self, room_retry: float | None = None) -> None:
        """Create a writer; `open` starts it.

        Args:
            room_retry: seconds between two attempts while nothing can be written, such as on a full disk; meanwhile all
                jobs wait in order and none fails. None: such a job raises its error at once.
        """
        self._room_retry = room_retry
        self._room = asyncio.Event()
        self._room.set()
        self._queue: deque[WriteJob] = deque()
        self._finished: deque[JobOutcome] = deque()
        self._news = asyncio.Event()
        self._is_group_due = self._is_closing = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.commits = 0
        self.commit_counter = CommitCounter()

    async def open(self) -> None:
        """Open the connection. Raise its error, translated if it is one of the driver."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_until_closed(opened))
        try:
            await opened
        except BaseException as error:
            await self.aclose()
            if isinstance(error, self.database_error):
                raise self._translate(error) from error
            raise

    async def submit(self, job: Job[T], needs: Needs = NO_NEEDS) -> T:
        """Run a job and return its result after the commit.

        If the caller is cancelled, its job is dropped unless it has started. What it needs is read together with what
        the other jobs need.
        """
        done = self._enqueue(job, needs)
        if self._room.is_set() or self._room_retry is None:
            self.flush()
        return await done

    def submit_deferred(self, job: Job[T], needs: Needs = NO_NEEDS) -> asyncio.Future[T]:
        """Queue a job like `submit`, for the commit of the next submitted job if one comes soon."""
        done = self._enqueue(job, needs)
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(ALONG, self._flush_deferred)
        return done

    def _enqueue(self, job: Job[T], needs: Needs) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._expect_result()
        self._queue.append(WriteJob(job, done, needs))
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

    @property
    def is_full(self) -> bool:
        """True while all jobs wait for room on the disk."""
        return not self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until it seems that something can be written."""
        await self._room.wait()

    def stop_waiting(self) -> None:
        """Try once more to commit all queued jobs, which fail if that is still impossible.

        Later jobs then fail at once. `wait_for_room` still waits.
        """
        self._room_retry = None
        self.flush()

    async def aclose(self) -> None:
        """Commit the queue and close, even if the caller is cancelled."""
        self._is_closing = True
        self.stop_waiting()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run_until_closed(self, opened: asyncio.Future[None]) -> None:
        try:
            await self._run(opened)
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._fail_queued(StoreUnavailable("the store is closed"))

    @abstractmethod
    async def _run(self, opened: asyncio.Future[None]) -> None:
        """Open the connection, resolve `opened`, serve until closed, and close the connection."""

    @abstractmethod
    async def _commit(self, jobs: Sequence[WriteJob], *, stop_when_full: bool) -> list[JobOutcome]:
        """Commit jobs as one transaction, or one by one if that fails; return their outcomes.

        With `stop_when_full`, jobs after one that waits for room have no outcome: they keep their place.
        """

    @abstractmethod
    def _translate(self, error: BaseException) -> BaseException:
        """Return an error of ours."""

    def _waits(self, error: BaseException | None) -> bool:
        """Return true for an error after which a job waits and is tried again."""
        return isinstance(error, StoreFull)

    def _take_group(self) -> list[WriteJob]:
        """Take the jobs of the next group from the queue, without cancelled ones."""
        jobs: list[WriteJob] = []
        while self._queue and len(jobs) < MAX_GROUP_JOBS:
            job = self._queue.popleft()
            if not job.done.cancelled():
                jobs.append(job)
        return jobs

    async def _serve_group(self) -> None:
        """Commit the queue if it is due."""
        if not self._is_group_due:
            return
        self._is_group_due = False
        try:
            await self._commit_queued()
        except Exception as error:  # no caller may wait for ever
            log.exception("database writer failed", extra={"action": "store.failed"})
            self._fail_queued(self._translate(error))

    def _fail_queued(self, error: BaseException) -> None:
        while self._queue:
            self._settle(JobOutcome(self._queue.popleft(), error=error))

    async def _commit_queued(self) -> None:
        jobs = self._take_group()
        if self._queue:
            self.flush()
        if not jobs:
            if self._room_retry is not None:
                self._note_room(is_full=False)  # all callers that waited for room were cancelled
            return
        waits_for_room = self._room_retry is not None
        try:
            outcomes = await self._commit(jobs, stop_when_full=waits_for_room)
        except Exception as error:  # noqa: BLE001 - the file is gone, or even the rollback failed: no caller may wait for ever
            outcomes = [JobOutcome(job, error=self._translate(error)) for job in jobs]
        except BaseException:
            self._queue.extendleft(reversed(jobs))  # their waiters learn that the store is closed
            raise
        finished = [outcome for outcome in outcomes if not (waits_for_room and self._waits(outcome.error))]
        decided = {id(outcome.job) for outcome in finished}
        self._queue.extendleft(reversed([job for job in jobs if id(job) not in decided]))
        self.commits += any(outcome.error is None for outcome in finished)
        self._deliver(finished)
        self._note_room(is_full=any(self._waits(outcome.error) for outcome in outcomes))

    def _note_room(self, *, is_full: bool) -> None:
        """If nothing can be written, try again later; if it can again, continue."""
        if is_full and self._room_retry is not None:
            if self._room.is_set():
                self._log_waiting()
            self._room.clear()
            asyncio.get_running_loop().call_later(self._room_retry, self.flush)
        elif is_full:
            self.flush()
        elif not self._room.is_set():
            if self._room_retry is not None:
                self._log_waited()
            self._room.set()
            self.flush()

    def _log_waiting(self) -> None:
        log.error(
            "database disk full, nothing is accepted or sent until space is freed",
            extra={"action": "store.full"},
        )

    def _log_waited(self) -> None:
        log.warning("database disk has room again", extra={"action": "store.room"})

    def _deliver(self, outcomes: Sequence[JobOutcome]) -> None:
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

    def _settle(self, outcome: JobOutcome) -> None:
        if outcome.error is None:
            self.commit_counter.increment()
        if outcome.job.done.done():
            return
        if outcome.error is None:
            outcome.job.done.set_result(outcome.result)
        else:
            outcome.job.done.set_exception(outcome.error)


class JobLeftTraces(Exception):
    """A job failed after it changed something."""


async def run_jobs(
    transaction: Transaction,
    jobs: Sequence[WriteJob],
    database_error: type[Exception],
    translate: Callable[[BaseException], BaseException],
) -> list[JobOutcome]:
    """Run the jobs of a group within its transaction.

    Few jobs fail, and usually before any change: then the others continue. Raise a `database_error`, and `JobLeftTraces`
    for a job that fails after a change: then the whole group has to be rolled back.
    """
    outcomes: list[JobOutcome] = []
    for number, job in enumerate(jobs, 1):
        changes = transaction.changes
        try:
            outcomes.append(JobOutcome(job, await job.run(transaction)))
        except database_error:
            raise
        except Exception as error:  # the job's caller receives it; the other jobs continue
            if transaction.changes != changes:
                raise JobLeftTraces from error
            outcomes.append(JobOutcome(job, error=translate(error)))
        if number % JOBS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return outcomes


def translate_unknown(error: BaseException) -> BaseException:
    """Return an error of ours as it is, and another one as `StoreUnavailable`."""
    return error if isinstance(error, BubbotError) else StoreUnavailable(f"the database failed: {error!r}")
