"""The jobs of workers, by procrastinate: which chats have work, who does it, and who is silent for too long.

The chat is the lock of a job, so one worker at a time runs it, and the queueing lock, so at most one more job waits. A worker sends
a heartbeat every few seconds. `take_over` removes a worker that was silent for its lease, and gives its chats to others, in one
statement. The removed worker learns it from its next heartbeat, which it sends before each act outside if the last one is old.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import md5
from typing import Any

import psycopg
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager, NotificationCallback
from procrastinate.worker import Worker
from psycopg import sql

from bubbot import __version__
from bubbot.errors import BubbotError, LeaseLost
from bubbot.ports.workers import ChatJob, WorkerOptions
from bubbot.stores.postgres.connections import CONNECT_SECONDS, AsyncConnection, ServerLost, translate_error
from bubbot.stores.postgres.policies import ENTER_SCHEMA
from bubbot.stores.postgres.pool import CancellablePool

log = logging.getLogger(__name__)

CONNECTIONS = 4
"""Connections of a worker for its jobs, at most, and one more to listen."""
POLL_SECONDS = 1.0
"""Seconds after which a worker looks for jobs if no notification came."""
RETRY_SECONDS = 0.5
"""Seconds before what failed at the server is tried again."""
MAX_JOBS = 1_000
"""Chats that one worker has at once, those whose messages wait for their platform included."""
BEATS_PER_LEASE = 6
MAX_SWEEP_SECONDS = 1.0
"""Seconds between two looks for silent workers, at most."""
MAX_QUEUE_NAME = 40
"""Characters of a queue's name: it is a part of a notification's name, which has 63 at most."""
_WORK = "bubbot_work"
_ANY_QUEUE = "procrastinate_any_queue_v1"
_DONE_ALREADY = "P0001"
"""The code with which procrastinate says that a job is not there."""


def _now() -> float:
    """Return seconds that go on while a machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class PostgresJobs:
    """See `ChatJobs`.

    Attributes:
        number: that of this worker; 0 before the others know it. It is another one once they have taken its chats over.
        is_ending: no further job is taken.
    """

    def __init__(self, parameters: Mapping[str, Any], role: str, options: WorkerOptions) -> None:
        self._options = options
        self._parameters = dict(parameters)
        self._role = role
        self._home = md5(options.home.encode(), usedforsecurity=False).hexdigest()[:12]
        # The library begins transactions itself unless `configure` says otherwise, and gives the mode to some connections twice.
        self._connector = PsycopgConnector(
            pool_factory=CancellablePool,
            kwargs=self._parameters,
            configure=self._begin_session,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            name="bubbot jobs",
        )
        self.app = App(connector=self._connector)
        self.app.job_manager = _Manager(self._connector, self)
        self.app.task(name="drain", pass_context=True)(self._make_drain())
        self.app.task(name="hold", pass_context=True)(self._make_hold())
        self._worker: Worker | None = None
        self._free = asyncio.Semaphore(options.places)
        self._places: set[int] = set()
        self._holds: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        self.number = 0
        self._heard = 0.0
        self._is_lost = False
        self._sign: asyncio.Future[None] | None = None
        self._losing: asyncio.Future[None] | None = None
        self.is_ending = False
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """See `ChatJobs.run`. A worker that was lost begins again under another number."""
        async with self.app.open_async():
            signs = asyncio.ensure_future(self._give_signs())
            try:
                while not self.is_ending:
                    self._worker = Worker(
                        self.app,
                        concurrency=MAX_JOBS,
                        fetch_job_polling_interval=POLL_SECONDS,
                        abort_job_polling_interval=3600.0,
                        delete_jobs="always",
                        install_signal_handlers=False,
                        update_heartbeat_interval=3600.0,  # ours goes on while the worker ends
                        stalled_worker_timeout=1e9,  # `take_over` removes them together with their jobs
                    )
                    await self._worker.run()  # type: ignore[no-untyped-call]
                    if self._losing is not None:
                        await self._losing
            finally:
                for given in filter(None, (signs, self._sign)):
                    given.cancel()
                    await asyncio.gather(given, return_exceptions=True)

    def stop(self) -> None:
        self.is_ending = True
        self._free.release()  # who waits for a place looks again
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def confirm(self) -> None:
        while True:
            if self._is_lost:
                raise LeaseLost("this process was silent for too long, and others took its chats over")
            if _now() - self._heard < self._options.lease_seconds * (1 - 1 / BEATS_PER_LEASE):
                return
            await self._give_sign()

    async def wake(self, chats: Sequence[str], *, is_resumed: bool = False) -> None:
        queues = [self.queue_of(chat) for chat in chats]
        with _translated_errors():
            await self.execute(
                "SELECT wake(%(chats)s::text[], %(queues)s::text[], %(again)s)",
                chats=list(chats),
                queues=queues,
                again=is_resumed,
            )

    async def list_idle(self, chats: Collection[str]) -> list[str]:
        with _translated_errors():
            rows = await self._connector.execute_query_all_async(
                "SELECT chat FROM unnest(%(chats)s::text[]) AS asked (chat) "
                "WHERE NOT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = chat AND status IN ('todo', 'doing'))",
                chats=list(chats),
            )
        return [row["chat"] for row in rows]

    def is_local(self, chat: str) -> bool:
        return chat.partition(":")[0] in self._options.local_channels

    @asynccontextmanager
    async def hold(self, chat: str) -> AsyncIterator[None]:
        name, events = os.urandom(8).hex(), (asyncio.Event(), asyncio.Event())
        self._holds[name] = events
        try:
            task = self.app.configure_task("hold", lock=chat, queue=self.own_queue)
            with _translated_errors():
                await task.defer_async(name=name)
            await events[0].wait()
            yield
        finally:
            del self._holds[name]
            events[1].set()

    def queue_of(self, chat: str) -> str:
        """Return the queue of the workers that can run a chat."""
        return self.own_queue if self.is_local(chat) else queue_name(chat)

    @property
    def own_queue(self) -> str:
        """The queue of the chats that only this process can run."""
        return f"own/{self._home}"

    @property
    def queues(self) -> list[str]:
        channels = [name for name in self._options.list_channels() if name not in self._options.local_channels]
        return [self.own_queue, *map(queue_name, channels)]

    async def wait_for_place(self) -> None:
        """Wait for a place for a chat's turns, and take it."""
        await self._free.acquire()

    def return_place(self) -> None:
        """Give a place back that no job got."""
        self._free.release()

    def note_place(self, job_id: int) -> None:
        """Note that a job has the place that was waited for."""
        self._places.add(job_id)

    def leave_place(self, job_id: int | None) -> None:
        """Give the place of a job back, once."""
        if job_id is not None and job_id in self._places:
            self._places.discard(job_id)
            self._free.release()

    async def begin(self, number: int) -> None:
        """Make this process known under this number, and take over what an earlier one of its home left."""
        self._heard, self.number = _now(), number
        await self.execute(
            "SELECT begin_worker(%(number)s, %(home)s, %(host)s, %(process)s, %(version)s, %(places)s)",
            number=number,
            home=self._home,
            host=socket.gethostname(),
            process=os.getpid(),
            version=__version__,
            places=self._options.places,
        )
        self._is_lost = False
        await self._take_over()
        self._ready.set()

    async def execute(self, query: str, **arguments: Any) -> None:
        """Run a statement of ours. Raise `ConnectorException`."""
        await self._connector.execute_query_async(query, **arguments)

    async def _begin_session(self, conn: AsyncConnection) -> None:
        await conn.set_autocommit(True)
        await conn.execute(ENTER_SCHEMA)
        if self._role:
            await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(self._role)))

    async def _give_signs(self) -> None:
        """Say every few seconds that this process lives, and look for those that are silent."""
        lease = self._options.lease_seconds
        wait = min(MAX_SWEEP_SECONDS, lease / BEATS_PER_LEASE)
        while True:
            await asyncio.sleep(wait)
            if self.number and not self._is_lost and _now() - self._heard >= lease / BEATS_PER_LEASE:
                await self._give_sign()
            if self.number and not self._is_lost and not self.is_ending:
                with suppress(ConnectorException):
                    await self._take_over()

    async def _give_sign(self) -> None:
        """Send a heartbeat. Concurrent callers share one, and a cancelled caller does not cancel it."""
        if self._sign is None or self._sign.done():
            self._sign = asyncio.ensure_future(self._beat())
        await asyncio.shield(self._sign)

    async def _beat(self) -> None:
        before, number = _now(), self.number
        try:
            row = await self._connector.execute_query_one_async(
                "SELECT beat(%(number)s) AS state",
                number=number,
            )
        except ConnectorException as error:
            log.debug("no sign of life: %s", error.__cause__, extra={"action": "worker.unheard"})
            await asyncio.sleep(RETRY_SECONDS)
            return
        if number != self.number or self._is_lost:
            return
        if row["state"] != "gone":
            self._heard = before
            if row["state"] == "ending" and not self.is_ending:
                log.info("asked to end", extra={"action": "worker.drained", "worker": number})
                self._options.on_drain()
            return
        self._is_lost = True
        log.warning(
            "this process was silent for longer than its lease, and others took its chats over: it drops what it had begun there "
            "and goes on with other work",
            extra={"action": "worker.lost", "worker": number, "silent_seconds": round(before - self._heard, 1)},
        )
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]
        # Not here: the caller may be one of those that have to end.
        self._losing = asyncio.ensure_future(self._options.on_lost())

    async def _take_over(self) -> None:
        row = await self._connector.execute_query_one_async(
            "SELECT take_over(%(lease)s, %(own)s) AS workers",
            lease=self._options.lease_seconds,
            own=self.own_queue,
        )
        if row["workers"]:
            log.warning(
                "%d silent workers: their chats were taken over", row["workers"], extra={"action": "worker.taken"}
            )

    def _make_drain(self) -> Any:
        async def drain(context: JobContext, chat: str, again: bool = False) -> None:  # noqa: FBT001, FBT002 - by name
            job_id = context.job.id
            try:
                await self._options.run(ChatJob(chat, again, lambda: self.leave_place(job_id)))
            except Exception as error:  # the boundary of a job: another one tries again
                log.warning(
                    "work on a chat failed, it is tried again: %s", error, extra={"action": "worker.failed"},
                    exc_info=None if isinstance(error, BubbotError) else error,
                )  # fmt: skip
                await asyncio.sleep(POLL_SECONDS)
                if not self._is_lost:
                    await self.wake([chat], is_resumed=True)

        return drain

    def _make_hold(self) -> Any:
        async def hold(context: JobContext, name: str) -> None:
            if (events := self._holds.get(name)) is not None:
                self.leave_place(context.job.id)
                events[0].set()
                await events[1].wait()

        return hold

    def on_notification(self, channel: str, payload: str) -> None:
        """Pass a notification on."""
        if channel == _WORK:
            self._options.on_work(payload)


class _Manager(JobManager):
    """The library's own, except that a lost server ends nothing, and that a job is taken only if there is a place for it."""

    def __init__(self, connector: PsycopgConnector, jobs: PostgresJobs) -> None:
        super().__init__(connector)
        self._jobs = jobs
        self._running: set[int] = set()
        self._may_have_more = False
        self._news = 0

    async def register_worker(self) -> int:
        number = await super().register_worker()
        self._running.clear()
        await self._jobs.begin(number)
        return number

    async def unregister_worker(self, worker_id: int) -> None:
        with suppress(ConnectorException):
            await super().unregister_worker(worker_id)
            await self._jobs.execute("DELETE FROM workers WHERE worker = %(worker)s", worker=worker_id)

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        del queues  # channels come and go with a reload
        await self._jobs.wait_for_place()
        job: Job | None = None
        try:
            if not self._jobs.is_ending:
                job = await self._fetch(worker_id)
        except ConnectorException as error:
            self._may_have_more = True  # it may be ours, although nobody told us
            log.debug("no job fetched: %s", error.__cause__, extra={"action": "worker.unfetched"})
        finally:
            if job is None:
                self._jobs.return_place()
        if job is not None and job.id is not None:
            self._jobs.note_place(job.id)
            self._running.add(job.id)
        return job

    async def _fetch(self, worker_id: int) -> Job | None:
        if self._may_have_more:
            ours = await self.list_jobs_async(worker_id=worker_id, status=Status.DOING.value)
            unknown = next((job for job in ours if job.id not in self._running), None)
            if unknown is not None:
                return unknown
            self._may_have_more = False
        while True:
            news = self._news
            job = await super().fetch_job(self._jobs.queues, worker_id)
            if job is not None or news == self._news:  # the library forgets news that came while it was asking
                return job

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:  # noqa: FBT001 - as the library calls it
        assert job.id is not None
        self._jobs.leave_place(job.id)
        while True:
            try:
                await super().finish_job(job, status, delete_job)
            except ConnectorException as error:
                cause = error.__cause__
                if isinstance(cause, psycopg.Error) and cause.sqlstate == _DONE_ALREADY:
                    break  # others took it over, or the answer to the first try was lost
                await asyncio.sleep(RETRY_SECONDS)
                continue
            break
        self._running.discard(job.id)
        if job.lock is not None:
            with suppress(ConnectorException):  # then it is found after a while
                await self._jobs.execute("SELECT pass_on(%(chat)s)", chat=job.lock)

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Listen for jobs, and for more work of chats, with one connection."""
        del queues

        async def pass_on(channel: str, payload: str) -> None:
            if channel == _ANY_QUEUE:
                self._news += 1
                await on_notification(channel=channel, notification=json.loads(payload))
            else:
                self._jobs.on_notification(channel, payload)

        while True:
            with suppress(ConnectorException):
                await self.connector.listen_notify(on_notification=pass_on, channels=(_ANY_QUEUE, _WORK))
            await asyncio.sleep(RETRY_SECONDS)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate errors of the library for those who only know the port."""
    try:
        yield
    except ConnectorException as error:
        cause = error.__cause__
        raise translate_error(cause) if isinstance(cause, psycopg.Error) else ServerLost(str(error)) from error


def queue_name(chat: str) -> str:
    """Return the queue of the chats of a channel, by one of them or its name."""
    channel = chat.partition(":")[0]
    if len(channel) <= MAX_QUEUE_NAME and channel.isascii() and "/" not in channel:
        return channel
    return md5(channel.encode(), usedforsecurity=False).hexdigest()
