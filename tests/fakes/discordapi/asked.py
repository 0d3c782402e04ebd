"""One request, read: ids of the path, the query, the JSON body, the files; and what requests work on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from tests.fakes.discordapi.desk import Desk
from tests.fakes.discordapi.errors import Json, Refusal, form, missing_access, no_snowflake, too_large, unknown
from tests.fakes.discordapi.permissions import Permission, in_channel
from tests.fakes.discordapi.world import Channel, Message, User, World


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it came."""

    name: str
    content: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """What may be sent. `upload` is bytes per file, `request` of a whole request; `nonce` is in seconds."""

    text: int = 2000
    upload: int = 10 * 1024 * 1024
    request: int = 25 * 1024 * 1024
    nonce: float = 300.0


@dataclass(frozen=True, slots=True)
class Site:
    """What the routes work on."""

    world: World
    sizes: Sizes
    desk: Desk


@dataclass(slots=True)
class Asked:
    """A request. `user` is the bot that asks, where the route needs a token at all."""

    site: Site
    path: dict[str, str]
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    files: dict[int, Upload] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self.site.world

    @property
    def me(self) -> User:
        return self.site.world.bot.user

    @property
    def json(self) -> Json:
        """The body, which has to be an object."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            raise Refusal(400, 50109, "The request body contains invalid JSON.")
        return self.body

    def id(self, name: str) -> int:
        """An id of the path."""
        value = self.path[name]
        if not value.isdigit() or not 0 < int(value) < 2**63:
            raise form(no_snowflake(f"{name}_id", value))
        return int(value)

    def number(self, name: str, usual: int, low: int, high: int) -> int:
        """A number of the query."""
        value = self.query.get(name)
        if value is None:
            return usual
        if not value.lstrip("-").isdigit():
            raise form((name, "NUMBER_TYPE_COERCE", f'Value "{value}" is not int.'))
        if int(value) < low:
            raise form((name, "NUMBER_TYPE_MIN", f"int value should be greater than or equal to {low}."))
        if int(value) > high:
            raise form((name, "NUMBER_TYPE_MAX", f"int value should be less than or equal to {high}."))
        return int(value)

    def snowflake(self, name: str) -> int | None:
        """An id of the query."""
        value = self.query.get(name)
        if value is None:
            return None
        if not value.isdigit() or int(value) >= 2**63:
            raise form(no_snowflake(name, value))
        return int(value)

    def channel(self, name: str = "channel") -> Channel:
        """The channel of the path, if the bot sees it."""
        channel = self.world.channels.get(self.id(name))
        if channel is None or channel.gone:
            raise unknown("channel")
        if channel.guild is None and self.me.id not in (one.id for one in channel.recipients):
            raise unknown("channel")
        if not in_channel(channel, self.me) & Permission.VIEW_CHANNEL:
            raise missing_access()
        return channel

    def message(self, channel: Channel) -> Message:
        """The message of the path; one that only somebody else saw is not there."""
        one = channel.messages.get(self.id("message"))
        if one is None or one.ephemeral:
            raise unknown("message")
        return one

    def allowed(self, channel: Channel, *needed: Permission, otherwise: Refusal) -> None:
        """Whether the bot has all of these in the channel."""
        value = in_channel(channel, self.me)
        if not all(value & one for one in needed):
            raise otherwise


Route = Callable[[Asked], object]
"""Carries a request out; None is an answer without a body."""


async def read(request: web.Request, limit: int) -> tuple[object, dict[int, Upload]]:
    """The body of a request: JSON, or a form with `payload_json` and `files[n]`."""
    if request.content_length is not None and request.content_length > limit:
        raise too_large()
    if request.content_type.startswith("multipart/"):
        return await _form(request, limit)
    data = await request.content.read(-1)
    if len(data) > limit:
        raise too_large()
    if not data:
        return None, {}
    if request.content_type != "application/json":
        raise Refusal(400, 50035, "Invalid Form Body", errors={"_errors": [{"code": "CONTENT_TYPE_INVALID", "message": 'Expected "Content-Type" header to be one of {\'application/json\'}.'}]})  # fmt: skip
    return _decoded(data), {}


def _decoded(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        raise Refusal(400, 50109, "The request body contains invalid JSON.") from None


async def _form(request: web.Request, limit: int) -> tuple[object, dict[int, Upload]]:
    body: object = None
    files: dict[int, Upload] = {}
    size = 0
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = bytes(await part.read())
        size += len(content)
        if size > limit:
            raise too_large()
        name = part.name or ""
        if name == "payload_json":
            body = _decoded(content)
        elif part.filename is not None:
            number = name.removeprefix("files[").removesuffix("]")
            place = int(number) if number.isdigit() else len(files)
            files[place] = Upload(part.filename, content, part.headers.get("Content-Type", ""))
    return body, files
