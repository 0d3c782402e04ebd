"""The adapters, held to the promises: Telegram, and the example that is a distribution of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.ports.channel import Channel, ChannelOptions
from channels.telegram.channel import TelegramChannel
from channels.telegram.settings import TelegramSettings
from examples.own_channel.letterbox import create
from tests.contract.channel_promises import ChannelPromises, blob_of
from tests.fakes.botapi.server import Server
from tests.fakes.telegram_channel import FAST


class LetterboxBench:
    """A folder, and whoever runs the test."""

    takes_keys = True
    chat = str(os.getuid())

    def __init__(self, folder: Path) -> None:
        self._path = folder / "letters"
        self._said = 0
        (self._path / "new").mkdir(parents=True)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        settings = {"path": str(self._path), "interval": "0.01"}
        yield create(
            ChannelOptions("letters", self._path, lambda: "now", lambda: os.urandom(4).hex(), settings, blob_of)
        )

    def say(self, text: str) -> None:
        self._said += 1
        written = self._path / f"{self._said:03}"
        written.write_text(text)
        os.utime(written, ns=(self._said * 10**15, self._said * 10**15))
        written.rename(self._path / "new" / f"{9 - self._said}.txt")  # their names do not say which came first

    def seen(self) -> list[str]:
        found = (self._path / "out" / self.chat / "new").glob("*.md")
        return [file.read_text() for file in sorted(found, key=lambda one: one.stat().st_mtime_ns)]


class TelegramBench:
    """A Bot API server, and Kim."""

    takes_keys = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self._room = server.private(server.user("Kim"))

    @property
    def chat(self) -> str:
        return str(self._room.chat.id)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        table = self._server.table()
        settings = TelegramSettings.read("tg", {**table, "poll_timeout": 1})
        options = ChannelOptions("tg", Path(), lambda: "now", lambda: "id", table, blob_of)
        channel = TelegramChannel(options, settings, FAST)
        try:
            yield channel
        finally:
            await channel.aclose()

    def say(self, text: str) -> None:
        self._room.say(text)

    def seen(self) -> list[str]:
        messages = self._room.chat.messages.values()
        return [str(one["text"]) for one in messages if one.get("from", {}).get("is_bot") and "text" in one]


class TestLetterbox(ChannelPromises):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LetterboxBench:
        return LetterboxBench(tmp_path)


class TestTelegram(ChannelPromises):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[TelegramBench]:
        async with Server(limits=None, conflict_pause=0.05) as server:
            yield TelegramBench(server)
