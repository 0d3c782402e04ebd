"""The Discord channel in front of the test server, and who listens to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discord.gateway import KeepAliveHandler
from msgspec import structs

from bubbot.ports.channel import (
    BackfillCursor,
    ChannelEvent,
    ChannelOptions,
    Deletion,
    Edit,
    Inbound,
    Reaction,
    UnparsedUpdate,
    no_commands,
)
from channels.discord.api import DiscordApiTiming
from channels.discord.channel import DiscordChannel
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings
from channels.platform.refusals import RefusalTiming
from tests.fakes.discordapi.server import Server

FAST = DiscordReceiveTiming(
    initial_backoff=0.02, max_backoff=0.1, ready_timeout=5.0, silence_timeout=5.0, silence_margin=1.0, close_timeout=0.3, stable_after=0.0, identify_wait=0.02,
    rationed_identify_wait=0.02, guild_list_wait=0.1, duplicate_grace=0.0, jitter=lambda: 0.5,
    refusals=RefusalTiming(first_wait=0.02, max_wait=0.05, confirmed_wait=0.1, confirmed_after=0.3),
)  # fmt: skip


def options(server: Server, known: BackfillCursor | None = None, **settings: Any) -> ChannelOptions:
    """What the factory is given, with the server's addresses."""
    commands, zone = settings.pop("commands", no_commands), settings.pop("zone", UTC)
    table = {**server.table(), **settings}

    async def what_is_known() -> BackfillCursor:
        return known or BackfillCursor()

    return ChannelOptions(
        "dc", Path(), lambda: at(server), lambda: "id", table, load_cursor=what_is_known, list_commands=commands, zone=zone,
    )  # fmt: skip


def at(server: Server) -> str:
    """The server's time as the port writes it."""
    return datetime.fromtimestamp(server.world.clock.now(), UTC).isoformat()


class Heard:
    """What was received, and somebody who waits for it. `hold` is awaited before each event."""

    def __init__(self, server: Server, *, taken: bool | None = True) -> None:
        self._taken = taken
        self.events: list[ChannelEvent] = []
        self.server = server
        self.hold: Callable[[ChannelEvent], Any] | None = None

    async def __call__(self, event: ChannelEvent) -> bool | None:
        if self.hold is not None:
            await self.hold(event)
        self.events.append(event)
        self.server.world.changed.set()
        return self._taken

    @property
    def inbounds(self) -> list[Inbound]:
        return [one for one in self.events if isinstance(one, Inbound)]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.inbounds]

    @property
    def edits(self) -> list[Edit]:
        return [one for one in self.events if isinstance(one, Edit)]

    @property
    def deletions(self) -> list[Deletion]:
        return [one for one in self.events if isinstance(one, Deletion)]

    @property
    def reactions(self) -> list[Reaction]:
        return [one for one in self.events if isinstance(one, Reaction)]

    @property
    def unparsed(self) -> list[UnparsedUpdate]:
        return [one for one in self.events if isinstance(one, UnparsedUpdate)]

    async def until(self, *texts: str) -> None:
        """Waits until exactly these texts were received, in this order."""
        await self.server.until(lambda: len(self.texts) >= len(texts))
        assert self.texts == list(texts)

    def known(self, *, people: tuple[str, ...] = ()) -> BackfillCursor:
        """What is durable after this."""
        newest = {(one.chat, one.thread): one.message for one in self.inbounds}
        return BackfillCursor(newest, max((one.time for one in self.inbounds), default=""), people)


@asynccontextmanager
async def opened(
    server: Server, known: BackfillCursor | None = None, pace: DiscordReceiveTiming = FAST, **settings: Any
) -> AsyncIterator[DiscordChannel]:
    """The channel, closed at the end."""
    given = options(server, known, **settings)
    channel = DiscordChannel(
        given, DiscordSettings.read("dc", given.settings), DiscordApiTiming(token_refused_pause=0.05), pace
    )
    try:
        yield channel
    finally:
        await channel.aclose()


@asynccontextmanager
async def receiving(
    server: Server,
    known: BackfillCursor | None = None,
    pace: DiscordReceiveTiming = FAST,
    *,
    heard: Heard | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[DiscordChannel, Heard]]:
    """A channel that is connected, and what it hears."""
    heard = heard or Heard(server)
    async with opened(server, known, pace, **settings) as channel:
        task = asyncio.create_task(channel.run(heard))
        try:
            await server.until(lambda: channel.health().is_ready or task.done())
            yield channel, heard
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await _end_heartbeats(server.gateway.interval)


async def _end_heartbeats(interval: float) -> None:
    """Wait for the library's threads: one that beats while the test ends would find the event loop closed."""
    for _ in range(200 if interval < 1 else 0):
        if not any(isinstance(thread, KeepAliveHandler) for thread in threading.enumerate()):
            break
        await asyncio.sleep(0.005)


def with_pace(**changes: Any) -> DiscordReceiveTiming:
    """The fast one, changed."""
    return structs.replace(FAST, **changes)
