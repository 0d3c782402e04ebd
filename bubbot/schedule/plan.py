"""What is to be done about a job at a moment: fire, pass over, wait or end. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256

from bubbot.errors import ScheduleRefused
from bubbot.schedule.clock import comes, wall_of
from bubbot.schedule.cron import instant_text
from bubbot.schedule.when import OneTime, When, newest, stored_when, zone_named
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.query import moment
from bubbot.views.schedule import CLOCK, Job, JobState

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
LATE_AFTER = timedelta(minutes=2)
"""What is later than this was missed: it is caught up with as the job says, and told to be late."""


def waits_for_clock(standing: JobState, now: datetime) -> bool:
    """Return true if a job is done up to an instant that the clock has still to reach: it was ahead, and was set back."""
    return standing.status == "on" and standing.covered > now + LATE_AFTER


def clock_fact(standing: JobState, now: datetime) -> TapeEntry:
    """Make the fact that a job goes on from the present. What fired before is known by its key and does not fire again."""
    data = {"job": standing.job.id, "covered": timestamp(standing.covered), "since": timestamp(now)}
    return event(CLOCK, data)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Quiet hours, as minutes of the day, by the clock of a zone."""

    start: int
    end: int
    zone: tzinfo

    def until(self, now: datetime) -> datetime | None:
        """When the quiet hours end that it is now; None where it is none."""
        wall = wall_of(now, self.zone)
        minute, day = wall.hour * 60 + wall.minute, wall.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.start <= self.end:
            quiet, ends = self.start <= minute < self.end, day
        else:
            quiet = minute >= self.start or minute < self.end
            ends = day + timedelta(days=minute >= self.start)
        end = comes(ends + timedelta(minutes=self.end), self.zone)
        return end if quiet and end > now else None


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Instants that are passed over, from the first to the last."""

    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class FiringPlan:
    """`fire` these instants now; `skipped` are passed over; `over`: the name of the reason why the job has ended;
    `wake`: when to look again."""

    fire: tuple[datetime, ...] = ()
    skipped: SkippedRange | None = None
    over: str = ""
    detail: str = ""
    wake: datetime | None = None


def plan(standing: JobState, now: datetime, quiet: QuietHours | None = None) -> FiringPlan:
    """What to do. Asked for again once its facts are written, it says when to look again, or that the job is over."""
    job = standing.job
    if standing.status != "on":
        return FiringPlan()
    try:
        when, zone = rule_of(job)
    except ScheduleRefused as error:
        return FiringPlan(over="reason_broken", detail=str(error))
    if job.most and standing.runs >= job.most:
        return FiringPlan(over="reason_runs")
    first = _next(job, when, zone, standing.covered)
    if first is None:
        return FiringPlan(over=_why_over(standing, when, zone))
    if (due := first + jitter(job, first)) > now:
        return FiringPlan(wake=due)
    if quiet is not None and not job.urgent and (end := quiet.until(now)) is not None:
        return FiringPlan(wake=end)
    return _due(standing, when, zone, first, now)


def rule_of(job: Job) -> tuple[When, tzinfo]:
    """The rule of a job and its zone. Raises `ScheduleRefused`, where a newer version has written it, or the zone is
    not known any more."""
    zone = zone_named(job.zone)
    return stored_when(job.when, moment(job.since) or _LONG_AGO, zone), zone


def next_times(standing: JobState, now: datetime, count: int = 3) -> list[datetime]:
    """When a job comes next, without jitter: what was missed is not counted."""
    if standing.status != "on":
        return []
    job, found = standing.job, list[datetime]()
    when, zone = rule_of(job)
    left = min(count, job.most - standing.runs) if job.most else count
    after = max(now, standing.covered)
    while len(found) < left and (one := _next(job, when, zone, found[-1] if found else after)) is not None:
        found.append(one)
    return found


def jitter(job: Job, instant: datetime) -> timedelta:
    """How much later than its instant a firing comes: always the same for the same one, so that a restart does not
    change it."""
    if not job.jitter:
        return timedelta()
    drawn = int.from_bytes(sha256(f"{job.id}@{instant_text(instant)}".encode()).digest()[:8], "big")
    return timedelta(seconds=drawn % (job.jitter + 1))


def _next(job: Job, when: When, zone: tzinfo, after: datetime) -> datetime | None:
    found = when.next(after, zone)
    end = moment(job.until) if job.until else None
    return None if found is None or (end is not None and found > end) else found


def _why_over(standing: JobState, when: When, zone: tzinfo) -> str:
    if not isinstance(when, OneTime):
        return "reason_until"
    return "reason_once" if standing.runs or when.due(zone) > standing.covered else "reason_missed"


def _due(standing: JobState, when: When, zone: tzinfo, first: datetime, now: datetime) -> FiringPlan:
    """Something is due: what of it is fired, and what is passed over."""
    job = standing.job
    until = min(now, moment(job.until) or now) if job.until else now
    wanted = (
        1 if job.catch_up != "all" else min(job.catch_limit, job.most - standing.runs if job.most else job.catch_limit)
    )
    instants = newest(when, zone, standing.covered, until, wanted + 1 + job.jitter // 60)
    instants = [one for one in instants if one + jitter(job, one) <= now]
    fire, rest = instants[-wanted:], instants[:-wanted]
    if job.catch_up == "skip" and now - fire[-1] - jitter(job, fire[-1]) > LATE_AFTER:
        fire, rest = [], instants
    skipped = SkippedRange(first, rest[-1]) if rest else None
    return FiringPlan(tuple(fire), skipped)
