"""The process is killed at every numbered point of a turn: nothing lost, nothing doubled, the chain intact."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kill_harness import KILLED, Bench

MESSAGES = ("first use the tool", "second")

POINTS = (
    "append-inbox:before#1",  # accepted by nobody: delivered again
    "append-inbox:after#1",
    "open-fork:before#1",
    "open-fork:after#1",
    "model:before#1",  # in the first model call
    "extend-fork:before#1",  # calls asked for, not yet durable
    "extend-fork:after#1",  # calls durable, not yet run
    "tool:before#1",
    "tool:after#1",  # it happened, nobody knows
    "extend-fork:before#2",
    "extend-fork:after#2",  # results durable
    "model:before#3",  # in the second model call
    "merge:before#1",
    "merge:after#1",
    "send:before#1",
    "send:after#1",  # between send and receipt
    "append-outbox:before#1",
    "append-outbox:after#1",
    "merge:after#2",
    "send:after#2",
)

SAMPLE = ("append-inbox:after#1", "extend-fork:after#1", "merge:after#1", "send:after#1")
"""Points at which the default suite kills the kernel alone; the proof takes all."""
WIDER_SAMPLE = (
    *SAMPLE,
    "open-fork:after#1",
    "model:before#1",
    "tool:after#1",
    "merge:before#1",
    "append-outbox:after#1",
)
"""Points at which it kills the whole bot; each side of a commit, of an effect and of a delivery is among them."""


def points(sample: Sequence[str]) -> list[Any]:
    """Every point, of which those outside of the sample are left to the proof."""
    return [pytest.param(point, marks=() if point in sample else pytest.mark.proof) for point in POINTS]


@pytest.mark.sampled(2)
@pytest.mark.law("T3", "T14")
@pytest.mark.parametrize("point", points(WIDER_SAMPLE))
def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    bench = Bench(tmp_path / "home")
    assert bench.run(MESSAGES, point) == KILLED, (tmp_path / "home" / "errors").read_text()
    assert bench.run(bench.missing(MESSAGES)) == 0, (tmp_path / "home" / "errors").read_text()
    assert bench.faults(MESSAGES) == []


@pytest.mark.sampled(2)
@pytest.mark.law("T3", "T14")
@pytest.mark.parametrize("point", points(SAMPLE))
def test_the_kernel_alone_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    """No feature takes part: neither budgets nor memory nor schedules keep the promise."""
    bench = Bench(tmp_path / "home", features="none")
    assert bench.run(MESSAGES, point) == KILLED, (tmp_path / "home" / "errors").read_text()
    assert bench.run(bench.missing(MESSAGES)) == 0, (tmp_path / "home" / "errors").read_text()
    assert bench.faults(MESSAGES) == []


@pytest.mark.parametrize("point", ["merge:before#1", "merge:after#1"])
def test_a_kill_during_recovery_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    bench = Bench(tmp_path / "home")
    assert bench.run(MESSAGES, "tool:after#1") == KILLED
    assert bench.run([], point) == KILLED  # the merge of the fork that was left open
    assert bench.run(bench.missing(MESSAGES)) == 0
    assert bench.faults(MESSAGES) == []


def test_a_message_that_kills_the_process_twice_ends_with_an_honest_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "home")
    assert bench.run(["poison"], "model:before#1") == KILLED
    assert bench.run([], "model:before#1") == KILLED
    assert bench.run(["after"]) == 0
    printed = (bench.home / "printed").read_text()
    assert "I was interrupted twice" in printed
    assert "answer to <poison>" not in printed
    assert "answer to <after>" in printed
    assert bench.given_up() == {"poison"}
    assert bench.faults(["poison", "after"]) == []


@pytest.mark.proof
@pytest.mark.parametrize("features", ["", "none"])
def test_without_one_guard_the_matrix_fails(tmp_path: Path, features: str) -> None:
    """The negative control: inbounds marked done after the merge instead of with it."""
    bench = Bench(tmp_path / "home", features)
    assert bench.run(MESSAGES, "merge:after#1", "split-done") == KILLED
    assert bench.run(bench.missing(MESSAGES)) == 0
    assert any("answered 2 times" in fault for fault in bench.faults(MESSAGES))


@pytest.mark.proof
def test_two_hundred_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    """One home lives through all of them; the instants are spread over start, turns and delivery."""
    bench, chance = Bench(tmp_path / "home"), random.Random(20261121)
    sent: list[str] = []
    kills = 0
    while kills < 200:
        sent += [f"{'use the tool' if chance.random() < 0.5 else 'talk'} {len(sent) + place}" for place in range(6)]
        process, given = bench.start()
        given.write("".join(f"{message}\n" for message in bench.missing(sent)).encode())
        given.flush()
        time.sleep(chance.uniform(0.25, 1.3))  # the instant of the kill
        process.kill()
        kills += process.wait(timeout=30) == KILLED
        given.close()
    assert bench.run(bench.missing(sent)) == 0
    assert bench.faults(sent) == []
