"""A daemon with a channel `discord`, and what people see of it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.bot import entries
from tests.e2e.daemon import Daemon, configure, running
from tests.e2e.platforms import OnDiscord
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import Message

LONG = "\n\n".join(f"Paragraph {number}: " + "words and words. " * 12 for number in range(30))
CODE = "```python\n" + "\n".join(f"print({number})" for number in range(600)) + "\n```"
COUNTED = "one two three four five six seven eight nine ten"
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": "tell me everything", "steps": [{"text": f"# All of it\n\n{LONG}\n\n{CODE}\n\nThat is **all**."}]},
        {"when": "count slowly", "steps": [{"text": COUNTED, "pace": 0.2}]},
        {"when": "wait", "steps": [{"text": "late: {text}", "delay": 60}]},
        {"when": "call everybody", "steps": [{"text": "@everyone @here <@&1> come!"}]},
    ],
    "default": [{"text": "You said: {text}"}],
}


def configured(home: Path, server: Server, script: Mapping[str, Any] | None = None, **keys: Any) -> None:
    """Writes a configuration with a channel `discord` alone."""
    configure(home, {"discord": {**OnDiscord(server).table(), "debounce": 0.05, **keys}}, script or SCRIPT)


@asynccontextmanager
async def connected(home: Path, server: Server, **how: Any) -> AsyncIterator[Daemon]:
    """A bot for the block, that is connected."""
    async with running(home, **how) as daemon:
        await server.until(lambda: server.gateway.connected, 60)
        yield daemon


def said(server: Server, room: Room) -> list[Message]:
    """The messages of the bot in a chat, as they stand now."""
    return [one for one in room.messages if one.author.id == server.bot.id]


def texts(server: Server, room: Room) -> list[str]:
    """Their texts."""
    return [one.content for one in said(server, room)]


async def answered(server: Server, room: Room, *wanted: str, seconds: float = 20) -> None:
    """Waits until these are the last things that the bot said in the chat."""
    await server.until(lambda: texts(server, room)[-len(wanted) :] == list(wanted), seconds)


def named(home: Path, tape: str, name: str) -> list[dict[str, Any]]:
    """The data of the events, and the states of the anchors, of a name on a tape."""
    payloads: list[Any] = [entry["payload"] for entry in entries(home, tape)]
    return [one.get("data") or one.get("state") for one in payloads if one.get("name") == name]
