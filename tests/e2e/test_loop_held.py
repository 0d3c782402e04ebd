"""Nothing that people do holds the event loop for long, however long their tape is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.bench import tapes
from benchmarks.bench.talk import WITH_TOOLS, talking
from tests.looping import HELD, steps

ASKED = (
    ",tape.info", ",tape.search garden fence", ",tape.search gardn fense", ",tape.anchors", ",context", ",why", ",why yes",
    ",usage", ",memory.show", ",schedules", ",status", ",help", ",handoff phase/next summary=done", ",resume phase/next",
)  # fmt: skip


@pytest.mark.parametrize("entries", [4_000, pytest.param(100_000, marks=pytest.mark.proof)])
async def test_turns_and_commands_hold_the_loop_only_for_moments(tmp_path: Path, entries: int) -> None:
    await tapes.build(tmp_path / "home", entries)
    async with talking(tmp_path / "home") as bot:
        await bot.say()  # what is loaded and made once
        with steps() as found:
            for text in ASKED:
                await bot.say(text=text)
            await asyncio.gather(*(bot.say(0, WITH_TOOLS) for _ in range(3)))
        assert found.longest < HELD, found
