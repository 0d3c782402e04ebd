"""The process is killed at every boundary of effects on a real service: none happens twice, no answer is doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.effect_harness import acting_bench
from tests.e2e.kill_harness import KILLED

MESSAGES = ("act 1", "say 2")

POINTS = (
    "append-inbox:after#1",
    "open-fork:after#1",
    "model:before#1",
    *(f"extend-fork:{side}#{number}" for number in range(1, 8) for side in ("before", "after")),
    # 1: the calls are durable; 2, 4, 6: a begin; 3, 5, 7: an end with its result
    *(f"act-{kind}:{side}" for kind in ("key", "probe", "never") for side in ("before", "after")),
    *(f"service-{kind}:{side}" for kind in ("key", "probe", "never") for side in ("before", "after")),
    "model:before#2",
    "merge:before#1",
    "merge:after#1",
    "send:before#1",
    "append-outbox:after#1",
)
SAMPLE = (
    "extend-fork:after#1",  # no begin: it did not run
    "extend-fork:after#2",  # a begin, and nothing happened
    "service-key:after",  # it happened, and nobody has heard of it
    "service-probe:after",
    "service-never:after",
    "extend-fork:after#5",  # its end is durable
    "merge:before#1",
)
"""Points at which the default suite kills the bot; the proof takes all."""


def points(sample: Sequence[str]) -> list[Any]:
    """Every point, of which those outside of the sample are left to the proof."""
    return [pytest.param(point, marks=() if point in sample else pytest.mark.proof) for point in POINTS]


@pytest.mark.sampled(2)
@pytest.mark.law("T19", "T20")
@pytest.mark.parametrize("point", points(SAMPLE))
def test_a_kill_at_any_boundary_repeats_no_effect(tmp_path: Path, point: str) -> None:
    with acting_bench(tmp_path / "home") as bench:
        assert bench.run(MESSAGES, point) == KILLED, (bench.home / "errors").read_text()
        assert bench.run(bench.missing(MESSAGES)) == 0, (bench.home / "errors").read_text()
        assert bench.faults(MESSAGES) == []


@pytest.mark.law("T20")
@pytest.mark.parametrize("second", points(["service-key:after"]))
def test_a_second_kill_in_the_turn_that_runs_again_repeats_none_either(tmp_path: Path, second: str) -> None:
    with acting_bench(tmp_path / "home") as bench:
        assert bench.run(MESSAGES, "act-key:after") == KILLED
        assert bench.run(bench.missing(MESSAGES), second) in (KILLED, 0)  # it need not come by there again
        assert bench.run(bench.missing(MESSAGES)) == 0
        assert bench.faults(MESSAGES) == []


@pytest.mark.parametrize("point", ["service-never:after"])
def test_without_a_begin_the_matrix_fails(tmp_path: Path, point: str) -> None:
    """The negative control."""
    with acting_bench(tmp_path / "home") as bench:
        assert bench.run(MESSAGES, point, "no-begin") == KILLED
        assert bench.run(bench.missing(MESSAGES), "", "no-begin") == 0
        assert "act 1: never happened 2 times" in bench.faults(MESSAGES)


@pytest.mark.proof
def test_a_hundred_kills_at_random_instants_repeat_no_effect(tmp_path: Path) -> None:
    """One home lives through all of them; the instants are spread over start, effects and delivery."""
    chance, sent, kills = random.Random(20261124), list[str](), 0
    with acting_bench(tmp_path / "home") as bench:
        while kills < 100:
            sent += [f"{'act' if chance.random() < 0.7 else 'say'} {len(sent) + place}" for place in range(6)]
            process, given = bench.start()
            given.write("".join(f"{message}\n" for message in bench.missing(sent)).encode())
            given.flush()
            time.sleep(chance.uniform(0.25, 1.3))  # the instant of the kill
            process.kill()
            kills += process.wait(timeout=30) == KILLED
            given.close()
        assert bench.run(bench.missing(sent)) == 0
        assert bench.faults(sent) == []
        assert sum(bench.service.done.values()) > 100
