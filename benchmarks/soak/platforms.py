"""The platforms of a soak: servers of the tests on loopback, and people who talk there with the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.platform.server import PlatformServer


class Platform:
    """A running platform with its chats, which are numbered from 0, each of one person with the bot."""

    def __init__(self, server: PlatformServer[Any, Any], chats: int) -> None:
        self._server = server
        people = [server.person(f"Person {number}") for number in range(chats)]
        self._owners = [person for person, _ in people]
        self._rooms = [room for _, room in people]
        self._chats = {room.key: number for number, room in enumerate(self._rooms)}
        self._seen = 0

    def table(self) -> Mapping[str, object]:
        """Return the channel's table in `config.toml`."""
        return {**self._server.table(), "owners": self._owners}

    def say(self, chat: int, text: str) -> None:
        """Let the person of a chat say something."""
        self._rooms[chat].write(text)

    def news(self) -> Iterator[tuple[int, str]]:
        """Yield chat and text of what the bot has written or changed since the last call."""
        happenings, own = self._server.world.happenings, self._server.bot.user.name()
        fresh, self._seen = happenings[self._seen :], len(happenings)
        for one in fresh:
            if one.what in ("message", "edit") and one.who == own and one.message is not None:
                chat = self._chats[one.chat]
                yield chat, self._rooms[chat].text_of(one.message)

    def heard(self, chat: int) -> list[str]:
        """Return what the bot has written in a chat, as it stands there now, oldest first."""
        return self._rooms[chat].texts(self._server.bot.user)

    async def changed(self, seconds: float) -> None:
        """Wait until something may have happened, at most so many seconds."""
        event = self._server.world.changed
        event.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


PLATFORMS = {"telegram": TelegramServer, "discord": DiscordServer}
"""The server of a platform, by the kind of its channel."""
