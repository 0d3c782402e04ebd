"""The interactions there are: when they began, what was answered, and what their users saw."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.discordapi import posting, shapes
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.permissions import in_channel
from tests.fakes.discordapi.world import REPLY, SLASH, Channel, Event, Message, User, World

EPHEMERAL, LOADING = 1 << 6, 1 << 7
FAILED = "The application did not respond"
COMMAND, COMPONENT = 2, 3


@dataclass(slots=True, eq=False)
class Interaction:
    """One interaction. `saw` is what its user was shown, line by line; `response` is the first answer."""

    id: int
    token: str
    user: User
    channel: Channel
    kind: int
    name: str
    made: float
    payload: Json = field(default_factory=dict)
    state: Literal["waiting", "deferred", "answered", "failed"] = "waiting"
    acknowledged: bool = False
    response: Message | None = None
    followups: list[Message] = field(default_factory=list)
    source: Message | None = None
    saw: list[str] = field(default_factory=list)

    @property
    def deferred(self) -> bool:
        """Whether the user sees that the application is thinking."""
        return self.state == "deferred"

    @property
    def text(self) -> str | None:
        """What the first answer says now."""
        return None if self.response is None or self.deferred else self.response.content

    def metadata(self) -> Json:
        """As messages name the interaction that they answer."""
        return {
            "id": str(self.id),
            "type": self.kind,
            "user": shapes.user(self.user),
            "authorizing_integration_owners": {},
            "name": self.name,
            "command_type": 1,
        }


@dataclass(slots=True)
class Desk:
    """All interactions. `patience` is the time for the first answer, `lifetime` that of the token, in seconds."""

    world: World
    patience: float = 3.0
    lifetime: float = 900.0
    open: dict[str, Interaction] = field(default_factory=dict)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    def begin(self, one: Interaction, data: Json) -> Interaction:
        """Tells the application, and the user in time that nothing came."""
        world, channel, bot = self.world, one.channel, self.world.bot
        one.payload = {
            "version": 1,
            "type": one.kind,
            "token": one.token,
            "id": str(one.id),
            "application_id": str(bot.application_id),
            "data": data,
            "channel": {**shapes.channel(channel, viewer=one.user)},
            "channel_id": str(channel.id),
            "locale": "en-US",
            "entitlements": [],
            "entitlement_sku_ids": [],
            "attachment_size_limit": 10 * 1024 * 1024,
            "app_permissions": str(in_channel(channel, bot.user)),
            "authorizing_integration_owners": {"0": str(channel.guild.id) if channel.guild else "0"},
            "context": 0 if channel.guild else 1,
        }
        if channel.guild is not None:
            one.payload["channel"]["permissions"] = str(in_channel(channel, one.user))
            member = shapes.member(channel.guild.members[one.user.id])
            one.payload["member"] = {**member, "permissions": str(in_channel(channel, one.user))}
            one.payload |= {"guild_id": str(channel.guild.id), "guild_locale": "en-US"}
            one.payload["guild"] = {"id": str(channel.guild.id), "locale": "en-US", "features": []}
        else:
            one.payload["user"] = shapes.user(one.user)
        if one.source is not None:
            one.payload["message"] = shapes.message(world, one.source)
        self.open[one.token] = one
        loop = asyncio.get_running_loop()
        self.timers.append(loop.call_later(self.patience, self._unanswered, one, "waiting"))
        self.timers.append(loop.call_later(self.lifetime, self._unanswered, one, "deferred"))
        world.tell(Event("INTERACTION_CREATE", one.payload))
        return one

    def _unanswered(self, one: Interaction, state: str) -> None:
        if one.state == state:
            one.state = "failed"
            one.saw.append(FAILED)
            self.world.happened(one.channel, "service", self.world.bot.user.name(), f"to {one.user.name()}: {FAILED}")

    def close(self) -> None:
        """Nothing is told any more."""
        for timer in self.timers:
            timer.cancel()

    def late(self, one: Interaction) -> bool:
        """Whether the time for the first answer is over."""
        return self.world.clock.now() > one.made + self.patience

    def show(self, one: Interaction, parts: Json, flags: int, *, first: bool) -> Message:
        """A new message of the application that answers an interaction."""
        more: dict[str, Any] = {"kind": SLASH if first and one.kind == COMMAND else REPLY if one.response else 0}
        if more["kind"] == REPLY and one.response is not None:
            more["reference"] = (one.channel, one.response.id)
        if flags & EPHEMERAL:
            more["seen_by"] = one.user.id
        application, content = self.world.bot.application_id, parts.pop("content", "")
        if first and one.kind == COMMAND:
            more["interaction"] = one.metadata()
        elif one.response is not None:
            more["interaction"] = {**one.metadata(), "original_response_message_id": str(one.response.id)}
        message = posting.post(
            self.world, one.channel, self.world.bot.user, content, flags=flags, webhook=application, **parts, **more
        )
        one.saw.append(posting.describe(self.world, message))
        return message
