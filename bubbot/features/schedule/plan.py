"""The decision about a job at a moment: fire, skip, wait or end. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.schedule.facts import ClockSetBack, Job, JobChanged
from bubbot.features.schedule.refusal import refusal_text
from bubbot.features.schedule.state import JobState
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.provenance import stamp_of
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from bubbot.times.cron import format_instant
from bubbot.times.instants import first_instant, wall_time
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import (
    Interval,
    OneTime,
    When,
    find_zone,
    newest_instants,
    next_instants,
    parse_stored_when,
)

LATE_AFTER = timedelta(minutes=2)
"""A firing later than this was missed: the job's catch-up rule applies, and people are notified of the delay."""


def waits_for_clock(job_state: JobState, now: datetime) -> bool:
    """Return true if a job is done up to an instant in the future: the clock was ahead, and was set back."""
    return job_state.status == "on" and job_state.covered > now + LATE_AFTER


def clock_entries(job_state: JobState, now: datetime) -> list[TapeEntry]:
    """Make the facts that a job continues from the present. Its keys keep earlier firings from firing again.

    A repetition that counts from an instant which has not come yet, though the job was done beyond it, counts from as many
    steps before: it was begun by the clock that was ahead.
    """
    job, since = job_state.job, timestamp(now)
    facts = [ClockSetBack(job.id, timestamp(job_state.covered), since).to_entry()]
    try:
        when, zone = parse_rule(job)
    except TimeRefused:  # the plan ends it
        return facts
    if isinstance(when, Interval) and now < when.anchor <= job_state.covered:
        moved = replace(job, when=when.begun_before(now, zone).text, since=since)
        facts.append(moved.to_entry(*JobChanged.EVENTS, **stamp_of(job_state.provenance)))
    return facts


class QuietHours(Struct, frozen=True):
    """Quiet hours, as minutes of the day, by the clock of a zone."""

    start: int
    end: int
    zone: tzinfo

    def end_after(self, now: datetime) -> datetime | None:
        """Return when the current quiet hours end; None if it is not quiet now."""
        wall = wall_time(now, self.zone)
        minute, day = wall.hour * 60 + wall.minute, wall.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.start <= self.end:
            is_quiet, ends = self.start <= minute < self.end, day
        else:
            is_quiet = minute >= self.start or minute < self.end
            ends = day + timedelta(days=minute >= self.start)
        end = first_instant(ends + timedelta(minutes=self.end), self.zone)
        return end if is_quiet and end > now else None


class SkippedRange(Struct, frozen=True):
    """Instants that are skipped, from the first to the last."""

    first: datetime
    last: datetime


class FiringPlan(Struct, frozen=True):
    """The decision about a job.

    Attributes:
        fire: the instants to fire now.
        skipped: the instants to skip; None: none.
        end_reason: the name of the reason why the job has ended; empty if it has not.
        detail: of that reason.
        wake_at: when to look again; None: not by time.
    """

    fire: tuple[datetime, ...] = ()
    skipped: SkippedRange | None = None
    end_reason: str = ""
    detail: str = ""
    wake_at: datetime | None = None


def plan_job(job_state: JobState, now: datetime, quiet: QuietHours | None = None) -> FiringPlan:
    """Plan what to do now.

    Called again once its facts are written, return when to look again, or that the job is over.
    """
    job = job_state.job
    if job_state.status != "on":
        return FiringPlan()
    try:
        when, zone = parse_rule(job)
    except TimeRefused as error:
        return FiringPlan(end_reason="reason_broken", detail=refusal_text(error, Texts()))
    if job.most and job_state.runs >= job.most:
        return FiringPlan(end_reason="reason_runs")
    first = _next_instant(job, when, zone, job_state.covered)
    if first is None:
        return FiringPlan(end_reason=_end_reason(job_state, when, zone))
    if (due := first + jitter_delay(job, first)) > now:
        return FiringPlan(wake_at=due)
    if quiet is not None and not job.urgent and (end := quiet.end_after(now)) is not None:
        return FiringPlan(wake_at=end)
    return _plan_due(job_state, when, zone, first, now)


def parse_rule(job: Job) -> tuple[When, tzinfo]:
    """Return the rule of a job and its zone.

    Raises:
        TimeRefused: a newer version wrote the rule, or the zone is no longer known.
    """
    zone = find_zone(job.zone)
    return parse_stored_when(job.when), zone


def next_times(job_state: JobState, now: datetime, count: int = 3) -> list[datetime]:
    """Return the next times of a job, without jitter; missed ones do not count."""
    if job_state.status != "on":
        return []
    job = job_state.job
    when, zone = parse_rule(job)
    limit = min(count, job.most - job_state.runs) if job.most else count
    end = parse_moment(job.until) if job.until else None
    times = next_instants(when, zone, max(now, job_state.covered), limit)
    return [instant for instant in times if end is None or instant <= end]


def jitter_delay(job: Job, instant: datetime) -> timedelta:
    """Return the delay of a firing after its instant: always the same for the same one, so that a restart keeps it."""
    if not job.jitter:
        return timedelta()
    drawn = int.from_bytes(sha256(f"{job.id}@{format_instant(instant)}".encode()).digest()[:8], "big")
    return timedelta(seconds=drawn % (job.jitter + 1))


def _next_instant(job: Job, when: When, zone: tzinfo, after: datetime) -> datetime | None:
    instant = when.next_after(after, zone)
    end = parse_moment(job.until) if job.until else None
    return None if instant is None or (end is not None and instant > end) else instant


def _end_reason(job_state: JobState, when: When, zone: tzinfo) -> str:
    if not isinstance(when, OneTime):
        return "reason_until"
    return "reason_once" if job_state.runs or when.due_instant(zone) > job_state.covered else "reason_missed"


def _plan_due(job_state: JobState, when: When, zone: tzinfo, first: datetime, now: datetime) -> FiringPlan:
    """Plan a due job: which instants to fire, and which to skip."""
    job = job_state.job
    until = min(now, parse_moment(job.until) or now) if job.until else now
    limit = (
        1 if job.catch_up != "all" else min(job.catch_limit, job.most - job_state.runs if job.most else job.catch_limit)
    )
    instants = newest_instants(when, zone, job_state.covered, until, limit + 1 + job.jitter // 60)
    instants = [instant for instant in instants if instant + jitter_delay(job, instant) <= now]
    fire, rest = instants[-limit:], instants[:-limit]
    if job.catch_up == "skip" and now - fire[-1] - jitter_delay(job, fire[-1]) > LATE_AFTER:
        fire, rest = [], instants
    skipped = SkippedRange(first, rest[-1]) if rest else None
    return FiringPlan(tuple(fire), skipped)
