"""What people change: checked, and made into facts. Pure; whoever calls appends them, within a turn to its fork."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from bubbot.ports.channel import Role
from bubbot.schedule.cron import CronExpression
from bubbot.schedule.plan import QuietHours, clock_fact, next_times, waits_for_clock
from bubbot.schedule.refusal import refused
from bubbot.schedule.when import Interval, OneTime, When, parse_when, upcoming, zone_named
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.views.schedule import (
    CHAT_RULES_SET,
    JOB_ADDED,
    JOB_CHANGED,
    JOB_REMOVED,
    JOB_REQUESTED,
    PAUSED,
    RESUMED,
    Actor,
    ChatRef,
    ChatRules,
    Job,
    JobState,
    ScheduleState,
    job_data,
)

SCHEDULE_TAPE = "bubbot/schedule"
TERMINAL = "terminal"
"""The id of a maker that is the operating system's user: the owner of everything."""
JOB_ID_DIGITS = 6
MOST_CAUGHT_UP = 100
MOST_JITTER = 3600
MAX_JOB_NAME = 60
_QUIET = re.compile(r"(\d{1,2}):(\d{2})\s*(?:-|to)\s*(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """`per_chat`: jobs that are on or paused in one chat. `failures`: in a row, after which a job is paused.
    `endless`: minutes; what comes more often needs an end, unless an owner makes it."""

    per_chat: int = 20
    failures: int = 5
    endless: int = 10


@dataclass(frozen=True, slots=True)
class JobRequester:
    """Who wants something, in which role, from where.

    Attributes:
        nested: within a scheduled turn that may not schedule.
        owns_all: an owner in a direct chat or at the terminal, who alone has power over the jobs of other chats.
    """

    by: Actor
    role: Role
    place: ChatRef
    nested: bool = False
    owns_all: bool = False

    @property
    def session(self) -> str:
        """The session from which it is asked."""
        return self.place.session


AS_PLANNED = ("reason_once", "reason_until", "reason_runs")
"""Why jobs end that did what they were to do."""
OWNERS_ONLY = ("to", "nested", "urgent")
"""What only owners set, and only where nobody else reads along."""


@dataclass(frozen=True, slots=True)
class JobChanges:
    """Checks changes against the jobs there are. Every method raises `ScheduleRefused`."""

    state: ScheduleState
    asker: JobRequester
    now: datetime
    new_id: Callable[[], str]
    limits: ScheduleLimits
    zone: str
    """The deployment's zone, for chats that have none of their own."""

    def find(self, wanted: str) -> JobState:
        """The job with this id, or its beginning, or this name. Only who `owns_all` finds those of other chats."""
        seen = [one for one in self.state.jobs.values() if self._sees(one.job)]
        word = wanted.strip()
        named = [one for one in seen if one.job.id == word or (word and one.job.name == word)]
        found = named or [one for one in seen if word and one.job.id.startswith(word)]
        if not found:
            raise refused("job_unknown", job=word)
        if len(found) > 1:
            raise refused("job_ambiguous", job=word, jobs=", ".join(one.job.id for one in found))
        return found[0]

    def listed(self, *, every: bool = False, over: bool = False) -> list[JobState]:
        """List the jobs of this chat; of all chats if who `owns_all` asks for `every` one. What has ended as it should is
        left out, unless it is to be shown what is `over`."""
        if every and self.asker.role is Role.OWNER and not self.asker.owns_all:
            raise refused("jobs_not_here")
        whole = every and self.asker.owns_all
        found = list(self.state.jobs.values()) if whole else self.state.of(self.asker.session)
        return [one for one in found if over or one.status != "over" or one.reason not in AS_PLANNED]

    def add(self, what: Mapping[str, Any]) -> tuple[Job, list[TapeEntry]]:
        """A new job, by the fields that are given: `when`, one of `prompt`, `command` and `text`, and any of the others."""
        self._may_schedule()
        here = [one for one in self.state.of(self.asker.session) if one.status != "over"]
        if len(here) >= self.limits.per_chat:
            raise refused("job_too_many", number=len(here))
        job_id = self.new_id()[:JOB_ID_DIGITS]
        while job_id in self.state.jobs:
            job_id = self.new_id()[:JOB_ID_DIGITS]
        since = timestamp(self.now)
        blank = Job(job_id, self.asker.place, self.asker.by, "prompt", "", "", self.chat_zone(), since)
        job = self._made(blank, what, fresh=True)
        return job, [event(JOB_ADDED, job_data(job))]

    def edit(self, standing: JobState, what: Mapping[str, Any]) -> tuple[Job, list[TapeEntry]]:
        """A job with other fields. Whoever changes it answers for it from now on."""
        self._may_schedule()
        kept = replace(standing.job, by=self.asker.by)
        if not self.asker.owns_all:  # what an owner allowed was allowed to that owner's job, as it was
            kept = replace(kept, to=None, granted=None, nested=False, urgent=False)
        job = self._made(kept, what, fresh=False)
        if replace(job, since=standing.job.since, by=standing.job.by) == standing.job and standing.status == "on":
            raise refused("job_same", job=job.id)
        return job, [event(JOB_CHANGED, job_data(replace(job, since=timestamp(self.now))))]

    def pause(self, standing: JobState) -> list[TapeEntry]:
        """The job stays, and does not come."""
        if standing.status != "on":
            raise self._not_on(standing)
        data = {"job": standing.job.id, "by": maker_data(self.asker.by), "reason": "reason_asked"}
        return [event(PAUSED, data)]

    def resume(self, standing: JobState) -> list[TapeEntry]:
        """A paused job goes on from now; what passed meanwhile is not caught up with."""
        self._may_schedule()
        if standing.status == "over":
            raise self._not_on(standing)
        if waits_for_clock(standing, self.now):
            return [clock_fact(standing, self.now)]
        if standing.status == "on":
            raise refused("job_not_paused", job=standing.job.id)
        data = {"job": standing.job.id, "by": maker_data(self.asker.by), "since": timestamp(self.now)}
        return [event(RESUMED, data)]

    def resume_waiting(self) -> list[TapeEntry]:
        """Let every job that waits for a clock that was ahead go on from the present."""
        waiting = [one for one in self.state.jobs.values() if self._sees(one.job) and waits_for_clock(one, self.now)]
        return [clock_fact(one, self.now) for one in waiting]

    def remove(self, standing: JobState) -> list[TapeEntry]:
        """The job is gone; what it did stays on the tapes."""
        return [event(JOB_REMOVED, {"job": standing.job.id, "by": maker_data(self.asker.by)})]

    def run(self, standing: JobState) -> list[TapeEntry]:
        """The job is to run now, for whoever asks."""
        self._may_schedule()
        mark = f"{self.now.strftime('%Y-%m-%dT%H:%M:%SZ')}!{self.new_id()[-4:]}"
        data = {"job": standing.job.id, "mark": mark, "by": maker_data(self.asker.by)}
        return [event(JOB_REQUESTED, data)]

    def chat(self, session: str, zone: str = "", quiet: str = "") -> list[TapeEntry]:
        """The zone and the quiet hours of a chat; what is empty stays."""
        self._may_schedule()
        rules = self.state.chats.get(session, ChatRules())
        name = str(zone_named(zone)) if zone else rules.zone
        hours = quiet_hours(quiet) if quiet else rules.quiet
        data = {
            "session": session,
            "zone": name,
            "quiet": list(hours) if hours else [],
            "by": maker_data(self.asker.by),
        }
        return [event(CHAT_RULES_SET, data)]

    def chat_zone(self) -> str:
        """The zone that this chat reads times in."""
        return self.state.chats.get(self.asker.session, ChatRules()).zone or self.zone

    def next_of(self, job: Job, count: int = 3) -> list[datetime]:
        """When it comes next."""
        known = self.state.jobs.get(job.id)
        return next_times(JobState(job, self.now, runs=known.runs if known else 0), self.now, count)

    def _sees(self, job: Job) -> bool:
        return self.asker.owns_all or job.session == self.asker.session

    def _may_schedule(self) -> None:
        if self.asker.nested:
            raise refused("job_from_schedule")

    def _not_on(self, standing: JobState) -> Exception:
        if standing.status == "over":
            return refused("job_over", job=standing.job.id, reason=standing.reason)
        return refused("job_is_paused", job=standing.job.id)

    def _made(self, job: Job, what: Mapping[str, Any], *, fresh: bool) -> Job:
        """The job with what is given; everything is checked together."""
        mine = [name for name in OWNERS_ONLY if what.get(name)]
        if mine and not self.asker.owns_all:
            raise refused("job_owner_only", names=", ".join(mine))
        job = _with_what(job, what, fresh=fresh)
        job = _with_options(job, what)
        job = self._named(job, what)
        if what.get("to"):
            job = self._sent_to(job, str(what["to"]))
        if what.get("when") or what.get("zone") or fresh:
            job = self._timed(job, what)
        return job

    def _named(self, job: Job, what: Mapping[str, Any]) -> Job:
        name = " ".join(str(what.get("name") or "").split())[:MAX_JOB_NAME]
        if not name:
            return job
        if any(one.job.name == name and one.job.id != job.id for one in self.state.of(job.session)):
            raise refused("job_name_taken", name=name)
        return replace(job, name=name)

    def _sent_to(self, job: Job, given: str) -> Job:
        if given in ("here", job.session):
            return replace(job, to=None, granted=None)
        return replace(job, to=place_named(given), granted=self.asker.by)

    def _timed(self, job: Job, what: Mapping[str, Any]) -> Job:
        zone = zone_named(str(what.get("zone") or job.zone))
        given = str(what.get("when") or job.when)
        when = parse_when(given, self.now, zone)
        if isinstance(when, OneTime) and when.due(zone) <= self.now:
            raise refused("at_past", given=given, instant=timestamp(when.due(zone))[:16].replace("T", " ") + " UTC")
        job = replace(job, when=when.text, zone=str(zone))
        if what.get("until"):
            job = replace(job, until=self._until(str(what["until"]), zone))
        gap = shortest_gap(when, zone, self.now)
        often = gap is not None and gap < timedelta(minutes=self.limits.endless)
        if often and not (job.until or job.most) and self.asker.role is not Role.OWNER:
            raise refused("job_forever", minutes=self.limits.endless)
        if not next_times(JobState(job, self.now), self.now, 1):
            raise refused("cron_never", given=given)
        return job

    def _until(self, given: str, zone: Any) -> str:
        text = given if " " in given or ":" in given or "T" in given else f"{given} 23:59:59"
        end = parse_when(f"at {text}", self.now, zone)
        assert isinstance(end, OneTime)
        if end.due(zone) <= self.now:
            raise refused("job_until_past", given=given)
        return timestamp(end.due(zone))


def shortest_gap(when: When, zone: Any, now: datetime) -> timedelta | None:
    """The shortest time between firings, among the next ones."""
    if isinstance(when, Interval):
        return timedelta(seconds=when.seconds, days=when.days)
    times = upcoming(when, zone, now, 70) if isinstance(when, CronExpression) else []
    return min((later - sooner for sooner, later in pairwise(times)), default=None)


def place_named(given: str) -> ChatRef:
    """The chat with this session id. Raises `ScheduleRefused`."""
    channel, _, rest = given.strip().partition(":")
    chat, _, thread = rest.partition(":")
    if not channel or not chat:
        raise refused("job_no_session", session=given)
    return ChatRef(channel, chat, thread, direct=not chat.startswith("-"))


def quiet_hours(given: str) -> tuple[int, int] | None:
    """Quiet hours as somebody writes them; None for none. Raises `ScheduleRefused`."""
    text = given.strip().lower()
    if text in ("none", "off", "no"):
        return None
    found = _QUIET.fullmatch(text)
    numbers = [int(one) for one in found.groups()] if found else []
    if not numbers or max(numbers[::2]) > 23 or max(numbers[1::2]) > 59:
        raise refused("job_quiet_form", given=given)
    start, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if start == end:
        raise refused("job_quiet_form", given=given)
    return start, end


def quiet_text(quiet: tuple[int, int]) -> str:
    """Quiet hours as people read them."""
    return "-".join(f"{one // 60:02}:{one % 60:02}" for one in quiet)


def quiet_of(state: ScheduleState, session: str, zone: str) -> QuietHours | None:
    """The quiet hours of a chat; `zone` is the deployment's."""
    rules = state.chats.get(session)
    if rules is None or rules.quiet is None:
        return None
    return QuietHours(*rules.quiet, zone_named(rules.zone or zone))


def maker_data(by: Actor) -> dict[str, Any]:
    """Who it was, as data of an event."""
    return {"channel": by.channel, "id": by.id, "name": by.name, "roles": list(by.roles)}


def _with_what(job: Job, what: Mapping[str, Any], *, fresh: bool) -> Job:
    given = [(do, str(what[do]).strip()) for do in ("prompt", "command", "text") if str(what.get(do) or "").strip()]
    if len(given) > 1 or (fresh and not given):
        raise refused("job_what")
    if not given:
        return job
    do, text = given[0]
    if do == "command" and (not text.startswith(",") or len(text) < 2):
        raise refused("job_command", given=text)
    if do == "prompt" and text.startswith(","):
        raise refused("job_prompt_comma")
    return replace(job, do=do, text=text)  # type: ignore[arg-type]


_NUMBERS = MappingProxyType({"catch_limit": MOST_CAUGHT_UP, "jitter": MOST_JITTER, "runs": 1_000_000, "budget": 86_400})


def _with_options(job: Job, what: Mapping[str, Any]) -> Job:
    changed: dict[str, Any] = {}
    for name, most in _NUMBERS.items():
        if (value := what.get(name)) is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise refused("job_number", name=name, given=value, most=most)
        changed["most" if name == "runs" else name] = value
    if what.get("catch_up"):
        changed["catch_up"] = what["catch_up"]
    for name in ("urgent", "nested"):
        if what.get(name) is not None:
            changed[name] = bool(what[name])
    made = replace(job, **changed)
    if made.catch_limit < 1:
        raise refused("job_catch_limit", most=MOST_CAUGHT_UP, number=made.catch_limit)
    return made
