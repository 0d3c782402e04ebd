"""Jobs and their states, from the facts on the tape of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bubbot.gateway.outbox_views import DELIVERY_ABANDONED as UNDELIVERED
from bubbot.gateway.outbox_views import RECEIPT
from bubbot.ports.channel import HasChat
from bubbot.ports.outbox import INTENT
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

JOB_ADDED = "schedule/added"
JOB_CHANGED = "schedule/changed"
PAUSED = "schedule/paused"
RESUMED = "schedule/resumed"
JOB_REMOVED = "schedule/removed"
OVER = "schedule/over"
CHAT_RULES_SET = "schedule/chat"
JOB_REQUESTED = "schedule/asked"
FIRED = "schedule/fired"
SKIPPED = "schedule/skipped"
RAN = "schedule/ran"
FIRING_FAILED = "schedule/failed"
NOT_RUN = "schedule/refused"
CLOCK = "schedule/clock"
SCHEDULE_CHECKPOINT = "schedule/mark"

LASTING_EVENTS = (JOB_ADDED, JOB_CHANGED, PAUSED, RESUMED, JOB_REMOVED, OVER, CHAT_RULES_SET, CLOCK)
"""Facts from people, or once in a job's life: all of them are read at every start."""
FIRING_EVENTS = (JOB_REQUESTED, FIRED, SKIPPED, RAN, FIRING_FAILED, NOT_RUN)
"""Facts of each firing: read from the newest mark on."""

ActionKind: TypeAlias = Literal["prompt", "command", "text"]
CatchUp: TypeAlias = Literal["skip", "once", "all"]
JobStatus: TypeAlias = Literal["on", "paused", "over"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change: an account on a channel, with the `roles` that the platform reported then."""

    channel: str
    id: str
    name: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRef(HasChat):
    """A chat. `direct` and `space` are those of an inbound there."""

    channel: str
    chat: str
    thread: str = ""
    direct: bool = True
    space: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job: an action, its times, and the person it runs for.

    Attributes:
        id: of the job.
        place: the chat where it was made.
        by: the person for whom it runs.
        do: the kind of action.
        text: the prompt, command or text.
        when: the schedule, as `parse_when` stores it.
        zone: the IANA name of the time zone.
        since: the schedule counts from then on, ISO 8601.
        name: a label; may be empty.
        catch_up: the treatment of missed firings.
        catch_limit: the most missed firings to catch up with.
        jitter: seconds; 0: none.
        until: the end, ISO 8601; empty: none.
        most: the most runs; 0: unlimited.
        budget: seconds of a turn; 0: unlimited.
        urgent: fires in quiet hours too.
        nested: its turns may schedule.
        to: another chat for its messages; None: `place`.
        granted: the owner who allowed `to`.
    """

    id: str
    place: ChatRef
    by: Actor
    do: ActionKind
    text: str
    when: str
    zone: str
    since: str
    name: str = ""
    catch_up: CatchUp = "once"
    catch_limit: int = 5
    jitter: int = 0
    until: str = ""
    most: int = 0
    budget: int = 0
    urgent: bool = False
    nested: bool = False
    to: ChatRef | None = None
    granted: Actor | None = None

    @property
    def session(self) -> str:
        """The session in which it runs."""
        return self.place.session

    @property
    def target(self) -> ChatRef:
        """The chat that receives its messages."""
        return self.to or self.place


def job_data(job: Job) -> JsonObject:
    """Build the event data of a job."""
    data: dict[str, Any] = asdict(job)
    return {"job": data.pop("id"), "session": job.session, **data}


def job_from(data: JsonObject) -> Job:
    """Read a job from the data of its event; fields unknown to this version are left out."""
    names = {item.name for item in fields(Job)}
    values = {name: value for name, value in data.items() if name in names}
    parsed = {"place": ChatRef(**data["place"]), "by": _actor(data["by"]), "id": data["job"]}
    if data.get("to"):
        parsed |= {"to": ChatRef(**data["to"]), "granted": _actor(data["granted"])}
    return Job(**{**values, **parsed})


def _actor(data: JsonObject) -> Actor:
    return Actor(**{**data, "roles": tuple(data.get("roles", ()))})


@dataclass(frozen=True, slots=True)
class ManualFiring:
    """A requested firing; `mark` names it instead of an instant."""

    mark: str
    by: Actor


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job.

    Attributes:
        job: the job itself.
        covered: everything up to this instant was fired or skipped.
        status: on, paused or over.
        reason: the name of a sentence that explains the status.
        detail: a value for that sentence.
        runs: the number of firings.
        failures: failed firings in a row.
        requests: firings that people requested for now.
    """

    job: Job
    covered: datetime
    status: JobStatus = "on"
    reason: str = ""
    detail: str = ""
    runs: int = 0
    failures: int = 0
    requests: tuple[ManualFiring, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRules:
    """The rules of a chat: its zone (empty: the deployment's), and its quiet hours as minutes of the day."""

    zone: str = ""
    quiet: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """Every job by its id, and the rules of chats by session."""

    jobs: Mapping[str, JobState] = field(default_factory=lambda: MappingProxyType({}))
    chats: Mapping[str, ChatRules] = field(default_factory=lambda: MappingProxyType({}))

    def apply(self, entries: Iterable[TapeEntry]) -> ScheduleState:
        """Return the state with these facts added, in the order of the tape."""
        jobs, chats = dict(self.jobs), dict(self.chats)
        for entry in entries:
            if entry.erased or entry.kind != Kind.EVENT:
                continue
            data = entry.payload["data"]
            if entry.name == CHAT_RULES_SET:
                quiet = data.get("quiet")
                chats[data["session"]] = ChatRules(data.get("zone", ""), (quiet[0], quiet[1]) if quiet else None)
            else:
                _apply(jobs, entry.name or "", data)
        return ScheduleState(MappingProxyType(jobs), MappingProxyType(chats))

    def apply_counts(self, counts: Iterable[JsonObject]) -> ScheduleState:
        """Return the state with the counts of a mark."""
        jobs = dict(self.jobs)
        for count in counts:
            if (job_state := jobs.get(count["job"])) is not None:
                covered = max(job_state.covered, parse_moment(count["covered"]) or _LONG_AGO)
                requests = tuple(ManualFiring(item["mark"], _actor(item["by"])) for item in count["asked"])
                jobs[count["job"]] = replace(
                    job_state, covered=covered, runs=count["runs"], failures=count["failures"], requests=requests
                )
        return replace(self, jobs=MappingProxyType(jobs))

    def jobs_of(self, session: str) -> list[JobState]:
        """Return the jobs of a session, oldest first."""
        return [job_state for job_state in self.jobs.values() if job_state.job.session == session]


def _apply(jobs: dict[str, JobState], name: str, data: JsonObject) -> None:
    job_id = data.get("job", "")
    job_state = jobs.get(job_id)
    if name == JOB_ADDED:
        job = job_from(data)
        jobs.setdefault(job_id, JobState(job, parse_moment(job.since) or _LONG_AGO))
    elif name == JOB_REMOVED:
        jobs.pop(job_id, None)
    elif job_state is not None:
        jobs[job_id] = _next_state(job_state, name, data)


def _next_state(job_state: JobState, name: str, data: JsonObject) -> JobState:
    if name == JOB_CHANGED:
        job = job_from(data)
        covered = parse_moment(job.since) or _LONG_AGO
        updated = replace(job_state, job=job, covered=covered, failures=0)
        paused_by_person = job_state.status == "paused" and job_state.reason == "reason_asked"
        return updated if paused_by_person else replace(updated, status="on", reason="", detail="")
    if name == PAUSED:
        return replace(job_state, status="paused", reason=data["reason"], detail=data.get("detail", ""))
    if name == RESUMED:
        since = parse_moment(data["since"]) or job_state.covered
        return replace(job_state, status="on", reason="", detail="", failures=0, covered=max(job_state.covered, since))
    if name == CLOCK:  # the clock was ahead: the keys of the firings remember what was fired then
        return replace(job_state, covered=parse_moment(data["since"]) or job_state.covered)
    if name == OVER:
        return replace(job_state, status="over", reason=data["reason"], detail=data.get("detail", ""))
    if name == JOB_REQUESTED:
        return replace(job_state, requests=(*job_state.requests, ManualFiring(data["mark"], _actor(data["by"]))))
    if name == FIRED:
        if "!" in data["mark"]:
            return replace(
                job_state, requests=tuple(request for request in job_state.requests if request.mark != data["mark"])
            )
        instant = parse_moment(data["mark"]) or _LONG_AGO
        fresh = instant > job_state.covered  # the same fact twice is one
        return replace(job_state, covered=max(job_state.covered, instant), runs=job_state.runs + fresh)
    if name == SKIPPED:
        return replace(job_state, covered=max(job_state.covered, parse_moment(data["last"]) or _LONG_AGO))
    if name == FIRING_FAILED:
        return replace(job_state, failures=int(data["count"]))
    return replace(job_state, failures=0) if name == RAN else job_state


@dataclass(frozen=True, slots=True)
class ScheduleCheckpointView:
    """The newest mark: the entry up to which it counts, and its counts of each job."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the anchor, by one indexed look-up."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(SCHEDULE_CHECKPOINT,), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> tuple[int, tuple[JsonObject, ...]]:
        """Return the mark; on a tape without one nothing is counted."""
        if not answers[0]:
            return 0, ()
        state = answers[0][0].payload["state"]
        return state["after"], state["jobs"]


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """The state of every job. `after` and `counts` are those of the newest mark."""

    after: int = 0
    counts: tuple[JsonObject, ...] = ()
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read lasting facts from the beginning, and passing facts since the mark."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=LASTING_EVENTS),
            TapeQuery(tape, IdRanges(((self.after + 1, None),)), kinds=(Kind.EVENT,), names=FIRING_EVENTS),
        )

    def fold(self, answers: QueryAnswers) -> ScheduleState:
        """Apply both in the order of the tape, with the counts at the place of the mark."""
        before = [entry for entry in answers[0] if entry.id <= self.after]
        since = sorted((entry for entry in chain(*answers) if entry.id > self.after), key=lambda entry: entry.id)
        return ScheduleState().apply(before).apply_counts(self.counts).apply(since)


@dataclass(frozen=True, slots=True)
class JobHistoryView:
    """The newest facts about one job, oldest first, among the newest `reach` of all."""

    job: str
    limit: int = 20
    reach: int = 5_000
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the end of the tape."""
        names = (*LASTING_EVENTS, *FIRING_EVENTS)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.reach),)

    def fold(self, answers: QueryAnswers) -> tuple[TapeEntry, ...]:
        """Return the facts unchanged."""
        own = [entry for entry in answers[0] if not entry.erased and entry.payload["data"].get("job") == self.job]
        return tuple(reversed(own[: self.limit]))


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The outcome of a turn's message: `nothing` was sent, or the state of its delivery."""

    state: Literal["nothing", "waiting", "delivered", "undelivered"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeliveriesView:
    """The deliveries of these turns' messages, read from an outbox tape, among its newest entries."""

    turns: Sequence[str]
    reach: int = 5_000
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the intents by their keys, and the newest receipts."""
        keys = tuple(f"{turn}:0" for turn in self.turns) or ("none",)
        names = (RECEIPT, UNDELIVERED)
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(INTENT,), keys=keys),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.reach),
        )

    def fold(self, answers: QueryAnswers) -> Mapping[str, DeliveryState]:
        """Map turns to delivery states."""
        sent: dict[int, int] = {}
        ended: dict[int, str] = {}
        for entry in answers[1]:
            data = entry.payload["data"] if not entry.erased else {}
            if entry.name == RECEIPT and data:
                sent[data["intent"]] = sent.get(data["intent"], 0) + 1
            elif data:
                ended[data["intent"]] = data["reason"]
        states = {}
        for entry in answers[0]:
            data = {} if entry.erased else entry.payload["data"]
            if not data:
                continue
            if entry.id in ended:
                states[data["turn"]] = DeliveryState("undelivered", ended[entry.id])
            else:
                is_complete = sent.get(entry.id, 0) >= len(data["parts"])
                states[data["turn"]] = DeliveryState("delivered" if is_complete else "waiting")
        return states
