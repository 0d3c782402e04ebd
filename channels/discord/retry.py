"""Retries for Discord's REST API: waits through outages, passes on refusals."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from channels.discord.api import DiscordApi
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.platform.refusals import RefusalTiming

log = logging.getLogger(__name__)
CONCURRENT_CALLS = 6
"""Concurrent requests; few, so that backfill does not delay requests that people wait for."""


@dataclass(frozen=True, slots=True)
class DiscordReceiveTiming:
    """Timing of the receiving half in seconds, its limits, the clock and the random source. Tests shorten it."""

    first_wait: float = 1.0
    longest_wait: float = 60.0
    ready: float = 60.0
    """Timeout of a new connection until READY or RESUMED."""
    silent: float = 60.0
    """Timeout without any frame: Discord asks for a heartbeat every 41 seconds, and answers it."""
    margin: float = 10.0
    """Additional time, after which bubbot ends such a connection if the library did not."""
    close: float = 3.0
    settled: float = 60.0
    """Age from which a connection that ends counts as stable, which resets the back-off."""
    identify: float = 5.0
    """Longest wait before a new session."""
    rationed: float = 180.0
    """Wait after many new sessions within an hour: Discord allows a thousand a day, then resets the token."""
    oldest: float = 2 * 86400.0
    """Greatest age of messages that backfill fetches."""
    overlap: float = 600.0
    """How far before the newest durable message of all chats backfill starts in a chat without a position."""
    guilds: float = 5.0
    """Time after READY for the gateway to list the servers."""
    believed: float = 300.0
    """Lifetime of a person's cached roles."""
    most_missed: int = 1000
    """Messages per chat that are fetched after an absence."""
    most_asked: int = 200
    """People, and as many other chats, that are checked for missed messages after an absence."""
    room: int = 1000
    """Events that may wait in a chat's lane."""
    duplicates: float = 60.0
    """Time after the start in which foreign messages do not count as another program's."""
    refusals: RefusalTiming = RefusalTiming()  # noqa: RUF009 - frozen
    """Timing of refusals after the bot was ready once."""
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        longest = min(self.first_wait * 2 ** min(max(failures, 1) - 1, 20), self.longest_wait)
        return float(longest * (0.5 + self.chance() / 2))


class RetryingDiscordApi:
    """A REST client that repeats a request until Discord answers.

    `trouble` holds the latest error of each path that is being retried.
    """

    def __init__(self, api: DiscordApi, channel: str, pace: DiscordReceiveTiming) -> None:
        self._api = api
        self._channel = channel
        self._timing = pace
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS)
        self.trouble: dict[str, str] = {}

    async def __call__(
        self, verb: str, path: str, *, json: Any = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send a request until Discord answers. Raise `DiscordApiError` if a retry is useless.

        Args:
            verb: the HTTP method.
            path: begins with `/` and contains its ids.
            json: the body.
            params: the query string.
        """
        failures = 0
        try:
            while True:
                try:
                    async with self._slots:
                        return await self._api.call(verb, path, json=json, params=params)
                except DiscordUnavailable as error:
                    reason, wait = str(error), 0.0
                except DiscordApiError as error:
                    if error.status not in (408, 429) and not error.token_refused:
                        raise
                    reason, wait = error.text, error.retry_after or 0.0
                failures += 1
                if failures == 1:
                    log.info(
                        "discord request failed, retrying: channel=%s request=%s %s error=%s",
                        self._channel,
                        verb,
                        path,
                        reason,
                        extra={"action": "discord.again"},
                    )
                self.trouble[path] = reason
                await asyncio.sleep(max(wait, self._timing.wait(failures)))
        finally:
            self.trouble.pop(path, None)
