"""The timer: APScheduler wakes it when a job may be due, and the facts alone decide what to do.

The scheduler holds nothing of a job but the time of its next look. So its rules about cron fields, late jobs,
one-shots and pickling never apply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from bubbot.errors import BubbotError, ConfigError
from bubbot.features.schedule.changes import find_quiet_hours
from bubbot.features.schedule.facts import (
    BOT,
    SCHEDULE_TAPE,
    Actor,
    FiringRefused,
    FiringsSkipped,
    JobOver,
    JobPaused,
)
from bubbot.features.schedule.firing import fired_entry, firing_inbound, mark_instant
from bubbot.features.schedule.plan import FiringPlan, clock_entries, plan_job, waits_for_clock
from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.ports.channel import Inbound
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from bubbot.times.cron import format_instant
from bubbot.times.refusal import TimeRefused

log = logging.getLogger(__name__)

TIMER_HEARTBEAT_SECONDS = 20.0
"""Seconds between looks at the wall clock: the most by which a machine that slept, or whose clock was set, is late."""
JOB_DEFAULTS = {"misfire_grace_time": None, "coalesce": True, "max_instances": 8}
"""Settings of APScheduler: no look is dropped."""

AcceptFiring: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]
"""Accept a firing, with facts of other tapes in the same transaction, and queue its turn.

Return false if it was accepted before. Raise `ConfigError` if its channel does not run here.
"""
NotifyMissed: TypeAlias = Callable[[JobState, str, Sequence[TapeEntry]], Awaitable[None]]
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
        store: ScheduleStore,
        accept_firing: AcceptFiring,
        *,
        notify_missed: NotifyMissed,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._book = store
        self._fire = accept_firing
        self._notify_missed = notify_missed
        self._sleep = sleep
        self._scheduler: Any = None
        self._retries: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Fire jobs until cancelled."""
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=JOB_DEFAULTS)
        self._scheduler.start()
        was_running, self._book.is_timer_running = self._book.is_timer_running, True
        try:
            self._book.set_on_change(self._rearm)
            self._rearm(self._book.state.jobs)
            await self._follow_clock()
            while True:
                await self._sleep(TIMER_HEARTBEAT_SECONDS)
                await self.tick()
        finally:
            self._book.set_on_change(lambda _: None)
            self._book.is_timer_running = was_running
            scheduler, self._scheduler = self._scheduler, None
            scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # the scheduler ends in the next round of the loop

    async def tick(self) -> None:
        """Look at the clock, and again at jobs whose firing failed."""
        await self._follow_clock()
        retries, self._retries = self._retries, set()
        for job_id in retries:
            await self.check_job(job_id)
        await self._book.write_checkpoint()
        if self._scheduler is not None:
            self._scheduler.wakeup()

    async def _follow_clock(self) -> None:
        """Resume jobs that are ahead of the clock from the present on: the clock was ahead, and was set back."""
        now = self._book.now()
        waiting = [job_state for job_state in self._book.state.jobs.values() if waits_for_clock(job_state, now)]
        if not waiting:
            return
        furthest = format_instant(max(job_state.covered for job_state in waiting))
        log.warning(
            "clock was ahead, jobs resume from the present without firing again: %d jobs done up to %s",
            len(waiting),
            furthest,
            extra={"action": "schedule.clock", "jobs": len(waiting), "until": furthest},
        )
        try:
            await self._book.write([fact for job_state in waiting for fact in clock_entries(job_state, now)])
        except BubbotError as error:  # retried at the next beat
            log.warning("jobs not resumed, retrying: %s", error, extra={"action": "schedule.clock"})

    async def check_job(self, job_id: str) -> None:
        """Apply the plan of a job now. A failure is retried at the next beat."""
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            self._retries.add(job_id)  # for any failure below
            try:
                if await self._look(job_id):
                    self._retries.discard(job_id)
            except (BubbotError, TimeRefused) as error:
                reason = refusal_text(error, Texts()) if isinstance(error, TimeRefused) else error
                log.warning("job not fired, retrying: %s", reason, extra={"action": "schedule.failed", "job": job_id})
            finally:
                self._arm(job_id)

    async def _look(self, job_id: str) -> bool:
        """Do what is due. Return false if the job stays as it was: to go on at once would have no end."""
        before: JobState | None = None
        while (job_state := self._book.state.jobs.get(job_id)) is not None:
            if job_state == before:
                log.warning("job unchanged, retrying", extra={"action": "schedule.failed", "job": job_id})
                return False
            before = job_state
            if job_state.requests:
                for request in job_state.requests:
                    await self._fire_once(job_state, request.fact.mark, request.fact.by)
            elif (planned := self._plan(job_state)).end_reason:
                await self._end_job(job_state, planned)
            elif planned.fire or planned.skipped is not None:
                await self._fire_due(job_state, planned)
            else:
                break
        return True

    async def _fire_due(self, job_state: JobState, planned: FiringPlan) -> None:
        if planned.skipped is not None:
            first, last = format_instant(planned.skipped.first), format_instant(planned.skipped.last)
            skipped = FiringsSkipped(job_state.job.id, first, last, "reason_catch_up")
            await self._book.write([skipped.to_entry()])  # no key: a clock set back brings the same times again
        for instant in planned.fire:
            await self._fire_once(job_state, format_instant(instant), job_state.job.by)

    async def _fire_once(self, job_state: JobState, mark: str, by: Actor) -> None:
        """Fire once. If another process was first, the firing is its own; the fact is written anyway."""
        job = job_state.job
        fact, inbound = fired_entry(job, mark), firing_inbound(job_state, mark, by, self._book.now())
        try:
            is_new = await self._fire(inbound, {SCHEDULE_TAPE: [fact]})
        except ConfigError as error:
            why = {"reason": "reason_channel_gone", "detail": job.place.channel}
            refused, paused = FiringRefused(job=job.id, mark=mark, **why), JobPaused(job.id, BOT, **why)
            log.warning(
                "job paused, channel not running: %s: %s",
                job.id,
                error,
                extra={"action": "schedule.channel", "job": job.id},
            )
            await self._book.write([fact, refused.to_entry(), paused.to_entry()])
            return
        if is_new:
            log.info("job fired", extra={"action": "schedule.fired", "job": job.id, "due": mark})
        if is_new or "!" in mark:
            await self._book.catch_up()
        else:
            await self._skip_fired(job.id, mark)

    async def _skip_fired(self, job_id: str, mark: str) -> None:
        """Pass over an instant that fired before: in another process, or by a clock that was ahead."""
        await self._book.load()
        job_state, instant = self._book.state.jobs.get(job_id), mark_instant(mark)
        if job_state is not None and job_state.covered < instant:
            await self._book.write([FiringsSkipped(job_id, mark, mark, "reason_fired_before").to_entry()])

    async def _end_job(self, job_state: JobState, planned: FiringPlan) -> None:
        fact = JobOver(job_state.job.id, planned.end_reason, planned.detail).to_entry()
        if planned.end_reason != "reason_missed":
            await self._book.write([fact])
            return
        try:
            await self._notify_missed(
                job_state, f"missed:{job_state.job.id}@{format_instant(job_state.covered)}", [fact]
            )
        except ConfigError:  # its channel does not run here: there is nobody to notify
            await self._book.write([fact])
        else:
            await self._book.catch_up()

    def _plan(self, job_state: JobState) -> FiringPlan:
        quiet = find_quiet_hours(self._book.state, job_state.job.target.session, self._book.zone)
        return plan_job(job_state, self._book.now(), quiet)

    def _rearm(self, jobs: Collection[str]) -> None:
        for job_id in tuple(jobs):
            self._arm(job_id)

    def _arm(self, job_id: str) -> None:
        """Schedule the next look at the job."""
        if self._scheduler is None:
            return
        job_state = self._book.state.jobs.get(job_id)
        if job_state is None or (job_state.status != "on" and not job_state.requests):
            with suppress(JobLookupError):
                self._scheduler.remove_job(job_id)
            return
        trigger = ScheduleTrigger(lambda now, looked: self._wake(job_id, now, looked=looked))
        self._scheduler.add_job(self.check_job, trigger, args=[job_id], id=job_id, name=job_id, replace_existing=True)

    def _wake(self, job_id: str, now: datetime, *, looked: bool) -> datetime | None:
        """Return when to look at a job.

        Once it `looked`, the look itself arms the job again; a look that failed is for the next beat.
        """
        job_state = self._book.state.jobs.get(job_id)
        if looked or job_state is None or job_id in self._retries:
            return None
        if job_state.requests:
            return now
        return self._plan(job_state).wake_at or now
