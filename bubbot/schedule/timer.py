"""The timer: APScheduler wakes it when a job may be due, and the facts alone decide what to do.

The scheduler holds nothing of a job but the time of its next look. So its rules about cron fields, late jobs,
one-shots and pickling never apply.
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
"""Seconds between looks at the wall clock: the most by which a machine that slept, or whose clock was set, is late."""

Fire: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]
"""Accept a firing, with facts of other tapes in the same transaction, and queue its turn.

Return false if it was accepted before. Raise `ConfigError` if its channel does not run here.
"""
Tell: TypeAlias = Callable[[JobState, str, Sequence[TapeEntry]], Awaitable[None]]
"""Notify the chat of a job that it was missed, with facts in the same transaction.

The text is the key of that notice.
"""


class ScheduleTrigger(BaseTrigger):  # type: ignore[misc]
    """An APScheduler trigger that asks the timer for the time of its next look, first and after each one."""

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[datetime, bool], datetime | None]) -> None:
        self._wake = wake

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the time of the next look: at once if something is due and was not looked at yet."""
        return self._wake(now, previous_fire_time is not None)


class JobTimer:
    """Fires the jobs of a store, while `run` runs."""

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
        self._notify_missed = tell
        self._sleep = sleep
        self._scheduler: Any = None
        self._retries: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Fire jobs until cancelled."""
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 8}
        )
        self._scheduler.start()
        self._book.kept = True
        try:
            self._book.on_change(self._rearm)
            self._rearm(self._book.state.jobs)
            await self._follow_clock()
            while True:
                await self._sleep(HEARTBEAT)
                await self.beat()
        finally:
            self._book.on_change(lambda _: None)
            self._book.kept = False
            scheduler, self._scheduler = self._scheduler, None
            scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # the scheduler ends in the next round of the loop

    async def beat(self) -> None:
        """Look at the clock, and again at jobs whose firing failed."""
        await self._follow_clock()
        retries, self._retries = self._retries, set()
        for job_id in retries:
            await self.look(job_id)
        await self._book.mark()
        if self._scheduler is not None:
            self._scheduler.wakeup()

    async def _follow_clock(self) -> None:
        """Resume jobs that are ahead of the clock from the present on: the clock was ahead, and was set back."""
        now = self._book.now()
        waiting = [job_state for job_state in self._book.state.jobs.values() if waits_for_clock(job_state, now)]
        if not waiting:
            return
        furthest = instant_text(max(job_state.covered for job_state in waiting))
        log.warning(
            "clock was ahead, jobs resume from the present without firing again: %d jobs done up to %s",
            len(waiting),
            furthest,
            extra={"action": "schedule.clock", "jobs": len(waiting), "until": furthest},
        )
        try:
            await self._book.write([clock_fact(job_state, now) for job_state in waiting])
        except BubbotError as error:  # retried at the next beat
            log.warning("jobs not resumed, retrying: %s", error, extra={"action": "schedule.clock"})

    async def look(self, job_id: str) -> None:
        """Apply the plan of a job now. A failure is retried at the next beat."""
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            self._retries.add(job_id)  # for any failure below
            try:
                await self._look(job_id)
                self._retries.discard(job_id)
            except BubbotError as error:
                log.warning("job not fired, retrying: %s", error, extra={"action": "schedule.failed", "job": job_id})
            finally:
                self._arm(job_id)

    async def _look(self, job_id: str) -> None:
        while (job_state := self._book.state.jobs.get(job_id)) is not None:
            for request in job_state.asked:
                await self._fire_once(job_state, request.mark, request.by)
            if job_state.asked:
                continue
            planned = self._plan(job_state)
            if planned.over:
                await self._end_job(job_state, planned)
                return
            if not planned.fire and planned.skipped is None:
                return
            if planned.skipped is not None:
                first, last = instant_text(planned.skipped.first), instant_text(planned.skipped.last)
                data = {"job": job_id, "first": first, "last": last, "reason": "reason_catch_up"}
                await self._book.write([event(SKIPPED, data, key=f"skipped:{job_id}@{last}")])
            for instant in planned.fire:
                await self._fire_once(job_state, instant_text(instant), job_state.job.by)

    async def _fire_once(self, job_state: JobState, mark: str, by: Actor) -> None:
        """Fire once. If another process was first, the firing is its own; the fact is written anyway."""
        job = job_state.job
        fact, inbound = fired(job, mark), firing_inbound(job, mark, by, self._book.now())
        try:
            is_new = await self._fire(inbound, {SCHEDULE_TAPE: [fact]})
        except ConfigError as error:
            detail = {"job": job.id, "reason": "reason_channel_gone", "detail": job.place.channel}
            bot = {"channel": "", "id": "", "name": "", "roles": []}
            log.warning(
                "job paused, channel not running: %s: %s",
                job.id,
                error,
                extra={"action": "schedule.channel", "job": job.id},
            )
            await self._book.write(
                [fact, event(NOT_RUN, {**detail, "mark": mark}), event(PAUSED, {**detail, "by": bot})]
            )
            return
        if is_new or "!" in mark:
            self._book.take([fact])
        else:
            await self._skip_fired(job.id, mark)

    async def _skip_fired(self, job_id: str, mark: str) -> None:
        """Pass over an instant that fired before: in another process, or by a clock that was ahead."""
        await self._book.load()
        job_state, instant = self._book.state.jobs.get(job_id), due_of(mark)
        if job_state is not None and job_state.covered < instant:
            data = {"job": job_id, "first": mark, "last": mark, "reason": "reason_fired_before"}
            await self._book.write([event(SKIPPED, data, key=f"skipped-again:{job_id}@{mark}")])

    async def _end_job(self, job_state: JobState, planned: FiringPlan) -> None:
        fact = event(OVER, {"job": job_state.job.id, "reason": planned.over, "detail": planned.detail})
        if planned.over != "reason_missed":
            await self._book.write([fact])
            return
        try:
            await self._notify_missed(job_state, f"missed:{job_state.job.id}@{instant_text(job_state.covered)}", [fact])
        except ConfigError:  # its channel does not run here: there is nobody to notify
            await self._book.write([fact])
        else:
            self._book.take([fact])

    def _plan(self, job_state: JobState) -> FiringPlan:
        quiet = quiet_of(self._book.state, job_state.job.target.session, self._book.zone)
        return plan(job_state, self._book.now(), quiet)

    def _rearm(self, jobs: Collection[str]) -> None:
        for job_id in tuple(jobs):
            self._arm(job_id)

    def _arm(self, job_id: str) -> None:
        """Schedule the next look at the job."""
        if self._scheduler is None:
            return
        job_state = self._book.state.jobs.get(job_id)
        if job_state is None or (job_state.status != "on" and not job_state.asked):
            with suppress(JobLookupError):
                self._scheduler.remove_job(job_id)
            return
        trigger = ScheduleTrigger(lambda now, looked: self._wake(job_id, now, looked=looked))
        self._scheduler.add_job(self.look, trigger, args=[job_id], id=job_id, name=job_id, replace_existing=True)

    def _wake(self, job_id: str, now: datetime, *, looked: bool) -> datetime | None:
        """Return when to look at a job.

        Once it `looked`, the look itself arms the job again; until then the beat is enough.
        """
        job_state = self._book.state.jobs.get(job_id)
        if looked or job_state is None:
            return None
        if job_id in self._retries:
            return now + timedelta(seconds=HEARTBEAT)
        if job_state.asked:
            return now
        return self._plan(job_state).wake or now
