"""Jobs as `bubbot schedule --json` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

from bubbot.errors import ScheduleRefused
from bubbot.features.schedule.facts import ActionKind, CatchUp, ChatRef, ChatRules
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import DeliveryState, JobState, JobStatus
from bubbot.records import IsoTime, dataclass
from bubbot.tape.entry import TapeEntry, timestamp

NEXT_TIMES = 3
Delivery: TypeAlias = Literal["nothing", "waiting", "delivered", "undelivered"]


@dataclass(frozen=True, slots=True)
class JobRecord:
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


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs of every chat.

    Attributes:
        jobs: the oldest first.
    """

    jobs: tuple[JobRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class JobChange:
    """What a command changed.

    Attributes:
        jobs: the jobs as they are now.
        removed: the ids of jobs that are no longer there.
    """

    jobs: tuple[JobRecord, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobEvent:
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


@dataclass(frozen=True, slots=True)
class JobHistoryResult:
    """The history of a job.

    Attributes:
        job: the id of the job.
        events: oldest first.
    """

    job: str
    events: tuple[JobEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class NextTimesResult:
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


@dataclass(frozen=True, slots=True)
class ChatRulesResult:
    """The rules of a chat.

    Attributes:
        session: the chat.
        zone: its IANA time zone.
        quiet: the minutes of the day at which its quiet hours begin and end; None for no quiet hours.
    """

    session: str
    zone: str
    quiet: tuple[int, ...] | None


def job_record(state: JobState, now: datetime) -> JobRecord:
    """Return a job for programs."""
    job = state.job
    try:
        following = tuple(timestamp(instant) for instant in next_times(state, now, NEXT_TIMES))
    except ScheduleRefused:  # a schedule that this version does not know
        following = ()
    return JobRecord(
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
    )


def job_history(job: str, facts: Iterable[TapeEntry], sent: Mapping[str, DeliveryState]) -> JobHistoryResult:
    """Return the history of a job for programs."""
    events = []
    for fact in facts:
        data = fact.data
        delivery = sent.get(str(data["turn"])) if "turn" in data else None
        name = (fact.name or "").removeprefix("schedule/")
        events.append(JobEvent(fact.id, fact.date, name, data, delivery.state if delivery else None))
    return JobHistoryResult(job, tuple(events))


def chat_rules_result(rules: ChatRules, zone: str) -> ChatRulesResult:
    """Return the rules of a chat for programs; `zone` is that of the deployment."""
    return ChatRulesResult(rules.session, rules.zone or zone, rules.quiet or None)
