"""What the commands about schedules return: the fields of `--json`, and the words for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct

from bubbot.command import Caller, Surface
from bubbot.features.schedule.changes import JobChanges, format_quiet_hours, job_label
from bubbot.features.schedule.facts import ActionKind, CatchUp, ChatRef, Job
from bubbot.features.schedule.formatter import JobFormatter
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import DeliveryState, JobState, JobStatus
from bubbot.features.schedule.words import describe_rule, describe_schedule, format_moment
from bubbot.shell_command import IsoTime
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.texts import Texts
from bubbot.times.reading import TimeReading
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import When

NEXT_TIMES = 3
Delivery: TypeAlias = Literal["nothing", "waiting", "delivered", "undelivered"]


def format_for(caller: Caller, pending: JobChanges) -> JobFormatter:
    """Return what formats jobs for a caller, with hints that can be typed there."""
    formatter = JobFormatter(caller.texts, pending.now, pending.zone)
    if caller.surface is not Surface.SHELL:
        return formatter
    return JobFormatter(caller.texts, pending.now, pending.zone, "bubbot schedule edit {job} --when '{when}'")


class JobRecord(Struct, frozen=True):
    """A job.

    Attributes:
        id: of the job.
        name: a label; may be empty.
        session: the chat where it was made, and in which it runs.
        to: another chat for its messages; None for none.
        by: the account for which it runs, such as `telegram:42`.
        action: the kind of `text`.
        text: the prompt, the command or the text.
        when: its schedule.
        zone: the IANA time zone of the schedule.
        status: on, paused or over.
        reason: why it is not on: the name of a sentence; empty if it is on.
        next: its next times, at most three.
        runs: how often it fired.
        failures: failed firings in a row.
        catch_up: what happens to missed firings.
        catch_limit: the most missed firings to catch up with.
        jitter: seconds by which it may come later.
        until: its end; None for none.
        most_runs: the most firings; 0 for no limit.
        budget: the seconds that a turn may take; 0 for no limit.
        urgent: it fires in quiet hours too.
        nested: its turns may schedule.
        allow: what its turns may do besides: tools, or tools with what they act on.
    """

    id: str
    name: str
    session: str
    to: str | None
    by: str
    action: ActionKind
    text: str
    when: str
    zone: str
    status: JobStatus
    reason: str
    next: tuple[IsoTime, ...]
    runs: int
    failures: int
    catch_up: CatchUp
    catch_limit: int
    jitter: int
    until: IsoTime | None
    most_runs: int
    budget: int
    urgent: bool
    nested: bool
    allow: tuple[str, ...]

    @classmethod
    def of(cls, state: JobState, now: datetime, /, **more: Any) -> Self:
        """Describe a job for programs; `more` are the further fields of a subclass."""
        job = state.job
        try:
            following = tuple([timestamp(instant) for instant in next_times(state, now, NEXT_TIMES)])
        except TimeRefused:  # a schedule that this version does not know
            following = ()
        return cls(
            id=job.id,
            name=job.name,
            session=job.session,
            to=job.to.session if job.to else None,
            by=ChatRef(job.by.channel, job.by.id).session,
            action=job.do,
            text=job.text,
            when=job.when,
            zone=job.zone,
            status=state.status,
            reason=state.reason,
            next=following,
            runs=state.runs,
            failures=state.failures,
            catch_up=job.catch_up,
            catch_limit=job.catch_limit,
            jitter=job.jitter,
            until=job.until or None,
            most_runs=job.most,
            budget=job.budget,
            urgent=job.urgent,
            nested=job.nested,
            allow=job.allow,
            **more,
        )


class JobDetails(JobRecord, frozen=True, kw_only=True):
    """A job with what people are shown of it."""

    state: JobState
    pending: JobChanges

    def describe(self, caller: Caller) -> str:
        """Describe everything about it."""
        return format_for(caller, self.pending).format_details(self.state)


class JobList(Struct, frozen=True):
    """Jobs of every chat.

    Attributes:
        jobs: the oldest first.
    """

    jobs: tuple[JobRecord, ...] = ()


class JobsListed(JobList, frozen=True, kw_only=True):
    """Jobs with what people are shown of them."""

    states: Sequence[JobState]
    pending: JobChanges

    def describe(self, caller: Caller) -> str:
        """List them, one per line."""
        return format_for(caller, self.pending).format_list(self.states, caller.turn.session if caller.turn else "")


class JobChange(Struct, frozen=True):
    """What a command changed.

    Attributes:
        jobs: the jobs as they are now.
        removed: the ids of jobs that are no longer there.
    """

    jobs: tuple[JobRecord, ...] = ()
    removed: tuple[str, ...] = ()


class JobsChanged(JobChange, frozen=True, kw_only=True):
    """The same with what people are told of it.

    Attributes:
        variant: what was done.
        job: the job as it is now, or as it was when it was removed; None for all that wait for the clock.
        pending: what may be changed now.
        others: what the words of its time can mean, too.
        is_kept: a timer of this process fires the jobs.
    """

    variant: Literal["added", "changed", "paused", "resumed", "all_resumed", "run", "removed"]
    job: Job | None
    pending: JobChanges
    others: tuple[When, ...] = ()
    is_kept: bool = True

    def describe(self, caller: Caller) -> str:
        """Say what was done and, if nothing fires the jobs, that too."""
        texts, context = caller.texts, caller.context
        waits = not self.is_kept and self.variant == "added"
        if context is not None:
            waits = not context.is_daemon and self.variant not in ("paused", "removed")
        notice = f"\n{texts.say_on(caller.surface, 'job_unkept')}" if waits else ""
        return f"{self._describe_change(caller)}{notice}"

    def _describe_change(self, caller: Caller) -> str:
        job, say, formatter = self.job, caller.texts.say, format_for(caller, self.pending)
        if job is None:
            return say("jobs_resumed", number=len(self.jobs))
        match self.variant:
            case "paused":
                return caller.texts.say_on(caller.surface, "job_paused", job=job_label(job), id=job.id)
            case "run":
                return say("job_run", job=job_label(job))
            case "removed":
                return formatter.format_removed(job)
        sentence = {"added": "job_added", "changed": "job_changed"}.get(self.variant, "job_resumed")
        return formatter.format_change(sentence, job, self.pending, self.others)


class JobEvent(Struct, frozen=True):
    """A fact about a job.

    Attributes:
        entry: the id of the fact on the tape of schedules.
        date: its time.
        event: the name of the fact, as in the tape format, without `schedule/`.
        data: its data, as in the tape format.
        delivery: what became of the message of its turn; None if it had no turn.
    """

    entry: int
    date: IsoTime
    event: str
    data: Mapping[str, Any]
    delivery: Delivery | None = None


class JobHistoryResult(Struct, frozen=True):
    """The history of a job.

    Attributes:
        job: the id of the job.
        events: oldest first.
    """

    job: str
    events: tuple[JobEvent, ...] = ()


class JobHistory(JobHistoryResult, frozen=True, kw_only=True):
    """The same with what people are shown of it."""

    of_job: Job
    facts: Sequence[TapeEntry]
    sent: Mapping[str, DeliveryState]
    pending: JobChanges

    @classmethod
    def of_facts(
        cls, job: Job, facts: Sequence[TapeEntry], sent: Mapping[str, DeliveryState], pending: JobChanges
    ) -> JobHistory:
        """Describe the facts of a job for programs, each with what became of the message of its turn."""
        events = tuple(_describe_events(facts, sent))
        return cls(job.id, events, of_job=job, facts=facts, sent=sent, pending=pending)

    def describe(self, caller: Caller) -> str:
        """Describe it, a line for each fact and delivery."""
        return format_for(caller, self.pending).format_history(self.of_job, self.facts, self.sent)


def _describe_events(facts: Sequence[TapeEntry], sent: Mapping[str, DeliveryState]) -> Iterable[JobEvent]:
    for fact in facts:
        data = fact.data
        delivery = sent.get(str(data["turn"])) if "turn" in data else None
        name = (fact.name or "").removeprefix("schedule/")
        yield JobEvent(fact.id, fact.date, name, data, delivery.state if delivery else None)


class NextTimesResult(Struct, frozen=True):
    """When a schedule would fire.

    Attributes:
        when: the schedule as it was understood.
        zone: its IANA time zone.
        others: other schedules that the words can mean.
        next: its next times.
    """

    when: str
    zone: str
    others: tuple[str, ...]
    next: tuple[IsoTime, ...]


class NextTimesWorkedOut(NextTimesResult, frozen=True, kw_only=True):
    """The same with what people are shown of it."""

    reading: TimeReading
    in_zone: tzinfo
    moments: Sequence[datetime]

    @classmethod
    def of_reading(cls, reading: TimeReading, zone: tzinfo, moments: Sequence[datetime]) -> NextTimesWorkedOut:
        """Describe a schedule for programs, in English."""
        others = tuple([describe_rule(other, zone, Texts()) for other in reading.others])
        following = tuple([moment.isoformat() for moment in moments])
        return cls(reading.when.text, str(zone), others, following, reading=reading, in_zone=zone, moments=moments)

    def describe(self, caller: Caller) -> str:
        """Say what it means, what else it can mean, and its next times."""
        texts, zone = caller.texts, self.in_zone
        lines = [describe_schedule(self.reading.when, zone, texts)]
        lines += [texts.say("next_other", words=describe_rule(each, zone, texts)) for each in self.reading.others]
        return "\n".join([*lines, *[format_moment(moment, zone, texts) for moment in self.moments]])


class ChatRulesResult(Struct, frozen=True):
    """The rules of a chat.

    Attributes:
        session: the chat.
        zone: its IANA time zone.
        quiet: the minutes of the day at which its quiet hours begin and end; None for no quiet hours.
    """

    session: str
    zone: str
    quiet: tuple[int, ...] | None

    def describe(self, caller: Caller) -> str:
        """Say which they are."""
        quiet = format_quiet_hours(self.quiet) if self.quiet else caller.texts.say("chat_no_quiet")
        return caller.texts.say("chat_settings", zone=self.zone, quiet=quiet)
