"""Long polling in a loop of our own: an update is acknowledged only when it was received.

The first request has no offset, so that everything that is not acknowledged comes again. The next one moves past a
batch when `deliver` has returned for each of its updates. After an empty answer nothing is left unacknowledged, and
the offset is dropped: after a quiet week Telegram's numbers may start anywhere, below it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from channels.telegram_api import Api, Timing
from channels.telegram_errors import (
    Refusal,
    Unreachable,
    refused_token,
    second_poller,
    stray_webhook,
    token_refused,
)
from channels.telegram_settings import TelegramSettings

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Outage:
    """Logs once when Telegram cannot be reached, once when it is over, and says how long to wait in between."""

    def __init__(self, channel: str, timing: Timing) -> None:
        self._channel = channel
        self._timing = timing
        self._failures = 0
        self._since = 0.0

    async def wait(self, error: Refusal | Unreachable) -> None:
        """Waits before another try: longer each time, with chance in it; as long as Telegram asks where it does."""
        if not self._failures:
            self._since = self._timing.monotonic()
            log.warning(
                "channel %s: Telegram cannot be used: %s", self._channel, _words(error), extra=_action("offline")
            )
        self._failures += 1
        most = min(self._timing.first_wait * 2 ** min(self._failures - 1, 20), self._timing.longest_wait)
        seconds = most * (0.5 + self._timing.chance() / 2)
        if isinstance(error, Refusal) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        await asyncio.sleep(seconds)

    def over(self) -> None:
        """Telegram answered."""
        if self._failures:
            seconds = self._timing.monotonic() - self._since
            log.info(
                "channel %s: Telegram can be used again after %.0f s and %d tries",
                self._channel, seconds, self._failures, extra=_action("online"),
            )  # fmt: skip
        self._failures = 0


def _words(error: Refusal | Unreachable) -> str:
    return f"{error.code}, {error.description}" if isinstance(error, Refusal) else str(error)


def _action(name: str) -> dict[str, str]:
    return {"action": f"telegram.{name}"}


class Conflicts:
    """What to do about a 409: bear it for a while, since a soft restart makes one; then it is a second program."""

    def __init__(self, api: Api, settings: TelegramSettings, timing: Timing) -> None:
        self._api = api
        self._channel = settings.channel
        self._timing = timing
        # Two programs that take turns succeed now and then: only a long time without a conflict ends one.
        self._quiet = timing.conflict_grace + settings.poll_timeout
        self._first = self._last = float("-inf")
        self._removed = False

    async def handle(self, error: Refusal) -> None:
        """Returns when another try is worth it. Raises `ChannelRefused`, or what removing a webhook raises."""
        if error.says("webhook is active", "setwebhook"):
            return await self._remove_webhook()
        now = self._timing.monotonic()
        if now - self._last > self._quiet:
            self._first = now
            log.warning(
                "channel %s: another program polls this bot; trying for %.0f s",
                self._channel, self._timing.conflict_grace, extra=_action("conflict"),
            )  # fmt: skip
        self._last = now
        if now - self._first >= self._timing.conflict_grace:
            raise second_poller(self._channel, now - self._first)
        return await asyncio.sleep(self._timing.conflict_wait * (0.5 + self._timing.chance() / 2))

    async def _remove_webhook(self) -> None:
        if self._removed:
            raise stray_webhook(self._channel)
        await self._api.call("deleteWebhook", {"drop_pending_updates": False})
        self._removed = True
        log.warning(
            "channel %s: a webhook was set for this bot and is removed; messages that wait are kept",
            self._channel, extra=_action("webhook_removed"),
        )  # fmt: skip


class Persistent:
    """Carries out what has to succeed: waits through outages and conflicts, gives up where only people can help."""

    def __init__(self, api: Api, settings: TelegramSettings, timing: Timing, noted: Callable[[str], None]) -> None:
        """`noted` is told of every call: what is wrong, or nothing."""
        self._settings = settings
        self._noted = noted
        self._outage = Outage(settings.channel, timing)
        self._conflicts = Conflicts(api, settings, timing)

    async def __call__(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the call, whenever it comes. Raises `ChannelRefused`."""
        while True:
            try:
                result = await self._once(call)
            except (Refusal, Unreachable) as error:
                if isinstance(error, Refusal) and token_refused(error):
                    channel, self_hosted = self._settings.channel, self._settings.self_hosted
                    raise refused_token(channel, error, self_hosted=self_hosted) from None
                self._noted(_words(error))
                await self._outage.wait(error)
            else:
                if result is not None:
                    self._noted("")
                    self._outage.over()
                    return result[0]
                self._noted("another program polls this bot")

    async def _once(self, call: Callable[[], Awaitable[Result]]) -> tuple[Result] | None:
        try:
            return (await call(),)
        except Refusal as error:
            if error.code != 409:
                raise
            await self._conflicts.handle(error)
            return None


async def poll(api: Api, persistent: Persistent, deliver: Callable[[Any], Awaitable[None]]) -> None:
    """Hands every update to `deliver`, until cancelled. What `deliver` raises ends it, and nothing is acknowledged.

    The first request, and each after a failure, is answered at once: who asks how the connection is need not wait for
    a message, or for the end of a poll in vain.
    """
    offset: int | None = None
    heard = False

    async def ask() -> list[Any]:
        nonlocal heard
        hold, heard = heard, False
        batch = await _numbered(api, offset, hold=hold)
        heard = True
        return batch

    while True:
        batch = await persistent(ask)
        for raw in batch:
            await deliver(raw)
        offset = max(_numbers(batch)) + 1 if batch else None


async def _numbered(api: Api, offset: int | None, *, hold: bool) -> list[Any]:
    """A batch that can be acknowledged; one without any number would come again at once, forever."""
    batch = await api.poll(offset, hold=hold)
    if batch and not _numbers(batch):
        raise Unreachable("it sends updates without numbers")
    return batch


def _numbers(batch: list[Any]) -> list[int]:
    found = (raw.get("update_id") for raw in batch if isinstance(raw, dict))
    return [number for number in found if isinstance(number, int) and not isinstance(number, bool)]
