"""The platforms of a soak: servers of the tests on loopback, and people who talk there with the bot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer


class Platform(Protocol):
    """A running platform with its chats, which are numbered from 0, each of one person with the bot."""

    def table(self) -> Mapping[str, object]:
        """The channel's table in `config.toml`."""

    def say(self, chat: int, text: str) -> None:
        """The person of a chat says something."""

    def news(self) -> Iterator[tuple[int, str]]:
        """Chat and text of what the bot has written or changed since this was last asked."""

    def heard(self, chat: int) -> list[str]:
        """What the bot has written in a chat, as it stands there now, oldest first."""

    async def changed(self, seconds: float) -> None:
        """Returns when something may have happened, after the seconds at the latest."""


class Telegram:
    """See `Platform`."""

    def __init__(self, server: TelegramServer, chats: int) -> None:
        self._server = server
        users = [server.user(f"Person {number}") for number in range(chats)]
        self._rooms: list[Gathering] = [server.private(user) for user in users]
        self._chats = {server.world.key(room.chat): number for number, room in enumerate(self._rooms)}
        self._seen = 0

    def table(self) -> Mapping[str, object]:
        """See `Platform.table`."""
        server = self._server
        return {
            "token": server.bot.token,
            "base_url": server.base_url,
            "base_file_url": server.base_file_url,
            "owners": [room.id for room in self._rooms],
        }

    def say(self, chat: int, text: str) -> None:
        """See `Platform.say`."""
        self._rooms[chat].say(text)

    def news(self) -> Iterator[tuple[int, str]]:
        """See `Platform.news`."""
        happenings, own = self._server.world.happenings, self._server.bot.user.name()
        fresh, self._seen = happenings[self._seen :], len(happenings)
        for one in fresh:
            if one.what in ("message", "edit") and one.who == own and one.message is not None:
                room = self._rooms[self._chats[one.chat]]
                yield self._chats[one.chat], str(room.chat.messages.get(one.message, {}).get("text", ""))

    def heard(self, chat: int) -> list[str]:
        """See `Platform.heard`."""
        return self._rooms[chat].texts(self._server.bot.user)

    async def changed(self, seconds: float) -> None:
        """See `Platform.changed`."""
        await _set(self._server.world.changed, seconds)


class Discord:
    """See `Platform`."""

    def __init__(self, server: DiscordServer, chats: int) -> None:
        self._server = server
        self._users = [server.user(f"Person {number}") for number in range(chats)]
        self._rooms: list[Room] = [server.dm(user) for user in self._users]
        self._chats = {room.id: number for number, room in enumerate(self._rooms)}
        self._seen = 0

    def table(self) -> Mapping[str, object]:
        """See `Platform.table`."""
        server = self._server
        return {
            "token": server.bot.token,
            "rest_url": server.rest_url,
            "gateway_url": server.gateway_url,
            "owners": [user.id for user in self._users],
        }

    def say(self, chat: int, text: str) -> None:
        """See `Platform.say`."""
        self._rooms[chat].say(self._users[chat], text)

    def news(self) -> Iterator[tuple[int, str]]:
        """See `Platform.news`."""
        happenings, own = self._server.world.happenings, self._server.bot.user.name()
        fresh, self._seen = happenings[self._seen :], len(happenings)
        for one in fresh:
            if one.what in ("message", "edit") and one.who == own and one.message is not None:
                chat = self._chats[one.channel]
                written = self._rooms[chat].channel.messages.get(one.message)
                yield chat, written.content if written else ""

    def heard(self, chat: int) -> list[str]:
        """See `Platform.heard`."""
        return self._rooms[chat].texts(self._server.bot.user)

    async def changed(self, seconds: float) -> None:
        """See `Platform.changed`."""
        await _set(self._server.world.changed, seconds)


async def _set(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set anew."""
    event.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@asynccontextmanager
async def _discord(chats: int) -> AsyncIterator[Platform]:
    async with DiscordServer(limits=None) as server:
        yield Discord(server, chats)


@asynccontextmanager
async def _telegram(chats: int) -> AsyncIterator[Platform]:
    async with TelegramServer(limits=None) as server:
        yield Telegram(server, chats)


PLATFORMS: Mapping[str, Callable[[int], AbstractAsyncContextManager[Platform]]] = {
    "telegram": _telegram,
    "discord": _discord,
}
"""Opens a platform with so many chats, by the kind of its channel."""
