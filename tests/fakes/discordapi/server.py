"""A server that speaks Discord's REST API and gateway, both version 10, on loopback, for tests.

It knows nothing of bubbot. Shaped by the official documentation and judged by discord.py. Left out: voice, polls,
scheduled events, moderation, webhooks other than those of interactions, several shards.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Self

from tests.fakes.discordapi import slashes
from tests.fakes.discordapi.asked import Site, Sizes
from tests.fakes.discordapi.desk import Desk, Interaction
from tests.fakes.discordapi.gateway import Gateway
from tests.fakes.discordapi.http import API, Call, Front
from tests.fakes.discordapi.limits import Buckets, Limits
from tests.fakes.discordapi.rooms import Place, Room, found
from tests.fakes.discordapi.world import Bot, Message, Snowflakes, User, World
from tests.fakes.platform.server import PlatformServer
from tests.fakes.platform.world import Clock


class Server(PlatformServer[World, Call]):
    """The platform: `async with Server() as server`. One application with its bot is there from the start.

    `limits=None` switches rate limits off. `heartbeat` is the interval in seconds, `lifetime` how long a session
    without a connection can be resumed. `answer_within` is the time for the first answer to an interaction,
    `token_life` that of its token. The three intents are the switches of the application for privileged ones.
    """

    def __init__(
        self,
        *,
        name: str = "Bubbot",
        limits: Limits | None = Limits(),  # noqa: B008 - frozen
        sizes: Sizes = Sizes(),  # noqa: B008 - frozen
        heartbeat: float = 41.25,
        lifetime: float = 180.0,
        answer_within: float = 3.0,
        token_life: float = 900.0,
        members_intent: bool = True,
        presence_intent: bool = False,
        content_intent: bool = True,
    ) -> None:
        clock = Clock()
        ids = Snowflakes(clock)
        application, user = ids.next(), User(ids.next(), name, None, is_bot=True)
        token = f"{user.id}.twin.{uuid.uuid4().hex}"
        self.bot: Bot = Bot(user, application, token, members_intent, presence_intent, content_intent)
        world = World(self.bot, ids, clock=clock, users={user.id: user})
        self.gateway = Gateway(world, interval=heartbeat, lifetime=lifetime, resume_url=self._resume_url)
        world.tell = self.gateway.tell
        self._desk = Desk(world, answer_within, token_life)
        super().__init__(world, Front(Site(world, sizes, self._desk), self.gateway, Buckets(limits)))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.world.origin = f"http://127.0.0.1:{self.port}"
        return self

    async def disconnect(self) -> None:
        self._desk.close()
        self.gateway.drop()

    @property
    def rest_url(self) -> str:
        """Where the REST API is; routes follow at once."""
        return f"http://127.0.0.1:{self.port}{API}"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway"

    def table(self) -> dict[str, Any]:
        return {"token": self.bot.token, "rest_url": self.rest_url, "gateway_url": self.gateway_url}

    def _resume_url(self) -> str:
        return f"{self.gateway_url}/resume"

    # Who there is and where they talk

    def user(self, name: str, *, bot: bool = False) -> User:
        """A person, or another bot."""
        return self.world.add_user(name, bot=bot)

    def dm(self, user: User) -> Room:
        """The conversation of a person with the bot; the same one each time."""
        return Room(self.world, self.world.direct(user))

    def person(self, name: str) -> tuple[int, Room]:
        user = self.user(name)
        return user.id, self.dm(user)

    def guild(self, name: str, owner: User, members: Iterable[User] = (), *, bot: bool = True) -> Place:
        """A guild with people, and with the bot unless told otherwise."""
        return found(self.world, name, owner, members, bot=bot)

    def slash(self, room: Room, user: User, command: str, options: dict[str, object] | None = None) -> Interaction:
        """Somebody uses a command of the bot; `command` has the names of its groups before it, as people type it."""
        return slashes.slash(self._desk, room.channel, user, command, options or {})

    def press(self, room: Room, user: User, message: Message, button: str) -> Interaction:
        """Somebody presses a button by its `custom_id`."""
        return slashes.press(self._desk, room.channel, user, message, button)
