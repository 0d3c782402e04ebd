"""People on two servers that speak Discord's API: ours, and an independent twin in the client's own process.

discord.py is the client of both. What it is given and what it gets is kept, and taken apart into fields and types.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import discord
import simcord
from discord import app_commands

from tests.fakes.discordapi.client import Library, running
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import Message

HEARD = (
    "MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE",
    "THREAD_CREATE", "INTERACTION_CREATE", "TYPING_START",
)  # fmt: skip


KINDS = {
    "user": {"username", "discriminator"},
    "member": {"joined_at", "deaf"},
    "message": {"author", "content", "timestamp"},
    "thread": {"thread_metadata"},
    "channel": {"type", "last_message_id"},
    "guild": {"owner_id", "roles"},
}
"""Objects that are compared wherever they stand, by what tells them apart."""


class Shapes:
    """Per kind of object and field the types that were met; `-` is a field that was not there every time."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, str]]] = {}

    def add(self, value: object, kind: str) -> None:
        """Takes an object apart."""
        fields: dict[str, str] = {}
        self.objects.setdefault(kind, []).append(fields)
        self._walk(value, "", fields)

    def _walk(self, value: object, path: str, fields: dict[str, str]) -> None:
        if isinstance(value, list):
            fields[path] = "list"
            for inner in value:
                self._walk(inner, f"{path}[]", fields)
        elif isinstance(value, dict):
            kind = next((name for name, keys in KINDS.items() if keys <= set(value)), None) if path else None
            fields[path] = kind or "object"
            if kind is not None:
                self.add(value, kind)
                return
            for key, inner in value.items():
                self._walk(inner, f"{path}.{key}".lstrip("."), fields)
        else:
            fields[path] = "null" if value is None else type(value).__name__

    def table(self) -> dict[str, str]:
        """`kind.field` with its types."""
        found = {}
        for kind, objects in self.objects.items():
            for name in sorted({name for one in objects for name in one if name}):
                parent = re.sub(r"(\[\]|\.[^.\[]+)$", "", name) if re.search(r"\[\]|\.", name) else ""
                types = {one.get(name, "-") for one in objects if not parent or parent in one}
                if parent and parent + "[]" == name:
                    types -= {"-"}
                found[f"{kind}.{name}"] = "|".join(sorted(types))
        return found


@dataclass
class Seen:
    """What one side showed: payloads of the gateway, answers of REST, refusals."""

    payloads: dict[str, list[Json]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    refusals: dict[str, tuple[int, int]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)


class Side(Protocol):
    """People on one of the two servers, in one channel of a guild and in one direct conversation."""

    channel: int
    direct: int
    hidden: int
    seen: Seen

    @property
    def client(self) -> discord.Client: ...

    async def say(self, text: str, *, reply_to: int | None = None, file: bool = False, direct: bool = False) -> int: ...
    async def edit(self, message: int, text: str) -> None: ...
    async def delete(self, message: int) -> None: ...
    async def react(self, message: int, emoji: str) -> None: ...
    async def typing(self) -> None: ...
    async def slash(self, text: str) -> None: ...


def _tree(client: discord.Client) -> app_commands.CommandTree[discord.Client]:
    tree = app_commands.CommandTree(client)

    async def ask(interaction: discord.Interaction[discord.Client], text: str) -> None:
        if text == "later":
            await interaction.response.defer(thinking=True)
            await interaction.edit_original_response(content="now")
        else:
            await interaction.response.send_message(f"you said {text}")
        await interaction.followup.send("more")

    tree.add_command(app_commands.Command(name="ask", description="Asks.", callback=ask))
    return tree


class Ours:
    """Our server."""

    def __init__(self, server: Server, client: Library) -> None:
        self.server = server
        self.client = client
        self.seen = Seen()
        self.ada = server.user("Ada")
        guild = server.guild("Home", server.user("Owner"), [self.ada])
        self.room, hidden, self.dm = guild.text("general"), guild.text("secret"), server.dm(self.ada)
        hidden.deny(server.bot.user, "view_channel")
        self.channel, self.direct, self.hidden = self.room.id, self.dm.id, hidden.id

    def _message(self, number: int) -> tuple[Room, Message]:
        found = [(room, one) for room in (self.room, self.dm) for one in room.messages if one.id == number]
        return found[0]

    async def _heard(self) -> None:
        self.server.gateway.odd("END", {})
        ends = len(self.client.payloads("END"))
        await self.server.until(lambda: len(self.client.payloads("END")) > ends)

    async def say(self, text: str, *, reply_to: int | None = None, file: bool = False, direct: bool = False) -> int:
        room = self.dm if direct else self.room
        files = [("a.txt", b"abc", "text/plain")] if file else []
        answered = self._message(reply_to)[1] if reply_to else None
        said = room.say(self.ada, text, reply_to=answered, files=files)
        await self._heard()
        return said.id

    async def edit(self, message: int, text: str) -> None:
        room, one = self._message(message)
        room.edit(one, text)
        await self._heard()

    async def delete(self, message: int) -> None:
        room, one = self._message(message)
        room.delete(one)
        await self._heard()

    async def react(self, message: int, emoji: str) -> None:
        room, one = self._message(message)
        room.react(self.ada, one, emoji)
        room.unreact(self.ada, one, emoji)
        await self._heard()

    async def typing(self) -> None:
        self.room.typing(self.ada)
        await self._heard()

    async def slash(self, text: str) -> None:
        asked = self.server.slash(self.room, self.ada, "ask", {"text": text})
        await self.server.until(lambda: asked.followups)
        self.seen.told += [str(asked.text), *[one.content for one in asked.followups]]


class Theirs:
    """The independent twin, which runs in the client's own process."""

    def __init__(self, env: simcord.Env, client: discord.Client) -> None:
        self.env = env
        self.client = client
        self.seen = Seen()
        guild = env.create_guild("Home")
        self.room = guild.create_text_channel("general")
        assert client.user is not None
        unseen = discord.PermissionOverwrite(view_channel=False)
        hidden = guild.create_text_channel("secret", overwrites={client.user: unseen})
        self.ada = guild.add_member(env.create_user("ada"))
        self.dm = self.ada.user.dm_channel
        self.channel, self.direct, self.hidden = self.room.id, self.dm.id, hidden.id
        self.messages: dict[int, discord.Message] = {}

    async def say(self, text: str, *, reply_to: int | None = None, file: bool = False, direct: bool = False) -> int:
        answered = self.messages[reply_to] if reply_to else None
        files = [("a.txt", b"abc")] if file else []
        if direct:
            said = await self.ada.send_dm(text)
        else:
            said = await self.ada.send(self.room, text, reply_to=answered, attachments=files)
        self.messages[said.id] = said
        return said.id

    async def edit(self, message: int, text: str) -> None:
        await self.ada.edit(self.messages[message], text)

    async def delete(self, message: int) -> None:
        await self.ada.delete(self.messages[message])

    async def react(self, message: int, emoji: str) -> None:
        await self.ada.react(self.messages[message], emoji)
        await self.ada.unreact(self.messages[message], emoji)

    async def typing(self) -> None:
        await self.ada.typing(self.room)

    async def slash(self, text: str) -> None:
        asked = await self.ada.slash(self.room, "ask", text=text)
        assert asked.response is not None
        self.seen.told += [asked.response.content, *[one.content for one in asked.followups]]


def _listening(client: discord.Client, seen: Seen) -> None:
    """Keeps a copy of what the parsers get."""

    def keep(name: str, parse: Callable[[Json], None]) -> Callable[[Json], None]:
        def parser(data: Json) -> None:
            seen.payloads.setdefault(name, []).append(json.loads(json.dumps(data)))
            parse(data)

        return parser

    for name in HEARD:
        client._connection.parsers[name] = keep(name, client._connection.parsers[name])


class _Synced(Library):
    """Our side's client with its commands."""

    async def setup_hook(self) -> None:
        await super().setup_hook()
        await _tree(self).sync()


@asynccontextmanager
async def ours() -> AsyncIterator[Side]:
    """Our server with the client connected."""
    async with Server(limits=None) as server:
        client = _Synced(server)
        side = Ours(server, client)
        async with running(server, client):
            _listening(client, side.seen)
            yield side


@asynccontextmanager
async def theirs() -> AsyncIterator[Side]:
    """The independent twin with the client attached."""
    intents = discord.Intents(
        guilds=True, members=True, messages=True, message_content=True, reactions=True, typing=True
    )
    client = discord.Client(intents=intents)

    async def setup() -> None:
        await _tree(client).sync()  # only now: the twin has put its own requests into the client

    client.setup_hook = setup  # type: ignore[method-assign]
    async with simcord.run(client) as env:
        side = Theirs(env, client)
        await env.settle()
        _listening(client, side.seen)
        yield side
