"""What Telegram says, and what the port calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import ChannelError, DeliveryFailed, FetchFailed
from bubbot.ports.channel import Attachment, MessagePart
from channels.telegram.api import TelegramApiTiming
from channels.telegram.errors import TelegramUnavailable
from channels.telegram.poller import OutageLog
from tests.fakes.telegram_channel import FAST, opened
from tests.fakes.telegram_server import DROP, TOKEN, No, Page, ScriptedServer, scripted_server
from tests.virtual import virtual


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found


async def refused(server: ScriptedServer, answer: Any) -> DeliveryFailed:
    """What a message fails with that is answered so."""
    server.say("sendMessage", answer)
    async with opened(server, structs.replace(FAST, call_timeout=0.3)) as channel:
        with pytest.raises(DeliveryFailed) as caught:
            await channel.send(MessagePart("77", "hi"))
    return caught.value


@pytest.mark.parametrize(
    ("answer", "permanent", "retry_after"),
    [
        (No(400, "Bad Request: chat not found"), True, None),
        (No(400, "Bad Request: message is too long"), True, None),
        (No(403, "Forbidden: bot was blocked by the user"), True, None),
        (No(413, "Request Entity Too Large"), True, None),
        (No(429, "Too Many Requests: retry after 14", {"retry_after": 14}), False, 14.0),
        (No(429, "Too Many Requests"), False, 1.0),
        (No(401, "Unauthorized"), False, None),
        (No(404, "Not Found"), False, None),
        (No(408, "Request Timeout"), False, None),
        (No(409, "Conflict"), False, None),
        (No(410, "Gone"), True, None),
        (No(499, "Odd"), True, None),
        (No(500, "Internal Server Error"), False, None),
        (Page(502, b"<html>"), False, None),
    ],
)
async def test_a_failed_delivery_says_whether_and_when_to_try_again(
    server: ScriptedServer, answer: No | Page, permanent: bool, retry_after: float | None
) -> None:
    failed = await refused(server, answer)
    assert (failed.permanent, failed.retry_after) == (permanent, retry_after)
    assert (answer.description if isinstance(answer, No) else "502") in str(failed)


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        (No(403, "Forbidden: bot was kicked from the group chat"), True),
        (No(400, "Bad Request: chat not found"), True),
        (No(400, "Bad Request: GROUP chat was deactivated"), True),
        (No(400, "Bad Request: message is too long"), False),
        (No(404, "Not Found: chat not found"), False),
    ],
)
async def test_only_a_chat_that_is_out_of_reach_is_gone(server: ScriptedServer, answer: No, gone: bool) -> None:
    assert (await refused(server, answer)).gone is gone


async def test_what_was_not_answered_may_have_arrived_and_what_was_refused_has_not(server: ScriptedServer) -> None:
    assert (await refused(server, DROP)).maybe
    assert not (await refused(server, No(400, "Bad Request"))).maybe


@pytest.mark.parametrize(
    ("answer", "said", "permanent"),
    [
        (No(400, "Bad Request: file is too big"), "larger than the 20 MB", True),
        (No(400, "Bad Request: wrong file_id or the file is temporarily unavailable"), "wrong file_id", True),
        (No(500, "Internal Server Error"), "500", False),
        (No(429, "Too Many Requests: retry after 3", {"retry_after": 3}), "429", False),
        (DROP, "could not be fetched", False),
    ],
)
async def test_a_failed_download_says_why_and_whether_to_try_again(
    server: ScriptedServer, answer: Any, said: str, permanent: bool
) -> None:
    server.say("getFile", answer)
    async with opened(server) as channel:
        with pytest.raises(FetchFailed, match=said) as caught:
            await channel.fetch(Attachment("F"), 1000)
    assert caught.value.permanent is permanent


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        (No(401, "Unauthorized"), True),
        (No(404, "Not Found"), True),
        (Page(404, b"<html>nginx</html>"), False),
        (Page(404, b"[]"), False),
        (Page(404, b"[" * 9_000), False),
        (No(403, "Forbidden"), False),
    ],
)
async def test_only_the_bot_api_itself_can_refuse_a_token(
    server: ScriptedServer, answer: No | Page, is_refusal: bool
) -> None:
    server.say("getMe", *[answer] * 9)
    async with opened(server) as channel:
        with pytest.raises(ChannelError) as caught:
            await channel.verify_token()
    assert ("copy it again from @BotFather, and see that base_url is right" in str(caught.value)) is is_refusal


async def test_what_telegram_says_is_searched_for_the_token_and_cut(server: ScriptedServer) -> None:
    failed = str(await refused(server, No(400, f"Bad Request: https://example.org/bot{TOKEN}/x " + "y" * 1000)))
    assert TOKEN not in failed
    assert 300 <= len(failed) < 400


@virtual
async def test_in_an_outage_nobody_waits_longer_than_ten_seconds_for_the_next_try() -> None:
    outage, loop, waits = (
        OutageLog("tg", structs.replace(TelegramApiTiming(), jitter=lambda: 1.0)),
        asyncio.get_running_loop(),
        [],
    )
    for _ in range(12):
        began = loop.time()
        await outage.wait(TelegramUnavailable("down"))
        waits.append(loop.time() - began)
    assert waits[:5] == [1, 2, 4, 8, 10]
    assert max(waits) == 10
