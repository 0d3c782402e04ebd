"""The first turn on an imported tape: what it takes does not follow the length of the tape."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.bot import environment
from tests.e2e.openai_server import OpenaiServer, says, serving

MOST_MEGABYTES = 120
"""More than a start on an empty tape takes. That a turn reads what it has room for is counted in `tests/unit`."""
WRITTEN_AT_ONCE = 10_000


def write_talk(file: Path, length: int) -> None:
    """Write so many messages as `bubbot tape export` does."""
    with file.open("w", encoding="utf-8") as out:
        opening = {"name": "session/start", "state": {"owner": "human"}}
        lines = [
            json.dumps({"id": 1, "kind": "anchor", "payload": opening, "meta": {}, "date": "2024-01-01T00:00:00Z"})
        ]
        for number in range(2, length + 2):
            role = "assistant" if number % 2 else "user"
            payload = {
                "role": role,
                "content": f"message {number}: the garden, its harvest, and what we are going to cook of it",
            }
            date = f"2024-01-{1 + number * 27 // length:02d}T00:00:00Z"
            lines.append(json.dumps({"id": number, "kind": "message", "payload": payload, "meta": {}, "date": date}))
            if len(lines) == WRITTEN_AT_ONCE:
                out.write("\n".join(lines) + "\n")
                lines.clear()
        out.write("\n".join([*lines, ""]))


async def measure(home: Path, server: OpenaiServer, *arguments: str) -> tuple[float, float]:
    """Run the command in an interpreter of its own; return its seconds of processor time and its megabytes at most."""
    own = {"BUBBOT_MODEL__NAME": "openai/our-own", "BUBBOT_MODEL__API_BASE": server.address}
    env = environment(home, **own, BUBBOT_MODEL__CONTEXT_TOKENS="128000")

    def run() -> tuple[float, float]:
        child = os.posix_spawn(sys.executable, [sys.executable, "-m", "bubbot", *arguments], env)
        _, status, used = os.wait4(child, 0)
        assert status == 0
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024

    return await asyncio.to_thread(run)


@pytest.mark.proof
@pytest.mark.parametrize("length", [100_000, 1_000_000])
async def test_the_first_turn_on_an_imported_tape_takes_little(tmp_path: Path, length: int) -> None:
    talk, home = tmp_path / "talk.jsonl", tmp_path / "home"
    write_talk(talk, length)
    async with serving(says("yes")) as server:
        empty = await measure(tmp_path / "empty", server, "ask", "--session", "work", "hello")
        await measure(home, server, "tape", "import", str(talk), "--session", "stdin:work")
        turns = [await measure(home, server, "ask", "--session", "work", text) for text in ("hello", "and now?")]
    for name, (seconds, megabytes) in zip(("first", "second"), turns, strict=True):
        print(f"{length}: {name} turn {seconds - empty[0]:+.2f} s, {megabytes - empty[1]:+.0f} MB beside an empty tape")
        assert megabytes - empty[1] <= MOST_MEGABYTES
    earlier, later = (request["messages"] for request in server.requests[-2:])
    assert later[1 : len(earlier)] == earlier[1:]
    assert "[Left out here: #2-#" in str(earlier[1])
