"""Asking Discord's REST API for what has to be had: waits through outages, and passes on a refusal."""

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
"""Requests that are under way at the same time: what people wait for goes before what was missed."""


@dataclass(frozen=True, slots=True)
class DiscordReceiveTiming:
    """Seconds of the receiving half, and where time and chance come from. Tests make them short."""

    first_wait: float = 1.0
    longest_wait: float = 60.0
    ready: float = 60.0
    """How long a new connection may take until Discord says that it is ready."""
    silent: float = 60.0
    """How long nothing at all may come: Discord asks for a heartbeat every 41 seconds, and answers it."""
    margin: float = 10.0
    """How much longer, where the library does not end such a connection by itself."""
    close: float = 3.0
    settled: float = 60.0
    """After how long a connection that ends was a good one."""
    identify: float = 5.0
    """Before a new session is asked for."""
    rationed: float = 180.0
    """The same where many were asked for within an hour: Discord takes a thousand a day, and then resets the token."""
    oldest: float = 2 * 86400.0
    """How far back is looked for what was missed."""
    overlap: float = 600.0
    """How much earlier than the newest message that is durable is begun where nothing is known of a chat."""
    guilds: float = 5.0
    """How long after READY the servers may take to be told."""
    believed: float = 300.0
    """How long the roles of a person are taken for what they were."""
    most_missed: int = 1000
    """Messages of a chat that are fetched after an absence."""
    most_asked: int = 200
    """People, and chats, whose conversations are looked at after an absence."""
    room: int = 1000
    """Events of a chat that may wait."""
    duplicates: float = 60.0
    """How long after the start messages that this process did not send are not held against another program."""
    refusals: RefusalTiming = RefusalTiming()  # noqa: RUF009 - frozen
    """Of a bot that was ready before."""
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        most = min(self.first_wait * 2 ** min(max(failures, 1) - 1, 20), self.longest_wait)
        return float(most * (0.5 + self.chance() / 2))


class RetryingDiscordApi:
    """Asks until there is an answer."""

    def __init__(self, api: DiscordApi, channel: str, pace: DiscordReceiveTiming) -> None:
        self._api = api
        self._channel = channel
        self._pace = pace
        self._turn = asyncio.Semaphore(CONCURRENT_CALLS)
        self.trouble: dict[str, str] = {}

    async def __call__(
        self, verb: str, path: str, *, json: Any = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """The answer, whenever it comes. Raises `DiscordApiError` where asking again is useless."""
        failures = 0
        try:
            while True:
                try:
                    async with self._turn:
                        return await self._api.call(verb, path, json=json, params=params)
                except DiscordUnavailable as error:
                    words, wait = str(error), 0.0
                except DiscordApiError as error:
                    if error.status not in (408, 429) and not error.token_refused:
                        raise
                    words, wait = error.text, error.retry_after or 0.0
                failures += 1
                if failures == 1:
                    log.info(
                        "channel %s: %s %s: %s; it is tried again", self._channel, verb, path, words,
                        extra={"action": "discord.again"},
                    )  # fmt: skip
                self.trouble[path] = words
                await asyncio.sleep(max(wait, self._pace.wait(failures)))
        finally:
            self.trouble.pop(path, None)
