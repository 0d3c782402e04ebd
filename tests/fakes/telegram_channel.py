"""The Telegram channel in front of a scripted server, and who listens to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.ports.channel import Channel, ChannelEvent, ChannelOptions, Inbound, no_commands
from channels.platform.refusals import RefusalTiming
from channels.telegram.api import TelegramApiTiming
from channels.telegram.channel import TelegramChannel, TelegramWebhookChannel
from channels.telegram.settings import TelegramSettings
from tests.fakes.telegram_server import TOKEN, No, ScriptedServer

SHORT = RefusalTiming(first_wait=0.02, max_wait=0.05, confirmed_wait=0.1, confirmed_after=0.3)
"""Of refusals that are believed within a moment."""
FAST = TelegramApiTiming(
    call_timeout=5.0, poll_margin=5.0, refusals=SHORT, conflicts=SHORT, conflict_quiet=0.3, first_wait=0.01, max_wait=0.05,
    webhook_check_interval=0.05, jitter=lambda: 0.0,
)  # fmt: skip
CONFLICT = No(409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
HOOKED = No(
    409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)
FULL: dict[str, Any] = {
    "mode": "webhook",
    "webhook_url": "https://bot.example.org/tg",
    "webhook_secret": "0123456789abcdef",
}


BOLD = {"entities": [{"type": "bold", "offset": 0, "length": 2}]}
UNPARSED = No(400, "Bad Request: can't parse entities: entity out of range")
SECRET: dict[str, str] = {"x-telegram-bot-api-secret-token": FULL["webhook_secret"]}


def options(server: ScriptedServer, **settings: Any) -> ChannelOptions:
    table = {"token": TOKEN, "base_url": server.url, "poll_timeout": 1, **settings}
    commands = table.pop("commands", no_commands)

    async def blob(digest: str) -> bytes:
        return f"bytes of {digest}".encode()

    return ChannelOptions("tg", Path(), lambda: "now", lambda: "id", table, blob, list_commands=commands)


@asynccontextmanager
async def opened(
    server: ScriptedServer, timing: TelegramApiTiming = FAST, **settings: Any
) -> AsyncIterator[TelegramChannel]:
    given = options(server, **settings)
    read = TelegramSettings.read("tg", given.settings)
    channel = (TelegramWebhookChannel if read.uses_webhook else TelegramChannel)(given, read, timing)
    try:
        yield channel
    finally:
        await channel.aclose()


class Heard:
    """What was received, and somebody who waits for it."""

    def __init__(self, server: ScriptedServer) -> None:
        self.events: list[ChannelEvent] = []
        self._server = server

    async def __call__(self, event: ChannelEvent) -> None:
        self.events.append(event)
        self._server.changed.set()

    def texts(self) -> list[str]:
        return [one.text for one in self.events if isinstance(one, Inbound)]


@asynccontextmanager
async def running(channel: Channel, receive: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(channel.run(receive))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def update(number: int, text: str = "hello") -> dict[str, Any]:
    person = {"id": 77, "is_bot": False, "first_name": "Kim"}
    chat = {"id": 77, "type": "private", "first_name": "Kim"}
    return {
        "update_id": number,
        "message": {"message_id": number, "from": person, "chat": chat, "date": 1_795_000_000, "text": text},
    }


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records if hasattr(record, "action")]
