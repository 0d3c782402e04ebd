"""What is to be done about a job at a moment: a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from bubbot.features.schedule.facts import CatchUp
from bubbot.features.schedule.plan import (
    FiringPlan,
    QuietHours,
    SkippedRange,
    jitter_delay,
    next_times,
    plan_job,
    waits_for_clock,
)
from bubbot.features.schedule.state import JobState
from bubbot.times.cron import parse_cron
from bubbot.times.rules import next_instants
from tests.schedules import fold_job, make_job, stop

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def standing(when: str, *, runs: int = 0, **fields: Any) -> JobState:
    return replace(fold_job(make_job(when, **fields)), runs=runs)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-{text}:00+00:00")


HOURLY, ONCE = "0 * * * *", "at 2026-11-22 13:00:00"


@pytest.mark.parametrize(
    ("one", "now", "fire", "skipped", "rest"),
    [
        (standing(HOURLY), "22T12:59", [], None, "wake 13:00"),
        (standing(HOURLY), "22T13:00", ["13"], None, ""),
        (standing(HOURLY), "22T13:59", ["13"], None, ""),
        (standing(HOURLY), "22T16:30", ["16"], ("13", "15"), ""),
        (standing(HOURLY, catch_up="skip"), "22T13:01", ["13"], None, ""),
        (standing(HOURLY, catch_up="skip"), "22T13:02", ["13"], None, ""),
        (standing(HOURLY, catch_up="skip"), "22T13:03", [], ("13", "13"), ""),
        (standing(HOURLY, catch_up="skip"), "22T13:30", [], ("13", "13"), ""),
        (standing(HOURLY, catch_up="skip"), "22T16:01", ["16"], ("13", "15"), ""),
        (standing(HOURLY, catch_up="all"), "22T15:30", ["13", "14", "15"], None, ""),
        (standing(HOURLY, catch_up="all", catch_limit=2), "22T20:30", ["19", "20"], ("13", "18"), ""),
        (standing(HOURLY, catch_up="all", most=5, runs=4), "22T15:30", ["15"], ("13", "14"), ""),
        (standing(HOURLY, most=5, runs=5), "22T13:30", [], None, "over reason_runs"),
        (standing(HOURLY, until=at("22T12:30").isoformat()), "22T12:10", [], None, "over reason_until"),
        (standing(HOURLY, until=at("22T13:00").isoformat()), "22T13:00", ["13"], None, ""),
        (standing(HOURLY, until=at("22T14:30").isoformat()), "22T20:10", ["14"], ("13", "13"), ""),
        (standing(ONCE), "22T12:10", [], None, "wake 13:00"),
        (standing(ONCE), "22T13:00", ["13"], None, ""),
        (standing(ONCE), "28T13:00", ["13"], None, ""),
        (standing(ONCE, catch_up="skip"), "28T13:00", [], ("13", "13"), ""),
        (replace(standing(ONCE, runs=1), covered=at("22T13:00")), "22T13:01", [], None, "over reason_once"),
        (replace(standing(ONCE), covered=at("22T13:00")), "22T13:01", [], None, "over reason_missed"),
        (stop(standing(HOURLY)), "22T20:00", [], None, ""),
        (stop(standing(HOURLY), "over"), "22T20:00", [], None, ""),
        (standing("something new"), "22T20:00", [], None, "over reason_broken"),
    ],
)
def test_what_is_done(one: JobState, now: str, fire: list[str], skipped: tuple[str, str] | None, rest: str) -> None:
    found = plan_job(one, at(now))
    assert [f"{instant:%H}" for instant in found.fire] == fire
    span = found.skipped
    assert ((f"{span.first:%H}", f"{span.last:%H}") if span else None) == skipped
    assert rest == (
        f"over {found.end_reason}" if found.end_reason else f"wake {found.wake_at:%H:%M}" if found.wake_at else ""
    )


@pytest.mark.parametrize(
    ("hours", "now", "until"),
    [
        ((1320, 420), "2026-11-22T20:59", None),  # 21:59 in Berlin
        ((1320, 420), "2026-11-22T21:00", "2026-11-23T06:00"),
        ((1320, 420), "2026-11-23T05:59", "2026-11-23T06:00"),
        ((1320, 420), "2026-11-23T06:00", None),
        ((540, 600), "2026-11-23T07:59", None),
        ((540, 600), "2026-11-23T08:00", "2026-11-23T09:00"),
        ((540, 600), "2026-11-23T08:30", "2026-11-23T09:00"),
        ((540, 600), "2026-11-23T09:00", None),
        ((600, 600), "2026-11-23T09:00", None),
        ((1320, 420), "2026-03-28T23:00", "2026-03-29T05:00"),  # the clock is put forward in this night
        ((60, 150), "2026-03-29T00:30", "2026-03-29T01:00"),  # and 02:30 is skipped in it
        ((60, 150), "2026-10-25T01:10", None),  # 02:10 for the second time: they ended when it was 02:30 for the first
    ],
)
def test_quiet_hours_end_by_the_clock_of_the_chat(hours: tuple[int, int], now: str, until: str | None) -> None:
    found = QuietHours(*hours, BERLIN).end_after(datetime.fromisoformat(f"{now}:00+00:00"))
    assert (f"{found.astimezone(UTC):%Y-%m-%dT%H:%M}" if found else None) == until


@pytest.mark.parametrize(
    ("one", "ahead", "waits"),
    [
        (standing(HOURLY), timedelta(minutes=2), False),
        (standing(HOURLY), timedelta(minutes=2, seconds=1), True),
        (stop(standing(HOURLY)), timedelta(days=1), False),
    ],
)
def test_a_job_waits_for_a_clock_that_was_ahead_by_more_than_two_minutes(
    one: JobState, ahead: timedelta, waits: bool
) -> None:
    assert waits_for_clock(replace(one, covered=START + ahead), START) is waits


def test_quiet_hours_hold_back_what_is_not_urgent() -> None:
    quiet, now = QuietHours(0, 1439, UTC), at("22T15:30")
    held = plan_job(standing(HOURLY), now, quiet)
    assert (held.fire, held.wake_at) == ((), at("22T23:59"))
    assert plan_job(standing(HOURLY, urgent=True), now, quiet).fire == (at("22T15:00"),)


def test_jitter_is_drawn_from_the_firing_itself() -> None:
    job = standing(HOURLY, jitter=600).job
    drawn = [jitter_delay(job, START + timedelta(hours=hour)) for hour in range(200)]
    assert drawn == [jitter_delay(job, START + timedelta(hours=hour)) for hour in range(200)]
    assert max(drawn) <= timedelta(seconds=600)
    assert len(set(drawn)) > 150
    assert jitter_delay(replace(job, id="other"), START) != drawn[0]
    assert jitter_delay(job, START) == timedelta(seconds=377)  # by every version: a job may wait for it
    least = replace(job, jitter=1)
    assert {jitter_delay(least, START + timedelta(hours=hour)).seconds for hour in range(20)} == {0, 1}


def test_a_firing_waits_for_its_jitter() -> None:
    one = standing(HOURLY, jitter=600)
    first = START + timedelta(hours=1)
    due = first + jitter_delay(one.job, first)
    assert due > first
    assert plan_job(one, due - timedelta(seconds=1)) == FiringPlan(wake_at=due)
    assert plan_job(one, due) == FiringPlan((first,))


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
@pytest.mark.parametrize("jitter", [0, 300])
def test_missed_firings_are_the_newest_whose_jitter_is_over(catch_up: CatchUp, jitter: int) -> None:
    one = standing("* * * * *", catch_up=catch_up, catch_limit=3, jitter=jitter)
    every = next_instants(parse_cron("* * * * *"), UTC, START, 20)
    limit = 3 if catch_up == "all" else 1
    for minute in range(1, 15):
        now = START + timedelta(minutes=minute, seconds=20)
        due = [instant for instant in every if instant + jitter_delay(one.job, instant) <= now]
        if not due:
            continue
        planned = plan_job(one, now)
        if not planned.fire and planned.skipped is None:  # the first of them waits for its own, longer jitter
            assert planned.wake_at == every[0] + jitter_delay(one.job, every[0])
            continue
        late = catch_up == "skip" and now - due[-1] - jitter_delay(one.job, due[-1]) > timedelta(minutes=2)
        fire, rest = ([], due) if late else (due[-limit:], due[:-limit])
        assert planned == FiringPlan(tuple(fire), SkippedRange(every[0], rest[-1]) if rest else None)


def test_the_next_times_stop_where_the_job_does() -> None:
    assert next_times(standing(HOURLY, most=5, runs=3), START) == [at("22T13:00"), at("22T14:00")]
    assert next_times(standing(ONCE), START) == [at("22T13:00")]
    until = standing(HOURLY, until=at("22T14:00").isoformat())
    assert next_times(until, START) == [at("22T13:00"), at("22T14:00")]
    assert next_times(stop(standing(HOURLY)), START) == []
