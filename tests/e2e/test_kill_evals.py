"""The process is killed while it evaluates: no result is doubled, none is half, and the end is that of a run without a kill."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.judge.evals.facts import CASE, ENDED, EVALS_TAPE, STARTED, EvalCaseEnded, EvalEnded, EvalStarted
from bubbot.gateway.inbox import inbox_tape
from tests.e2e.kill_harness import KILLED, Bench, damage
from tests.evals import calls, script, write_eval

COMMAND = ",eval.run try"
SETUPS, CASES, REPEATS = 2, 4, 2
EVAL = f"""
repeats = {REPEATS}
parallel = 2
[setups.good]
[setups.bad]
script = "bad.json"
[cases.one]
message = "say one"
expect = "one"
[cases.two]
message = "use a tool"
expect = "done"
results = {{ "memory.daily" = "Noted." }}
[cases.three]
history = [{{ who = "Ann", text = "three", days_ago = 3 }}]
message = "say three"
expect = "three"
[cases.four]
message = "say four"
expect = "four"
[[judges]]
kind = "exact"
[[judges]]
kind = "used_tools"
cases = ["two"]
calls = ["memory.daily"]
"""
GOOD = script(one="one", tool=[calls("memory_daily", content="x"), {"text": "done"}], three="three", four="four")
BAD = script(one="1", tool="done", three="three", four=[{"error": "refused"}])
KILLS, LIVES_OF_A_HOME = 100, 8
SAMPLE = 2
"""Kills of the default suite, all of one evaluation."""
POINTS = (
    *(f"append-evals:{side}#{number}" for side in ("before", "after") for number in range(1, 6)),
    *(f"model:before#{number}" for number in range(1, 8)),
    "open-fork:after#1",
    "extend-fork:before#1",
    "merge:before#1",
    "merge:after#1",
    "send:before#1",
)
"""Where a life ends: around the storing of results, in calls of models, and at the end of the turn."""


class EvalHome:
    """A home whose process is killed while it evaluates, again and again."""

    def __init__(self, home: Path) -> None:
        self.bench = Bench(home)
        write_eval(home, EVAL, bad=BAD)
        (home / "script.json").write_text(json.dumps(GOOD))  # of the bot itself, whose model may end the process

    def live(self, point: str = "") -> int:
        """Start the process, and type the command if it is needed and nothing is under way; return its exit code."""
        tape = inbox_tape("stdin")
        received, done = self.bench.entries(tape, "inbox/received"), self.bench.entries(tape, "inbox/done")
        closed = {inbound for entry in done for inbound in entry.payload["data"]["inbounds"]}
        is_open = any(entry.id not in closed for entry in received)
        return self.bench.run([] if is_open or self.has_ended() else [COMMAND], point)

    def has_ended(self) -> bool:
        """Return true if the evaluation is complete."""
        return bool(self.bench.entries(EVALS_TAPE, ENDED))

    def results(self) -> list[EvalCaseEnded]:
        """What stands on the tape."""
        return [EvalCaseEnded.of(entry) for entry in self.bench.entries(EVALS_TAPE, CASE)]

    def outcome(self) -> list[tuple[Any, ...]]:
        """What every result says, but when and how fast it was."""
        return sorted(
            (
                each.setup,
                each.case,
                each.repeat,
                each.answer,
                each.calls,
                tuple(score.points for score in each.scores),
                each.failure,
            )
            for each in self.results()
        )

    def find_faults(self) -> list[str]:
        """What is doubled, half or damaged."""
        keys = Counter((each.eval, each.setup, each.case, each.repeat) for each in self.results())
        started = [EvalStarted.of(entry) for entry in self.bench.entries(EVALS_TAPE, STARTED)]
        ended = [EvalEnded.of(entry) for entry in self.bench.entries(EVALS_TAPE, ENDED)]
        faults = [f"{key} stands there {count} times" for key, count in keys.items() if count != 1]
        faults += [] if len(started) == 1 else [f"it began {len(started)} times"]
        faults += (
            []
            if {(each.id, each.outcome) for each in ended} == {(started[0].id, "complete")}
            else [f"it ended so: {ended}"]
        )
        faults += [] if len(keys) == SETUPS * CASES * REPEATS else [f"there are {len(keys)} results"]
        return [*faults, *asyncio.run(damage(self.bench.home))]


EXPECTED = sorted(
    (setup, case, repeat, answer, tools, points, failure)
    for repeat in range(1, REPEATS + 1)
    for setup, case, answer, tools, points, failure in (
        ("good", "one", "one", (), (1.0,), ""),
        ("good", "two", "done", ("memory.daily",), (1.0, 1.0), ""),
        ("good", "three", "three", (), (1.0,), ""),
        ("good", "four", "four", (), (1.0,), ""),
        ("bad", "one", "1", (), (0.0,), ""),
        ("bad", "two", "done", (), (1.0, 0.0), ""),
        ("bad", "three", "three", (), (1.0,), ""),
        ("bad", "four", "", (), (), "scripted refused"),
    )
)
"""What comes out without a kill."""


def kill_home(folder: Path, seed: int, kills: int) -> int:
    """Kill one evaluation at points that a seed chooses, and check how it ends; return how often it was killed."""
    home, rng, killed = EvalHome(folder), random.Random(seed), 0
    for point in rng.sample(POINTS, len(POINTS)):
        if killed == kills or home.has_ended():
            break
        code = home.live(point)
        assert code in (0, KILLED), (home.bench.home / "errors").read_text()
        killed += code == KILLED
    for _ in range(3):  # an interrupted turn that ran twice is given up, and the command is typed again
        assert home.live() == 0
        if home.has_ended():
            break
    assert home.find_faults() == [], f"seed {seed}"
    assert home.outcome() == EXPECTED, f"seed {seed}"
    return killed


@pytest.mark.proof
def test_without_a_kill_it_ends_as_expected(tmp_path: Path) -> None:
    assert kill_home(tmp_path / "home", 1, 0) == 0


def test_a_killed_evaluation_goes_on_and_ends_as_without_a_kill(tmp_path: Path) -> None:
    assert kill_home(tmp_path / "home", 7, SAMPLE) == SAMPLE


def test_a_killed_evaluation_that_is_typed_again_is_paid_once(tmp_path: Path) -> None:
    home = EvalHome(tmp_path / "home")
    assert home.live("append-evals:after#3") == KILLED
    assert home.bench.run([COMMAND]) == 0, "the interrupted turn goes first, and the command after it"
    assert home.find_faults() == []
    assert len(home.bench.entries(EVALS_TAPE, ENDED)) == 2, "both were answered"


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_hundred_kills_of_running_evaluations(tmp_path: Path) -> None:
    killed = seed = 0
    while killed < KILLS:
        seed += 1
        killed += kill_home(tmp_path / f"home{seed}", seed, LIVES_OF_A_HOME)
