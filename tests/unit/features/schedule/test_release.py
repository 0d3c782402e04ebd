"""Times of jobs that passed before a restored home was released: a table, and what the plan says afterwards."""

from __future__ import annotations

import pytest

from bubbot.features.schedule.facts import Actor, FiringRequested
from bubbot.features.schedule.plan import plan_job
from bubbot.features.schedule.release import skip_past_firings
from bubbot.features.schedule.state import JobState, ScheduleState
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.schedules import fold_job, make_job, stop
from tests.unit.features.schedule.test_plan import HOURLY, ONCE, at, standing

REQUESTED = FiringRequested("j", "2026-11-22T12:10:00Z!ab", Actor("test", "1"))
ASKED = fold_job(make_job(), REQUESTED)


def told(facts: list[TapeEntry]) -> list[tuple[str, ...]]:
    """Name, first and last of what was passed over, or the mark."""
    shown = []
    for fact in facts:
        data = fact.payload["data"]
        rest = [data[key][11:13] for key in ("first", "last") if key in data] or [data.get("mark", "")[11:]]
        shown.append((str(fact.name).removeprefix("schedule/"), *rest))
    return shown


@pytest.mark.parametrize(
    ("one", "now", "expected"),
    [
        (standing(HOURLY), "22T12:59", []),
        (standing(HOURLY), "22T13:00", [("skipped", "13", "13")]),
        (standing(HOURLY, catch_up="all"), "22T16:30", [("skipped", "13", "16")]),
        (standing(HOURLY, jitter=600), "22T13:01", [("skipped", "13", "13")]),
        (standing(ONCE), "22T12:59", []),
        (standing(ONCE), "28T13:00", [("skipped", "13", "13"), ("over", "")]),
        (stop(standing(HOURLY)), "22T20:00", []),
        (stop(standing(HOURLY), "over"), "22T20:00", []),
        (ASKED, "22T12:30", [("fired", "12:10:00Z!ab"), ("refused", "12:10:00Z!ab")]),
        (fold_job(make_job("something new"), REQUESTED), "22T12:30",
         [("fired", "12:10:00Z!ab"), ("refused", "12:10:00Z!ab")]),
    ],
)  # fmt: skip
def test_what_is_passed_over(one: JobState, now: str, expected: list[tuple[str, ...]]) -> None:
    assert told(skip_past_firings(one, at(now))) == expected


@pytest.mark.parametrize("one", [standing(HOURLY, catch_up="all"), standing(ONCE), standing(HOURLY, jitter=600), ASKED])
def test_nothing_is_due_afterwards_and_nobody_is_told_that_it_was_missed(one: JobState) -> None:
    now = at("28T13:00")
    state = ScheduleState({one.job.id: one}).apply(skip_past_firings(one, now))
    after = state.jobs[one.job.id]
    found = plan_job(after, now)
    assert (found.fire, found.skipped, found.end_reason, after.requests) == ((), None, "", ())
    assert skip_past_firings(after, now) == []


async def test_times_that_come_again_after_a_clock_was_set_back_are_passed_over_again() -> None:
    """Facts with a key would not be written twice."""
    tape = TapeService(InMemoryStore(), "bubbot/schedule", now=SteppingClock(), new_id=CountingIds())
    for number in (1, 2):
        await tape.append(skip_past_firings(standing(HOURLY), at("22T13:00")), if_absent=True)
        assert await tape.head() == number
