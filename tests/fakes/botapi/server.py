"""A server that speaks Telegram's Bot API on loopback, for tests. It knows nothing of bubbot.

Shaped by the official documentation and by what the published server of Telegram does where the pages are silent
(confirmation by offset, conflicts, how numbers are read). Left out: payments, stickers' sets, inline mode, stories,
business accounts, games. Deliberately stricter than the platform: partly overlapping entities are refused, and lengths
count UTF-16 units.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.fakes.botapi import transcript
from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.faults import Fault, Faults
from tests.fakes.botapi.gatherings import Gathering, invite
from tests.fakes.botapi.http import Call, Front
from tests.fakes.botapi.limits import FloodControl, Limits
from tests.fakes.botapi.odd import Payload
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.reach import Site
from tests.fakes.botapi.webhooks import Webhooks
from tests.fakes.botapi.world import Bot, Chat, Kind, User, World


class Server:
    """The platform: `async with Server() as server`. One bot is there from the start; more can be added.

    `limits=None` switches flood control off. `conflict_pause` is how long a second 409 waits, `webhook_retry` how long
    the first repetition of a delivery, `longest_poll` how long a request without news is held at most, whatever it
    asks for; all in seconds. `privacy` is that of the first bot.
    """

    def __init__(
        self,
        *,
        username: str = "bubbot_bot",
        name: str = "Bubbot",
        privacy: bool = True,
        limits: Limits | None = Limits(),  # noqa: B008 - frozen
        conflict_pause: float = 3.0,
        webhook_retry: float = 1.0,
        longest_poll: float = 50.0,
    ) -> None:
        self.world = World(longest_poll=longest_poll)
        self.log: list[Call] = []
        self.faults = Faults()
        self.bot = self.add_bot(username, name, privacy=privacy)
        self._webhooks = Webhooks(self.world, self._reply, webhook_retry)
        site = Site(self.world, FloodControl(limits))
        self._front = Front(site, self._webhooks, self.faults, self.log, conflict_pause)
        self._runner = web.AppRunner(
            self._front.app(), handler_cancellation=True, shutdown_timeout=0.2, access_log=None
        )
        self.port = 0

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._front.closing.set()
        for bot in self.world.bots.values():
            await self._webhooks.remove(bot, Params())
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """As python-telegram-bot wants it: the token follows at once."""
        return f"http://127.0.0.1:{self.port}/bot"

    @property
    def base_file_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/file/bot"

    async def _reply(self, bot: Bot, given: Json) -> None:
        await self._front.carry_out(bot, given["method"], Params({key: str(value) for key, value in given.items()}))

    # Who there is

    def add_bot(self, username: str, name: str, *, privacy: bool = True, hears_bots: bool = False) -> Bot:
        return self.world.add_bot(username, name, privacy=privacy, hears_bots=hears_bots)

    def user(self, first_name: str, *, last_name: str = "", username: str = "", language_code: str = "en") -> User:
        return self.world.add_user(first_name, last_name=last_name, username=username, language_code=language_code)

    # Where they talk

    def private(self, user: User, *, bot: Bot | None = None) -> Gathering:
        """The chat of a person with a bot; the same one each time."""
        owner = bot or self.bot
        known = self.world.chats.get((owner.user.id, user.id))
        chat = known or self.world.add_chat(Chat(user.id, "private", person=user, owner=owner))
        return Gathering(self.world, chat)

    def group(self, title: str, people: list[User], *, bots: list[Bot] | None = None) -> Gathering:
        """A basic group. The first of the people made it; the first bot is in it unless others are named."""
        return self._gathering("group", title, people, bots)

    def supergroup(
        self, title: str, people: list[User], *, bots: list[Bot] | None = None, username: str = "", forum: bool = False
    ) -> Gathering:
        return self._gathering("supergroup", title, people, bots, username=username, forum=forum)

    def channel(
        self, title: str, people: list[User], *, bots: list[Bot] | None = None, username: str = ""
    ) -> Gathering:
        """Bots are its administrators, as they have to be. Who posts is not shown."""
        return self._gathering("channel", title, people, bots, username=username)

    def _gathering(
        self,
        kind: Kind,
        title: str,
        people: list[User],
        bots: list[Bot] | None,
        *,
        username: str = "",
        forum: bool = False,
    ) -> Gathering:
        number = -(4_000_000 + next(self.world.numbers)) if kind == "group" else self._supergroup_id()
        chat = self.world.add_chat(Chat(number, kind, title, username=username, is_forum=forum))
        room = Gathering(self.world, chat)
        invite(room, [self.bot] if bots is None else bots, people)
        return room

    def _supergroup_id(self) -> int:
        return -1_001_000_000_000 - next(self.world.numbers)

    def migrate(self, group: Gathering, by: User) -> Gathering:
        """Makes a group a supergroup."""
        return group.migrate(by, self._supergroup_id())

    # What goes wrong

    def fail(self, method: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """The next `times` requests of a method fail after `skip` good ones; `*` is any method, `file` a download."""
        self.faults.add(method, fault, times=times, skip=skip)

    def odd(self, payload: Payload, *, bot: Bot | None = None) -> int:
        """Queues an update as it is (see `odd.py`) and returns its id."""
        kind, content = payload
        number = (bot or self.bot).queue.push(kind, content, always=True)
        self.world.changed.set()
        assert number is not None
        return number

    # What was done

    def calls(self, method: str) -> list[Call]:
        """The requests of a method, oldest first."""
        return [call for call in self.log if call.method.lower() == method.lower()]

    def transcript(self, *, times: bool = True) -> str:
        """What people in each chat saw."""
        return transcript.transcript(self.world, times=times)

    async def until(self, true: Callable[[], object], seconds: float = 10.0) -> None:
        """Waits until something holds; `AssertionError` with the transcript and the last calls after the seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while not true():
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                last = "\n".join(f"{call.method} {call.params} -> {call.status}" for call in self.log[-10:])
                raise AssertionError(f"not within {seconds} s\n{self.transcript()}\nlast calls:\n{last}")
            self.world.changed.clear()
            try:
                await asyncio.wait_for(self.world.changed.wait(), min(left, 0.05))
            except TimeoutError:
                continue  # what is waited for may change elsewhere, in a file or a process
