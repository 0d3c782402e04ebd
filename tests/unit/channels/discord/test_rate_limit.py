"""The rate limit of a bucket, without a server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from discord import RateLimited

from channels.discord.api import DiscordHttp, SharedRatelimit
from channels.discord.settings import DiscordSettings
from tests.virtual import virtual

MAX_BUCKETS = 256


LONG_WINDOW = 60.0


async def _bucket(remaining: int) -> SharedRatelimit:
    limit = SharedRatelimit(5.0)
    limit.limit, limit.remaining, limit.expires = 5, remaining, asyncio.get_running_loop().time() + LONG_WINDOW
    limit.reset_after = LONG_WINDOW
    return limit


async def test_requests_within_the_quota_of_a_long_window_pass() -> None:
    limit = await _bucket(2)
    expires = limit.expires
    await limit.acquire()
    await limit.acquire()
    assert (limit.remaining, limit.outgoing, limit.expires) == (0, 2, expires)
    with pytest.raises(RateLimited) as caught:
        await limit.acquire()
    assert caught.value.retry_after == pytest.approx(LONG_WINDOW, abs=5)


@pytest.mark.parametrize("remaining", [1, 2])
async def test_a_429_holds_the_other_requests_of_its_bucket(monkeypatch: pytest.MonkeyPatch, remaining: int) -> None:
    limit, over, entered = SharedRatelimit(5.0), asyncio.Event(), asyncio.Event()
    limit.limit = limit.remaining = remaining
    sleep = asyncio.sleep

    async def until_over(seconds: float, result: Any = None) -> None:
        await (over.wait() if seconds == 4.5 else sleep(seconds, result))

    async def first() -> None:
        with suppress(RateLimited):
            async with limit:
                raise RateLimited(4.5)

    async def second() -> None:
        async with limit:
            entered.set()

    monkeypatch.setattr("channels.discord.api.asyncio.sleep", until_over)
    tasks = [asyncio.create_task(first()), asyncio.create_task(second())]
    for _ in range(20):
        await sleep(0)
    assert not entered.is_set()
    over.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert entered.is_set()


async def test_a_429_within_the_quota_leaves_the_window_as_it_is() -> None:
    limit = await _bucket(3)
    expires = limit.expires
    with pytest.raises(RateLimited):
        async with limit:
            raise RateLimited(0.0)
    assert (limit.remaining, limit.outgoing, limit.expires) == (2, 0, expires)


@pytest.mark.parametrize(("remaining", "ends"), [(1, False), (3, True)])
async def test_a_window_that_is_used_up_or_over_is_not_waited_for_after_a_429(
    monkeypatch: pytest.MonkeyPatch, remaining: int, ends: bool
) -> None:
    limit, slept = await _bucket(remaining), list[float]()
    limit.reset_after = 3.0

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if ends:
            limit.expires = asyncio.get_running_loop().time() - 1

    monkeypatch.setattr("channels.discord.api.asyncio.sleep", sleep)
    with pytest.raises(RateLimited):
        async with limit:
            raise RateLimited(0.5)
    assert slept == [0.5]
    assert (limit.remaining, limit.expires) == (4, None)


async def test_a_call_that_is_cancelled_while_it_leaves_its_bucket_keeps_nobody_out() -> None:
    """Without this, a bucket whose answers tell no window stayed shut for half a minute: as long as a call may take."""
    limit, inside = SharedRatelimit(5.0), asyncio.Event()

    async def call() -> None:
        async with limit:
            inside.set()

    async with asyncio.timeout(5):
        leaving, waiting = asyncio.create_task(call()), asyncio.create_task(call())
        await inside.wait()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        await waiting
        await call()
        assert leaving.cancelled()


async def test_a_long_wait_is_not_kept_in_the_bucket() -> None:
    limit = SharedRatelimit(5.0)
    async with asyncio.timeout(1):
        with pytest.raises(RateLimited):
            async with limit:
                raise RateLimited(5.5)
        await limit.acquire()


@virtual
async def test_of_many_limits_only_those_in_use_are_kept() -> None:
    settings = DiscordSettings.read("dc", {"token": "MTIzNDU2.AbCdEf.0123456789"})
    http = DiscordHttp(settings, aiohttp.TCPConnector(), 5.0)
    limits = {key: http.get_ratelimit(key) for key in map(str, range(MAX_BUCKETS))}
    assert all(http.get_ratelimit(key) is limit for key, limit in limits.items())
    async with limits["7"]:
        await asyncio.sleep(300)  # virtual
        http.get_ratelimit("one more")
        assert [key for key, limit in limits.items() if http.get_ratelimit(key) is limit] == ["7"]
