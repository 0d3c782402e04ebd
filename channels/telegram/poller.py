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

from channels.platform.refusals import RefusalMonitor
from channels.telegram.api import TelegramApi, TelegramApiTiming
from channels.telegram.errors import (
    TelegramApiError,
    TelegramUnavailable,
    refused_token,
    second_poller,
    stray_webhook,
    token_refused,
)
from channels.telegram.settings import TelegramSettings

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class OutageLog:
    """Logs once when Telegram cannot be reached, once when it is over, and says how long to wait in between."""

    def __init__(self, channel: str, timing: TelegramApiTiming) -> None:
        self._channel = channel
        self._timing = timing
        self._failures = 0
        self._since = 0.0

    async def wait(self, error: TelegramApiError | TelegramUnavailable) -> None:
        """Waits before another try: longer each time, with chance in it; as long as Telegram asks where it does."""
        if not self._failures:
            self._since = self._timing.monotonic()
            log.warning(
                "channel %s: Telegram cannot be used: %s",
                self._channel,
                _words(error),
                extra={"action": "telegram.offline"},
            )
        self._failures += 1
        most = min(self._timing.first_wait * 2 ** min(self._failures - 1, 20), self._timing.longest_wait)
        seconds = most * (0.5 + self._timing.chance() / 2)
        if isinstance(error, TelegramApiError) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        await asyncio.sleep(seconds)

    def over(self) -> None:
        """Telegram answered."""
        if self._failures:
            seconds = self._timing.monotonic() - self._since
            log.info(
                "channel %s: Telegram can be used again after %.0f s and %d tries",
                self._channel, seconds, self._failures, extra={"action": "telegram.online"},
            )  # fmt: skip
        self._failures = 0


def _words(error: TelegramApiError | TelegramUnavailable) -> str:
    return f"{error.code}, {error.description}" if isinstance(error, TelegramApiError) else str(error)


class PollConflicts:
    """What to do about a 409: a soft restart makes one; if it lasts, a second program uses the token. Both pass."""

    def __init__(self, api: TelegramApi, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        self._api = api
        self._channel = settings.channel
        self._monitor = RefusalMonitor(
            settings.channel,
            timing.conflicts,
            monotonic=timing.monotonic,
            jitter=timing.chance,
            quiet_seconds=timing.conflict_quiet + settings.poll_timeout,
        )
        self._removed = False

    @property
    def sentence(self) -> str:
        """What is wrong while there is a second program; empty if there is none."""
        return self._monitor.sentence

    def passed(self) -> None:
        """A poll succeeded."""
        self._monitor.accepted()

    async def handle(self, error: TelegramApiError) -> None:
        """Return when another try is worth it. Raises what removing a webhook raises."""
        if not error.says("webhook is active", "setwebhook"):
            return await asyncio.sleep(self._monitor.refused(second_poller(self._channel)))
        if self._removed:  # whoever sets it again is given time, and may have ended without taking it away
            await asyncio.sleep(self._monitor.refused(stray_webhook(self._channel)))
        await self._api.call("deleteWebhook", {"drop_pending_updates": False})
        self._removed = True
        log.warning(
            "channel %s: a webhook was set for this bot and is removed; messages that wait are kept",
            self._channel, extra={"action": "telegram.webhook_removed"},
        )  # fmt: skip
        return None


class RetryingTelegramApi:
    """Carries out what has to succeed: waits through outages, conflicts and refusals, of which the last end it only if
    Telegram never took the token.

    One for all runs of a channel: that the token was good once is known for as long as the process lives.
    """

    def __init__(
        self, api: TelegramApi, settings: TelegramSettings, timing: TelegramApiTiming, noted: Callable[[str], None]
    ) -> None:
        """`noted` is told of every call: what is wrong, or nothing."""
        self._settings = settings
        self._noted = noted
        self._outage = OutageLog(settings.channel, timing)
        self._conflicts = PollConflicts(api, settings, timing)
        self._refusals = RefusalMonitor(
            settings.channel, timing.refusals, monotonic=timing.monotonic, jitter=timing.chance
        )
        self._was_accepted = False

    @property
    def conflict(self) -> str:
        """What is wrong while a second program uses the token, though polls may succeed; empty if there is none."""
        return self._conflicts.sentence

    async def __call__(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """The result of the call, whenever it comes. Raises `ChannelRefused` for a token that was never good."""
        while True:
            try:
                result = await self._once(call)
            except (TelegramApiError, TelegramUnavailable) as error:
                if isinstance(error, TelegramApiError) and token_refused(error):
                    await self._doubt(error)
                    continue
                self._noted(_words(error))
                await self._outage.wait(error)
            else:
                if result is not None:
                    self._was_accepted = True
                    self._refusals.accepted()
                    self._conflicts.passed()
                    self._noted("")
                    self._outage.over()
                    return result[0]

    async def _doubt(self, error: TelegramApiError) -> None:
        """Wait after a refusal of the token. Raises `ChannelRefused` if Telegram never took it."""
        refused = refused_token(self._settings.channel, error, self_hosted=self._settings.self_hosted)
        if not self._was_accepted:
            raise refused from None
        self._noted(str(refused))
        await asyncio.sleep(self._refusals.refused(str(refused)))

    async def _once(self, call: Callable[[], Awaitable[Result]]) -> tuple[Result] | None:
        try:
            return (await call(),)
        except TelegramApiError as error:
            if error.code != 409:
                raise
            self._noted(self._conflicts.sentence or "another program polls this bot")
            await self._conflicts.handle(error)
            return None


async def poll(api: TelegramApi, persistent: RetryingTelegramApi, deliver: Callable[[Any], Awaitable[None]]) -> None:
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


async def _numbered(api: TelegramApi, offset: int | None, *, hold: bool) -> list[Any]:
    """A batch that can be acknowledged; one without any number would come again at once, forever."""
    batch = await api.poll(offset, hold=hold)
    if batch and not _numbers(batch):
        raise TelegramUnavailable("it sends updates without numbers")
    return batch


def _numbers(batch: list[Any]) -> list[int]:
    found = (raw.get("update_id") for raw in batch if isinstance(raw, dict))
    return [number for number in found if isinstance(number, int) and not isinstance(number, bool)]
