"""Keeping time: APScheduler wakes us when a job may be due, and what is to be done then is decided by the facts alone.

Nothing of a job lives in the scheduler but the time of its next look. So its rules about cron fields, late jobs,
one-shots and pickling never come to bear.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from bubbot.errors import BubbotError, ConfigError
from bubbot.ports.channel import Inbound
from bubbot.schedule.changes import SCHEDULE_TAPE, quiet_of
from bubbot.schedule.cron import instant_text
from bubbot.schedule.firing import due_of, fired, firing_inbound
from bubbot.schedule.plan import FiringPlan, clock_fact, plan, waits_for_clock
from bubbot.schedule.store import ScheduleStore
from bubbot.tape.entry import TapeEntry, event
from bubbot.views.schedule import NOT_RUN, OVER, PAUSED, SKIPPED, Actor, JobState

log = logging.getLogger(__name__)

HEARTBEAT = 20.0
"""Seconds between looks at the clock on the wall: a machine that slept, or whose clock was set, is late by no more."""

Fire: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]
"""Accepts a firing, with facts of other tapes in the same transaction, and queues its turn; False where it had been
accepted before. Raises `ConfigError` where its channel does not run here."""
Tell: TypeAlias = Callable[[JobState, str, Sequence[TapeEntry]], Awaitable[None]]
"""Tells the chat of a job that it was missed, with facts in the same transaction; the text is the key of that notice."""


class ScheduleTrigger(BaseTrigger):  # type: ignore[misc]
    """Wakes when the book says so. It is asked with nothing at first, and after each waking."""

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[datetime, bool], datetime | None]) -> None:
        self._wake = wake

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The next look: at once where something is due and nobody has looked yet."""
        return self._wake(now, previous_fire_time is not None)


class JobTimer:
    """Fires the jobs of a book, while `run` runs."""

    def __init__(
        self,
        book: ScheduleStore,
        fire: Fire,
        *,
        tell: Tell,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._book = book
        self._fire = fire
        self._tell = tell
        self._sleep = sleep
        self._scheduler: Any = None
        self._again: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Keeps time until it is cancelled."""
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 8}
        )
        self._scheduler.start()
        self._book.kept = True
        try:
            self._book.on_change(self._changed)
            self._changed(self._book.state.jobs)
            await self._follow_clock()
            while True:
                await self._sleep(HEARTBEAT)
                await self.beat()
        finally:
            self._book.on_change(lambda _: None)
            self._book.kept = False
            scheduler, self._scheduler = self._scheduler, None
            scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it ends in the next round of the loop

    async def beat(self) -> None:
        """Looks at the clock, and again at jobs whose firing failed."""
        await self._follow_clock()
        again, self._again = self._again, set()
        for job_id in again:
            await self.look(job_id)
        await self._book.mark()
        if self._scheduler is not None:
            self._scheduler.wakeup()

    async def _follow_clock(self) -> None:
        """Let jobs go on from the present that the clock has left behind: it was ahead, and was set back."""
        now = self._book.now()
        waiting = [one for one in self._book.state.jobs.values() if waits_for_clock(one, now)]
        if not waiting:
            return
        furthest = instant_text(max(one.covered for one in waiting))
        log.warning(
            "the clock was ahead: %d jobs were done up to %s and go on from the present; what fired does not fire again",
            len(waiting),
            furthest,
            extra={"action": "schedule.clock", "jobs": len(waiting), "until": furthest},
        )
        try:
            await self._book.write([clock_fact(one, now) for one in waiting])
        except BubbotError as error:  # tried again at the next beat
            log.warning("jobs could not go on: %s", error, extra={"action": "schedule.clock"})

    async def look(self, job_id: str) -> None:
        """Does what is to be done about a job now. What fails is tried again at the next beat."""
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            self._again.add(job_id)  # whatever goes wrong
            try:
                await self._look(job_id)
                self._again.discard(job_id)
            except BubbotError as error:
                log.warning("a job could not be fired: %s", error, extra={"action": "schedule.failed", "job": job_id})
            finally:
                self._arm(job_id)

    async def _look(self, job_id: str) -> None:
        while (standing := self._book.state.jobs.get(job_id)) is not None:
            for one in standing.asked:
                await self._fired(standing, one.mark, one.by)
            if standing.asked:
                continue
            planned = self._plan(standing)
            if planned.over:
                await self._over(standing, planned)
                return
            if not planned.fire and planned.skipped is None:
                return
            if planned.skipped is not None:
                first, last = instant_text(planned.skipped.first), instant_text(planned.skipped.last)
                data = {"job": job_id, "first": first, "last": last, "reason": "reason_catch_up"}
                await self._book.write([event(SKIPPED, data, key=f"skipped:{job_id}@{last}")])
            for instant in planned.fire:
                await self._fired(standing, instant_text(instant), standing.job.by)

    async def _fired(self, standing: JobState, mark: str, by: Actor) -> None:
        """One firing. Where somebody else was first, it is theirs, and a fact all the same."""
        job = standing.job
        fact, inbound = fired(job, mark), firing_inbound(job, mark, by, self._book.now())
        try:
            is_new = await self._fire(inbound, {SCHEDULE_TAPE: [fact]})
        except ConfigError as error:
            detail = {"job": job.id, "reason": "reason_channel_gone", "detail": job.place.channel}
            bot = {"channel": "", "id": "", "name": "", "roles": []}
            log.warning("job %s: %s", job.id, error, extra={"action": "schedule.channel", "job": job.id})
            await self._book.write(
                [fact, event(NOT_RUN, {**detail, "mark": mark}), event(PAUSED, {**detail, "by": bot})]
            )
            return
        if is_new or "!" in mark:
            self._book.take([fact])
        else:
            await self._fired_before(job.id, mark)

    async def _fired_before(self, job_id: str, mark: str) -> None:
        """Pass over an instant that fired before: in another process, or by a clock that was ahead."""
        await self._book.load()
        known, instant = self._book.state.jobs.get(job_id), due_of(mark)
        if known is not None and known.covered < instant:
            data = {"job": job_id, "first": mark, "last": mark, "reason": "reason_fired_before"}
            await self._book.write([event(SKIPPED, data, key=f"skipped-again:{job_id}@{mark}")])

    async def _over(self, standing: JobState, planned: FiringPlan) -> None:
        over = event(OVER, {"job": standing.job.id, "reason": planned.over, "detail": planned.detail})
        if planned.over != "reason_missed":
            await self._book.write([over])
            return
        try:
            await self._tell(standing, f"missed:{standing.job.id}@{instant_text(standing.covered)}", [over])
        except ConfigError:  # its channel does not run here: there is nobody to tell
            await self._book.write([over])
        else:
            self._book.take([over])

    def _plan(self, standing: JobState) -> FiringPlan:
        quiet = quiet_of(self._book.state, standing.job.target.session, self._book.zone)
        return plan(standing, self._book.now(), quiet)

    def _changed(self, jobs: Collection[str]) -> None:
        for job_id in tuple(jobs):
            self._arm(job_id)

    def _arm(self, job_id: str) -> None:
        """Sees to it that the job is looked at when it is next due."""
        if self._scheduler is None:
            return
        standing = self._book.state.jobs.get(job_id)
        if standing is None or (standing.status != "on" and not standing.asked):
            with suppress(JobLookupError):
                self._scheduler.remove_job(job_id)
            return
        trigger = ScheduleTrigger(lambda now, looked: self._wake(job_id, now, looked=looked))
        self._scheduler.add_job(self.look, trigger, args=[job_id], id=job_id, name=job_id, replace_existing=True)

    def _wake(self, job_id: str, now: datetime, *, looked: bool) -> datetime | None:
        """When to look at a job. Once it `looked`, the look itself will arm it again; until then there is the beat."""
        standing = self._book.state.jobs.get(job_id)
        if looked or standing is None:
            return None
        if job_id in self._again:
            return now + timedelta(seconds=HEARTBEAT)
        if standing.asked:
            return now
        return self._plan(standing).wake or now
