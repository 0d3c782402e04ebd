"""Three topics of one chat, interleaved over the lives of several processes that are killed: each keeps its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bubbot.tape.entry import TapeEntry
from tests.e2e.kill_harness import KILLED, Bench, damage, default_session_tape

LIVES = (
    # killed with the anchors of the second topic in its fork, and not on the tape
    ((",topic Trip to Rome", "trip one", ",topic Cake", "cake one"), "merge:before#3"),
    # killed between taking up the topic and the answer in it
    ((",topic trip to  ROME", "trip two"), "model:before#2"),
    # killed with the switch merged, and nobody told
    ((",topic 花园", "garden one", ",topic cake", "cake two"), "merge:after#4"),
    ((",topic TRIP to rome", "trip three", ",topic 花園/2", ",topic 花园 ", "garden two", ",topics"), ""),
)
THREADS = {
    "trip to rome": ("trip one", "trip two", "trip three"),
    "cake": ("cake one", "cake two"),
    "花园": ("garden one", "garden two"),
}


def test_three_topics_over_four_lives_stay_apart_and_come_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "home")
    typed: list[str] = []
    for lines, point in LIVES:
        typed += lines
        assert bench.run(bench.missing(typed), point) == (KILLED if point else 0), (bench.home / "errors").read_text()
    entries = bench.entries(asyncio.run(default_session_tape(bench.home)))
    assert asyncio.run(damage(bench.home)) == []
    for key, said in THREADS.items():
        thread = [line for text in said for line in (text, f"answer to <{text}>")]
        assert [entry.payload["content"] for entry in of_topic(entries, key)] == thread, key
        step = [entry for entry in entries if entry.name == "loop.step" and entry.payload["data"]["status"] == "ok"]
        last = [one for one in step if told(entries, one) and told(entries, one)[-1] == said[-1]]
        assert told(entries, last[-1]) == thread[:-1], key
    listed = (bench.home / "printed").read_text().partition("花园: ")[2]
    assert listed.startswith("4 messages, last on ")
    assert "Trip to Rome: 6 messages" in listed  # as it was written first
    assert "Cake: 4 messages" in listed


def of_topic(entries: Sequence[TapeEntry], key: str) -> list[TapeEntry]:
    """The messages between each anchor that takes up the topic and the next that leaves it, first hands only."""
    found: list[TapeEntry] = []
    is_inside = False
    for entry in entries:
        if entry.kind == "anchor":
            is_inside = entry.name == f"topic/{key}" or (is_inside and entry.name != f"topic-left/{key}")
        elif entry.kind == "message" and is_inside:
            found.append(entry)
    return found


def told(entries: Sequence[TapeEntry], step: TapeEntry) -> list[str]:
    """What people and the bot had said, of what the model was shown at this step."""
    shown = {entry_id for low, high in step.payload["data"]["shown"] for entry_id in range(low, high + 1)}
    return [entry.payload["content"] for entry in entries if entry.id in shown and entry.kind == "message"]
