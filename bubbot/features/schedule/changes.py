"""Changes that people make: checked, and turned into facts.

Pure; the caller appends them, within a turn to its fork.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bubbot.errors import ValueInvalid
from bubbot.features.schedule.facts import (
    Actor,
    ChatRef,
    ChatRules,
    FiringRequested,
    Job,
    JobChanged,
    JobPaused,
    JobRemoved,
    JobResumed,
)
from bubbot.features.schedule.plan import QuietHours, clock_entries, next_times, parse_rule, waits_for_clock
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState, ScheduleState
from bubbot.ports.channel import Role
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fact import Cited
from bubbot.tape.provenance import Source, most_foreign, stamp_of
from bubbot.times.instants import wall_time
from bubbot.times.reading import ReadingContext, TimedRequest, TimeReading
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import Interval, OneTime, When, find_zone, next_instants

TERMINAL = "terminal"
"""The id of the operating system's user as actor: the owner of everything."""
JOB_ID_DIGITS = 6
MAX_CATCH_UP = 100
MAX_JITTER_SECONDS = 3600
MAX_JOB_NAME = 60
MAX_LABEL_CHARS = 60
MAX_ACTION_CHARS = 120
"""Characters of a job's action in messages about it."""
MAX_SHOWN_JOBS = 5
PUNCTUATION = "\"'([*_,"
"""What may stand before a word in a text."""
_QUIET = r"(\d{1,2}):(\d{2})\s*(?:-|to)\s*(\d{1,2}):(\d{2})"


class JobRequester(Struct, frozen=True):
    """The person who requests something, with role and chat.

    Attributes:
        actor: the person.
        role: the person's role.
        place: the chat of the request.
        nested: within a scheduled turn that may not schedule.
        owns_all: an owner in a direct chat or at the terminal, who alone has power over the jobs of other chats.
    """

    actor: Actor
    role: Role
    place: ChatRef
    nested: bool = False
    owns_all: bool = False

    @property
    def session(self) -> str:
        """The session of the request."""
        return self.place.session


END_REASONS_AS_PLANNED = ("reason_once", "reason_until", "reason_runs")
"""The reasons of jobs that ended as planned."""
OWNER_ONLY_FIELDS = ("to", "nested", "urgent", "allow")
"""The fields that only owners set, and only in a direct chat or at the terminal."""


class JobChanges(Struct, frozen=True):
    """Checks of changes against the existing jobs. Every method raises `ValueInvalid`, and `TimeRefused` for a time that cannot
    be read or used.

    Attributes:
        state: the existing jobs.
        requester: the person who makes the change.
        now: the current time.
        new_id: returns a new random id.
        limits: the settings.
        zone: the deployment's zone, for chats without their own.
        source: how foreign the words of the request are.
    """

    state: ScheduleState
    requester: JobRequester
    now: datetime
    new_id: Callable[[], str]
    limits: ScheduleSettings
    zone: str
    source: Source = Source.OWN

    def find(self, query: str) -> JobState:
        """Find the job with this id, or its beginning, or this name, or with these words in its text.

        Jobs of other chats are found only for who `owns_all`. Of those that fit by their words, the ones that are not over
        come first, and then those of this chat.
        """
        visible = [state for state in self.state.jobs.values() if self._is_visible(state.job)]
        word = query.strip()
        exact = [state for state in visible if state.job.id == word or (word and state.job.name == word)]
        matches = exact or [state for state in visible if word and state.job.id.startswith(word)]
        matches = matches or self._find_by_words(visible, word)
        if not matches:
            raise ValueInvalid("job_unknown", job=word)
        if len(matches) > 1:
            shown = [job_label(state.job) for state in matches]
            more = ["…"] if len(shown) > MAX_SHOWN_JOBS else []
            raise ValueInvalid("job_ambiguous", job=word, jobs=", ".join([*shown[:MAX_SHOWN_JOBS], *more]))
        return matches[0]

    def _find_by_words(self, visible: Sequence[JobState], query: str) -> list[JobState]:
        """Find the jobs whose name or text is these words, else those with words that begin like all of them."""
        words = query.casefold().split()
        if not words:
            return []
        said = [(state, state.job.name.casefold().split(), state.job.text.casefold().split()) for state in visible]
        fitting = [state for state, name, text in said if words in (name, text)]
        fitting = fitting or [
            state for state, name, text in said if all(_has_word([*name, *text], word) for word in words)
        ]
        fitting = [state for state in fitting if state.status != "over"] or fitting
        return [state for state in fitting if state.job.session == self.requester.session] or fitting

    def find_at_start(self, words: str) -> tuple[JobState, str]:
        """Find the job that the first words name, as many as possible; return the rest, too."""
        parts = words.split()
        for count in range(len(parts), 1, -1):
            try:
                return self.find(" ".join(parts[:count])), " ".join(parts[count:])
            except ValueInvalid:
                continue
        return self.find(parts[0] if parts else words), " ".join(parts[1:])

    def read_time(self, source: str, zone: str = "", job: Job | None = None) -> TimeReading:
        """Read a time in this zone, else in that of the job or of the chat; a mere clock keeps the days of the job."""
        return _read(source, self._context(zone, job))

    def split_request(self, source: str, zone: str = "") -> TimedRequest:
        """Find the time in a request as people type it."""
        from bubbot.times.request import split_request  # see `_read`

        return split_request(source, self._context(zone))

    def list_jobs(self, *, in_all_chats: bool = False, include_ended: bool = False) -> list[JobState]:
        """List the jobs of this chat; of all chats if a requester who `owns_all` sets `in_all_chats`.

        Jobs that ended as planned are listed only if `include_ended` is true.
        """
        if in_all_chats and self.requester.role is Role.OWNER and not self.requester.owns_all:
            raise ValueInvalid("jobs_not_here")
        all_chats = in_all_chats and self.requester.owns_all
        states = list(self.state.jobs.values()) if all_chats else self.state.jobs_of(self.requester.session)
        return [
            state
            for state in states
            if include_ended or state.status != "over" or state.reason not in END_REASONS_AS_PLANNED
        ]

    def add(self, fields: Mapping[str, Any]) -> tuple[Job, list[TapeEntry]]:
        """Add a job by its fields: `when`, one of `prompt`, `command` and `text`, and any of the others."""
        self._check_may_schedule()
        active = [state for state in self.state.jobs_of(self.requester.session) if state.status != "over"]
        if len(active) >= self.limits.max_jobs_per_chat:
            raise ValueInvalid("job_too_many", number=len(active))
        job_id = self.new_id()[:JOB_ID_DIGITS]
        while job_id in self.state.jobs:
            job_id = self.new_id()[:JOB_ID_DIGITS]
        blank = Job(
            id=job_id,
            session=self.requester.session,
            place=self.requester.place,
            by=self.requester.actor,
            do="prompt",
            text="",
            when="",
            zone=self.chat_zone(),
            since=timestamp(self.now),
        )
        job = self._with_fields(blank, fields, fresh=True)
        return job, [job.to_entry()]

    def edit(self, job_state: JobState, fields: Mapping[str, Any]) -> tuple[Job, list[TapeEntry]]:
        """Change fields of a job. From now on it belongs to the person who changes it."""
        self._check_may_schedule()
        base = replace(job_state.job, by=self.requester.actor)
        if not self.requester.owns_all:  # an owner's permissions were for that owner's job, unchanged
            base = replace(base, to=None, granted=None, nested=False, urgent=False, allow=())
        job = self._with_fields(base, fields, fresh=False)
        if replace(job, since=job_state.job.since, by=job_state.job.by) == job_state.job and job_state.status == "on":
            raise ValueInvalid("job_same", job=job.id)
        mark = stamp_of(most_foreign(self.source, job_state.provenance))  # what is left of it may be as it was
        return job, [replace(job, since=timestamp(self.now)).to_entry(*JobChanged.EVENTS, **mark)]

    def pause(self, job_state: JobState) -> list[TapeEntry]:
        """Pause a job: it stays, and does not fire."""
        self._check_may_schedule()
        if job_state.status != "on":
            raise self._not_active(job_state)
        return [JobPaused(job_state.job.id, self.requester.actor, "reason_asked").to_entry()]

    def resume(self, job_state: JobState) -> list[TapeEntry]:
        """Resume a paused job from now on, without catching up."""
        self._check_may_schedule()
        if job_state.status == "over":
            raise self._not_active(job_state)
        if waits_for_clock(job_state, self.now):
            return clock_entries(job_state, self.now)
        if job_state.status == "on":
            raise ValueInvalid("job_not_paused", job=job_state.job.id)
        return [JobResumed(job_state.job.id, self.requester.actor, timestamp(self.now)).to_entry()]

    def resume_waiting(self) -> list[TapeEntry]:
        """Resume every job that waits for a clock that was ahead, from the present on."""
        waiting = [
            state
            for state in self.state.jobs.values()
            if self._is_visible(state.job) and waits_for_clock(state, self.now)
        ]
        return [fact for state in waiting for fact in clock_entries(state, self.now)]

    def remove(self, job_state: JobState) -> list[TapeEntry]:
        """Remove a job; its results stay on the tapes."""
        self._check_may_schedule()
        return [JobRemoved(job_state.job.id, self.requester.actor).to_entry()]

    def run(self, job_state: JobState) -> list[TapeEntry]:
        """Run a job now, for the requester."""
        self._check_may_schedule()
        mark = f"{self.now.strftime('%Y-%m-%dT%H:%M:%SZ')}!{self.new_id()[-4:]}"
        return [FiringRequested(job_state.job.id, mark, self.requester.actor).to_entry()]

    def set_chat_rules(self, session: str, zone: str = "", quiet: str = "") -> list[TapeEntry]:
        """Set the zone and the quiet hours of a chat; an empty value changes nothing."""
        self._check_may_schedule()
        rules = self.state.rules_of(session)
        name = str(find_zone(zone)) if zone else rules.zone
        hours = parse_quiet_hours(quiet) if quiet else rules.quiet
        return [ChatRules(session, name, hours, self.requester.actor).to_entry()]

    def chat_zone(self) -> str:
        """Return the zone in which this chat reads times."""
        return self.state.rules_of(self.requester.session).zone or self.zone

    def next_times_of(self, job: Job, count: int = 3) -> list[datetime]:
        """Return the next times of a job."""
        existing = self.state.jobs.get(job.id)
        return next_times(JobState(Cited(job), self.now, runs=existing.runs if existing else 0), self.now, count)

    def _context(self, zone: str, job: Job | None = None) -> ReadingContext:
        """Return what times refer to."""
        found = find_zone(zone or (job.zone if job else "") or self.chat_zone())
        current = parse_rule(job)[0] if job is not None and job.when else None
        return ReadingContext(self.now, found, self.limits.default_clock, current)

    def _is_visible(self, job: Job) -> bool:
        return self.requester.owns_all or job.session == self.requester.session

    def _check_may_schedule(self) -> None:
        if self.requester.nested:
            raise ValueInvalid("job_from_schedule")

    def _not_active(self, job_state: JobState) -> Exception:
        if job_state.status == "over":
            return ValueInvalid("job_over", job=job_state.job.id, reason=job_state.reason, detail=job_state.detail)
        return ValueInvalid("job_is_paused", job=job_state.job.id)

    def _with_fields(self, job: Job, fields: Mapping[str, Any], *, fresh: bool) -> Job:
        """Return the job with these fields; check everything together."""
        owner_fields = [name for name in OWNER_ONLY_FIELDS if fields.get(name)]
        if owner_fields and not self.requester.owns_all:
            raise ValueInvalid("job_owner_only", names=", ".join(owner_fields))
        job = _with_action(job, fields, fresh=fresh)
        job = _with_options(job, fields)
        job = self._with_name(job, fields)
        if fields.get("to"):
            job = self._with_target(job, str(fields["to"]))
        if fields.get("when") or fields.get("zone") or fresh:
            job = self._with_schedule(job, fields)
        return job

    def _with_name(self, job: Job, fields: Mapping[str, Any]) -> Job:
        name = " ".join(str(fields.get("name") or "").split())[:MAX_JOB_NAME]
        if not name:
            return job
        if any(state.job.name == name and state.job.id != job.id for state in self.state.jobs_of(job.session)):
            raise ValueInvalid("job_name_taken", name=name)
        return replace(job, name=name)

    def _with_target(self, job: Job, target: str) -> Job:
        if target in ("here", job.session):
            return replace(job, to=None, granted=None)
        return replace(job, to=parse_chat_ref(target), granted=self.requester.actor)

    def _with_schedule(self, job: Job, fields: Mapping[str, Any]) -> Job:
        zone = find_zone(str(fields.get("zone") or job.zone))
        given = str(fields.get("when") or job.when)
        reading = _read(given, self._context(str(zone), job))
        when, zone = reading.when, find_zone(reading.zone) if reading.zone else zone
        if isinstance(when, OneTime) and (due := when.due_instant(zone)) <= self.now:
            raise ValueInvalid("at_past", given=given, instant=f"{wall_time(due, zone):%Y-%m-%d %H:%M}")
        job = replace(job, when=when.text, zone=str(zone))
        if fields.get("until"):
            job = replace(job, until=self._until(str(fields["until"]), zone))
        gap = shortest_gap(when, zone, self.now)
        often = gap is not None and gap < timedelta(minutes=self.limits.min_unbounded_interval)
        if often and not (job.until or job.most) and self.requester.role is not Role.OWNER:
            raise ValueInvalid("job_forever", minutes=self.limits.min_unbounded_interval)
        if not next_times(JobState(Cited(job), self.now), self.now, 1):
            raise ValueInvalid("cron_never", given=given)
        return job

    def _until(self, source: str, zone: Any) -> str:
        context = ReadingContext(self.now, zone, time(23, 59, 59))
        try:
            end = _read(source, context).when
        except TimeRefused as error:
            raise ValueInvalid("job_until_past", given=source) if error.code == "at_past" else error from None
        if not isinstance(end, OneTime):
            raise ValueInvalid("when_unknown", given=source)
        if end.due_instant(zone) <= self.now:
            raise ValueInvalid("job_until_past", given=source)
        return timestamp(end.due_instant(zone))


def job_label(job: Job) -> str:
    """Return the label by which people know a job: its name, or the beginning of its text, and its id."""
    return f"{_shorten(job.name or job.text, MAX_LABEL_CHARS)} ({job.id})"


def shorten_action(job: Job) -> str:
    """Return what a job says, asks or runs, on one line."""
    return _shorten(job.text, MAX_ACTION_CHARS)


def _shorten(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def _has_word(said: Sequence[str], word: str) -> bool:
    """Return true if something said begins with a word; within a text without spaces, if it contains it."""
    return any(one.lstrip(PUNCTUATION).startswith(word) or (not word.isascii() and word in one) for one in said)


def due_fields(reading: TimeReading) -> dict[str, str]:
    """Return the fields of a job that is due then."""
    return {"when": reading.when.text} | ({"zone": reading.zone} if reading.zone else {})


def _read(source: str, context: ReadingContext) -> TimeReading:
    """Read a time. The phrases are loaded here: compiling them takes longer than a command that reads no time."""
    from bubbot.times.phrases import read_time

    return read_time(source, context)


def shortest_gap(when: When, zone: Any, now: datetime) -> timedelta | None:
    """Return the shortest time between firings, among the next ones; None if there is only one."""
    if isinstance(when, Interval):
        return timedelta(seconds=when.seconds, days=when.days)
    times = next_instants(when, zone, now, 70)
    return min((later - sooner for sooner, later in pairwise(times)), default=None)


def parse_chat_ref(session: str) -> ChatRef:
    """Return the chat with this session id. Raise `ValueInvalid`."""
    channel, _, rest = session.strip().partition(":")
    chat, _, thread = rest.partition(":")
    if not channel or not chat:
        raise ValueInvalid("job_no_session", session=session)
    return ChatRef(channel, chat, thread, direct=not chat.startswith("-"))


def parse_quiet_hours(source: str) -> tuple[int, ...]:
    """Parse quiet hours as people write them; return nothing for none. Raise `ValueInvalid`."""
    text = source.strip().lower()
    if text in ("none", "off", "no"):
        return ()
    match = re.fullmatch(_QUIET, text)
    numbers = [int(number) for number in match.groups()] if match else []
    if not numbers or max(numbers[::2]) > 23 or max(numbers[1::2]) > 59:
        raise ValueInvalid("job_quiet_form", given=source)
    start, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if start == end:
        raise ValueInvalid("job_quiet_form", given=source)
    return start, end


def format_quiet_hours(quiet: Sequence[int]) -> str:
    """Format quiet hours for people."""
    return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in quiet)


def find_quiet_hours(state: ScheduleState, session: str, zone: str) -> QuietHours | None:
    """Return the quiet hours of a chat; `zone` is the deployment's."""
    rules = state.rules_of(session)
    if not rules.quiet:
        return None
    start, end = rules.quiet
    return QuietHours(start, end, find_zone(rules.zone or zone))


def _with_action(job: Job, fields: Mapping[str, Any], *, fresh: bool) -> Job:
    actions = [
        (do, str(fields[do]).strip()) for do in ("prompt", "command", "text") if str(fields.get(do) or "").strip()
    ]
    if len(actions) > 1 or (fresh and not actions):
        raise ValueInvalid("job_what")
    if not actions:
        return job
    do, text = actions[0]
    if do == "command" and (not text.startswith(",") or len(text) < 2):
        raise ValueInvalid("job_command", given=text)
    if do == "prompt" and text.startswith(","):
        raise ValueInvalid("job_prompt_comma")
    return replace(job, do=do, text=text)


_NUMBERS = MappingProxyType(
    {"catch_limit": MAX_CATCH_UP, "jitter": MAX_JITTER_SECONDS, "runs": 1_000_000, "budget": 86_400}
)


def _with_options(job: Job, fields: Mapping[str, Any]) -> Job:
    changed: dict[str, Any] = {}
    for name, maximum in _NUMBERS.items():
        if (value := fields.get(name)) is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            raise ValueInvalid("job_number", name=name, given=value, most=maximum)
        changed["most" if name == "runs" else name] = value
    if fields.get("catch_up"):
        changed["catch_up"] = fields["catch_up"]
    for name in ("urgent", "nested"):
        if fields.get(name) is not None:
            changed[name] = bool(fields[name])
    if fields.get("allow") is not None:
        words = [" ".join(str(word).split()) for word in fields["allow"]]
        changed["allow"] = tuple(dict.fromkeys(word for word in words if word not in ("", "none")))
    updated = replace(job, **changed)
    if updated.catch_limit < 1:
        raise ValueInvalid("job_catch_limit", most=MAX_CATCH_UP, number=updated.catch_limit)
    return updated
