"""Jobs out of facts: what each fact changes, and what is read of deliveries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bubbot.features.schedule.changes import ScheduleLimits
from bubbot.features.schedule.state import (
    Actor,
    ChatRef,
    ChatRules,
    DeliveriesView,
    DeliveryState,
    Job,
    JobAllowance,
    JobHistoryView,
    JobState,
    ManualFiring,
    ScheduleState,
    job_data,
    job_from,
)
from bubbot.features.schedule.store import ScheduleStore
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry, event, timestamp
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANN = Actor("test", "1", "Ann", ("staff",))
BY = {"channel": "test", "id": "1", "name": "Ann", "roles": ["staff"]}
JOB = Job("j", ChatRef("test", "1"), ANN, "text", "tea", "0 * * * *", "UTC", timestamp(NOON))
REQUEST = ManualFiring("2026-11-22T12:30:00Z!a1", ANN)
BEGIN = JobState(JOB, NOON, runs=2, failures=1, requests=(REQUEST, replace(REQUEST, mark="2026-11-22T12:31:00Z!b2")))
PAUSED = replace(BEGIN, status="paused", reason="reason_failing", detail="x")
STOPPED = replace(BEGIN, status="paused", reason="reason_asked")


def hour(number: int) -> datetime:
    return NOON + timedelta(hours=number)


def fact(name: str, **data: Any) -> TapeEntry:
    return event(f"schedule/{name}", {"job": "j", **data})


def mark(number: int) -> str:
    return f"{hour(number):%Y-%m-%dT%H:%M:%SZ}"


def after(state: JobState, *facts: TapeEntry) -> JobState | None:
    return ScheduleState({"j": state}).apply(facts).jobs.get("j")


@pytest.mark.parametrize(
    ("before", "entry", "expected"),
    [
        (BEGIN, fact("fired", mark=mark(1)), replace(BEGIN, covered=hour(1), runs=3)),
        (BEGIN, fact("fired", mark=mark(0)), BEGIN),  # the same once more
        (BEGIN, fact("fired", mark=mark(-1)), BEGIN),
        (BEGIN, fact("fired", mark=REQUEST.mark), replace(BEGIN, requests=BEGIN.requests[1:])),
        (BEGIN, fact("fired", mark=f"{mark(1)}!zz"), BEGIN),
        (BEGIN, fact("skipped", first=mark(1), last=mark(2)), replace(BEGIN, covered=hour(2))),
        (BEGIN, fact("skipped", first=mark(-2), last=mark(-1)), BEGIN),
        (BEGIN, fact("failed", count=4, mark=mark(1)), replace(BEGIN, failures=4)),
        (BEGIN, fact("ran", mark=mark(1)), replace(BEGIN, failures=0)),
        (BEGIN, fact("refused", mark=mark(1), reason="x"), BEGIN),
        (BEGIN, fact("paused", reason="reason_failing", detail="x"), PAUSED),
        (BEGIN, fact("paused", reason="reason_asked"), STOPPED),
        (BEGIN, fact("over", reason="r", detail="d"), replace(BEGIN, status="over", reason="r", detail="d")),
        (BEGIN, fact("over", reason="r"), replace(BEGIN, status="over", reason="r")),
        (PAUSED, fact("resumed", since=mark(3)), replace(BEGIN, failures=0, covered=hour(3))),
        (PAUSED, fact("resumed", since=mark(-3)), replace(BEGIN, failures=0)),
        (BEGIN, fact("clock", since=mark(-3)), replace(BEGIN, covered=hour(-3))),
        (BEGIN, fact("asked", mark="m!1", by=BY), replace(BEGIN, requests=(*BEGIN.requests, ManualFiring("m!1", ANN)))),
        (BEGIN, fact("removed", by=BY), None),
        (BEGIN, event("schedule/fired", {"job": "other", "mark": mark(1)}), BEGIN),
        (BEGIN, event("schedule/added", job_data(replace(JOB, text="again"))), BEGIN),
        (BEGIN, replace(fact("removed", by=BY), kind=Kind.MESSAGE), BEGIN),
        (BEGIN, replace(fact("removed", by=BY), erased=True), BEGIN),
    ],
)  # fmt: skip
def test_what_a_fact_changes(before: JobState, entry: TapeEntry, expected: JobState | None) -> None:
    assert after(before, entry) == expected


def test_what_was_erased_hides_nothing_that_follows() -> None:
    erased = replace(fact("removed", by=BY), erased=True)
    assert after(BEGIN, erased, fact("fired", mark=mark(1))) == replace(BEGIN, covered=hour(1), runs=3)


def test_a_changed_job_counts_from_its_change_and_stays_paused_only_for_a_person() -> None:
    job = replace(JOB, text="coffee", since=timestamp(hour(5)))
    changed = event("schedule/changed", job_data(job))
    on = replace(BEGIN, job=job, covered=hour(5), failures=0)
    assert after(BEGIN, changed) == on
    assert after(PAUSED, changed) == on
    assert after(replace(BEGIN, status="over", reason="reason_asked"), changed) == on
    assert after(STOPPED, changed) == replace(on, status="paused", reason="reason_asked")


def test_it_is_known_which_facts_made_a_job_as_it_is() -> None:
    steps = [
        (event("schedule/added", job_data(JOB)), (1, 0, 0)),
        (fact("paused", reason="reason_failing"), (1, 0, 2)),
        (fact("ran", mark=mark(1)), (1, 0, 2)),
        (event("schedule/changed", job_data(JOB)), (1, 4, 0)),
        (fact("paused", reason="reason_asked"), (1, 4, 5)),
        (event("schedule/changed", job_data(JOB)), (1, 6, 5)),
        (fact("resumed", since=mark(1)), (1, 6, 0)),
        (fact("over", reason="r"), (1, 6, 8)),
    ]
    state = ScheduleState()
    for number, (entry, facts) in enumerate(steps, 1):
        state = state.apply([replace(entry, id=number)])
        assert state.jobs["j"].facts == facts


def test_the_rules_of_a_chat_are_the_last_that_were_set() -> None:
    state = ScheduleState().apply(
        [
            event("schedule/chat", {"session": "test:1", "zone": "Europe/Berlin", "quiet": [1320, 420]}),
            event("schedule/chat", {"session": "test:2", "quiet": [0, 1]}),
            event("schedule/chat", {"session": "test:1", "zone": "Asia/Tokyo", "quiet": []}),
        ]
    )
    assert state.chats == {"test:1": ChatRules("Asia/Tokyo"), "test:2": ChatRules("", (0, 1))}


def test_a_job_is_read_as_it_was_written_and_what_a_newer_version_adds_is_left_out() -> None:
    whole = replace(
        JOB, place=ChatRef("test", "-1", "7", False, "s"), name="n", catch_up="all", catch_limit=9, jitter=1, until=mark(9), most=3,
        budget=4, urgent=True, nested=True, to=ChatRef("test", "2"), granted=ANN, allow=("web.get", "shell.run"),
    )  # fmt: skip
    assert job_from(job_data(whole)) == whole
    assert job_from({**job_data(JOB), "newer": 1}) == JOB
    assert (whole.session, whole.target, JOB.target) == ("test:-1:7", ChatRef("test", "2"), JOB.place)


@pytest.mark.parametrize(
    ("text", "allowance"),
    [("web.search", ("web.search", "")), ("web.fetch: a:b ", ("web.fetch", "a:b")), (" x : ", ("x", ""))],
)
def test_an_allowance_is_a_tool_and_what_it_acts_on(text: str, allowance: tuple[str, str]) -> None:
    assert JobAllowance.parse(text) == JobAllowance(*allowance)


def test_the_jobs_of_a_session_are_its_own() -> None:
    other = replace(JOB, id="k", place=ChatRef("test", "2"))
    state = ScheduleState({"j": BEGIN, "k": replace(BEGIN, job=other)})
    assert [job.job.id for job in state.jobs_of("test:2")] == ["k"]


async def test_the_history_of_a_job_is_its_newest_facts_in_their_order() -> None:
    tape = TapeService(InMemoryStore(), "bubbot/schedule", now=lambda: NOON, new_id=CountingIds())
    facts = [event("schedule/fired", {"job": f"j{number % 2}", "mark": mark(number)}) for number in range(12)]
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
        assert (jobs.limits, jobs.is_timer_running) == (ScheduleLimits(), False)
        await jobs.load()
        far = replace(JOB, id="k", to=ChatRef("test", "2"), granted=ANN)
        await jobs.write([event("schedule/added", job_data(JOB)), event("schedule/added", job_data(far))])
        await jobs.write([fact("ran", mark=mark(1))])
        await jobs.write([event("schedule/chat", {"session": "test:2", "quiet": [0, 1]})])  # where `k` speaks
        assert changed == [set(), {"j", "k"}, {"j"}, {"", "k"}]
        again = self.open(store, changed)
        await again.load()
        await again.load()
        assert changed[4:] == [{"j", "k"}] * 2

    async def test_facts_of_a_merged_turn_are_taken_as_they_are_or_read_if_they_have_no_ids(self) -> None:
        store, changed = InMemoryStore(), list[set[str]]()
        jobs = self.open(store, changed)
        await jobs.load()
        draft = event("schedule/added", job_data(JOB))
        stored = await jobs.tape.append([draft])
        await jobs.catch_up_with([draft])
        assert list(jobs.state.jobs) == ["j"]
        await jobs.catch_up_with(stored)
        await jobs.catch_up_with([])
        second = await jobs.tape.append([event("schedule/added", job_data(replace(JOB, id="k")))])
        await jobs.catch_up_with(second)
        assert list(jobs.state.jobs) == ["j", "k"]

    async def test_the_jobs_of_a_chat_are_those_that_speak_there_and_are_not_over(self) -> None:
        jobs = self.open(InMemoryStore(), [])
        await jobs.load()
        made = [
            JOB,
            replace(JOB, id="thread", place=ChatRef("test", "1", "7")),
            replace(JOB, id="to", place=ChatRef("test", "2"), to=ChatRef("test", "1"), granted=ANN),
            replace(JOB, id="away", to=ChatRef("test", "2"), granted=ANN),
            replace(JOB, id="elsewhere", place=ChatRef("telegram", "1")),
            replace(JOB, id="paused"),
            replace(JOB, id="over"),
        ]
        await jobs.write([event("schedule/added", job_data(job)) for job in made])
        await jobs.write([event("schedule/paused", {"job": "paused", "reason": "reason_asked"})])
        await jobs.write([event("schedule/over", {"job": "over", "reason": "reason_once"})])
        assert [job.id for job in jobs.list_jobs_of_chat("test", "1")] == ["j", "thread", "to", "paused"]
