"""No secret of the Discord channel in any log or error, whatever fails."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import BubbotError
from bubbot.ports.channel import Attachment, CommandInfo, MessagePart, OutboundFile
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.files import fetch_attachment
from channels.discord.slash_commands import build_commands, sync_commands
from tests.fakes.discord_sending import FAST, STORED, Outgoing, outgoing
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Html, Wedge

INFOS = [CommandInfo("note", "Adds a note.", ("text",), in_menu=True)]
SHORT = structs.replace(
    FAST, call_timeout=0.1, upload_timeout=0.1, download_timeout=0.1, callback_timeout=0.1, defer_after=0.01
)
TOLD = "a-private-sentence"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as made:
        yield made


async def _everything(server: Server, out: Outgoing) -> tuple[list[BaseException], str]:
    """Do all that there is to do; return what went wrong, and the token of the interaction."""
    ann = server.user("Ann")
    room = server.guild("Home", ann).text("general")
    server.bot.commands = [{**one, **STORED} for one in build_commands(INFOS)]
    one = server.slash(room, ann, "note", {"text": "x"})
    here = str(room.id)
    out.interactions.remember(one.payload)
    file = Attachment(f'{{"url":"{server.world.origin}/attachments/1/2/a","channel":"{here}","message":"1","id":"2"}}')
    errors: list[BaseException] = []

    async def attempt(work: Any) -> None:
        try:
            await work
        except (BubbotError, DiscordApiError, DiscordUnavailable) as error:
            errors.append(error)

    await attempt(out.sending.send(MessagePart(here, TOLD, reply_to=str(one.id), key="k")))
    await attempt(out.sending.send(MessagePart(here, TOLD, key="l")))
    await attempt(out.sending.send(MessagePart(here, "", file=OutboundFile("a.txt", text=TOLD))))
    await attempt(out.sending.edit("1", MessagePart(here, TOLD)))
    await attempt(out.sending.typing(here, ""))
    await attempt(out.sending.find(MessagePart(here, TOLD), "2026-01-01T00:00:00+00:00"))
    await attempt(fetch_attachment(out.api, file, 100))
    await attempt(sync_commands(out.api, str(server.bot.application_id), INFOS))
    await attempt(out.interactions.defer(one.payload))
    await attempt(out.sending.dismiss(here, "", str(one.id)))
    await attempt(out.api.call("GET", "/users/@me"))
    errors.append(RuntimeError(repr((out.interactions, out.api, one.payload["id"]))))
    return errors, one.token


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fault",
    [
        Drop(), Cut(), Wedge(), TooMany(0.01), TooMany(60), TooMany(1, banned=True), Html(200, "{token}"),
        Html(404, "<p>{token}"), Html(502, "{token}"), Html(429, "{token}"), Refuse(400, "Bad: {token}", 50035),
        Refuse(401, "Unauthorized {token}"), Refuse(403, "{token}", 50013), Refuse(404, "{token}", 10003), Refuse(503, "{token}"),
        None,
    ],
)  # fmt: skip
async def test_no_token_is_shown_whatever_fails(server: Server, caplog: pytest.LogCaptureFixture, fault: Any) -> None:
    for name in (None, "discord", "discord.http", "aiohttp", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    token = server.bot.token
    if isinstance(fault, Html):
        fault = replace(fault, page=fault.page.replace("{token}", token))
    elif isinstance(fault, Refuse):
        fault = replace(fault, message=fault.message.replace("{token}", token))
    if fault is not None:
        server.fail("*", fault, times=1_000)
    async with outgoing(server, SHORT) as out:
        errors, interaction_token = await _everything(server, out)
    shown = "".join("".join(traceback.format_exception(error)) for error in errors)
    for text in (shown, caplog.text):
        assert token not in text
        assert interaction_token not in text
    assert TOLD not in caplog.text
    assert fault is None or len(errors) > 1
