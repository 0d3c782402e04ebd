"""A server that speaks Telegram's Bot API on loopback, for tests. It knows nothing of bubbot.

Shaped by the official documentation and by what the published server of Telegram does where the pages are silent
(confirmation by offset, conflicts, how numbers are read). Left out: payments, stickers' sets, inline mode, stories,
business accounts, games. Deliberately stricter than the platform: partly overlapping entities are refused, and lengths
count UTF-16 units.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.gatherings import Gathering, invite
from tests.fakes.botapi.http import Call, Front
from tests.fakes.botapi.limits import FloodControl, Limits
from tests.fakes.botapi.odd import Payload
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.reach import Site
from tests.fakes.botapi.webhooks import Webhooks
from tests.fakes.botapi.world import Bot, Chat, Kind, User, World
from tests.fakes.platform.server import PlatformServer


class Server(PlatformServer[World, Call]):
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
        world = World(longest_poll=longest_poll)
        self._webhooks = Webhooks(world, self._reply, webhook_retry)
        self._front = Front(Site(world, FloodControl(limits)), self._webhooks, conflict_pause)
        super().__init__(world, self._front)
        self.bot: Bot = self.add_bot(username, name, privacy=privacy)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, and fail if something was said that the published Bot API does not allow."""
        await super().__aexit__(kind, error, trace)
        if error is None:
            assert not self._front.complaints, "\n".join(dict.fromkeys(self._front.complaints))

    async def disconnect(self) -> None:
        for bot in self.world.bots.values():
            await self._webhooks.remove(bot, Params())

    @property
    def base_url(self) -> str:
        """As python-telegram-bot wants it: the token follows at once."""
        return f"http://127.0.0.1:{self.port}/bot"

    @property
    def base_file_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/file/bot"

    def table(self) -> dict[str, Any]:
        return {"token": self.bot.token, "base_url": self.base_url, "base_file_url": self.base_file_url}

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

    def person(self, name: str) -> tuple[int, Gathering]:
        user = self.user(name)
        return user.id, self.private(user)

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

    def odd(self, payload: Payload, *, bot: Bot | None = None) -> int:
        """Queues an update as it is (see `odd.py`) and returns its id."""
        kind, content = payload
        number = (bot or self.bot).queue.push(kind, content, always=True)
        self.world.changed.set()
        assert number is not None
        self._front.odd.add(number)
        return number
