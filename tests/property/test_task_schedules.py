"""Schedules of runs of tasks, chosen by seeds: see `tests/simulation/tasks.py`. A failure names the command that runs it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.runs import TaskRuns
from tests.simulation.tasks import TaskSchedule

SCHEDULES, LONG = 50, 2_000
AT_ONCE = 50
FOUND_WITHIN = 100
"""Schedules within which a planted fault has to be found."""


def run_schedules(seeds: range) -> None:
    for seed in seeds:
        TaskSchedule(seed).run()


@pytest.mark.parametrize("first", range(0, SCHEDULES, 25))
def test_a_run_keeps_its_promises_whichever_task_runs_first_and_whatever_people_do_meanwhile(first: int) -> None:
    run_schedules(range(first, first + 25))


@pytest.mark.proof
@pytest.mark.parametrize("first", range(SCHEDULES, LONG, AT_ONCE))
def test_a_run_keeps_its_promises_in_many_schedules(first: int) -> None:
    run_schedules(range(first, first + AT_ONCE))


def begin_before_parents(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskGraph, "ready", lambda self, states: [name for name in self.parents if name not in states])


def cancel_without_a_stop(patch: pytest.MonkeyPatch) -> None:
    cancel = TaskRuns.cancel

    async def cancel_alone(self: TaskRuns, run: str) -> Any:
        work = self._works.pop(run, None)
        state = await cancel(self, run)
        if work is not None:
            self._works[run] = work
        return state

    patch.setattr(TaskRuns, "cancel", cancel_alone)


@pytest.mark.parametrize("plant", [begin_before_parents, cancel_without_a_stop])
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"again: python -m tests.simulation.tasks \d+"):
        run_schedules(range(FOUND_WITHIN))
