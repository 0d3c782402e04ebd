"""What tests of sending to Discord share: an API that is quick to give up, and the parts it sends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bubbot.ports.channel import CommandInfo
from channels.discord.api import DiscordApi, DiscordApiTiming
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.interactions import OpenInteractions
from channels.discord.sender import DiscordSender
from channels.discord.settings import DiscordSettings
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server

CREATE = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
STORED = {"id": "5", "application_id": "6", "version": "7", "default_member_permissions": None}
"""What Discord adds to a command that it stores."""
FAST = DiscordApiTiming(
    call_timeout=2.0,
    upload_timeout=2.0,
    download_timeout=2.0,
    max_rate_limit_wait=0.3,
    token_refused_pause=0.2,
    defer_after=0.1,
    callback_timeout=1.0,
)


@dataclass(slots=True)
class Outgoing:
    """The sending half of a channel, with the files it can send by their digests."""

    server: Server
    api: DiscordApi
    sending: DiscordSender
    interactions: OpenInteractions
    blobs: dict[str, bytes] = field(default_factory=dict)


@asynccontextmanager
async def outgoing(
    server: Server,
    timing: DiscordApiTiming = FAST,
    *,
    list_commands: Callable[[], Sequence[CommandInfo]] = tuple,
    **settings: Any,
) -> AsyncIterator[Outgoing]:
    """All of it, closed at the end."""
    table = {**server.table(), **settings}
    checked = DiscordSettings.read("discord", table)
    api = DiscordApi(checked, timing)
    interactions = OpenInteractions(api, timing, list_commands)
    blobs: dict[str, bytes] = {}

    async def blob(digest: str) -> bytes:
        return blobs[digest]

    try:
        duplicates = DuplicateMonitor("dc", monotonic=time.monotonic, grace_seconds=0.0)
        sending = DiscordSender(api, checked, blob, interactions, duplicates)
        yield Outgoing(server, api, sending, interactions, blobs)
    finally:
        await api.aclose()


def own(server: Server, room: Room) -> list[str]:
    """Return what the bot has said in a room."""
    return room.texts(by=server.bot.user)


def long_ago() -> str:
    """Return the time before what the test does next."""
    return datetime.now(UTC).isoformat()
