"""Slash commands of the daemon on Discord, end to end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.on_discord import COUNTED, answered, configured, connected, texts
from tests.fakes.discordapi.desk import FAILED
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User

COMMANDS = "PUT /applications/{}/commands"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as found:
        yield found


@pytest.fixture
def ada(server: Server) -> User:
    return server.user("Ada")


class TestCommands:
    async def test_they_are_registered_when_they_changed_and_only_then(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id])
        for _ in range(2):
            async with connected(home, server):
                await server.until(lambda: server.calls("GET /applications/{}/commands"))
                await server.until(lambda: server.bot.commands)
        assert len(server.calls(COMMANDS)) == 1
        assert {"help", "new", "stop", "status"} <= {one["name"] for one in server.bot.commands}
        server.bot.commands[0]["description"] = "what an older version said"
        async with connected(home, server):
            await server.until(lambda: len(server.calls(COMMANDS)) == 2)
        configured(home, server, owners=[ada.id], slash=False)
        async with connected(home, server):
            await server.until(lambda: not server.bot.commands)
        assert len(server.calls(COMMANDS)) == 3

    async def test_they_are_answered_once_also_while_a_turn_runs(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id])
        bob = server.user("Bob")
        room = server.guild("Club", ada, [bob]).text("general")
        async with connected(home, server):
            await server.until(lambda: server.bot.commands)
            helped = server.slash(room, ada, "help")
            await server.until(lambda: helped.text and "/help" in helped.text)
            room.say(ada, f"{server.bot.mention} wait for me")
            await server.until(lambda: server.calls("POST /channels/{}/typing"))
            status = server.slash(room, ada, "status")
            await server.until(lambda: status.text)
            first = (status.text or "").partition("\n")[0]
            early = r"I am about to answer 1 message\. /stop keeps me from it\."
            assert re.fullmatch(rf"I am answering .*; .*/stop ends the answer\.|{early}", first)
            stop = server.slash(room, ada, "stop")
            await answered(server, room, "Stopped.")
            await server.until(lambda: stop.acknowledged and stop.state == "answered")
            room.say(ada, f"{server.bot.mention} and now")
            await answered(server, room, "You said: and now")
            assert all(one.state == "answered" and len(one.saw) == 1 for one in (helped, status))
            assert FAILED not in stop.saw
            assert not any("wait for me" in one for one in texts(server, room))

    async def test_what_takes_long_is_announced_and_then_answered(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], edit_interval=0)
        async with connected(home, server):
            await server.until(lambda: server.bot.commands)
            room = server.dm(ada)
            room.say(ada, "count slowly")
            await server.until(lambda: server.calls("POST /channels/{}/typing"))
            model = server.slash(room, ada, "model")
            await server.until(lambda: model.deferred)
            await server.until(lambda: model.text and "scripted" in model.text)
            assert texts(server, room) == [model.text, COUNTED]  # the notice came before the answer
            assert len(model.saw) == 2

    async def test_others_may_be_typed_with_a_slash(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id])
        room = server.dm(ada)
        async with connected(home, server):
            await server.until(lambda: server.bot.commands)
            names = {one["name"] for one in server.bot.commands}
            assert len(names) <= 12
            assert not {"memory_save", "quit", "context"} & names
            room.say(ada, "/memory_save")
            wanted = "Type /memory_save <content> …, such as /memory_save Ann is allergic to nuts."
            await server.until(
                lambda: texts(server, room) and texts(server, room)[-1].replace("\\", "").endswith(wanted)
            )
            room.say(ada, "/usr is a folder")
            await answered(server, room, "You said: /usr is a folder")
        assert all("zh-CN" in one["description_localizations"] for one in server.bot.commands)

    async def test_an_answer_after_the_time_for_it_is_a_message(self, home: Path) -> None:
        async with Server(limits=None, token_life=1.5) as server:
            ada = server.user("Ada")
            configured(home, server, owners=[ada.id], edit_interval=0)
            async with connected(home, server):
                await server.until(lambda: server.bot.commands)
                room = server.dm(ada)
                room.say(ada, "count slowly")
                await server.until(lambda: server.calls("POST /channels/{}/typing"))
                server.slash(room, ada, "model")
                await server.until(lambda: any("scripted" in one for one in texts(server, room)))
                assert server.calls("PATCH /webhooks/{}/{}/messages/{}")[-1].status == 401
                assert next(one for one in texts(server, room) if one) == COUNTED
                assert len([one for one in texts(server, room) if one]) == 2

    async def test_a_strangers_command_gets_a_code_directly_and_nothing_on_a_server(self, home: Path) -> None:
        async with Server(limits=None, answer_within=1.0) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            configured(home, server, owners=[ada.id])
            room = server.guild("Club", ada, [bob]).text("general")
            async with connected(home, server):
                await server.until(lambda: server.bot.commands)
                there, here = server.slash(room, bob, "status"), server.slash(server.dm(bob), bob, "status")
                await server.until(lambda: here.text)
                assert "approve" in (here.text or "")
                await server.until(lambda: there.state == "failed")
                assert texts(server, room) == []
