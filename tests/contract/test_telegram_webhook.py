"""The webhook of the Telegram channel, and its menu of commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import ChannelEvent, CommandInfo, UnparsedUpdate
from channels.telegram.api import UPDATE_KINDS
from channels.telegram.channel import TelegramWebhookChannel
from tests.fakes.telegram_channel import FULL, SECRET, Heard, actions, opened, running
from tests.fakes.telegram_server import DROP, No, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found


class TestWebhook:
    @asynccontextmanager
    async def ready(self, server: ScriptedServer, receive: Any) -> AsyncIterator[TelegramWebhookChannel]:
        server.usual["getWebhookInfo"] = {"url": FULL["webhook_url"]}
        async with opened(server, **FULL) as channel, running(channel, receive):
            assert isinstance(channel, TelegramWebhookChannel)
            await server.until(lambda: "setWebhook" in server.methods())
            yield channel

    async def test_is_set_with_its_secret(self, server: ScriptedServer) -> None:
        async with self.ready(server, Heard(server)):
            assert server.sent("setWebhook") == [
                {
                    "url": FULL["webhook_url"], "secret_token": FULL["webhook_secret"], "allowed_updates": UPDATE_KINDS,
                    "drop_pending_updates": False, "max_connections": 1,
                }
            ]  # fmt: skip
        assert "getUpdates" not in server.methods()

    async def test_a_call_is_answered_when_its_update_was_received(self, server: ScriptedServer) -> None:
        heard, stored = Heard(server), asyncio.Event()

        async def receive(event: ChannelEvent) -> None:
            await heard(event)
            await stored.wait()

        async with self.ready(server, receive) as channel:
            call = asyncio.create_task(channel.handle(SECRET, b'{"update_id": 1, "message": 5}'))
            await server.until(lambda: len(heard.events) == 1)
            await asyncio.sleep(0.02)
            assert not call.done()
            stored.set()
            assert await call == 200

    async def test_what_is_not_received_is_not_taken(self, server: ScriptedServer) -> None:
        async def broken(event: ChannelEvent) -> None:
            raise OSError("disk full")

        async with self.ready(server, broken) as channel:
            with pytest.raises(OSError, match="disk full"):
                await channel.handle(SECRET, b"no json")

    async def test_a_wrong_secret_and_a_long_body_are_refused(self, server: ScriptedServer) -> None:
        heard = Heard(server)
        async with self.ready(server, heard) as channel:
            for headers in ({}, {"x-telegram-bot-api-secret-token": "é"}, {"x-telegram-bot-api-secret-token": "012"}):
                assert await channel.handle(headers, b"{") == 401
            assert await channel.handle(SECRET, b"x" * 1_000_001) == 413
            assert heard.events == []
            assert await channel.handle(SECRET, b"\xff{") == 200
            assert await channel.handle(SECRET, b"[" * 100_000) == 200
        assert [type(one) for one in heard.events] == [UnparsedUpdate, UnparsedUpdate]

    async def test_before_and_after_it_runs_telegram_shall_come_again(self, server: ScriptedServer) -> None:
        async with self.ready(server, Heard(server)) as channel:
            pass
        assert await channel.handle(SECRET, b"{}") == 503

    async def test_one_that_was_changed_is_set_again(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with self.ready(server, Heard(server)):
            server.say("getWebhookInfo", DROP, {"url": ""})
            await server.until(lambda: server.methods().count("setWebhook") == 2)
        assert actions(caplog) == ["telegram.webhook_unchecked", "telegram.webhook_changed"]

    async def test_an_address_that_is_refused_is_for_the_operator(self, server: ScriptedServer) -> None:
        server.say("setWebhook", No(400, "Bad Request: bad webhook: IP address 10.0.0.1 is reserved"))
        async with opened(server, **FULL) as channel:
            with pytest.raises(ChannelRefused, match=r"\[channels\.tg\] webhook_url was refused .* reserved"):
                await asyncio.wait_for(channel.run(Heard(server)), 5)


class TestMenu:
    COMMANDS = (
        CommandInfo("context", "For developers."), CommandInfo("new", "A new window.", in_menu=True),
        CommandInfo("help", "", in_menu=True), CommandInfo("Ünicode", "No.", in_menu=True),
    )  # fmt: skip
    SHOWN = (
        {"command": "new", "description": "A new window."},
        {"command": "help", "description": "help"},
    )

    async def test_is_set_where_it_is_another_one(self, server: ScriptedServer) -> None:
        async with opened(server, commands=lambda: self.COMMANDS) as channel, running(channel, Heard(server)):
            await server.until(lambda: "getUpdates" in server.methods())
        places = ("all_private_chats", "all_chat_administrators", "all_group_chats")
        sent = server.sent("setMyCommands")
        assert sorted(sent, key=str) == sorted(
            [{"commands": list(self.SHOWN), "scope": {"type": place}} for place in places], key=str
        )

    async def test_and_left_where_it_is_right_or_there_are_none(self, server: ScriptedServer) -> None:
        server.usual["getMyCommands"] = list(self.SHOWN)
        async with opened(server, commands=lambda: self.COMMANDS) as channel, running(channel, Heard(server)):
            await server.until(lambda: "getUpdates" in server.methods())
        async with opened(server) as channel, running(channel, Heard(server)):
            await server.until(lambda: server.methods().count("getUpdates") == 2)
        assert "setMyCommands" not in server.methods()

    async def test_a_failure_stops_nothing(self, server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
        server.say("setMyCommands", No(400, "Bad Request: BOT_COMMAND_INVALID"))
        async with opened(server, commands=lambda: self.COMMANDS) as channel, running(channel, Heard(server)):
            await server.until(lambda: "getUpdates" in server.methods())
        assert "telegram.menu" in actions(caplog)
