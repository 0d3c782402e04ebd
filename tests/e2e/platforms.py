"""The platforms of a daemon under test, as people see them: who talks with the bot, and what it said there."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bubbot.texts import Texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.platform.faults import Drop, Slow
from tests.fakes.platform.server import PlatformServer

POST = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
MARK = re.compile(r"\n\n(-# )?" + re.escape(Texts().say("sent_again")) + "$")
"""What stands below a message that was sent again."""
ALWAYS = 1_000_000
"""Times that a fault comes which does not end."""
QUIET = 0.5
"""Seconds without a request after which a bot has nothing more to do."""


@dataclass
class Platform(ABC):
    """One server with people who each have a direct chat with the bot. People are named by their numeric ids.

    Attributes:
        rooms: the chat of each person.
        name: the name of the channel.
        leaves_bare_starts: a kill may leave a bare `…` in a chat: the platform cannot tell whether it arrived.
        sends: the routes of messages to people, that of new ones first.
    """

    server: PlatformServer[Any, Any]
    rooms: dict[str, Any] = field(default_factory=dict)
    name: ClassVar[str]
    leaves_bare_starts: ClassVar[bool] = False
    sends: ClassVar[Sequence[str]]

    def table(self) -> dict[str, Any]:
        """Return the keys of the channel that say where it is."""
        return self.server.table()

    def person(self, name: str) -> str:
        """Add somebody with a chat."""
        number, room = self.server.person(name)
        self.rooms[str(number)] = room
        return str(number)

    def say(self, person: str, text: str) -> None:
        """Let somebody say something to the bot."""
        self.rooms[person].write(text)

    def chat(self, person: str) -> str:
        """Return the id of somebody's chat, as the bot names it."""
        return str(self.rooms[person].id)

    def answers(self, person: str) -> list[str]:
        """Return what the bot has said in somebody's chat, as it stands now, oldest first."""
        return [text for text in self.rooms[person].texts(self.server.bot.user) if text]

    @abstractmethod
    def buttons(self, room: Any) -> dict[int, dict[str, str]]:
        """Return the keys of the buttons by label, below each message of a chat that has some now."""

    @abstractmethod
    def press(self, room: Any, message: int, key: str) -> None:
        """Let the person of a direct chat press a button."""

    def slow(self, seconds: float, *, lost: int = 0) -> None:
        """Answer what the bot sends, which is there at once, so late from now on; lose the next `lost` answers."""
        self.server.faults.clear()
        self.server.fail(self.sends[0], Drop("after"), times=lost)
        for route in self.sends:
            self.server.fail(route, Slow(seconds), times=ALWAYS)

    async def until(self, true: Callable[[], object], seconds: float) -> None:
        """Wait until something holds."""
        await self.server.until(true, seconds)

    @abstractmethod
    async def heard(self) -> None:
        """Wait until a bot that was just started receives."""

    @abstractmethod
    async def quiet(self) -> None:
        """Wait until a running bot has taken everything there is."""


class OnTelegram(Platform):
    """The bot polls; a poll in vain shows that it has everything."""

    server: TelegramServer
    name = "telegram"
    leaves_bare_starts = True
    sends = ("sendMessage", "editMessageText")

    def table(self) -> dict[str, Any]:
        """Return the keys, with short polls."""
        return {**super().table(), "poll_timeout": 1}

    def buttons(self, room: Gathering) -> dict[int, dict[str, str]]:
        return {
            number: {button["text"]: button["callback_data"] for row in rows for button in row}
            for number, message in room.chat.messages.items()
            if (rows := message.get("reply_markup", {}).get("inline_keyboard"))
        }

    def press(self, room: Gathering, message: int, key: str) -> None:
        room.press(message, key)

    async def _polls(self, more: int) -> None:
        count = len(self.server.calls("getUpdates")) + more
        await self.until(lambda: len(self.server.calls("getUpdates")) >= count, 120)

    async def heard(self) -> None:
        await self._polls(1)

    async def quiet(self) -> None:
        await self._polls(2)


class OnDiscord(Platform):
    """The bot is connected; one that asks nothing more has everything."""

    server: DiscordServer
    name = "discord"
    sends = (POST, EDIT)

    def buttons(self, room: Room) -> dict[int, dict[str, str]]:
        return {
            message.id: {part["label"]: part["custom_id"] for row in message.components for part in row["components"]}
            for message in room.messages
            if message.components
        }

    def press(self, room: Room, message: int, key: str) -> None:
        person = next(one for one in room.channel.recipients if one.id != self.server.bot.id)
        self.server.press(room, person, room.channel.messages[message], key)

    async def heard(self) -> None:
        await self.until(lambda: self.server.gateway.connected, 120)

    async def quiet(self) -> None:
        await self.heard()
        async with asyncio.timeout(30):
            before = -1
            while before != len(self.server.log):
                before = len(self.server.log)
                await asyncio.sleep(QUIET)


def counted(platform: Platform, person: str) -> Counter[str]:
    """What the bot has said to somebody, and how often; what was sent again counts as what it repeats."""
    return Counter(MARK.sub("", text) for text in platform.answers(person))
