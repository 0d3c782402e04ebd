"""Jobs out of facts: what each fact changes, and what is read of deliveries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.features.schedule.facts import (
    BOT,
    Actor,
    ChatRef,
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
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import DeliveriesView, DeliveryState, JobHistoryView, JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.ports.access import Allowance
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry, event, timestamp
from bubbot.tape.fact import Fact
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds
from tests.schedules import fold, make_job

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN = Actor("test", "1", "Ann", ("staff",))
JOB = make_job(by=ANN, since=timestamp(NOON))
ASKED = [FiringRequested("j", f"2026-11-22T12:3{number}:00Z!{number}", ANN) for number in range(2)]


def hour(number: int) -> datetime:
    return NOON + timedelta(hours=number)


def mark(number: int) -> str:
    return f"{hour(number):%Y-%m-%dT%H:%M:%SZ}"


BEGIN: list[Fact] = [
    JOB,
    JobFired("j", mark(1)),
    JobFired("j", mark(2)),
    FiringFailed("j", mark(2), "t", "r", 1),
    *ASKED,
]
FAILING, REQUESTED = JobPaused("j", BOT, "reason_failing", "x"), JobPaused("j", ANN, "reason_asked")


def brief(state: JobState | None) -> dict[str, Any]:
    """What may change of a job, without what is as in the beginning."""
    begin = {"covered": 2, "status": "on", "reason": "", "detail": "", "runs": 2, "failures": 1, "requests": [0, 1]}
    if state is None:
        return {}
    now = {name: getattr(state, name) for name in begin} | {
        "covered": int((state.covered - NOON).total_seconds() // 3600),
        "requests": [int(each.fact.mark[-1]) for each in state.requests],
    }
    return {name: value for name, value in now.items() if value != begin[name]}


@pytest.mark.parametrize(
    ("facts", "changed"),
    [
        ([JobFired("j", mark(3))], {"covered": 3, "runs": 3}),
        ([JobFired("j", mark(2))], {}),  # the same once more
        ([JobFired("j", mark(-1))], {}),
        ([JobFired("j", ASKED[0].mark)], {"requests": [1]}),
        ([JobFired("j", f"{mark(3)}!9")], {}),
        ([FiringsSkipped("j", mark(3), mark(4), "r")], {"covered": 4}),
        ([FiringsSkipped("j", mark(-2), mark(-1), "r")], {}),
        ([FiringFailed("j", mark(3), "t", "r", 4)], {"failures": 4}),
        ([FiringRan("j", mark(3), "t", "answered")], {"failures": 0}),
        ([FiringRefused(job="j", mark=mark(3), reason="x")], {}),
        ([FAILING], {"status": "paused", "reason": "reason_failing", "detail": "x"}),
        ([REQUESTED], {"status": "paused", "reason": "reason_asked"}),
        ([JobOver("j", "r", "d")], {"status": "over", "reason": "r", "detail": "d"}),
        ([JobOver("j", "r")], {"status": "over", "reason": "r"}),
        ([FAILING, JobResumed("j", ANN, mark(3))], {"failures": 0, "covered": 3}),
        ([FAILING, JobResumed("j", ANN, mark(-3))], {"failures": 0}),
        ([ClockSetBack("j", mark(2), mark(-3))], {"covered": -3}),
        ([FiringRequested("j", "m!7", ANN)], {"requests": [0, 1, 7]}),
        ([JobFired("other", mark(3)), JobRemoved("other", ANN), JobPaused("other", ANN, "r")], {}),
        ([structs.replace(JOB, text="again")], {}),
        ([replace(JobRemoved("j", ANN).to_entry(), kind=Kind.MESSAGE)], {}),
        ([replace(JobRemoved("j", ANN).to_entry(), erased=True), JobFired("j", mark(3))], {"covered": 3, "runs": 3}),
    ],
)  # fmt: skip
def test_what_a_fact_changes(facts: list[Fact | TapeEntry], changed: dict[str, Any]) -> None:
    assert brief(fold(*BEGIN, *facts).jobs["j"]) == changed


def test_a_removed_job_is_gone_and_no_fact_brings_it_back() -> None:
    assert fold(*BEGIN, JobRemoved("j", ANN), JobFired("j", mark(3)), *ASKED, FAILING).jobs == {}


def test_a_changed_job_counts_from_its_change_and_stays_paused_only_for_a_person() -> None:
    changed = structs.replace(JOB, text="coffee", since=timestamp(hour(5))).to_entry(*JobChanged.EVENTS)
    on = {"covered": 5, "failures": 0}
    for before, expected in (
        ([], on), ([FAILING], on), ([JobOver("j", "reason_asked")], on),
        ([REQUESTED], {**on, "status": "paused", "reason": "reason_asked"}),
    ):  # fmt: skip
        after = fold(*BEGIN, *before, changed).jobs["j"]
        assert (after.job.text, brief(after)) == ("coffee", expected)


def test_what_is_only_planned_leaves_the_state_as_it_is() -> None:
    state = fold(*BEGIN)
    planned = state.with_facts([JobRemoved("j", ANN).to_entry(), ChatRules("test:1", "Asia/Tokyo").to_entry()])
    assert (planned.jobs, planned.rules_of("test:1").zone) == ({}, "Asia/Tokyo")
    assert (state, state.rules_of("test:1")) == (fold(*BEGIN), ChatRules("test:1"))


def test_the_rules_of_a_chat_are_the_last_that_were_set() -> None:
    rules = [
        ChatRules("test:1", "Europe/Berlin", (1320, 420)),
        ChatRules("test:2", "", (0, 1)),
        ChatRules("test:1", "Asia/Tokyo"),
    ]
    state = fold(*rules)
    assert [state.rules_of(f"test:{number}") for number in range(3)] == [ChatRules("test:0"), rules[2], rules[1]]


def test_a_job_is_read_as_it_was_written_and_what_a_newer_version_adds_is_left_out() -> None:
    whole = make_job(
        place=ChatRef("test", "-1", "7", False, "s"), name="n", catch_up="all", catch_limit=9, jitter=1, until=mark(9), most=3,
        budget=4, urgent=True, nested=True, to=ChatRef("test", "2"), granted=ANN, allow=("web.get", "shell.run"),
    )  # fmt: skip
    assert Job.of(whole.to_entry()) == whole
    assert Job.of(event("schedule/added", {**JOB.payload(), "newer": 1})) == JOB
    early = ("job", "session", "place", "by", "do", "text", "when", "zone", "since")
    assert Job.of(event("schedule/added", {name: JOB.payload()[name] for name in early})) == JOB
    assert (whole.session, whole.target, JOB.target) == ("test:-1:7", ChatRef("test", "2"), JOB.place)


@pytest.mark.parametrize(
    ("text", "allowance"),
    [("web.search", ("web.search", "")), ("web.fetch: a:b ", ("web.fetch", "a:b")), (" x : ", ("x", ""))],
)
def test_an_allowance_is_a_tool_and_what_it_acts_on(text: str, allowance: tuple[str, str]) -> None:
    assert Allowance.parse(text) == Allowance(*allowance)


def test_the_jobs_of_a_session_are_its_own() -> None:
    state = fold(JOB, make_job(id="k", place=ChatRef("test", "2")))
    assert [job.job.id for job in state.jobs_of("test:2")] == ["k"]


async def test_the_history_of_a_job_is_its_newest_facts_in_their_order() -> None:
    tape = TapeService(InMemoryStore(), "bubbot/schedule", now=lambda: NOON, new_id=CountingIds())
    facts = [JobFired(f"j{number % 2}", mark(number)).to_entry() for number in range(12)]
    await tape.append([*facts, event("other", {"job": "j1"})])
    history = await tape.read(JobHistoryView("j1", limit=3))
    assert [one.data["mark"] for one in history] == [mark(number) for number in (7, 9, 11)]
    assert [one.data["mark"] for one in await tape.read(JobHistoryView("j1", reach=4))] == [mark(9), mark(11)]


async def test_a_message_is_delivered_when_each_of_its_parts_is() -> None:
    tape = TapeService(InMemoryStore(), "bubbot/outbox/test", now=lambda: NOON, new_id=CountingIds())

    async def send(turn: str, parts: int) -> int:
        data = {"turn": turn, "session": "s", "parts": [{"text": "x"}] * parts}
        return (await tape.append([event("outbox/intent", data, key=f"{turn}:0")]))[0].id

    ids = {
        turn: await send(turn, parts)
        for turn, parts in (("all", 2), ("some", 2), ("none", 1), ("gone", 2), ("other", 1))
    }
    for turn, part in (("all", 0), ("all", 1), ("some", 0), ("gone", 0), ("other", 0)):
        await tape.append([event("outbox/receipt", {"intent": ids[turn], "part": part, "external_id": "x"})])
    await tape.append([event("outbox/ended", {"intent": ids["gone"], "reason": "blocked"})])
    assert await tape.read(DeliveriesView(["all", "some", "none", "gone", "unknown"])) == {
        "all": DeliveryState("delivered"),
        "some": DeliveryState("waiting"),
        "none": DeliveryState("waiting"),
        "gone": DeliveryState("undelivered", "blocked"),
    }
    assert await tape.read(DeliveriesView([])) == {}
    found = (await tape.fetch([TapeQuery(tape.name, names=("outbox/intent",), limit=1)]))[0]
    erased = [replace(found[0], payload={}, erased=True)]
    assert DeliveriesView(["all"]).fold([erased, erased]) == {}
    assert DeliveriesView(["all"]).fold([[*erased, *found], erased]) == {"all": DeliveryState("waiting")}


class TestStore:
    @staticmethod
    def open(store: InMemoryStore, changed: list[set[str]]) -> ScheduleStore:
        ids = CountingIds()
        tape = TapeService(store, "bubbot/schedule", now=lambda: NOON, new_id=ids)
        jobs = ScheduleStore(tape, now=lambda: NOON, new_id=ids, zone="UTC")
        jobs.set_on_change(lambda ids: changed.append(set(ids)))
        return jobs

    async def test_who_listens_is_told_which_jobs_changed(self) -> None:
        store, changed = InMemoryStore(), list[set[str]]()
        jobs = self.open(store, changed)
        assert (jobs.limits, jobs.is_timer_running) == (ScheduleSettings(), False)
        await jobs.load()
        far = make_job(id="k", to=ChatRef("test", "2"), granted=ANN)
        await jobs.write([JOB.to_entry(), far.to_entry()])
        await jobs.write([FiringRan("j", mark(1), "t", "answered").to_entry()])
        await jobs.write([ChatRules("test:2", "", (0, 1)).to_entry()])  # where `k` speaks
        assert changed == [set(), {"j", "k"}, {"j"}, {"", "k"}]
        again = self.open(store, changed)
        await again.load()
        await again.load()
        assert changed[4:] == [{"j", "k"}] * 2

    async def test_facts_of_a_merged_turn_are_taken_as_they_are_or_read_if_they_have_no_ids(self) -> None:
        store, changed = InMemoryStore(), list[set[str]]()
        jobs = self.open(store, changed)
        await jobs.load()
        draft = JOB.to_entry()
        stored = await jobs.tape.append([draft])
        await jobs.catch_up_with([draft])
        assert list(jobs.state.jobs) == ["j"]
        await jobs.catch_up_with(stored)
        await jobs.catch_up_with([])
        second = await jobs.tape.append([make_job(id="k").to_entry()])
        await jobs.catch_up_with(second)
        assert list(jobs.state.jobs) == ["j", "k"]

    async def test_the_jobs_of_a_chat_are_those_that_speak_there_and_are_not_over(self) -> None:
        jobs = self.open(InMemoryStore(), [])
        await jobs.load()
        made = [
            JOB,
            make_job(id="thread", place=ChatRef("test", "1", "7")),
            make_job(id="to", place=ChatRef("test", "2"), to=ChatRef("test", "1"), granted=ANN),
            make_job(id="away", to=ChatRef("test", "2"), granted=ANN),
            make_job(id="elsewhere", place=ChatRef("telegram", "1")),
            make_job(id="paused"),
            make_job(id="over"),
            JobPaused("paused", ANN, "reason_asked"),
            JobOver("over", "reason_once"),
        ]
        await jobs.write([fact.to_entry() for fact in made])
        assert [job.id for job in jobs.list_jobs_of_chat("test", "1")] == ["j", "thread", "to", "paused"]
