"""No secret of the Telegram channel in any log or error, whatever fails."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

from bubbot.errors import BubbotError
from bubbot.ports.channel import Attachment, CommandInfo, MessagePart
from channels.telegram.channel import TelegramChannel
from channels.telegram.settings import TelegramSettings
from tests.fakes.telegram_channel import BOLD, CONFLICT, FAST, HOOKED, Heard, opened, options
from tests.fakes.telegram_server import DROP, HANG, TOKEN, No, Page, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found


class TestSecrets:
    """The token is in the address of every request; it must be in no log line and in no error."""

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("proxied", [False, True])
    @pytest.mark.parametrize(
        "failure",
        [
            DROP, HANG, CONFLICT, HOOKED, No(400, f"Bad Request: {TOKEN}"), No(401, f"Unauthorized {TOKEN}"),
            No(403, f"Forbidden: /bot{TOKEN}/x"), No(404, f"Not Found {TOKEN}"),
            No(429, f"Too Many Requests {TOKEN}", {"retry_after": 0.01}), No(500, f"Internal Server Error {TOKEN}"),
            Page(200, TOKEN.encode()), Page(301, TOKEN.encode()), Page(502, f"<html>{TOKEN}".encode()), Page(200, b"[]"),
        ],
    )  # fmt: skip
    async def test_no_token_is_shown_whatever_fails(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture, failure: Any, *, proxied: bool
    ) -> None:
        """Behind a proxy another HTTP library sends the requests; the server here takes them as a proxy does."""
        for name in (None, "httpx", "httpcore", "aiohttp", "telegram"):  # an earlier test may have made them quiet
            caplog.set_level(logging.DEBUG, name)
        errors: list[BaseException] = []
        timing = structs.replace(FAST, call_timeout=0.2, poll_margin=-0.8)

        async def attempt(method: str, work: Any) -> None:
            server.say(method, failure, failure)
            try:
                await asyncio.wait_for(work, 1)
            except TimeoutError:
                return  # it goes on trying, which is right for some
            except BubbotError as error:
                errors.append(error)

        server.usual["getFile"] = {"file_path": "f"}
        server.files["f"] = lambda _: web.Response(status=500, body=TOKEN.encode())
        proxy = {"proxy": server.url} if proxied else {}
        async with opened(server, timing, commands=lambda: [CommandInfo("new")], **proxy) as channel:
            part = MessagePart("77", "hi", markup=BOLD)
            await attempt("sendMessage", channel.send(part))
            await attempt("editMessageText", channel.edit("7", part))
            await attempt("sendChatAction", channel.typing("77", ""))
            await attempt("getFile", channel.fetch(Attachment("F"), 10))
            await attempt("none", channel.fetch(Attachment("F"), 10))
            server.say("getMe", failure)
            await attempt("setMyCommands", _until_called(server, "setMyCommands", channel.run(Heard(server))))
            await attempt("getUpdates", _until_called(server, "getUpdates", channel.run(Heard(server))))
        # Nobody listens on this port: the connection itself fails.
        given = TelegramSettings.read(
            "tg",
            {"token": TOKEN, "base_url": "http://127.0.0.1:9"} | ({"proxy": "http://127.0.0.1:9"} if proxied else {}),
        )
        gone = TelegramChannel(options(server), given, timing)
        for work in (gone.send(part), gone.fetch(Attachment("F"), 10), gone.edit("7", part)):
            with pytest.raises(BubbotError) as caught:
                await work
            errors.append(caught.value)
        await gone.aclose()

        assert len(errors) >= 4
        shown = "".join(f"{error!r} {''.join(traceback.format_exception(error))}" for error in errors)
        logged = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
        assert ("/getMe" in logged) == proxied  # the lines of httpx are there; aiohttp writes none
        for text in (shown, logged, caplog.text):
            assert "SECRET-token" not in text

    async def test_what_hides_it_goes_with_the_channel(self, server: ScriptedServer) -> None:
        before = list(logging.getLogger("httpx").filters)
        async with opened(server), opened(server):
            assert len(logging.getLogger("httpx").filters) == len(before) + 2
        assert logging.getLogger("httpx").filters == before


async def _until_called(server: ScriptedServer, method: str, work: Coroutine[Any, Any, None]) -> None:
    """Run until the platform was called so and twice more, or the work ends by itself."""
    before = len(server.calls)

    def is_over() -> bool:
        since = server.methods()[before:]
        return method in since[:-2]

    running, called = asyncio.create_task(work), asyncio.create_task(server.until(is_over))
    try:
        await asyncio.wait({running, called}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = running.done()
        for task in (running, called):
            task.cancel()
        await asyncio.wait({running, called})
    if ended:
        await running
