"""A server that speaks Discord's REST API and gateway, both version 10, on loopback, for tests.

It knows nothing of bubbot. Shaped by the official documentation and judged by discord.py. Left out: voice, polls,
scheduled events, moderation, webhooks other than those of interactions, several shards.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.fakes.discordapi import slashes, transcript
from tests.fakes.discordapi.asked import Site, Sizes
from tests.fakes.discordapi.desk import Desk, Interaction
from tests.fakes.discordapi.faults import Fault, Faults, template
from tests.fakes.discordapi.gateway import Gateway
from tests.fakes.discordapi.http import API, Call, Front
from tests.fakes.discordapi.limits import Buckets, Limits
from tests.fakes.discordapi.rooms import Place, Room, found
from tests.fakes.discordapi.world import Bot, Clock, Message, Snowflakes, User, World


class Server:
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
        self.bot = Bot(user, application, token, members_intent, presence_intent, content_intent)
        self.world = World(self.bot, clock, ids, users={user.id: user})
        self.gateway = Gateway(self.world, interval=heartbeat, lifetime=lifetime, resume_url=self._resume_url)
        self.world.tell = self.gateway.tell
        self.log: list[Call] = []
        self.faults = Faults()
        self._desk = Desk(self.world, answer_within, token_life)
        self._front = Front(Site(self.world, sizes, self._desk), self.gateway, self.faults, Buckets(limits), self.log)
        self._runner = web.AppRunner(
            self._front.app(), handler_cancellation=True, shutdown_timeout=0.2, access_log=None
        )
        self.port = 0

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.world.origin = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._front.closing.set()
        self._desk.close()
        self.gateway.drop()
        await self._runner.cleanup()

    @property
    def rest_url(self) -> str:
        """Where the REST API is; routes follow at once."""
        return f"http://127.0.0.1:{self.port}{API}"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway"

    def _resume_url(self) -> str:
        return f"{self.gateway_url}/resume"

    # Who there is and where they talk

    def user(self, name: str, *, bot: bool = False) -> User:
        """A person, or another bot."""
        return self.world.add_user(name, bot=bot)

    def dm(self, user: User) -> Room:
        """The conversation of a person with the bot; the same one each time."""
        return Room(self.world, self.world.direct(user))

    def guild(self, name: str, owner: User, members: Iterable[User] = (), *, bot: bool = True) -> Place:
        """A guild with people, and with the bot unless told otherwise."""
        return found(self.world, name, owner, members, bot=bot)

    def slash(self, room: Room, user: User, command: str, options: dict[str, object] | None = None) -> Interaction:
        """Somebody uses a command of the bot; `command` has the names of its groups before it, as people type it."""
        return slashes.slash(self._desk, room.channel, user, command, options or {})

    def press(self, room: Room, user: User, message: Message, button: str) -> Interaction:
        """Somebody presses a button by its `custom_id`."""
        return slashes.press(self._desk, room.channel, user, message, button)

    # What goes wrong

    def fail(self, route: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """The next `times` requests of a route (`POST /channels/{}/messages`) fail after `skip` good ones.

        `*` is any route, `file` a download, `gateway` a new connection there.
        """
        self.faults.add(route, fault, times=times, skip=skip)

    # What was done

    def calls(self, route: str) -> list[Call]:
        """The requests of a route, oldest first."""
        return [call for call in self.log if call.route == template(route)]

    def transcript(self, *, times: bool = True) -> str:
        """What people in each channel saw."""
        return transcript.transcript(self.world, times=times)

    async def until(self, true: Callable[[], object], seconds: float = 10.0) -> None:
        """Waits until something holds; `AssertionError` with the transcript and the last calls after the seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while not true():
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                last = "\n".join(f"{call.method} {call.path} {call.json} -> {call.status}" for call in self.log[-10:])
                raise AssertionError(f"not within {seconds} s\n{self.transcript()}\nlast calls:\n{last}")
            self.world.changed.clear()
            try:
                await asyncio.wait_for(self.world.changed.wait(), min(left, 0.05))
            except TimeoutError:
                continue  # what is waited for may change elsewhere, in a file or a process
