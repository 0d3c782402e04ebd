"""The daemon on Telegram is killed at every point between poll and receipt: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.botapi.server import Server
from tests.e2e.kill_harness import KILLED
from tests.e2e.kill_telegram import Talk, killed_at

POINTS = (
    "receive:before#1",  # fetched, nowhere kept: the platform delivers it again
    "append-inbox:before#1",
    "append-inbox:after#1",  # kept, not yet acknowledged: the repeat is known by its key
    "receive:after#1",
    "open-fork:before#1",
    "open-fork:after#1",
    "model:before#1",
    "extend-fork:before#1",
    "extend-fork:after#1",
    "tool:before#1",
    "tool:after#1",
    "extend-fork:before#2",
    "extend-fork:after#2",
    "model:before#3",
    "merge:before#1",
    "merge:after#1",
    "send:before#1",
    "send:after#1",  # between send and receipt: the one place where a part may come again
    "append-outbox:before#1",
    "append-outbox:after#1",
    "merge:after#2",
    "send:after#2",
)
AT_ONCE = 4


async def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: str) -> tuple[str, int | None, list[str]]:
        async with limit:
            return (point, *await killed_at(tmp_path / f"home{number}", point))

    found = await asyncio.gather(*(one(number, point) for number, point in enumerate(POINTS)))
    assert [point for point, code, _ in found if code != KILLED] == []
    assert {point: faults for point, _, faults in found if faults} == {}


@pytest.mark.parametrize("broken", ["early-ack", "split-done"])
async def test_the_matrix_sees_a_bot_that_breaks_the_promise(tmp_path: Path, broken: str) -> None:
    point = {"early-ack": "append-inbox:before#1", "split-done": "merge:after#1"}[broken]
    code, faults = await killed_at(tmp_path / "home", point, broken)
    assert (code, bool(faults)) == (KILLED, True)


async def kills(home: Path, seed: int, lives: int, chats: int) -> list[str]:
    """Random instants; several chats talk all the time, with live answers."""
    rng = random.Random(seed)
    async with Server(limits=None, conflict_pause=0.05) as server:
        talk = Talk(home, server)
        talk.open(chats, edit_interval=0.2)
        for life in range(lives):
            daemon = await talk.start()
            for number in range(chats):
                person = rng.choice(list(talk.rooms))
                talk.say(person, f"{'use the tool ' if rng.random() < 0.5 else ''}{life}-{number}")
                await asyncio.sleep(rng.random() * 0.1)
            await asyncio.sleep(rng.random() * 1.2)
            await daemon.kill()
        await talk.settle(120)
        return await talk.faults()


async def test_kills_at_random_instants_while_chats_talk(tmp_path: Path) -> None:
    assert await kills(tmp_path / "home", seed=4, lives=4, chats=3) == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
async def test_three_hundred_kills(tmp_path: Path, seed: int) -> None:
    assert await kills(tmp_path / "home", seed=seed, lives=30, chats=4) == []
