"""Jobs and their states, from the facts on the tape of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bubbot.gateway.outbox_views import DELIVERY_ABANDONED as UNDELIVERED
from bubbot.ports.channel import HasChat
from bubbot.ports.outbox import INTENT, RECEIPT
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, timestamp
from bubbot.tape.projection import LegacyAnchor, Projection
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import TapeQuery, parse_moment
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
JOB_TEXT_EVENTS = (JOB_ADDED, JOB_CHANGED)
"""Events that contain texts of people."""
SCHEDULE_CHECKPOINT_INTERVAL = 500
"""Facts between two checkpoints; a start reads about as many."""

LASTING_EVENTS = (JOB_ADDED, JOB_CHANGED, PAUSED, RESUMED, JOB_REMOVED, OVER, CHAT_RULES_SET, CLOCK)
"""Facts from people, or once in a job's life."""
FIRING_EVENTS = (JOB_REQUESTED, FIRED, SKIPPED, RAN, FIRING_FAILED, NOT_RUN)
"""Facts of each firing."""

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
class JobAllowance:
    """What a job may do: a tool, and what it acts on; an empty `value` stands for the whole tool."""

    tool: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> JobAllowance:
        """Parse `web.fetch:example.org`, or `web.search`."""
        tool, _, value = text.partition(":")
        return cls(tool.strip(), value.strip())


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
        allow: what its turns may do besides: tools, or tools with what they act on.
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
    allow: tuple[str, ...] = ()

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
    parsed["allow"] = tuple(data.get("allow", ()))
    return Job(**{**values, **parsed})


def _actor(data: JsonObject) -> Actor:
    return Actor(**{**data, "roles": tuple(data.get("roles", ()))})


@dataclass(frozen=True, slots=True)
class ManualFiring:
    """A requested firing; `mark` names it instead of an instant. `entry`: the id of its fact."""

    mark: str
    by: Actor
    entry: int = field(default=0, compare=False)


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
        facts: the ids of the facts that added it, changed it last and gave its status; 0: none did.
        provenance: how foreign the words are that it was made of; a change adds its own and takes none away.
    """

    job: Job
    covered: datetime
    status: JobStatus = "on"
    reason: str = ""
    detail: str = ""
    runs: int = 0
    failures: int = 0
    requests: tuple[ManualFiring, ...] = ()
    facts: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)
    provenance: Source = field(default=Source.OWN, compare=False)


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
            data = entry.data
            if entry.name == CHAT_RULES_SET:
                quiet = data.get("quiet")
                chats[data["session"]] = ChatRules(data.get("zone", ""), (quiet[0], quiet[1]) if quiet else None)
            else:
                _apply(jobs, entry)
        return ScheduleState(MappingProxyType(jobs), MappingProxyType(chats))

    def jobs_of(self, session: str) -> list[JobState]:
        """Return the jobs of a session, oldest first."""
        return [job_state for job_state in self.jobs.values() if job_state.job.session == session]


def _apply(jobs: dict[str, JobState], entry: TapeEntry) -> None:
    name, data = entry.name, entry.data
    job_id = data.get("job", "")
    job_state = jobs.get(job_id)
    if name == JOB_ADDED:
        job = job_from(data)
        covered, source = parse_moment(job.since) or _LONG_AGO, source_of(entry)
        jobs.setdefault(job_id, JobState(job, covered, facts=(entry.id, 0, 0), provenance=source))
    elif name == JOB_REMOVED:
        jobs.pop(job_id, None)
    elif job_state is not None:
        jobs[job_id] = _with_facts(_next_state(job_state, entry), entry)


def _with_facts(job_state: JobState, entry: TapeEntry) -> JobState:
    """Record which facts made a job as it is."""
    added, changed, status = job_state.facts
    if entry.name == JOB_CHANGED:
        return replace(job_state, facts=(added, entry.id, 0 if job_state.status == "on" else status))
    if entry.name in (PAUSED, OVER, RESUMED):
        return replace(job_state, facts=(added, changed, 0 if entry.name == RESUMED else entry.id))
    return job_state


def _next_state(job_state: JobState, entry: TapeEntry) -> JobState:
    name, data = entry.name, entry.data
    if name == JOB_CHANGED:
        job = job_from(data)
        covered = parse_moment(job.since) or _LONG_AGO
        updated = replace(job_state, job=job, covered=covered, failures=0, provenance=source_of(entry))
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
        return replace(job_state, requests=(*job_state.requests, _request_from(entry)))
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


def _request_from(entry: TapeEntry) -> ManualFiring:
    data = entry.data
    return ManualFiring(data["mark"], _actor(data["by"]), entry.id)


def _encode_state(state: ScheduleState) -> JsonObject:
    """Build what a checkpoint stores: texts and people are in the entries that it cites."""
    return {
        "jobs": [
            {
                "job": job_state.job.id,
                "facts": list(job_state.facts),
                "covered": timestamp(job_state.covered),
                "status": job_state.status,
                "reason": job_state.reason,
                "runs": job_state.runs,
                "failures": job_state.failures,
                "requests": [request.entry for request in job_state.requests],
            }
            for job_state in state.jobs.values()
        ],
        "chats": [
            {"session": session, "zone": rules.zone, "quiet": list(rules.quiet) if rules.quiet else None}
            for session, rules in state.chats.items()
        ],
    }


def _cited_facts(state: JsonObject) -> list[int]:
    return [entry_id for job in state["jobs"] for entry_id in (*job["facts"], *job["requests"]) if entry_id]


def _decode_state(state: JsonObject, cited: Sequence[TapeEntry]) -> ScheduleState:
    entries = {entry.id: entry for entry in cited}

    def decode(job: JsonObject) -> JobState:
        added, changed, status = job["facts"]
        made = entries[changed or added]  # a change says how foreign all of the job is
        return JobState(
            job_from(made.data),
            _moment(job["covered"]),
            job["status"],
            str(job["reason"]),
            entries[status].data.get("detail", "") if status else "",
            int(job["runs"]),
            int(job["failures"]),
            tuple(_request_from(entries[entry_id]) for entry_id in job["requests"]),
            (added, changed, status),
            source_of(made),
        )

    chats = {
        chat["session"]: ChatRules(str(chat["zone"]), (chat["quiet"][0], chat["quiet"][1]) if chat["quiet"] else None)
        for chat in state["chats"]
    }
    jobs = {job["job"]: decode(job) for job in state["jobs"]}
    return ScheduleState(MappingProxyType(jobs), MappingProxyType(chats))


def _decode_mark(state: JsonObject, lasting: Sequence[TapeEntry]) -> ScheduleState:
    """Apply the counts of an anchor of earlier versions, at its place, to the jobs that the lasting facts tell of."""
    folded = ScheduleState().apply(lasting)
    jobs = dict(folded.jobs)
    for count in state["jobs"]:
        if (job_state := jobs.get(count["job"])) is not None:
            requested = {request["mark"] for request in count["asked"]}
            jobs[count["job"]] = replace(
                job_state,
                covered=max(job_state.covered, _moment(count["covered"])),
                runs=int(count["runs"]),
                failures=int(count["failures"]),
                requests=tuple(request for request in job_state.requests if request.mark in requested),
            )
    unmarked = {job_id for job_id in jobs if job_id not in {count["job"] for count in state["jobs"]}}
    jobs |= {job_id: replace(jobs[job_id], requests=()) for job_id in unmarked}
    return replace(folded, jobs=MappingProxyType(jobs))


def _moment(text: str) -> datetime:
    moment = parse_moment(text)
    if moment is None:
        raise ValueError(f"{text!r} is not a time")
    return moment


SCHEDULE_PROJECTION = Projection[ScheduleState](
    name="schedule",
    version=1,
    tapes="bubbot/schedule",
    events=(*LASTING_EVENTS, *FIRING_EVENTS),
    initial=ScheduleState,
    apply=ScheduleState.apply,
    encode=_encode_state,
    decode=_decode_state,
    cited_ids=_cited_facts,
    interval=SCHEDULE_CHECKPOINT_INTERVAL,
    size=lambda state: len(state.jobs),
    legacy=LegacyAnchor(name="schedule/mark", decode=_decode_mark, lasting=(*LASTING_EVENTS, JOB_REQUESTED)),
)
"""All jobs and the rules of chats."""


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
        own = [entry for entry in answers[0] if not entry.erased and entry.data.get("job") == self.job]
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
            data = entry.data
            if entry.name == RECEIPT and data:
                sent[data["intent"]] = sent.get(data["intent"], 0) + 1
            elif data:
                ended[data["intent"]] = data["reason"]
        states = {}
        for entry in answers[0]:
            data = entry.data
            if not data:
                continue
            if entry.id in ended:
                states[data["turn"]] = DeliveryState("undelivered", ended[entry.id])
            else:
                is_complete = sent.get(entry.id, 0) >= len(data["parts"])
                states[data["turn"]] = DeliveryState("delivered" if is_complete else "waiting")
        return states
