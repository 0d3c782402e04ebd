"""A run of a task ends as if nothing had happened, whenever its process is killed: same artifacts, states and verdicts, one
answer, no effect twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import forked
from tests.e2e.task_kills import DUTY, RULES, Ending, TaskBench, compare

BOUNDARIES = 200
"""Boundaries that a run meets at most; a life that is told to die at a later one is not killed."""
EFFECTS = tuple(f"act-{once}:{side}" for once in ("key", "probe", "never") for side in ("before", "after"))
POINTS = (*EFFECTS, *(f"+{number}" for number in range(1, BOUNDARIES + 1)))
"""Where a life is killed: at an effect, or at a boundary by its number."""
SAMPLE = ("act-probe:before", "act-never:after", "+48", "+101", "+132", "+176")
"""Points of the default suite: at effects, in the branches, at a refused call, at the gate, at the end."""
KILLS = 200


@pytest.fixture(autouse=True, scope="module")
def _forked() -> Iterator[None]:
    """Fork hundreds of processes, also in the proof: none of them is about how an interpreter starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(forked.ANEW, raising=False)
        yield


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    """How the run ends without a kill."""
    bench = TaskBench(tmp_path_factory.mktemp("whole") / "home")
    assert bench.live()
    ending = bench.read_ending()
    assert ending.status == "succeeded"
    assert ending.answers == 1
    assert ending.invalid == []
    assert 150 < bench.boundaries <= BOUNDARIES
    return ending


@pytest.mark.law("T19", "T20")
@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in SAMPLE else pytest.mark.proof) for point in POINTS]
)
def test_a_kill_at_any_boundary_changes_nothing(tmp_path: Path, wanted: Ending, point: str) -> None:
    bench = TaskBench(tmp_path / "home")
    was_over = bench.live(point)
    assert was_over or bench.live()
    assert compare(bench.read_ending(), wanted) == []


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.proof if seed else ()) for seed in range(60)])
def test_several_kills_in_one_run_change_nothing(tmp_path: Path, wanted: Ending, seed: int) -> None:
    """A turn that was interrupted twice is given up: the run goes on by itself if it got further, else somebody resumes it."""
    chance, bench = random.Random(seed), TaskBench(tmp_path / "home")
    for _ in range(chance.randint(2, 5)):
        bench.live(f"+{chance.randint(1, BOUNDARIES // 2)}")
    assert bench.live()
    assert compare(bench.read_ending(), wanted) == []


def test_a_run_that_does_not_get_further_is_blocked_until_somebody_resumes_it(tmp_path: Path, wanted: Ending) -> None:
    bench = TaskBench(tmp_path / "home")
    for _ in range(2):
        assert not bench.live("act-key:before")
    assert bench.live()
    assert bench.count_said("resume") == 1
    assert compare(bench.read_ending(), wanted) == []


def test_a_duty_that_is_not_met_fails_the_run_however_it_was_killed(tmp_path: Path) -> None:
    scripts = {"rules.feature": RULES, "duty.feature": DUTY}
    whole, killed = TaskBench(tmp_path / "whole", scripts), TaskBench(tmp_path / "killed", scripts)
    assert whole.live()
    assert not killed.live("look:before")
    assert killed.live()
    assert whole.read_ending().status == "failed"
    assert compare(killed.read_ending(), whole.read_ending()) == []


@pytest.mark.proof
@pytest.mark.parametrize("part", range(10))
def test_two_hundred_kills_at_random_instants(tmp_path: Path, wanted: Ending, part: int) -> None:
    """Each run is killed at instants spread over its start, its work and its end, until it is over."""
    chance, kills, number = random.Random(part), 0, 0
    while kills < KILLS // 10:
        bench = TaskBench(tmp_path / f"home{number}")
        for _ in range(chance.randint(1, 4)):
            if bench.live_for(chance.uniform(0.0, 0.6)):
                break
            kills += 1
        assert bench.live()
        assert compare(bench.read_ending(), wanted) == []
        number += 1
