"""A turn that changes two memories is killed between save and merge: both have the change, or neither."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e.kill_harness import KILLED, Bench, damage, default_session_tape

OWN = "bubbot/memory/user/a5e8efa66259803e9cc0eb0783201102"
SCRIPT = {
    "default": [
        {
            "calls": [
                {"name": "memory_save", "arguments": {"content": "kept", "scope": "user"}},
                {"name": "memory_save", "arguments": {"content": "kept"}},
            ]
        },
        {"text": "answer to <{text}>"},
    ]
}


def kept(bench: Bench) -> tuple[int, int]:
    """How often the person's memory and that of the chat have the text."""
    own = [entry for entry in bench.entries(OWN) if entry.name == "memory/saved"]
    chat = [
        entry
        for entry in bench.entries(asyncio.run(default_session_tape(bench.home)))
        if entry.name == "memory.long_term"
    ]
    return len(own), len(chat)


@pytest.mark.law("T3")
@pytest.mark.parametrize(
    ("point", "merged", "in_the_end"),
    [
        pytest.param("extend-fork:before#2", False, 0, marks=pytest.mark.proof),
        ("extend-fork:after#2", False, 1),
        pytest.param("merge:before#1", False, 1, marks=pytest.mark.proof),
        ("merge:after#1", True, 1),
    ],
)
def test_a_kill_between_save_and_merge_changes_both_or_neither(
    tmp_path: Path, point: str, *, merged: bool, in_the_end: int
) -> None:
    """What was not durable when the process ended is an outcome that the model is told is unknown: it says so."""
    bench = Bench(tmp_path / "home")
    (bench.home / "script.json").write_text(json.dumps(SCRIPT))
    assert bench.run(["first"], point) == KILLED, (bench.home / "errors").read_text()
    assert kept(bench) == ((1, 1) if merged else (0, 0))
    assert bench.run(bench.missing(["first"])) == 0, (bench.home / "errors").read_text()
    assert kept(bench) == (in_the_end, in_the_end)
    assert asyncio.run(damage(bench.home)) == []
