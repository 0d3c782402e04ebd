"""A bot that asks, on the test server of a platform, with the people of a small club; and what they see, as text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from tests.approving import CARD, card_ids
from tests.e2e.approval_daemon import CHILD
from tests.e2e.daemon import Daemon, configure, running
from tests.e2e.platforms import OnDiscord, OnTelegram
from tests.e2e.test_buttons import keys
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.platform.world import Happening

SECONDS = 30.0
"""Any wait."""
POST: Mapping[str, Any] = {"calls": [{"name": "post_send", "arguments": {"to": "bob"}}]}
PAGE: Mapping[str, Any] = {
    "calls": [{"name": "page_read", "arguments": {"address": "http://x.org/?q=secret"}}],
}
SCRIPT: Mapping[str, Any] = {
    "rules": [
        {"when": r"Approval \w+: allowed", "steps": [{"text": "?"}, {"text": "It is done."}]},
        {"when": r"Approval \w+: denied", "steps": [{"text": "I leave it."}]},
        {"when": "Greet Bob|greet Bob", "steps": [POST, {"text": "I have asked."}]},
        {"when": "Say hello", "steps": [POST, {"text": "That was the job."}]},
        {"when": "look it up", "steps": [PAGE, {"text": "I have asked."}]},
    ],
    "default": [{"text": "You said: {text}"}],
}


@dataclass
class Stage(ABC):
    """The bot, and people: Ada is its owner, Bob a member, Eve nobody it knows.

    Attributes:
        home: of the bot.
        approvals: lines of `[approvals]`.
    """

    home: Path
    approvals: str = ""
    server: Any = None
    name: ClassVar[str]

    @cached_property
    def people(self) -> dict[str, Any]:
        """Everybody by name."""
        return {name: self.server.user(name) for name in ("Ada", "Bob", "Eve")}

    @cached_property
    @abstractmethod
    def alone(self) -> Any:
        """Ada's own chat with the bot."""

    @cached_property
    @abstractmethod
    def club(self) -> Any:
        """A group of them all and the bot."""

    @abstractmethod
    def say(self, room: Any, who: str, text: str) -> None:
        """Let somebody say something; in the club to the bot."""

    @abstractmethod
    def press(self, room: Any, who: str, card: int, label: str) -> None:
        """Press a button."""

    @abstractmethod
    def labels(self, room: Any) -> dict[int, list[str]]:
        """The labels of the buttons below the bot's messages that have some, as they stand now."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """The keys of the channel."""

    @abstractmethod
    async def quiet(self, daemon: Daemon) -> None:
        """Wait until the bot has taken all there is."""

    def set_up(self) -> None:
        """Write the configuration."""
        ids = {name: user.id for name, user in self.people.items()}
        keys_of_channel = {"debounce": 0, "live": False, "owners": [ids["Ada"]], "members": [ids["Bob"]]}
        configure(self.home, {self.name: {**self.table(), **keys_of_channel}}, SCRIPT)
        with (self.home / "config.toml").open("a") as file:
            file.write(f"[approvals]\n{self.approvals}\n")

    @asynccontextmanager
    async def bot(self) -> AsyncIterator[Daemon]:
        """The bot for a block, which ends when it has nothing more to do."""
        async with running(self.home, target=CHILD, arguments=[str(self.home), "", ""]) as daemon:
            await self.quiet(daemon)
            yield daemon
            if daemon.process.returncode is None:
                await self.quiet(daemon)

    def mark(self, room: Any, words: str) -> None:
        """Write a line into the transcript for what people do not see."""
        chat = room.channel if isinstance(room, Room) else room.chat
        self.server.world.happened(chat, "service", words, "")

    def texts(self, room: Any) -> list[str]:
        """What the bot has said in a chat, as it stands now."""
        return list(room.texts(self.server.bot.user if isinstance(room, Gathering) else self.server.bot))

    def card_id(self, room: Any) -> str:
        """What people type to answer the newest card."""
        return card_ids(self.texts(room))[-1]

    async def card(self, room: Any) -> int:
        """Wait for a card that can be answered; return its message."""
        await self.server.until(lambda: any("Deny" in labels for labels in self.labels(room).values()), SECONDS)
        return next(message for message, labels in self.labels(room).items() if "Deny" in labels)

    async def until_said(self, room: Any, words: str, times: int = 1) -> None:
        """Wait until so many messages of the bot in a chat hold these words."""
        await self.server.until(lambda: sum(words in text for text in self.texts(room)) >= times, SECONDS)

    async def until_told(self, words: str, times: int = 1) -> None:
        """Wait until this was told so often, be it for nobody else to see."""
        told = self.server.world.happenings
        await self.server.until(lambda: sum(words in one.text for one in told) >= times, SECONDS)

    def transcript(self) -> str:
        """What people saw, with what differs from run to run made equal."""
        world = self.server.world
        last = {(one.chat, one.message): one for one in world.happenings if one.what == "edit"}
        first = {(one.chat, one.message): one for one in world.happenings if one.what == "message"}
        world.happenings[:] = [
            shorten(one, first[one.chat, one.message]) if one.what == "edit" else one
            for one in world.happenings
            if one.what != "edit" or one is last[one.chat, one.message]
        ]
        return make_equal(self.server.transcript(times=False))


class TelegramStage(Stage):
    """On Telegram, with python-telegram-bot."""

    name = "telegram"

    @cached_property
    def alone(self) -> Gathering:
        found: Gathering = self.server.private(self.people["Ada"])
        return found

    @cached_property
    def club(self) -> Gathering:
        found: Gathering = self.server.supergroup("Club", list(self.people.values()))
        return found

    def say(self, room: Gathering, who: str, text: str) -> None:
        bot = f"@{self.server.bot.user.username}"
        if room is not self.alone:
            command, _, rest = text.partition(" ")
            text = f"{command}{bot} {rest}".rstrip() if text.startswith("/") else f"{bot} {text}"
        room.say(text, self.people[who])

    def press(self, room: Gathering, who: str, card: int, label: str) -> None:
        room.press(card, keys(room.message(card))[label], self.people[who])

    def labels(self, room: Gathering) -> dict[int, list[str]]:
        return {number: list(keys(one)) for number, one in room.chat.messages.items() if keys(one)}

    def table(self) -> dict[str, Any]:
        return OnTelegram(self.server).table()

    async def quiet(self, daemon: Daemon) -> None:
        await daemon.quiet(self.server)


class DiscordStage(Stage):
    """On Discord, with discord.py; the club is a channel of a guild."""

    name = "discord"

    @cached_property
    def alone(self) -> Room:
        found: Room = self.server.dm(self.people["Ada"])
        return found

    @cached_property
    def club(self) -> Room:
        ada, *others = self.people.values()
        found: Room = self.server.guild("Club", ada, others).text("general")
        return found

    def say(self, room: Room, who: str, text: str) -> None:
        room.say(self.people[who], text if room is self.alone else f"{self.server.bot.mention} {text}")

    def press(self, room: Room, who: str, card: int, label: str) -> None:
        message = room.channel.messages[card]
        found = {part["label"]: part["custom_id"] for row in message.components for part in row["components"]}
        self.server.press(room, self.people[who], message, found[label])

    def labels(self, room: Room) -> dict[int, list[str]]:
        return {
            one.id: [part["label"] for row in one.components for part in row["components"]]
            for one in room.messages
            if one.components
        }

    def table(self) -> dict[str, Any]:
        return OnDiscord(self.server).table()

    async def quiet(self, daemon: Daemon) -> None:
        await OnDiscord(self.server).quiet()


@asynccontextmanager
async def staged(platform: str, home: Path, approvals: str = "") -> AsyncIterator[Stage]:
    """Open the server of a platform, and set up a bot for it."""
    if platform == "telegram":
        server: Any = TelegramServer(limits=None, conflict_pause=0.1, longest_poll=0.3)
        stage: Stage = TelegramStage(home, approvals)
    else:
        server, stage = DiscordServer(limits=None), DiscordStage(home, approvals)
    async with server:
        stage.server = server
        stage.set_up()
        yield stage


def shorten(edit: Happening, old: Happening) -> Happening:
    """Leave out of an edit the paragraphs with which the message began before."""
    parts, was = edit.text.split("\n\n"), old.text.split("\n\n")
    same = next((place for place in range(len(parts)) if parts[: place + 1] != was[: place + 1]), len(parts))
    return replace(edit, text="\n\n".join(["…", *parts[same:]]))


def make_equal(transcript: str) -> str:
    """Number what is chance: ids of cards, people and chats, and times."""
    names = count(2)
    same = transcript
    for number in dict.fromkeys(CARD.findall(transcript.replace("*", ""))):
        same = same.replace(number, f"7KQ{next(names)}M")
    for place, number in enumerate(dict.fromkeys(re.findall(r"-?\d{9,}", same)), 1):
        same = same.replace(number, f"{'-' * number.startswith('-')}{place}00")
    for number in dict.fromkeys(re.findall(r"(?<=Scheduled plain \()\w{6}|(?<=Scheduled allowed \()\w{6}", same)):
        same = same.replace(number, f"5cd{next(names)}e4")
    same = re.sub(r"\w{3} \d{1,2} \w{3} \d{4}", "Mon 23 Nov 2026", same)
    same = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-22 10:00", same)
    return "\n".join(line.rstrip() for line in same.splitlines() if not re.search(r" is typing…?$", line)).strip()
