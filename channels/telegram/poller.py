"""Long polling in our own loop: an update is acknowledged only after it was received.

The first request has no offset, so that all unacknowledged updates come again. The next one moves past a batch when
`on_batch` has returned for it. After an empty answer nothing is left unacknowledged, and the offset is
dropped: after a quiet week Telegram's numbers may start anywhere, even below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bubbot.concurrency import Backoff
from channels.platform.refusals import RefusalMonitor
from channels.telegram.api import TelegramApi, TelegramApiTiming
from channels.telegram.errors import (
    TelegramApiError,
    TelegramUnavailable,
    describe_second_poller,
    describe_stray_webhook,
    is_token_refusal,
    make_token_error,
)
from channels.telegram.settings import TelegramSettings

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class OutageLog:
    """A log of outages: one line when Telegram becomes unreachable, one when it is back, and waits in between."""

    def __init__(self, channel: str, timing: TelegramApiTiming) -> None:
        self._channel = channel
        self._timing = timing
        self._backoff = Backoff(timing.jitter, timing.first_wait, timing.max_wait, spread=(0.5, 1.0))
        self._failures = 0
        self._since = 0.0

    async def wait(self, error: TelegramApiError | TelegramUnavailable) -> None:
        """Wait before another try: longer each time, with jitter, and at least as long as Telegram asks for."""
        if not self._failures:
            self._since = self._timing.monotonic()
            log.warning(
                "telegram unavailable, retrying: channel=%s error=%s",
                self._channel,
                _describe(error),
                extra={"action": "telegram.offline"},
            )
        self._failures += 1
        seconds = self._backoff.delay_seconds(self._failures)
        if isinstance(error, TelegramApiError) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        await asyncio.sleep(seconds)

    def record_success(self) -> None:
        """End the outage, if there was one: Telegram answered."""
        if self._failures:
            seconds = self._timing.monotonic() - self._since
            log.info(
                "telegram available again: channel=%s after=%.0fs tries=%d",
                self._channel, seconds, self._failures, extra={"action": "telegram.online"},
            )  # fmt: skip
        self._failures = 0


def _describe(error: TelegramApiError | TelegramUnavailable) -> str:
    return f"{error.code}, {error.description}" if isinstance(error, TelegramApiError) else str(error)


class PollConflicts:
    """A handler of 409: a soft restart causes one; if it lasts, a second program uses the token. Both can end."""

    def __init__(self, api: TelegramApi, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        self._api = api
        self._channel = settings.channel
        self._monitor = RefusalMonitor(
            settings.channel,
            timing.conflicts,
            monotonic=timing.monotonic,
            jitter=timing.jitter,
            quiet_seconds=timing.conflict_quiet + settings.poll_timeout,
        )
        self._has_removed_webhook = False

    @property
    def problem(self) -> str:
        """The problem while there is a second program; empty if there is none."""
        return self._monitor.problem

    def record_success(self) -> None:
        """Record a successful poll."""
        self._monitor.record_success()

    async def handle(self, error: TelegramApiError) -> None:
        """Wait until another try makes sense. Raises the errors of removing a webhook."""
        if not error.mentions("webhook is active", "setwebhook"):
            return await asyncio.sleep(self._monitor.record_refusal(describe_second_poller(self._channel)))
        if self._has_removed_webhook:  # the program that sets it again gets time; it may have ended and left it behind
            await asyncio.sleep(self._monitor.record_refusal(describe_stray_webhook(self._channel)))
        await self._api.call("deleteWebhook", {"drop_pending_updates": False})
        self._has_removed_webhook = True
        log.warning(
            "webhook removed, pending messages kept: channel=%s",
            self._channel, extra={"action": "telegram.webhook_removed"},
        )  # fmt: skip
        return None


class RetryingTelegramApi:
    """A caller that retries through outages, conflicts and refusals. A refusal ends it if the token never worked.

    One instance serves all runs of a channel, so that it remembers for the process's life that the token worked.
    """

    def __init__(
        self, api: TelegramApi, settings: TelegramSettings, timing: TelegramApiTiming, on_call: Callable[[str], None]
    ) -> None:
        """Prepare the calls.

        Args:
            on_call: called after every call, with the problem or an empty text.
        """
        self._settings = settings
        self._on_call = on_call
        self._outage = OutageLog(settings.channel, timing)
        self._conflicts = PollConflicts(api, settings, timing)
        self._refusals = RefusalMonitor(
            settings.channel, timing.refusals, monotonic=timing.monotonic, jitter=timing.jitter
        )
        self._was_accepted = False

    @property
    def conflict_problem(self) -> str:
        """The problem while a second program uses the token, though polls may succeed; empty if there is none."""
        return self._conflicts.problem

    async def __call__(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Retry the call until it succeeds; return its result. Raises `ChannelRefused` if the token never worked."""
        while True:
            try:
                result = await self._call_once(call)
            except (TelegramApiError, TelegramUnavailable) as error:
                if isinstance(error, TelegramApiError) and is_token_refusal(error):
                    await self._wait_after_refusal(error)
                    continue
                self._on_call(_describe(error))
                await self._outage.wait(error)
            else:
                if result is not None:
                    self._was_accepted = True
                    self._refusals.record_success()
                    self._conflicts.record_success()
                    self._on_call("")
                    self._outage.record_success()
                    return result[0]

    async def _wait_after_refusal(self, error: TelegramApiError) -> None:
        """Wait after a refusal of the token. Raises `ChannelRefused` if Telegram never accepted it."""
        refused = make_token_error(self._settings.channel, error, self_hosted=self._settings.is_self_hosted)
        if not self._was_accepted:
            raise refused from None
        self._on_call(str(refused))
        await asyncio.sleep(self._refusals.record_refusal(str(refused)))

    async def _call_once(self, call: Callable[[], Awaitable[Result]]) -> tuple[Result] | None:
        """Call once; return the result in a tuple, or None after a conflict."""
        try:
            return (await call(),)
        except TelegramApiError as error:
            if error.code != 409:
                raise
            self._on_call(self._conflicts.problem or "another program polls this bot")
            await self._conflicts.handle(error)
            return None


async def run_polling(
    api: TelegramApi, retrying_api: RetryingTelegramApi, on_batch: Callable[[list[Any]], Awaitable[None]]
) -> None:
    """Pass the updates of each poll to `on_batch` until cancelled. Its error ends this; the batch is not acknowledged.

    Telegram answers the first request, and each one after a failure, at once: the health of the connection is known
    without waiting for a message or the end of an idle poll.
    """
    offset: int | None = None
    is_connected = False

    async def fetch_batch() -> list[Any]:
        nonlocal is_connected
        hold, is_connected = is_connected, False
        batch = await _poll_numbered(api, offset, hold=hold)
        is_connected = True
        return batch

    while True:
        batch = await retrying_api(fetch_batch)
        await on_batch(batch)
        offset = max(_numbers(batch)) + 1 if batch else None


async def _poll_numbered(api: TelegramApi, offset: int | None, *, hold: bool) -> list[Any]:
    """Poll a batch that can be acknowledged; one without any number would come again at once, forever."""
    batch = await api.poll(offset, hold=hold)
    if batch and not _numbers(batch):
        raise TelegramUnavailable("it sends updates without numbers")
    return batch


def _numbers(batch: list[Any]) -> list[int]:
    numbers = (raw.get("update_id") for raw in batch if isinstance(raw, dict))
    return [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]
