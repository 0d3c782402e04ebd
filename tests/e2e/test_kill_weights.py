"""The process is killed at each write of exports and newer weights: nothing is doubled, half or forgotten, and the chat ends where it would have."""

from __future__ import annotations

import asyncio
import json
import random
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest

from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.writing import RECEIPT_SUFFIX
from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from tests.e2e.kill_harness import KILLED, Bench, damage, default_session_tape
from tests.weights import DIGEST, NEW, OLD

LINES = (
    "say 0", ",rate 5", "say 1", ",rate 5",
    f",learn.offer {NEW} weights={DIGEST}", ",learn.accept", ",new", "capital", ",learn.back", "capital", "river",
)  # fmt: skip
POINTS = (
    *(f"append-learn:{side}#{number}" for side in ("before", "after") for number in range(1, 5)),
    *(f"name:{side}#{number}" for side in ("before", "after") for number in (1, 2)),
    *(f"{operation}:{side}#{number}" for operation in ("open-fork", "merge") for side in ("before", "after") for number in range(5, 12)),
)  # fmt: skip
"""Where a life ends: around each fact, each name of a file, and in the turns that switch."""
SAMPLE = (
    "append-learn:before#1",
    "name:after#1",
    "name:after#2",
    "append-learn:after#3",
    "merge:before#8",
    "merge:before#10",
)
"""Those of the default suite: between file and receipt, receipt and fact, and before the merges of the two switches."""


class WeightsHome(Bench):
    """A home in which turns are rated, weights offered, accepted and taken back."""

    CHILD: ClassVar[str] = "tests.e2e.weights_child:run"

    def live(self, point: str = "") -> int:
        """Start the process with what it was not told yet; return its exit code."""
        told = len(self.entries(inbox_tape("stdin"), "inbox/received"))
        return self.run(LINES[told:], point)

    def find_faults(self) -> list[str]:
        """What is doubled, half or missing."""
        facts = self.entries(LEARN_TAPE)
        names = [entry.name for entry in facts if entry.name != "learn/checkpoint"]
        wanted = ["learn/ready", "learn/offered", "learn/accepted", "learn/withdrawn"]
        faults = [] if names == wanted else [f"the facts are {names}"]
        (ready,) = [entry.data for entry in facts if entry.name == "learn/ready"]
        path = self.home / ready["file"]
        receipt = json.loads(path.with_name(path.name + RECEIPT_SUFFIX).read_text())
        digest = sha256(path.read_bytes()).hexdigest()
        whole = (digest, 2, 2) == (ready["sha256"], ready["turns"], len(path.read_text().splitlines()))
        faults += [] if whole and receipt["sha256"] == digest else [f"the export is not whole: {ready}"]
        left = [each.name for each in path.parent.iterdir() if each.name not in (path.name, path.name + RECEIPT_SUFFIX)]
        faults += [f"{name} is left" for name in left]
        tape = asyncio.run(default_session_tape(self.home))
        switches = [entry.data for entry in self.entries(tape, "model/switched")]
        models = [(each["model"], each["accepted"] > 0) for each in switches]
        faults += [] if models == [(NEW, True), (OLD, False)] else [f"the switches are {models}"]
        sent = [str(entry.data["parts"]) for entry in self.entries(outbox_tape("stdin"), "outbox/intent")]
        for text in (f"From here on {NEW} answers", f"taken back: from here on {OLD} answers"):
            count = sum(text in each for each in sent)
            faults += [] if count == 1 else [f"{text!r} was said {count} times"]
        return [*faults, *asyncio.run(damage(self.home))]


def kill(folder: Path, *points: str) -> int:
    """Live until all is said, killed at these points one after the other; return how often it was killed."""
    home, killed = WeightsHome(folder), 0
    for point in (*points, "", ""):
        code = home.live(point)
        assert code in (0, KILLED), (home.home / "errors").read_text()
        killed += code == KILLED
    assert home.find_faults() == [], points
    return killed


def test_without_a_kill_it_ends_as_expected(tmp_path: Path) -> None:
    assert kill(tmp_path / "home") == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", SAMPLE)
def test_a_kill_at_a_write_changes_nothing(tmp_path: Path, point: str) -> None:
    assert kill(tmp_path / "home", point) == 1


@pytest.mark.proof
@pytest.mark.parametrize("point", [point for point in POINTS if point not in SAMPLE])
def test_a_kill_at_any_other_write_changes_nothing(tmp_path: Path, point: str) -> None:
    assert kill(tmp_path / "home", point) == 1


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(5))
def test_two_kills_change_nothing(tmp_path: Path, seed: int) -> None:
    kill(tmp_path / "home", *random.Random(seed).sample(POINTS, 2))
