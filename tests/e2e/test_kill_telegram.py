"""The daemon on Telegram is killed at every point between poll and receipt: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.kill_harness import KILLED
from tests.e2e.kill_talk import killed_at, killed_at_all, kills
from tests.e2e.platforms import OnTelegram, Platform
from tests.fakes.botapi.server import Server

POINTS = (
    "append-inbox:before#1",  # nothing is received yet
    "receive:before#1",  # fetched, nowhere kept: the platform delivers it again
    "append-inbox:before#2",
    "append-inbox:after#2",  # kept, not yet acknowledged: the repeat is known by its key
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
OF_CHANNELS = {"receive:before#1", "append-inbox:before#2", "append-inbox:after#2", "receive:after#1", "send:after#1"}
"""The points that are the channels' own. Those of a turn are tried in test_kill_matrix.py; here every fourth one is, half
of them on each platform."""


@asynccontextmanager
async def telegram() -> AsyncIterator[Sequence[Platform]]:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        yield [OnTelegram(server)]


async def test_a_kill_at_a_point_of_the_sample_loses_and_doubles_nothing(tmp_path: Path) -> None:
    points = [point for point in POINTS if point in OF_CHANNELS or point in POINTS[0::16]]
    assert await killed_at_all(tmp_path, points, telegram) == ([], {})


@pytest.mark.proof
async def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert await killed_at_all(tmp_path, POINTS, telegram) == ([], {})


@pytest.mark.proof
@pytest.mark.parametrize("broken", ["early-ack", "split-done"])
async def test_the_matrix_sees_a_bot_that_breaks_the_promise(tmp_path: Path, broken: str) -> None:
    point = {"early-ack": "append-inbox:before#2", "split-done": "merge:after#1"}[broken]
    async with telegram() as platforms:
        code, faults = await killed_at(tmp_path / "home", platforms, point, broken)
    assert (code, bool(faults)) == (KILLED, True)


async def test_kills_at_random_instants_while_chats_talk(tmp_path: Path) -> None:
    async with telegram() as platforms:
        assert await kills(tmp_path / "home", platforms, seed=4, lives=4, chats=3) == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
async def test_three_hundred_kills(tmp_path: Path, seed: int) -> None:
    async with telegram() as platforms:
        assert await kills(tmp_path / "home", platforms, seed=seed, lives=30, chats=4) == []
