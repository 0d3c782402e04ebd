"""The daemon on Discord, and on Discord and Telegram at once, is killed at every point: nothing lost, nothing doubled.

Discord delivers nothing again; what was missed is read from its channels, and what was sent is looked for there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.kill_harness import KILLED
from tests.e2e.kill_talk import killed_at, killed_at_all, kills
from tests.e2e.platforms import OnDiscord, OnTelegram, Platform
from tests.e2e.test_kill_telegram import OF_CHANNELS, POINTS
from tests.fakes.botapi.server import Server as BotApi
from tests.fakes.discordapi.server import Server


@asynccontextmanager
async def discord() -> AsyncIterator[Sequence[Platform]]:
    async with Server(limits=None) as server:
        yield [OnDiscord(server)]


@asynccontextmanager
async def both() -> AsyncIterator[Sequence[Platform]]:
    async with discord() as platforms, BotApi(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        yield [*platforms, OnTelegram(server)]


async def test_a_kill_at_a_point_of_the_sample_loses_and_doubles_nothing(tmp_path: Path) -> None:
    points = [point for point in POINTS if point in OF_CHANNELS or point in POINTS[4::16]]
    assert await killed_at_all(tmp_path, points, discord) == ([], {})


@pytest.mark.proof
async def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert await killed_at_all(tmp_path, POINTS, discord) == ([], {})


@pytest.mark.proof
@pytest.mark.parametrize("broken", ["no-fill", "no-find", "split-done"])
async def test_the_matrix_sees_a_bot_that_breaks_the_promise(tmp_path: Path, broken: str) -> None:
    point = {"no-fill": "append-inbox:after#1", "no-find": "send:after#1", "split-done": "merge:after#1"}[broken]
    async with discord() as platforms:
        code, faults = await killed_at(tmp_path / "home", platforms, point, broken)
    assert (code, bool(faults)) == (KILLED, True)


@pytest.mark.proof
async def test_kills_at_random_instants_while_chats_talk_on_both(tmp_path: Path) -> None:
    async with both() as platforms:
        assert await kills(tmp_path / "home", platforms, seed=5, lives=4, chats=2) == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
async def test_three_hundred_kills_on_discord(tmp_path: Path, seed: int) -> None:
    async with discord() as platforms:
        assert await kills(tmp_path / "home", platforms, seed=seed, lives=30, chats=4) == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100, 110))
async def test_three_hundred_kills_on_both(tmp_path: Path, seed: int) -> None:
    async with both() as platforms:
        assert await kills(tmp_path / "home", platforms, seed=seed, lives=30, chats=3) == []
