"""What Discord's refusals, and what is no answer of it, are called by the port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import MessagePart
from channels.discord.errors import (
    DiscordApiError,
    DiscordUnavailable,
    parse_error_response,
)
from tests.fakes.discord_sending import CREATE, outgoing
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop, Fault

CANNOT_SEND_DIRECT = 50_007
ENTITY_TOO_LARGE = 40_005
INVALID_WEBHOOK_TOKEN = 50_027
MAX_REASON_CHARS = 300
MISSING_ACCESS = 50_001
MISSING_PERMISSIONS = 50_013
UNKNOWN_CHANNEL = 10_003


TOKEN = "to.ken"


def refusal(status: int, body: Any, waits: str | None = None) -> DiscordApiError:
    found = parse_error_response(status, body, TOKEN, waits)
    assert isinstance(found, DiscordApiError), found
    return found


@pytest.mark.parametrize(
    ("told", "header", "wait"),
    [
        (2.5, None, 2.5),
        (0.25, "9", 0.25),
        ("2.5", "9", 2.5),
        (9_999_999, None, 9_999_999.0),
        (10_000_000, "9", 9.0),
        (10_000_000, None, 1.0),
        (0, "9", 9.0),
        (0, "0", 1.0),
        (-1, "9", 9.0),
        ("nan", "inf", 1.0),
        (None, "soon", 1.0),
    ],
)
def test_what_asks_too_often_waits_as_long_as_it_is_told_to(told: Any, header: str | None, wait: float) -> None:
    assert refusal(429, {"message": "x", "retry_after": told}, header).retry_after == wait


def test_a_page_has_the_seconds_in_its_head() -> None:
    assert refusal(429, "<html>", "9").retry_after == 9.0
    assert (refusal(429, {"message": "x", "code": 7}).code, refusal(429, "<html>").code) == (7, 0)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {"message": "x"}), (503, "<html>"), (499, "<html>"), (404, []), (404, {"other": 1}), (404, "[" * 10**5)],
)
def test_what_has_not_the_form_of_the_api_is_no_refusal(status: int, body: Any) -> None:
    assert isinstance(parse_error_response(status, body, TOKEN), DiscordUnavailable)


def test_a_refusal_says_on_one_line_what_discord_said_and_never_the_token() -> None:
    found = refusal(499, {"message": f"a\n b {TOKEN} " + "x" * 400, "code": 5})
    assert (found.status, found.code, len(found.text)) == (499, 5, MAX_REASON_CHARS)
    assert found.text.startswith("a b [token] x")
    assert refusal(400, '{"code": "5"}').text == "no reason"
    assert refusal(400, b'{"code": "5"}').code == 0


def test_a_request_that_is_too_large_is_so_whoever_says_it() -> None:
    assert refusal(413, "<html>").code == ENTITY_TOO_LARGE
    assert refusal(413, {"code": 9}).code == 9
    assert refusal(413, {"code": 9}).is_too_large
    assert DiscordApiError(400, ENTITY_TOO_LARGE).is_too_large
    assert not DiscordApiError(400).is_too_large


def test_the_token_of_an_interaction_is_not_that_of_the_bot() -> None:
    assert DiscordApiError(401).is_token_refused
    assert not DiscordApiError(401, INVALID_WEBHOOK_TOKEN).is_token_refused
    assert not DiscordApiError(403).is_token_refused


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as made:
        yield made


async def refused(server: Server, fault: Fault) -> DeliveryFailed:
    """What a message fails with that is answered so."""
    room = server.guild("Home", server.user("Ann")).text("general")
    server.fail(CREATE, fault, times=9)
    async with outgoing(server) as out:
        with pytest.raises(DeliveryFailed) as caught:
            await out.sending.send(MessagePart(str(room.id), "hi"))
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "permanent", "gone", "says"),
    [
        (403, MISSING_ACCESS, True, True, "(403/50001): the bot may not see the channel"),
        (404, UNKNOWN_CHANNEL, True, True, "is gone"),
        (403, CANNOT_SEND_DIRECT, True, True, "takes no direct messages"),
        (403, MISSING_PERMISSIONS, True, False, "lacks a permission"),
        (400, 0, True, False, "(400): m"),
        (401, 0, False, False, "(401): m"),
        (401, MISSING_ACCESS, False, False, "(401/50001)"),
        (403, 0, False, False, "(403): m"),
        (404, 0, False, False, "(404): m"),
        (408, 9, False, False, "(408/9): m"),
        (499, 9, True, False, "(499/9): m"),
    ],
)
async def test_what_cannot_be_sent_again_is_told_apart(
    server: Server, status: int, code: int, permanent: bool, gone: bool, says: str
) -> None:
    found = await refused(server, Refuse(status, "m", code))
    assert (found.permanent, found.gone, found.maybe, found.retry_after) == (permanent, gone, False, None)
    assert says in str(found)


async def test_a_message_too_many_is_sent_later(server: Server) -> None:
    found = await refused(server, TooMany(2.5))
    assert (found.retry_after, found.permanent) == (2.5, False)


async def test_without_an_answer_it_may_have_arrived(server: Server) -> None:
    found = await refused(server, Drop())
    assert (found.maybe, found.permanent) == (True, False)
