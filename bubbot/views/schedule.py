"""Jobs, and how they stand, by the facts on the tape of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from bubbot.ports.channel import HasChat
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery, moment
from bubbot.tape.view import Found
from bubbot.views.outbox import DELIVERY_ABANDONED as UNDELIVERED
from bubbot.views.outbox import INTENT, RECEIPT

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

LASTING = (JOB_ADDED, JOB_CHANGED, PAUSED, RESUMED, JOB_REMOVED, OVER, CHAT_RULES_SET, CLOCK)
"""What is said of a job by people, or once in its life: read whole at every start."""
PASSING = (JOB_REQUESTED, FIRED, SKIPPED, RAN, FIRING_FAILED, NOT_RUN)
"""What happens at each firing: read from the newest mark on."""

Do: TypeAlias = Literal["prompt", "command", "text"]
CatchUp: TypeAlias = Literal["skip", "once", "all"]
Status: TypeAlias = Literal["on", "paused", "over"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who made or changed something: an account on a channel. `roles` as the platform gave them then."""

    channel: str
    id: str
    name: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRef(HasChat):
    """A chat. `direct` and `space` as of an inbound there."""

    channel: str
    chat: str
    thread: str = ""
    direct: bool = True
    space: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What is done when, for whom. `when` as `parse_when` keeps it; `since`: what counts from then on, ISO 8601.

    `catch_up` says what becomes of firings that were missed, at most `catch_limit` of them; `jitter` and `budget` in
    seconds (0: none); `until` ISO 8601; `most`: how often it runs at most (0: no limit). `urgent`: also in quiet hours.
    `nested`: its turns may schedule. `to`: where it says something instead, as granted by `granted`.
    """

    id: str
    place: ChatRef
    by: Actor
    do: Do
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
        """Where it says something."""
        return self.to or self.place


def job_data(job: Job) -> JsonObject:
    """A job as the data of its event."""
    data: dict[str, Any] = asdict(job)
    return {"job": data.pop("id"), "session": job.session, **data}


def job_from(data: JsonObject) -> Job:
    """The job of an event's data; what this version does not know is left out."""
    known = {one.name for one in fields(Job)}
    kept = {name: value for name, value in data.items() if name in known}
    made = {"place": ChatRef(**data["place"]), "by": _maker(data["by"]), "id": data["job"]}
    if data.get("to"):
        made |= {"to": ChatRef(**data["to"]), "granted": _maker(data["granted"])}
    return Job(**{**kept, **made})


def _maker(data: JsonObject) -> Actor:
    return Actor(**{**data, "roles": tuple(data.get("roles", ()))})


@dataclass(frozen=True, slots=True)
class ManualFiring:
    """A firing that somebody asked for; `mark` names it in place of an instant."""

    mark: str
    by: Actor


@dataclass(frozen=True, slots=True)
class JobState:
    """A job and how it stands: everything up to `covered` has been fired or passed over. `runs` counts firings,
    `failures` those in a row that failed; `asked` are firings that people want now. `reason` is the name of a sentence, `detail` what goes into it."""

    job: Job
    covered: datetime
    status: Status = "on"
    reason: str = ""
    detail: str = ""
    runs: int = 0
    failures: int = 0
    asked: tuple[ManualFiring, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRules:
    """What a chat has decided: its zone (empty: the deployment's), and its quiet hours as minutes of the day."""

    zone: str = ""
    quiet: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """Every job by its id, and the rules of chats by session."""

    jobs: Mapping[str, JobState] = field(default_factory=lambda: MappingProxyType({}))
    chats: Mapping[str, ChatRules] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, entries: Iterable[TapeEntry]) -> ScheduleState:
        """With these facts added, in the order of the tape."""
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

    def counted(self, counts: Iterable[JsonObject]) -> ScheduleState:
        """With what a mark says of each job."""
        jobs = dict(self.jobs)
        for one in counts:
            if (found := jobs.get(one["job"])) is not None:
                covered = max(found.covered, moment(one["covered"]) or _LONG_AGO)
                asked = tuple(ManualFiring(item["mark"], _maker(item["by"])) for item in one["asked"])
                jobs[one["job"]] = replace(
                    found, covered=covered, runs=one["runs"], failures=one["failures"], asked=asked
                )
        return replace(self, jobs=MappingProxyType(jobs))

    def of(self, session: str) -> list[JobState]:
        """The jobs of a session, oldest first."""
        return [one for one in self.jobs.values() if one.job.session == session]


def _apply(jobs: dict[str, JobState], name: str, data: JsonObject) -> None:
    job_id = data.get("job", "")
    known = jobs.get(job_id)
    if name == JOB_ADDED:
        job = job_from(data)
        jobs.setdefault(job_id, JobState(job, moment(job.since) or _LONG_AGO))
    elif name == JOB_REMOVED:
        jobs.pop(job_id, None)
    elif known is not None:
        jobs[job_id] = _changed(known, name, data)


def _changed(known: JobState, name: str, data: JsonObject) -> JobState:
    if name == JOB_CHANGED:
        job = job_from(data)
        covered = moment(job.since) or _LONG_AGO
        made = replace(known, job=job, covered=covered, failures=0)
        asked = known.status == "paused" and known.reason == "reason_asked"
        return made if asked else replace(made, status="on", reason="", detail="")
    if name == PAUSED:
        return replace(known, status="paused", reason=data["reason"], detail=data.get("detail", ""))
    if name == RESUMED:
        since = moment(data["since"]) or known.covered
        return replace(known, status="on", reason="", detail="", failures=0, covered=max(known.covered, since))
    if name == CLOCK:  # the clock was ahead: what it did then is kept by the keys of the firings
        return replace(known, covered=moment(data["since"]) or known.covered)
    if name == OVER:
        return replace(known, status="over", reason=data["reason"], detail=data.get("detail", ""))
    if name == JOB_REQUESTED:
        return replace(known, asked=(*known.asked, ManualFiring(data["mark"], _maker(data["by"]))))
    if name == FIRED:
        if "!" in data["mark"]:
            return replace(known, asked=tuple(one for one in known.asked if one.mark != data["mark"]))
        instant = moment(data["mark"]) or _LONG_AGO
        fresh = instant > known.covered  # the same fact twice is one
        return replace(known, covered=max(known.covered, instant), runs=known.runs + fresh)
    if name == SKIPPED:
        return replace(known, covered=max(known.covered, moment(data["last"]) or _LONG_AGO))
    if name == FIRING_FAILED:
        return replace(known, failures=int(data["count"]))
    return replace(known, failures=0) if name == RAN else known


@dataclass(frozen=True, slots=True)
class ScheduleCheckpointView:
    """The newest mark: up to which entry it counts, and what it says of each job."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """One indexed look-up."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(SCHEDULE_CHECKPOINT,), newest=True, limit=1),)

    def fold(self, found: Found) -> tuple[int, tuple[JsonObject, ...]]:
        """Nothing is counted on a tape without one."""
        if not found[0]:
            return 0, ()
        state = found[0][0].payload["state"]
        return state["after"], state["jobs"]


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """Every job as it stands. `after` and `counts` are those of the newest mark."""

    after: int = 0
    counts: tuple[JsonObject, ...] = ()
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """What lasts, from the beginning; what passes, since the mark."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=LASTING),
            TapeQuery(tape, IdRanges(((self.after + 1, None),)), kinds=(Kind.EVENT,), names=PASSING),
        )

    def fold(self, found: Found) -> ScheduleState:
        """Both in the order of the tape, with the counts where the mark stands."""
        before = [entry for entry in found[0] if entry.id <= self.after]
        since = sorted((entry for entry in chain(*found) if entry.id > self.after), key=lambda entry: entry.id)
        return ScheduleState().after(before).counted(self.counts).after(since)


@dataclass(frozen=True, slots=True)
class JobHistoryView:
    """The newest facts about one job, oldest first, among the newest `reach` of all."""

    job: str
    limit: int = 20
    reach: int = 5_000
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The end of the tape."""
        names = (*LASTING, *PASSING)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.reach),)

    def fold(self, found: Found) -> tuple[TapeEntry, ...]:
        """The facts as they are."""
        own = [entry for entry in found[0] if not entry.erased and entry.payload["data"].get("job") == self.job]
        return tuple(reversed(own[: self.limit]))


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """What became of what a turn said: `said` nothing, or where its delivery stands."""

    state: Literal["nothing", "waiting", "delivered", "undelivered"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeliveriesView:
    """What became of what these turns said; asked of an outbox tape, among its newest entries."""

    turns: Sequence[str]
    reach: int = 5_000
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The intents by their keys, and the newest receipts."""
        keys = tuple(f"{turn}:0" for turn in self.turns) or ("none",)
        names = (RECEIPT, UNDELIVERED)
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(INTENT,), keys=keys),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.reach),
        )

    def fold(self, found: Found) -> Mapping[str, DeliveryState]:
        """By turn."""
        sent: dict[int, int] = {}
        ended: dict[int, str] = {}
        for entry in found[1]:
            data = entry.payload["data"] if not entry.erased else {}
            if entry.name == RECEIPT and data:
                sent[data["intent"]] = sent.get(data["intent"], 0) + 1
            elif data:
                ended[data["intent"]] = data["reason"]
        made = {}
        for entry in found[0]:
            data = {} if entry.erased else entry.payload["data"]
            if not data:
                continue
            if entry.id in ended:
                made[data["turn"]] = DeliveryState("undelivered", ended[entry.id])
            else:
                whole = sent.get(entry.id, 0) >= len(data["parts"])
                made[data["turn"]] = DeliveryState("delivered" if whole else "waiting")
        return made
