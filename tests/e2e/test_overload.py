"""More chats at once than there are places for turns: nobody is left out, nobody overtakes, and who waits is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.daemon import configured, running
from tests.fakes.botapi.server import Server

CHATS = 60
PLACES = 8
DELAY = 1.0
"""Seconds the model takes; with eight places that is eight rounds."""


@pytest.mark.proof
async def test_a_crowd_is_served_in_order(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        people = [server.user(f"P{number}") for number in range(CHATS)]
        rooms = [server.private(person) for person in people]
        configured(
            home,
            server,
            {"default": [{"text": "You said: {text}", "delay": DELAY}]},
            owners=[people[0].id],
            members=[person.id for person in people[1:]],
        )
        with (home / "config.toml").open("a") as config:
            config.write(f"[bot]\nturns_at_once = {PLACES}\n")
        async with running(home):
            for number, room in enumerate(rooms):
                room.say(f"m{number:02}")
            await server.until(lambda: len(answered(server)) == CHATS, 60)
        order, said = answered(server), server.transcript(times=False)
    assert sorted(order) == [f"m{number:02}" for number in range(CHATS)]
    rounds = [[int(text[1:]) // PLACES for text in order[start : start + PLACES]] for start in range(0, CHATS, PLACES)]
    assert all(abs(found - place) <= 1 for place, one in enumerate(rounds) for found in one), order
    told = [int(found) for found in re.findall(r"waits its turn; (\d+) (?:is|are) before it", said)]
    assert len(told) >= CHATS - PLACES * 6
    assert max(told) < CHATS - PLACES * 4


def answered(server: Server) -> list[str]:
    """What was answered so far, in order."""
    return re.findall(r"You said: (m\d\d)", server.transcript(times=False))
