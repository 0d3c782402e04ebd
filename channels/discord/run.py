"""One bot's receiving from the first request to the end: identity, connection, events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import structs

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import ChannelHealth, ChannelOptions
from channels.discord.api import DiscordApi
from channels.discord.client import DiscordGateway, content_intent_error
from channels.discord.content import require_id
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.errors import DiscordApiError, DiscordUnavailable, token_refused_error
from channels.discord.interactions import OpenInteractions
from channels.discord.receiver import DiscordReceiver, ReceiveEvent
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi
from channels.discord.settings import DiscordSettings
from channels.platform.json_values import Raw
from channels.platform.refusals import RefusalMonitor

log = logging.getLogger(__name__)
MESSAGE_CONTENT_FLAGS = 1 << 18 | 1 << 19
"""Application flags of the Message Content Intent: approved (bots in many servers), or limited (bots in few)."""

SyncCommands = Callable[[str], Coroutine[Any, Any, None]]
"""Updates the slash commands of an application id. A failure is only logged."""


class DiscordRun:
    """The receiving half of the channel, one run at a time.

    Args:
        duplicates: the check for a second program with the same token.
        sync_commands: called once in each run, when the bot is connected, with the application's id.
    """

    def __init__(
        self,
        options: ChannelOptions,
        settings: DiscordSettings,
        api: DiscordApi,
        interactions: OpenInteractions,
        duplicates: DuplicateMonitor,
        *,
        sync_commands: SyncCommands,
        timing: DiscordReceiveTiming,
    ) -> None:
        self._options = options
        self._settings = settings
        self._api = api
        self._interactions = interactions
        self._duplicates = duplicates
        self._sync = sync_commands
        self._timing = timing
        self._retrying_api = RetryingDiscordApi(api, options.name, timing)
        self._refusals = RefusalMonitor(options.name, timing.refusals, monotonic=timing.monotonic, jitter=timing.jitter)
        self._was_ready = False
        self._connected: tuple[DiscordReceiver, str] | None = None
        self._gateway: DiscordGateway | None = None
        self._last_frame_at = ""
        self._problem = "not connected yet"

    def health(self) -> ChannelHealth:
        """Return the state of the connection, and the bot's name once it was connected."""
        return structs.replace(self._find_health(), account=self._connected[0].account if self._connected else "")

    def _find_health(self) -> ChannelHealth:
        health = (
            self._gateway.health()
            if self._gateway
            else ChannelHealth(is_ready=False, last_seen_at=self._last_frame_at, note=self._problem)
        )
        trouble = next(iter(self._retrying_api.last_errors.values()), "")
        if health.is_ready and trouble:
            return ChannelHealth(
                is_ready=True, last_seen_at=health.last_seen_at, note=f"what was missed cannot be fetched: {trouble}"
            )
        if health.is_ready and (bar := self._api.find_bar()) is not None:
            reason = str(token_refused_error(self._options.name)) if bar.is_token_refused else bar.text
            return ChannelHealth(is_ready=True, last_seen_at=health.last_seen_at, note=f"nothing can be sent: {reason}")
        if health.is_ready and self._duplicates.warning:
            return ChannelHealth(is_ready=True, last_seen_at=health.last_seen_at, note=self._duplicates.warning)
        return ChannelHealth(health.is_ready, health.last_seen_at or self._last_frame_at, health.note or trouble)

    async def update_commands(self) -> None:
        """Recognize the current commands, and sync them; the first READY of a connection does so itself."""
        if self._connected is not None:
            receiver, application_id = self._connected
            receiver.update_commands()
            await self._sync(application_id)

    async def __call__(self, receive: ReceiveEvent) -> None:
        """Receive until cancelled.

        Raises:
            ChannelRefused: Discord refused a bot that was never ready. Later refusals are retried for ever: they may be
                withdrawn, or be Discord's mistakes.
            Exception: any error of `receive`.
        """
        while True:
            try:
                return await self._receive(receive)
            except ChannelRefused as error:
                self._problem = str(error)
                if not self._was_ready:
                    raise
                wait = self._refusals.record_refusal(str(error))
            await asyncio.sleep(wait)

    async def _receive(self, receive: ReceiveEvent) -> None:
        application_id = await self._fetch_application_id()
        cursor = await self._options.load_cursor()
        receiver = DiscordReceiver(
            self._options,
            self._retrying_api,
            self._interactions,
            self._duplicates,
            receive,
            cursor=cursor,
            timing=self._timing,
        )
        gateway = await self._create_gateway(receiver, application_id)
        connection = asyncio.create_task(gateway.keep_connected())
        try:
            await asyncio.wait({connection, receiver.failure}, return_when=asyncio.FIRST_COMPLETED)
            for future in (receiver.failure, connection):
                if future.done():
                    await future
        finally:
            connection.cancel()
            await asyncio.gather(connection, return_exceptions=True)
            self._connected = None
            await receiver.close()
            self._last_frame_at, self._problem, self._gateway = gateway.health().last_seen_at, "not connected", None

    async def _create_gateway(self, receiver: DiscordReceiver, application_id: str) -> DiscordGateway:
        """Create the gateway client, not connected yet. The commands are synced once, at the first READY."""

        def on_event(event: str, raw: Any, serial: str) -> None:
            receiver.on_event(event, raw, serial)
            if event in ("READY", "RESUMED"):
                self._was_ready = True
                self._refusals.record_success()
            if event == "READY" and self._connected is None:
                self._connected = receiver, application_id
                receiver.start_task(self._sync(application_id))

        self._gateway = DiscordGateway(
            await self._api.open_http(), self._settings, self._timing, on_event=on_event, now=self._options.now
        )  # fmt: skip
        return self._gateway

    async def _fetch_application_id(self) -> str:
        """Fetch the application, which also checks the token, and return its id. Raise `ChannelRefused`."""
        failures = 0
        while True:
            try:
                return self._check_application(await self._api.call("GET", "/applications/@me"))
            except DiscordApiError as error:
                if error.is_token_refused:
                    raise token_refused_error(self._options.name) from None
                reason, wait = error.text, error.retry_after or 0.0
            except (DiscordUnavailable, TypeError) as error:
                reason, wait = str(error), 0.0
            failures += 1
            self._problem = reason
            log.log(
                logging.WARNING if failures == 1 else logging.INFO,
                "discord unavailable, retrying: channel=%s error=%s", self._options.name, reason,
                extra={"action": "discord.offline"},
            )  # fmt: skip
            await asyncio.sleep(max(wait, self._timing.backoff_seconds(failures)))

    def _check_application(self, body: Any) -> str:
        application_id, flags = read_application(body)
        if self._settings.content == "all" and not flags & MESSAGE_CONTENT_FLAGS:
            raise content_intent_error(self._options.name)
        if self._settings.slash and body.get("interactions_endpoint_url"):
            log.warning(
                "slash commands go to the application's Interactions Endpoint URL; clear it at discord.com/developers, "
                "page General Information: channel=%s", self._options.name,
                extra={"action": "discord.elsewhere"},
            )  # fmt: skip
        return application_id


def read_application(value: Any) -> tuple[str, int]:
    """Read the id and the flags of the bot's application. Raise `TypeError` if the response lacks them."""
    if not isinstance(value, dict):
        raise TypeError("its answer names no application")
    body: Raw = value
    flags = body.get("flags")
    if not isinstance(flags, int):
        raise TypeError("its answer does not say what the application may do")
    return require_id(body.get("id")), flags
