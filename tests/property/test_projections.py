"""Every projection: whatever happened to it, its state is the fold of its tape from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.features.budget.state import BUDGET_PROJECTION, RATES_PROJECTION
from bubbot.features.schedule.facts import (
    Actor,
    ChatRef,
    ChatRules,
    ClockSetBack,
    FiringFailed,
    FiringRan,
    FiringRequested,
    FiringsSkipped,
    JobChanged,
    JobFired,
    JobOver,
    JobPaused,
    JobRemoved,
    JobResumed,
)
from bubbot.features.schedule.state import SCHEDULE_PROJECTION
from bubbot.features.tasks.facts import NodeChanged, RunChanged, RunQueued, Status, VerdictCounts
from bubbot.features.tasks.state import TASKS_PROJECTION
from bubbot.gateway.inbox_views import INBOX_PROJECTION, MIGRATIONS_PROJECTION
from bubbot.gateway.outbox_views import OUTBOX_PROJECTION
from bubbot.ports.inbox import done_entry, interrupted_entry
from bubbot.ports.usage import BudgetSubject
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, TapeEntry, event, thaw, timestamp
from bubbot.tape.projection import ProjectedTape, Projection
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ResetBatch
from tests.budgets import reserved as make_reservation
from tests.docs.pages import ROOT
from tests.doubles import CountingIds
from tests.schedules import make_job
from tests.tapes import whole

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

Make = Callable[[int, int, int, "History"], TapeEntry]
"""Makes a fact out of three numbers and what is on the tape."""
STEPS = st.lists(
    st.one_of(
        *[st.tuples(st.just("fact"), st.integers(0, 9), st.integers(0, 5), st.integers(0, 5))] * 6,
        st.tuples(st.just("clock"), st.integers(-60, 60), st.just(0), st.just(0)),
        *[
            st.tuples(st.just(word), st.integers(0, 5), st.just(0), st.just(0))
            for word in ("follow", "late", "catch up", "checkpoint", "crash", "erase", "newer", "damaged", "mark")
        ],
    ),
    max_size=40,
)


@dataclass
class History:
    """A tape of one projection, and a process that follows it."""

    projection: Projection[Any]
    store: InMemoryStore = field(default_factory=InMemoryStore)
    moment: datetime = NOON
    entries: list[TapeEntry] = field(default_factory=list)
    unseen: list[TapeEntry] = field(default_factory=list)
    erased: bool = False

    def __post_init__(self) -> None:
        name = self.projection.tapes
        self.name = f"{name}test" if name.endswith("/") else name
        self.tape = TapeService(self.store, self.name, now=lambda: self.moment, new_id=CountingIds())
        self.live = ProjectedTape(self.projection, self.tape)

    def pick(self, number: int, *names: str) -> TapeEntry | None:
        """One of the facts of these names."""
        found = [entry for entry in self.entries if entry.name in names]
        return found[number % len(found)] if found else None

    async def append(self, *entries: TapeEntry) -> None:
        stored = await self.tape.append(entries)
        self.entries += stored
        self.unseen += stored

    async def fold(self) -> Any:
        """The state from the beginning, without any checkpoint."""
        facts = [entry for entry in await whole(self.store, self.name) if self.projection.selects(entry)]
        return self.projection.apply(self.projection.initial(), facts)

    async def erase(self, ids: Sequence[int]) -> None:
        fact = [event("tape/erased", {"archive": "s@1", "entries": 0})]
        self.erased = True
        archive = f"s@{len(await self.store.tapes())}"
        await self.store.append([Batch("s", (event("x"),))])
        await self.store.reset("s", ResetBatch(archive, erase=True, erase_also=((self.name, tuple(ids)),)), fact)
        self.entries = [entry for entry in self.entries if entry.id not in ids]


@dataclass(frozen=True)
class Case:
    """What histories of a projection are made of.

    Attributes:
        make: makes a fact.
        erased_with: returns the facts that are erased together with one.
        mark: builds the anchor that an earlier version wrote of a state; None: it wrote none.
        small: limits to make smaller, so that they are met.
    """

    projection: Projection[Any]
    make: Make
    erased_with: Callable[[History, int], list[int]] = lambda _history, _number: []
    mark: Callable[[Any], JsonObject] | None = None
    small: tuple[tuple[str, int], ...] = ()


def _inbox(kind: int, a: int, b: int, history: History) -> TapeEntry:
    if kind < 4:
        return event("inbox/received" if a < 4 else "inbox/changed", {"text": "words"})
    one, two = (history.pick(number, "inbox/received", "inbox/changed") for number in (a, a + b))
    ids = [entry.id for entry in (one, two) if entry is not None]
    return done_entry(ids, turn="t", outcome="answered") if kind < 7 else interrupted_entry(ids, turn=f"t{b}")


def _moves(kind: int, a: int, b: int, history: History) -> TapeEntry:
    return event("inbox/moved", {"chat": str(a), "to": str(b), "time": ""})


def _outbox(kind: int, a: int, b: int, history: History) -> TapeEntry:
    intent = history.pick(a, "outbox/intent")
    if kind < 3 or intent is None:
        return event("outbox/intent", {"session": "s", "turn": "t", "parts": [{"text": "words"}] * b})
    if kind < 8:
        return event("outbox/receipt", {"intent": intent.id, "part": b % 3, "external_id": "x"})
    return event("outbox/ended", {"intent": intent.id, "reason": "gone"})


def _schedule(kind: int, a: int, b: int, history: History) -> TapeEntry:
    at, by, job_id = timestamp(NOON + timedelta(hours=b)), Actor("c", "7", "Ann"), f"j{a % 3}"
    job = make_job("in 5m", id=job_id, place=ChatRef("c", str(a % 3)), by=by, text=f"words {b}", since=at)
    requested = history.pick(b, "schedule/asked")
    match kind:
        case 0 | 1:
            return job.to_entry()
        case 2:
            return job.to_entry(*JobChanged.EVENTS)
        case 3:
            reason = "reason_asked" if b % 2 else "reason_failing"
            return (JobPaused(job_id, by, reason) if a < 3 else JobOver(job_id, reason, str(b))).to_entry()
        case 4:
            return (JobResumed(job_id, by, at) if b else JobRemoved(job_id, by)).to_entry()
        case 5:
            return ClockSetBack(job_id, at, at).to_entry()
        case 6:
            return FiringRequested(job_id, f"{at}!{len(history.entries)}", by).to_entry()
        case 7:
            fired = requested.payload["data"] if requested and a % 2 else {"job": job_id, "mark": at}
            return JobFired(fired["job"], fired["mark"]).to_entry()
        case 8:
            return ChatRules(f"c:{a}", "UTC", (b, 60) if b else (), by).to_entry()
    if b < 3:
        return FiringFailed(job_id, at, "t", "words", b).to_entry()
    return (FiringsSkipped(job_id, at, at, "x") if b == 3 else FiringRan(job_id, at, "t", "answered")).to_entry()


def _schedule_mark(state: Any) -> JsonObject:
    def asked(job: Any) -> list[JsonObject]:
        by = {"channel": "c", "id": "7", "name": "Ann", "roles": []}
        return [{"mark": request.fact.mark, "by": by} for request in job.requests]

    return {
        "jobs": [
            {
                "job": job.job.id,
                "covered": timestamp(job.covered),
                "runs": job.runs,
                "failures": job.failures,
                "asked": asked(job),
            }
            for job in state.jobs.values()
        ]
    }


def _access(kind: int, a: int, b: int, history: History) -> TapeEntry:
    account = {"channel": f"c{a % 2}", "id": str(b)}
    code = history.pick(a, "access/code")
    match kind:
        case 0 | 1 | 2:
            role = ("member", "admin", "owner", "judge")[a % 4]
            return event("access/granted", {**account, "role": role, "by": "terminal", "how": "command", "name": "Ann"})
        case 3:
            return event("access/revoked", {**account, "by": "terminal"})
        case 4 | 5 | 6:
            late = timestamp(history.moment + timedelta(hours=1))
            data = {**account, "chat": "1", "name": "Ann", "salt": "00", "digest": f"{b:02x}", "expires": late}
            return event("access/code", data)
        case 7 if code is not None:
            return event("access/code_used", {"code": code.id, "by": "terminal"})
    if b % 2:
        name = "access/reading_granted" if a % 3 else "access/reading_revoked"
        return event(name, {"source": f"c:{a % 2}", "reader": f"c:{b % 3}", "by": "terminal"})
    return event("access/code_refused", {"by": f"c:{a % 2}", "reason": "unknown"})


def _budget(kind: int, a: int, b: int, history: History) -> TapeEntry:
    day = history.moment.strftime("%Y-%m-%d")
    payer = BudgetSubject(f"c:{a}", f"c:{b}", turn=f"t{a}")
    hold = make_reservation(f"k{len(history.entries)}", payer, day=day, input_tokens=a, output_tokens=b, nano=7)
    reserved = history.pick(a, "budget/reserved")
    if kind < 3:
        return event("budget/reserved", hold.payload())
    if kind < 8:
        data: JsonObject = thaw(reserved.payload["data"]) if reserved and b % 2 else hold.payload()
        error = {"error": {"kind": "x", "at": timestamp(history.moment), "status": None}} if a == 1 else {}
        status = "failed" if error else "answered"
        return event("budget/settled", {**data, "cached_tokens": 0, "status": status, "asked": str(b), **error})
    if kind == 8 and b % 2:
        return event("budget/outage", {"model": f"m{a}", "since": timestamp(history.moment)})
    if kind == 8:
        return event("budget/unpriced", {"model": f"m{a}"})
    return event("budget/warned", {"scope": "bot", "name": "", "period": day, "measure": "cost", "percent": 90})


NODE_STATES: tuple[Status, ...] = ("running", "running", "waiting", "succeeded", "failed", "queued")
RUN_STATES: tuple[Status, ...] = ("running", "waiting", "blocked", "succeeded", "failed", "cancelled")


def _tasks(kind: int, a: int, b: int, history: History) -> TapeEntry:
    run, node = f"R{a % 3}", "xy"[b % 2]
    until = timestamp(history.moment + timedelta(hours=1))
    if kind < 2:
        kept = (("x", "R9", b),) if kind else ()
        person = "c:1", "c", "7", "Ann", ("words",), True, "", ("x", "y"), True
        return RunQueued(run, "trip", *person, f"m{b}", source="R9" if kept else UNSET, kept=kept).to_entry()
    if kind < 7:
        status = NODE_STATES[b]
        more: dict[Status, Any] = {
            "running": {"fork": f"f{b}"},
            "waiting": {"until": until, "approval": "AAAAA", "digest": "d"},
            "failed": {"detail": "words", "reason": "task_defect", "tokens": b, "seconds": 0.5},
        }
        return NodeChanged(run=run, node=node, status=status, attempt=kind, **more.get(status, {})).to_entry()
    verdicts = VerdictCounts(b, 0, a) if kind == 8 else UNSET
    return RunChanged(run=run, status=RUN_STATES[b], verdicts=verdicts).to_entry()


def _all_of_a_chat(history: History, number: int) -> list[int]:
    """The texts of a chat's jobs, as a reset of its session erases them."""
    texts = ("schedule/added", "schedule/changed")
    return [
        entry.id
        for entry in history.entries
        if entry.name in texts and entry.payload["data"]["session"] == f"c:{number % 3}"
    ]


def _one_of(*names: str) -> Callable[[History, int], list[int]]:
    def choose(history: History, number: int) -> list[int]:
        entry = history.pick(number, *names)
        return [entry.id] if entry is not None else []

    return choose


def _as_stored(projection: Projection[Any]) -> Callable[[Any], JsonObject]:
    return projection.encode


CASES = [
    Case(
        TASKS_PROJECTION,
        _tasks,
        _one_of("task/queued"),
        small=(("bubbot.features.tasks.state.MAX_ENDED_RUNS", 1),),
    ),
    Case(INBOX_PROJECTION, _inbox, _one_of("inbox/received", "inbox/changed"), _as_stored(INBOX_PROJECTION)),
    Case(MIGRATIONS_PROJECTION, _moves),
    Case(OUTBOX_PROJECTION, _outbox, _one_of("outbox/intent"), _as_stored(OUTBOX_PROJECTION)),
    Case(SCHEDULE_PROJECTION, _schedule, _all_of_a_chat, _schedule_mark),
    Case(
        ACCESS_PROJECTION,
        _access,
        small=(
            ("bubbot.features.access.state.MAX_STORED_CODES_PER_CHANNEL", 2),
            ("bubbot.features.access.state.MAX_STORED_REFUSALS_PER_GIVER", 2),
        ),
    ),
    Case(BUDGET_PROJECTION, _budget, _one_of("budget/reserved", "budget/warned")),
    Case(
        RATES_PROJECTION,
        _budget,
        small=(
            ("bubbot.features.budget.state.MIN_RECENT_TURNS", 2),
            ("bubbot.features.budget.state.MAX_RECENT_TURNS", 4),
        ),
    ),
]


async def _step(case: Case, history: History, step: tuple[str, int, int, int]) -> None:
    word, first, second, third = step
    projection, live = history.projection, history.live
    match word:
        case "fact":
            await history.append(case.make(first, second, third, history))
        case "clock":
            history.moment += timedelta(hours=first)
        case "follow":
            await live.follow(history.unseen)
            history.unseen.clear()
        case "late":  # some are never handed over, as if a crash or another process had been in between
            await live.follow(history.unseen[first:])
            history.unseen.clear()
        case "catch up":
            await live.catch_up()
        case "checkpoint":
            await live.write_checkpoint(force=True)
        case "crash":
            history.live = ProjectedTape(projection, history.tape)
            if first % 2:
                await history.live.load()
        case "erase":
            if ids := case.erased_with(history, first):
                await history.erase(ids)
        case "newer":
            data = {"version": projection.version + 1, "after": 0, "state": {"unknown": True}}
            await history.append(event(projection.checkpoint_name, data))
        case "damaged":
            data = {"version": projection.version, "after": 0, "state": {"open": "?"}}
            await history.append(event(projection.checkpoint_name, data if first % 2 else {}))
        case _ if case.mark is not None and projection.legacy is not None:
            state = {**case.mark(await history.fold()), "after": await history.tape.head()}
            await history.append(anchor(projection.legacy.name, state, window=False))


async def _check(history: History) -> None:
    projection = history.projection
    scratch = await history.fold()
    loaded = await ProjectedTape(projection, history.tape).load()
    assert loaded == scratch
    assert projection.encode(loaded) == projection.encode(scratch)
    if not history.erased:  # else it knows what was erased until it writes a checkpoint or loads again
        assert await history.live.catch_up() == scratch
    await history.live.write_checkpoint(force=True)
    assert history.live.state == scratch
    assert await ProjectedTape(projection, history.tape).load() == scratch


async def _story(case: Case, steps: list[tuple[str, int, int, int]]) -> None:
    history = History(case.projection)
    for step in steps:
        await _step(case, history, step)
    await _check(history)


@pytest.mark.law("T8", "T17")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.projection.name)
def test_a_state_is_the_fold_of_its_tape_whatever_happened(case: Case) -> None:
    @given(STEPS)
    def story(steps: list[tuple[str, int, int, int]]) -> None:
        patches = [patch(name, value) for name, value in case.small]
        for one in patches:
            one.start()
        try:
            asyncio.run(_story(case, steps))
        finally:
            for one in patches:
                one.stop()

    story()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.projection.name)
def test_a_fold_does_not_depend_on_how_many_facts_come_at_once(case: Case) -> None:
    @given(STEPS, st.integers(1, 4))
    def story(steps: list[tuple[str, int, int, int]], size: int) -> None:
        async def facts() -> list[TapeEntry]:
            history = History(case.projection)
            for step in steps:
                if step[0] in ("fact", "clock"):
                    await _step(case, history, step)
            return list(history.entries)

        entries = [entry for entry in asyncio.run(facts()) if case.projection.selects(entry)]
        state = case.projection.initial()
        for start in range(0, len(entries), size):
            state = case.projection.apply(state, entries[start : start + size])
        assert state == case.projection.apply(case.projection.initial(), entries)

    story()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.projection.name)
def test_a_checkpoint_holds_no_words_of_people(case: Case) -> None:
    @given(STEPS)
    def story(steps: list[tuple[str, int, int, int]]) -> None:
        async def state() -> JsonObject:
            history = History(case.projection)
            for step in steps:
                if step[0] == "fact":
                    await _step(case, history, step)
            return case.projection.encode(await history.fold())

        texts = list(_texts(thaw(asyncio.run(state()))))
        assert not [text for text in texts if "words" in text or text in ("Ann", "gone")]

    story()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.projection.name)
def test_a_checkpoint_is_in_the_reference(case: Case) -> None:
    page = (ROOT / "docs" / "reference" / "tape-format.md").read_text(encoding="utf-8")
    assert f"| `{case.projection.checkpoint_name}` |" in page
