"""Retries for Discord's REST API: waits through outages, passes on refusals."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from bubbot.concurrency import Backoff
from channels.discord.api import DiscordApi
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.platform.refusals import RefusalTiming

log = logging.getLogger(__name__)
MAX_CONCURRENT_CALLS = 6
"""Concurrent requests; few, so that backfill does not delay requests that people wait for."""


class DiscordReceiveTiming(Struct, frozen=True):
    """Timing of the receiving half in seconds, its limits, the clock and the random source. Tests shorten it."""

    initial_backoff: float = 1.0
    max_backoff: float = 60.0
    ready_timeout: float = 60.0
    """Timeout of a new connection until READY or RESUMED."""
    silence_timeout: float = 60.0
    """Timeout without any frame: Discord asks for a heartbeat every 41 seconds, and answers it."""
    silence_margin: float = 10.0
    """Additional time, after which bubbot ends such a connection if the library did not."""
    close_timeout: float = 3.0
    stable_after: float = 60.0
    """Age from which a connection that ends counts as stable, which resets the back-off."""
    identify_wait: float = 5.0
    """Longest wait before a new session."""
    rationed_identify_wait: float = 180.0
    """Wait after many new sessions within an hour: Discord allows a thousand a day, then resets the token."""
    max_message_age: float = 2 * 86400.0
    """Greatest age of messages that backfill fetches."""
    backfill_overlap: float = 600.0
    """How far before the newest durable message of all chats backfill starts in a chat without a position."""
    guild_list_wait: float = 5.0
    """Time after READY for the gateway to list the servers."""
    role_ttl: float = 300.0
    """Lifetime of a person's cached roles."""
    max_missed_messages: int = 1000
    """Messages per chat that are fetched after an absence."""
    max_checked_chats: int = 200
    """People, and as many other chats, that are checked for missed messages after an absence."""
    max_queued_events: int = 1000
    """Events that may wait in a chat's lane."""
    duplicate_grace: float = 60.0
    """Time after the start in which foreign messages do not count as another program's."""
    refusals: RefusalTiming = RefusalTiming()
    """Timing of refusals after the bot was ready once."""
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random

    def backoff_seconds(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        return Backoff(self.jitter, self.initial_backoff, self.max_backoff, spread=(0.5, 1.0)).delay_seconds(failures)


class RetryingDiscordApi:
    """A REST client that repeats a request until Discord answers.

    `last_errors` holds the latest error of each call that is being retried.
    """

    def __init__(self, api: DiscordApi, channel: str, timing: DiscordReceiveTiming) -> None:
        self._api = api
        self._channel = channel
        self._timing = timing
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self.last_errors: dict[object, str] = {}

    async def __call__(
        self, method: str, path: str, *, json: Any = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send a request until Discord answers. Raise `DiscordApiError` if a retry is useless.

        Args:
            path: begins with `/` and contains its ids.
        """
        call, failures = object(), 0
        try:
            while True:
                try:
                    async with self._slots:
                        return await self._api.call(method, path, json=json, params=params)
                except DiscordUnavailable as error:
                    reason, wait = str(error), 0.0
                except DiscordApiError as error:
                    if error.status not in (408, 429) and not error.is_token_refused:
                        raise
                    reason, wait = error.text, error.retry_after or 0.0
                failures += 1
                if failures == 1:
                    log.info(
                        "discord request failed, retrying: channel=%s request=%s %s error=%s",
                        self._channel,
                        method,
                        path,
                        reason,
                        extra={"action": "discord.again"},
                    )
                self.last_errors[call] = reason
                await asyncio.sleep(max(wait, self._timing.backoff_seconds(failures)))
        finally:
            self.last_errors.pop(call, None)
