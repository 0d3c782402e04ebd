"""Jobs and their states, from the facts on the tape of schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import singledispatchmethod
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replace_fields

from bubbot.features.schedule.facts import (
    FACTS,
    LASTING_FACTS,
    SCHEDULE_TAPE,
    ChatRules,
    ClockSetBack,
    FiringFailed,
    FiringRan,
    FiringRefused,
    FiringRequested,
    FiringsSkipped,
    Job,
    JobChanged,
    JobFired,
    JobOver,
    JobPaused,
    JobRemoved,
    JobResumed,
)
from bubbot.gateway.outbox_views import DELIVERY_ABANDONED as UNDELIVERED
from bubbot.ports.outbox import INTENT, RECEIPT
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.fact import Cited, Current, FactState, models_of
from bubbot.tape.projection import LegacyAnchor, checkpoint_model, project_facts
from bubbot.tape.provenance import Source
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

SCHEDULE_CHECKPOINT_INTERVAL = 500
"""Facts between two checkpoints; a start reads about as many."""

JobStatus: TypeAlias = Literal["on", "paused", "over"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class JobState(Struct, array_like=True, frozen=True):
    """The state of a job.

    Attributes:
        added: the fact that added it.
        covered: everything up to this instant was fired or skipped.
        changed: the fact that changed it last; None if none did.
        stopped: the fact that paused or ended it; None if it is on.
        runs: the number of firings.
        failures: failed firings in a row.
        requests: firings that people requested for now.
    """

    added: Cited[Job]
    covered: datetime
    changed: Cited[JobChanged] | None = None
    stopped: Cited[JobPaused | JobOver] | None = None
    runs: int = 0
    failures: int = 0
    requests: tuple[Cited[FiringRequested], ...] = ()

    @property
    def job(self) -> Job:
        """The job as it is now."""
        return (self.changed or self.added).fact

    @property
    def provenance(self) -> Source:
        """How foreign the words are that it was made of; a change adds its own and takes none away."""
        return (self.changed or self.added).source

    @property
    def status(self) -> JobStatus:
        """On, paused or over."""
        if self.stopped is None:
            return "on"
        return "over" if isinstance(self.stopped.fact, JobOver) else "paused"

    @property
    def reason(self) -> str:
        """The name of a sentence that explains the status; empty if it is on."""
        return self.stopped.fact.reason if self.stopped else ""

    @property
    def detail(self) -> str:
        """A value for that sentence."""
        return (self.stopped.fact.detail or "") if self.stopped else ""


class ScheduleState(FactState):
    """Every job by its id, and the rules of chats by session."""

    FACTS: ClassVar = FACTS
    jobs: dict[str, JobState] = msgspec.field(default_factory=dict)
    chats: Current[ChatRules] = msgspec.field(default_factory=Current)

    def with_facts(self, entries: Sequence[TapeEntry]) -> ScheduleState:
        """Return another state with these facts added, in the order of the tape; this one stays."""
        return ScheduleState(dict(self.jobs), Current(self.chats)).apply(entries)

    def jobs_of(self, session: str) -> list[JobState]:
        """Return the jobs of a session, oldest first."""
        return [job_state for job_state in self.jobs.values() if job_state.job.session == session]

    def rules_of(self, session: str) -> ChatRules:
        """Return the rules of a chat; empty ones if none were set."""
        found = self.chats.find(session)
        return found.fact if found else ChatRules(session)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: Job, cited: Cited[Any], /) -> None:
        self.jobs.setdefault(fact.id, JobState(cited, _moment(fact.since)))

    @fold.register
    def _(self, fact: JobChanged, cited: Cited[Any], /) -> None:
        if (before := self.jobs.get(fact.id)) is None:
            return
        is_paused_by_person = before.status == "paused" and before.reason == "reason_asked"
        stopped = before.stopped if is_paused_by_person else None
        self._change(fact.id, changed=cited, stopped=stopped, covered=_moment(fact.since), failures=0)

    @fold.register
    def _(self, fact: JobPaused | JobOver, cited: Cited[Any], /) -> None:
        self._change(fact.job, stopped=cited)

    @fold.register
    def _(self, fact: JobResumed, _cited: Cited[Any], /) -> None:
        self._change(fact.job, stopped=None, failures=0)
        self._cover(fact.job, fact.since)

    @fold.register
    def _(self, fact: JobRemoved, _cited: Cited[Any], /) -> None:
        self.jobs.pop(fact.job, None)

    @fold.register
    def _(self, _fact: ChatRules, cited: Cited[Any], /) -> None:
        self.chats.put(cited)

    @fold.register
    def _(self, fact: ClockSetBack, _cited: Cited[Any], /) -> None:
        # The clock was ahead: the keys of the firings remember what was fired then.
        if since := parse_moment(fact.since):
            self._change(fact.job, covered=since)

    @fold.register
    def _(self, fact: FiringRequested, cited: Cited[Any], /) -> None:
        if before := self.jobs.get(fact.job):
            self._change(fact.job, requests=(*before.requests, cited))

    @fold.register
    def _(self, fact: JobFired, _cited: Cited[Any], /) -> None:
        if (before := self.jobs.get(fact.job)) is None:
            return
        if "!" in fact.mark:
            self._change(fact.job, requests=tuple(each for each in before.requests if each.fact.mark != fact.mark))
        elif _moment(fact.mark) > before.covered:  # the same fact twice is one
            self._change(fact.job, covered=_moment(fact.mark), runs=before.runs + 1)

    @fold.register
    def _(self, fact: FiringsSkipped, _cited: Cited[Any], /) -> None:
        self._cover(fact.job, fact.last)

    @fold.register
    def _(self, fact: FiringRan, _cited: Cited[Any], /) -> None:
        self._change(fact.job, failures=0)

    @fold.register
    def _(self, fact: FiringFailed, _cited: Cited[Any], /) -> None:
        self._change(fact.job, failures=fact.count)

    @fold.register
    def _(self, fact: FiringRefused, _cited: Cited[Any], /) -> None:
        pass

    def _change(self, job_id: str, **fields: Any) -> None:
        """Change a job; one that was removed stays so."""
        if before := self.jobs.get(job_id):
            self.jobs[job_id] = replace_fields(before, **fields)

    def _cover(self, job_id: str, until: str) -> None:
        if before := self.jobs.get(job_id):
            self.jobs[job_id] = replace_fields(before, covered=max(before.covered, _moment(until)))


def _moment(text: str) -> datetime:
    return parse_moment(text) or _LONG_AGO


def _decode_mark(saved: JsonObject, lasting: Sequence[TapeEntry]) -> ScheduleState:
    """Apply the counts of an anchor of earlier versions, at its place, to the jobs that the lasting facts tell of."""
    state, counts = ScheduleState().apply(lasting), {count["job"]: count for count in saved["jobs"]}
    for job_id, before in state.jobs.items():
        if (count := counts.get(job_id)) is None:
            state.jobs[job_id] = replace_fields(before, requests=())
            continue
        requested = {request["mark"] for request in count["asked"]}
        state.jobs[job_id] = replace_fields(
            before,
            covered=max(before.covered, datetime.fromisoformat(count["covered"])),
            runs=int(count["runs"]),
            failures=int(count["failures"]),
            requests=tuple(each for each in before.requests if each.fact.mark in requested),
        )
    return state


SCHEDULE_PROJECTION = replace(
    project_facts(
        ScheduleState, name="schedule", version=2, tapes=SCHEDULE_TAPE, interval=SCHEDULE_CHECKPOINT_INTERVAL
    ),
    size=lambda state: len(state.jobs),
    legacy=LegacyAnchor(
        name="schedule/mark",
        decode=_decode_mark,
        lasting=(*models_of(*LASTING_FACTS), *FiringRequested.EVENTS),
    ),
)
"""All jobs and the rules of chats. Version 1 kept the status of a job and the rules of chats beside the ids of their facts."""

CHECKPOINTS = {SCHEDULE_PROJECTION.checkpoint_name: checkpoint_model(ScheduleState)}


class JobHistoryView(Struct, frozen=True):
    """The newest facts about one job, oldest first, among the newest `reach` of all."""

    job: str
    limit: int = 20
    reach: int = 5_000
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the end of the tape."""
        names = SCHEDULE_PROJECTION.events
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=self.reach),)

    def fold(self, answers: QueryAnswers) -> tuple[TapeEntry, ...]:
        """Return the facts unchanged."""
        own = [entry for entry in answers[0] if not entry.erased and entry.data.get("job") == self.job]
        return tuple(reversed(own[: self.limit]))


class DeliveryState(Struct, frozen=True):
    """The outcome of a turn's message: `nothing` was sent, or the state of its delivery."""

    state: Literal["nothing", "waiting", "delivered", "undelivered"]
    reason: str = ""


class DeliveriesView(Struct, frozen=True):
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
