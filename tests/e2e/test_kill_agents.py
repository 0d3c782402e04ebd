"""The daemon is killed while three agents talk with people and with each other: nothing lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.kill_agents import kills_of_agents
from tests.fakes.botapi.server import Server


def server_of_groups() -> Server:
    """A Bot API server whose bot reads all messages of its groups: so people call agents by name there."""
    return Server(limits=None, conflict_pause=0.1, longest_poll=0.3, privacy=False)


async def test_kills_at_random_instants_while_agents_talk(tmp_path: Path) -> None:
    async with server_of_groups() as server:
        assert await kills_of_agents(tmp_path / "home", server, seed=3, lives=3) == []


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
async def test_two_hundred_kills(tmp_path: Path, seed: int) -> None:
    async with server_of_groups() as server:
        assert await kills_of_agents(tmp_path / "home", server, seed=seed, lives=50) == []
