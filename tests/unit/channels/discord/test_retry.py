"""Requests that are repeated, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi


class _FailingApi:
    """An API that refuses one body for an hour, and answers any other at the second try."""

    def __init__(self) -> None:
        self.failures = 0

    async def call(self, _method: str, _path: str, *, json: Any, params: Any) -> str:
        del params
        if json == "limited":
            raise DiscordApiError(429, 0, "too many requests", 3600.0)
        if self.failures == 0:
            self.failures += 1
            raise DiscordUnavailable("the connection failed")
        return "answer"


async def test_the_end_of_a_request_leaves_the_error_of_another_to_the_same_path() -> None:
    api = RetryingDiscordApi(_FailingApi(), "dc", DiscordReceiveTiming(initial_backoff=0.0))  # type: ignore[arg-type]
    limited = asyncio.create_task(api("POST", "/users/@me/channels", json="limited"))
    assert await api("POST", "/users/@me/channels", json="other") == "answer"
    assert list(api.last_errors.values()) == ["too many requests"]
    limited.cancel()
    await asyncio.gather(limited, return_exceptions=True)
    assert api.last_errors == {}
