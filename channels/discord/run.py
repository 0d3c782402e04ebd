"""From the first request to the end: who we are, the connection, and what is received over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import ChannelHealth, ChannelOptions
from channels.discord.api import DiscordApi
from channels.discord.client import DiscordGateway, refused_content
from channels.discord.content import Raw, number_of
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.errors import DiscordApiError, DiscordUnavailable, refused_token
from channels.discord.interactions import OpenInteractions
from channels.discord.receiver import DiscordReceiver, Take
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi
from channels.discord.settings import DiscordSettings
from channels.platform.refusals import RefusalMonitor

log = logging.getLogger(__name__)
SEES_TEXT = 1 << 18 | 1 << 19
"""Flags of an application: it is given the text of messages, as one of many servers or of few."""

Sync = Callable[[str], Awaitable[None]]
"""Brings the slash commands of an application, by its id, up to date. May raise `DiscordApiError` or `DiscordUnavailable`."""


class DiscordRun:
    """Receives, one run at a time. `sync` is called once in each, when the bot is connected."""

    def __init__(
        self,
        options: ChannelOptions,
        settings: DiscordSettings,
        api: DiscordApi,
        interactions: OpenInteractions,
        duplicates: DuplicateMonitor,
        *,
        sync: Sync,
        pace: DiscordReceiveTiming,
    ) -> None:
        self._options = options
        self._settings = settings
        self._api = api
        self._interactions = interactions
        self._duplicates = duplicates
        self._sync = sync
        self._pace = pace
        self._ask = RetryingDiscordApi(api, options.name, pace)
        self._refusals = RefusalMonitor(options.name, pace.refusals, monotonic=pace.monotonic, jitter=pace.chance)
        self._was_ready = False
        self._gateway: DiscordGateway | None = None
        self._heard = ""
        self._note = "not connected yet"

    def health(self) -> ChannelHealth:
        """How the connection is."""
        found = (
            self._gateway.health() if self._gateway else ChannelHealth(ready=False, heard=self._heard, note=self._note)
        )
        trouble = next(iter(self._ask.trouble.values()), "")
        if found.ready and trouble:
            return ChannelHealth(ready=True, heard=found.heard, note=f"what was missed cannot be fetched: {trouble}")
        if found.ready and self._duplicates.note:
            return ChannelHealth(ready=True, heard=found.heard, note=self._duplicates.note)
        return ChannelHealth(found.ready, found.heard or self._heard, found.note or trouble)

    async def __call__(self, receive: Take) -> None:
        """Receives until cancelled. Raises what `receive` raises, and `ChannelRefused` if the bot was never ready; one
        that was is tried again for ever: what was refused may be taken back, or was a mistake of Discord's."""
        while True:
            try:
                return await self._receive(receive)
            except ChannelRefused as error:
                self._note = str(error)
                if not self._was_ready:
                    raise
                wait = self._refusals.refused(str(error))
            await asyncio.sleep(wait)

    async def _receive(self, receive: Take) -> None:
        number = await self._application()
        known = await self._options.known()
        receiving = DiscordReceiver(
            self._options, self._ask, self._interactions, self._duplicates, receive, known=known, pace=self._pace
        )
        gateway = await self._connector(receiving, number)
        connected = asyncio.create_task(gateway.stay())
        try:
            await asyncio.wait({connected, receiving.failed}, return_when=asyncio.FIRST_COMPLETED)
            for done in (receiving.failed, connected):
                if done.done():
                    await done
        finally:
            connected.cancel()
            await asyncio.gather(connected, return_exceptions=True)
            await receiving.close()
            self._heard, self._note, self._gateway = gateway.health().heard, "not connected", None

    async def _connector(self, receiving: DiscordReceiver, application: str) -> DiscordGateway:
        """The connection, not yet made. The commands are looked at once, when it is there for the first time."""
        synced = False

        def hear(event: str, raw: Any, serial: str) -> None:
            nonlocal synced
            receiving.hear(event, raw, serial)
            if event in ("READY", "RESUMED"):
                self._was_ready = True
                self._refusals.accepted()
            if event == "READY" and not synced:
                synced = True
                receiving.beside(self._synced(application))

        self._gateway = DiscordGateway(
            await self._api.http(), self._settings, self._pace, hear=hear, now=self._options.now
        )  # fmt: skip
        return self._gateway

    async def _synced(self, application: str) -> None:
        try:
            await self._sync(application)
        except (DiscordApiError, DiscordUnavailable) as error:
            log.warning(
                "channel %s: the slash commands could not be brought up to date: %s", self._options.name, error,
                extra={"action": "discord.commands"},
            )  # fmt: skip

    async def _application(self) -> str:
        """Asks who we are, which also tries the token; its id. Raises `ChannelRefused`."""
        failures = 0
        while True:
            try:
                return self._checked(await self._api.call("GET", "/applications/@me"))
            except DiscordApiError as error:
                if error.token_refused:
                    raise refused_token(self._options.name) from None
                words, wait = error.text, error.retry_after or 0.0
            except (DiscordUnavailable, TypeError) as error:
                words, wait = str(error), 0.0
            failures += 1
            self._note = words
            log.log(
                logging.WARNING if failures == 1 else logging.INFO,
                "channel %s: Discord cannot be used: %s", self._options.name, words,
                extra={"action": "discord.offline"},
            )  # fmt: skip
            await asyncio.sleep(max(wait, self._pace.wait(failures)))

    def _checked(self, found: Any) -> str:
        number, flags = application(found)
        if self._settings.content == "all" and not flags & SEES_TEXT:
            raise refused_content(self._options.name)
        if self._settings.slash and found.get("interactions_endpoint_url"):
            log.warning(
                "channel %s: the application has an Interactions Endpoint URL, so that slash commands do not come here: "
                "empty it at discord.com/developers, on the page General Information", self._options.name,
                extra={"action": "discord.elsewhere"},
            )  # fmt: skip
        return number


def application(found: Any) -> tuple[str, int]:
    """The id and the flags of our application, as Discord tells them. Raises `TypeError`."""
    if not isinstance(found, dict):
        raise TypeError("its answer names no application")
    one: Raw = found
    flags = one.get("flags")
    if not isinstance(flags, int):
        raise TypeError("its answer does not say what the application may do")
    return number_of(one.get("id")), flags
