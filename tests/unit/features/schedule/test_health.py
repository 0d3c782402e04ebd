"""What schedules report of their health."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from bubbot.features.schedule.health import MAX_FIRINGS, next_firings
from bubbot.features.schedule.state import ScheduleState
from tests.unit.features.schedule.test_plan import standing


def test_the_next_firings_are_the_soonest_of_all_jobs_that_are_on() -> None:
    jobs = {
        f"{minute:02}": replace(standing(f"{minute} * * * *"), job=replace(standing("").job, id=f"{minute:02}", when=f"{minute} * * * *"))
        for minute in range(20, 60, 5)
    }  # fmt: skip
    jobs["paused"] = replace(standing("11 * * * *"), status="paused")
    jobs["newer"] = standing("something new")
    found = next_firings(ScheduleState(MappingProxyType(jobs)), "2026-11-22T12:10:00+00:00")
    assert [(one.job, one.at) for one in found] == [
        (f"{minute}", f"2026-11-22T12:{minute}:00Z") for minute in range(20, 20 + 5 * MAX_FIRINGS, 5)
    ]
    assert {one.session for one in found} == {"test:1"}
