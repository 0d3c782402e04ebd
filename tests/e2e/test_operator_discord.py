"""What people and the operator see on Discord: pairing, access, help by role, servers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.on_discord import answered, configured, connected, named, texts
from tests.e2e.test_operator_telegram import CANARY, masked
from tests.e2e.test_telegram import told_in_shell
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _has_texts(server: Server, room: Room, count: int) -> bool:
    return len(texts(server, room)) == count


async def test_the_first_owner_and_the_first_member(server: Server, home: Path) -> None:
    ada, bob = server.user("Ada"), server.user("Bob")
    configured(home, server, live=False)
    hers, his = server.dm(ada), server.dm(bob)
    async with connected(home, server) as daemon:
        for count, text in enumerate((f"hello? {CANARY}", f"anybody? {CANARY}"), 1):
            hers.say(ada, text)
            await server.until(partial(_has_texts, server, hers, count))
        code = re.search(r"approve (\w{8}) --role owner$", texts(server, hers)[0])
        assert code
        done = await told_in_shell(home, "access", "approve", code[1], "--role", "owner", "--yes")
        assert done.returncode == 0, done.stderr
        await server.until(partial(_has_texts, server, hers, 4))  # she is told, and her first message is answered
        his.say(bob, "may I?")
        await server.until(lambda: texts(server, his) and len(texts(server, hers)) == 5)
        hers.say(ada, "/access")
        await server.until(partial(_has_texts, server, hers, 6))
        code = re.search(r"code is (\w{8}),", texts(server, his)[0])
        assert code
        hers.say(ada, f"/access_approve {code[1]}")
        await server.until(lambda: len(texts(server, hers)) == 7 and len(texts(server, his)) == 3)
        his.say(bob, "and now?")
        await answered(server, his, "You said: and now?")
        for room, person in ((hers, ada), (his, bob)):
            room.say(person, "/help all")
        await server.until(lambda: "/help" in texts(server, hers)[-1] and "/help" in texts(server, his)[-1])
    shown = masked(server.transcript(times=False)).replace("\\", "")
    for line in (
        "I do not know you yet, and nobody is my owner here. Your code is CODE, good for one hour",
        "bubbot access approve CODE --role owner",
        "The code I sent at HH:MM works until HH:MM. If it did not arrive, write again after HH:MM for another one.",
        f"discord {bob.id} (Bob), until HH:MM",
        f"Done: {bob.id} (Bob), member on discord. /access_revoke {bob.id} channel=discord takes it back.",
    ):
        assert line in shown
    assert "access" in texts(server, hers)[-1]
    assert "access" not in texts(server, his)[-1]
    assert len(re.findall(r"action=turn\.end .*outcome=answered", daemon.errors)) == 7
    assert CANARY not in daemon.errors
    assert code[1] not in daemon.errors


async def test_an_owner_is_told_once_of_a_server_where_strangers_call(server: Server, home: Path) -> None:
    ada, bob = server.user("Ada"), server.user("Bob")
    configured(home, server, owners=[ada.id], live=False)
    club, hers = server.guild("Club", ada, [bob]), server.dm(ada)
    rooms = club.text("general"), club.text("garden")
    async with connected(home, server):
        hers.say(ada, "good morning")
        await server.until(lambda: texts(server, hers))
        for room in rooms:
            room.say(bob, f"{server.bot.mention} hello")
        await server.until(lambda: len(texts(server, hers)) == 2)
    async with connected(home, server):
        rooms[0].say(bob, f"{server.bot.mention} hello?")
        rooms[0].say(ada, f"{server.bot.mention} and I?")
        await answered(server, rooms[0], "You said: and I?")
    notice = texts(server, hers)[1].replace("\\", "")
    assert notice.startswith(f"Bob ({bob.id}) called me on the server Club on discord")
    assert f"/access_group discord:{club.id} everybody" in notice
    assert len(texts(server, hers)) == 2
    assert texts(server, rooms[1]) == []
    assert len(named(home, "bubbot/inbox/discord", "inbox/called")) == 1
