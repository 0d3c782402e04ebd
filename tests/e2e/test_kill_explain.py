"""The process is killed in the midst of an explanation: it is answered once, and no lie of its model becomes a source."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from tests.e2e.explain_child import LIE, TRUTH
from tests.e2e.kill_harness import KILLED, Bench, damage, default_session_tape

ASKED = (TRUTH, ",explain When does the train leave?")
POINTS = (
    "open-fork:before#2", "open-fork:after#2", "open-fork:before#3", "open-fork:after#3", "extend-fork:before#1", "extend-fork:after#1",
    "explain:before#1",  # before the first call of the model
    "model:before#3", "extend-fork:before#2", "extend-fork:after#2", "extend-fork:after#3",
    "explain:before#2",  # before the lie
    "model:before#4",
    "explain:before#3",  # between the repair and the answer
    "model:before#5", "merge:before#2", "merge:after#2", "merge:before#3", "merge:after#3",
    "send:before#2",  # before the delivery
    "send:after#2",
)  # fmt: skip
SAMPLE = ("explain:before#1", "explain:before#3", "send:before#2")


class ExplainBench(Bench):
    """A bot whose model lies first when it explains."""

    CHILD: ClassVar[str] = "tests.e2e.explain_child:run"

    def explanation_faults(self) -> list[str]:
        """What people were told beyond one true answer, and what the tapes say otherwise; a receipt says if it may repeat."""
        told = [line for line in (self.home / "printed").read_text().splitlines() if "wrote: “" in line]
        tape = self.entries(asyncio.run(default_session_tape(self.home)))
        facts = [entry.payload["data"] for entry in tape if entry.name == "explain/ended"]
        answered = [entry for entry in tape if entry.name == "command"]
        resumed = [each for each in self.entries("bubbot/outbox/stdin") if "resumed" in str(each.payload)]
        faults = [f"told: {line}" for line in told if not line.endswith(f" wrote: “{TRUTH}” [#3]")]
        faults += [f"cited: {fact['statements']}" for fact in facts if LIE in str(fact["statements"])]
        faults += [f"told {len(told)} times"] if not 1 <= len(told) <= 1 + len(resumed) else []
        return [
            *faults,
            *([] if len(answered) == 1 else [f"answered {len(answered)} times"]),
            *asyncio.run(damage(self.home)),
        ]


@pytest.mark.law("T14")
@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in SAMPLE else pytest.mark.proof) for point in POINTS]
)
def test_an_explanation_that_is_killed_is_answered_once_and_truly(tmp_path: Path, point: str) -> None:
    bench = ExplainBench(tmp_path / "home")
    assert bench.run(ASKED, point) == KILLED, (bench.home / "errors").read_text()
    assert bench.run(bench.missing(ASKED)) == 0, (bench.home / "errors").read_text()
    assert bench.explanation_faults() == []
