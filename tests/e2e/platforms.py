"""The platforms of a daemon under test, as people see them: who talks with the bot, and what it said there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.fakes.botapi.faults import Drop as BotApiDrop
from tests.fakes.botapi.faults import Slow as BotApiSlow
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as BotApi
from tests.fakes.discordapi.faults import Drop as DiscordDrop
from tests.fakes.discordapi.faults import Slow as DiscordSlow
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordApi

POST = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
ALWAYS = 1_000_000
"""Times that a fault comes which does not end."""
QUIET = 0.5
"""Seconds without a request after which a bot has nothing more to do."""


class Platform(Protocol):
    """One server with people who each have a direct chat with the bot. People are named by their numeric ids."""

    @property
    def name(self) -> str:
        """Of the channel."""

    def table(self) -> dict[str, Any]:
        """The keys of the channel that say where it is."""

    def person(self, name: str) -> str:
        """Somebody new, with a chat."""

    def say(self, person: str, text: str) -> None:
        """Somebody says something to the bot."""

    def chat(self, person: str) -> str:
        """The id of somebody's chat, as the bot names it."""

    def answers(self, person: str) -> list[str]:
        """What the bot has said in somebody's chat, as it stands now, oldest first."""

    def slow(self, seconds: float, *, lost: int = 0) -> None:
        """From now on what the bot sends is there at once and answered so late; the next `lost` answers never come."""

    async def until(self, true: Callable[[], object], seconds: float) -> None:
        """Waits until something holds."""

    async def heard(self) -> None:
        """Waits until a bot that was just started receives."""

    async def quiet(self) -> None:
        """Waits until a running bot has taken everything there is."""


@dataclass
class OnTelegram:
    """See `Platform`."""

    server: BotApi
    rooms: dict[str, Gathering] = field(default_factory=dict)
    name: str = "telegram"

    def table(self) -> dict[str, Any]:
        """See `Platform`."""
        server = self.server
        return {
            "token": server.bot.token,
            "base_url": server.base_url,
            "base_file_url": server.base_file_url,
            "poll_timeout": 1,
        }

    def person(self, name: str) -> str:
        """See `Platform`."""
        user = self.server.user(name)
        self.rooms[str(user.id)] = self.server.private(user)
        return str(user.id)

    def say(self, person: str, text: str) -> None:
        """See `Platform`."""
        self.rooms[person].say(text)

    def chat(self, person: str) -> str:
        """See `Platform`."""
        return str(self.rooms[person].chat.id)

    def answers(self, person: str) -> list[str]:
        """See `Platform`."""
        messages = self.rooms[person].chat.messages.values()
        return [str(one["text"]) for one in messages if one.get("from", {}).get("is_bot") and "text" in one]

    def slow(self, seconds: float, *, lost: int = 0) -> None:
        """See `Platform`."""
        self.server.faults.clear()
        self.server.faults.add("sendMessage", BotApiDrop("after"), times=lost)
        for method in ("sendMessage", "editMessageText"):
            self.server.faults.add(method, BotApiSlow(seconds), times=ALWAYS)

    async def until(self, true: Callable[[], object], seconds: float) -> None:
        """See `Platform`."""
        await self.server.until(true, seconds)

    async def heard(self) -> None:
        """See `Platform`; it polls."""
        taken = len(self.server.calls("getUpdates"))
        await self.until(lambda: len(self.server.calls("getUpdates")) > taken, 30)

    async def quiet(self) -> None:
        """See `Platform`; it polls in vain."""
        taken = len(self.server.calls("getUpdates")) + 2
        await self.until(lambda: len(self.server.calls("getUpdates")) >= taken, 30)


@dataclass
class OnDiscord:
    """See `Platform`."""

    server: DiscordApi
    rooms: dict[str, Room] = field(default_factory=dict)
    name: str = "discord"

    def table(self) -> dict[str, Any]:
        """See `Platform`."""
        server = self.server
        return {"token": server.bot.token, "rest_url": server.rest_url, "gateway_url": server.gateway_url}

    def person(self, name: str) -> str:
        """See `Platform`."""
        user = self.server.user(name)
        self.rooms[str(user.id)] = self.server.dm(user)
        return str(user.id)

    def say(self, person: str, text: str) -> None:
        """See `Platform`."""
        room = self.rooms[person]
        room.say(self.server.world.users[int(person)], text)

    def chat(self, person: str) -> str:
        """See `Platform`."""
        return str(self.rooms[person].id)

    def answers(self, person: str) -> list[str]:
        """See `Platform`."""
        return self.rooms[person].texts(self.server.bot.user)

    def slow(self, seconds: float, *, lost: int = 0) -> None:
        """See `Platform`."""
        self.server.faults.clear()
        self.server.fail(POST, DiscordDrop("after"), times=lost)
        for route in (POST, EDIT):
            self.server.fail(route, DiscordSlow(seconds), times=ALWAYS)

    async def until(self, true: Callable[[], object], seconds: float) -> None:
        """See `Platform`."""
        await self.server.until(true, seconds)

    async def heard(self) -> None:
        """See `Platform`; it is connected."""
        await self.until(lambda: self.server.gateway.connected, 30)

    async def quiet(self) -> None:
        """See `Platform`; it is connected and asks nothing more."""
        await self.until(lambda: self.server.gateway.connected, 30)
        async with asyncio.timeout(30):
            before = -1
            while before != len(self.server.log):
                before = len(self.server.log)
                await asyncio.sleep(QUIET)


def counted(platform: Platform, person: str) -> Counter[str]:
    """What the bot has said to somebody, and how often."""
    return Counter(platform.answers(person))
