"""What schedules report of their health."""

from __future__ import annotations

from bubbot.features.schedule.health import MAX_FIRINGS, next_firings
from bubbot.features.schedule.state import ScheduleState
from tests.schedules import fold_job, make_job, stop


def test_the_next_firings_are_the_soonest_of_all_jobs_that_are_on() -> None:
    minutes = [f"{minute:02}" for minute in range(20, 60, 5)]
    jobs = {minute: fold_job(make_job(f"{minute} * * * *", id=minute)) for minute in minutes}
    jobs["paused"] = stop(fold_job(make_job("11 * * * *")))
    jobs["newer"] = fold_job(make_job("something new"))
    found = next_firings(ScheduleState(jobs), "2026-11-22T12:10:00+00:00")
    assert [(one.job, one.at) for one in found] == [
        (f"{minute}", f"2026-11-22T12:{minute}:00Z") for minute in range(20, 20 + 5 * MAX_FIRINGS, 5)
    ]
    assert {one.session for one in found} == {"test:1"}
