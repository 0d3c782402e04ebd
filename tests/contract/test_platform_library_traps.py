"""What discord.py and python-telegram-bot do by themselves, and why some code of ours stands in their place.

docs/decisions/0017-libraries-by-public-names.md explains it. If a test fails with a new version, the code may go.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest
from discord import RateLimited
from discord.http import HTTPClient, Ratelimit, Route
from telegram.request import HTTPXRequest

from tests.fakes.discordapi.client import Library, running
from tests.fakes.discordapi.errors import TooMany
from tests.fakes.discordapi.server import Server


async def test_discords_client_ends_at_an_event_that_it_cannot_read() -> None:
    async with Server() as server:
        client = Library(server)
        task = asyncio.create_task(client.start(server.bot.token))
        await client.wait_for_events("ready")
        server.gateway.odd("MESSAGE_CREATE", {"no": "channel"})
        with pytest.raises(KeyError):
            await asyncio.wait_for(task, 5)
        await client.close()


async def test_discords_raw_events_are_parsed_all_the_same() -> None:
    async with Server() as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        room.say(server.world.users[max(server.world.users)], "hi")
        await client.wait_for_messages()
        order = [event for event, _ in client.seen if event in ("socket_raw_receive", "message")]
        assert order[-2:] == ["socket_raw_receive", "message"]


async def test_a_call_cancelled_in_discords_global_limit_holds_all_others_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Server() as server, running(server) as client:
        server.fail("GET /users/@me", TooMany(0.2, scope="global"))
        cancelled = asyncio.create_task(client.http.request(Route("GET", "/users/@me")))
        async with asyncio.timeout(60):
            while "Global rate limit has been hit" not in caplog.text:  # noqa: ASYNC110 - a record sets no event
                await asyncio.sleep(0)
        cancelled.cancel()
        other = asyncio.create_task(client.http.request(Route("GET", "/gateway")))
        assert await asyncio.wait({other}, timeout=0.6) == (set(), {other})
        other.cancel()
        await asyncio.gather(cancelled, other, return_exceptions=True)


async def test_discords_rate_limit_refuses_requests_within_the_quota_of_a_long_window() -> None:
    limit = Ratelimit(5.0)
    limit.limit, limit.remaining, limit.expires = 5, 4, asyncio.get_running_loop().time() + 60
    with pytest.raises(RateLimited):
        await limit.acquire()


async def test_a_call_that_is_cancelled_while_it_leaves_discords_rate_limit_keeps_it_shut() -> None:
    limit, inside = Ratelimit(None), asyncio.Event()

    async def call() -> None:
        async with limit:
            inside.set()

    leaving = asyncio.create_task(call())
    await inside.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (limit.remaining, limit.outgoing, limit.expires) == (0, 0, None)


async def test_discords_client_waits_at_least_half_a_minute_for_a_rate_limit() -> None:
    assert HTTPClient(asyncio.get_running_loop(), max_ratelimit_timeout=5.0).max_ratelimit_timeout == 30.0


def test_telegrams_download_has_no_limit() -> None:
    names = set(inspect.signature(HTTPXRequest.retrieve).parameters)
    assert names == {"self", "url", "read_timeout", "write_timeout", "connect_timeout", "pool_timeout"}
