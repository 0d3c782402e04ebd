"""Who and what there is: people, bots, chats, topics, messages, files. It knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.updates import Queue
from tests.fakes.platform import world as platform

Kind = Literal["private", "group", "supergroup", "channel"]
FIRST_UPDATE = 734_512_000


@dataclass(frozen=True, slots=True)
class User:
    """A person, or the user behind a bot."""

    id: int
    first_name: str
    last_name: str = ""
    username: str = ""
    language_code: str = ""
    is_bot: bool = False

    def json(self) -> Json:
        shown: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        for name in ("last_name", "username", "language_code"):
            if getattr(self, name):
                shown[name] = getattr(self, name)
        return shown

    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


@dataclass(slots=True)
class Webhook:
    """What setWebhook set, and how delivery goes."""

    url: str
    secret: str
    connections: int
    task: asyncio.Task[None] | None = None
    last_error: str = ""
    last_error_date: int = 0


@dataclass(slots=True)
class Bot:
    """A bot's account. `privacy` is the platform's default: in groups it hears only what is addressed to it.

    `hears_bots` is the bot-to-bot mode, without which it hears no other bot.
    """

    user: User
    token: str
    queue: Queue
    privacy: bool = True
    hears_bots: bool = False
    webhook: Webhook | None = None
    commands: dict[str, list[Json]] = field(default_factory=dict)
    next_conflict: float = 0.0


@dataclass(slots=True)
class Topic:
    """A topic of a forum; its id is that of the service message that made it."""

    id: int
    name: str
    closed: bool = False


@dataclass(slots=True)
class Chat:
    """A chat and its messages. A private chat belongs to one bot; its id is the person's."""

    id: int
    kind: Kind
    title: str = ""
    person: User | None = None
    owner: Bot | None = None
    username: str = ""
    is_forum: bool = False
    status: dict[int, str] = field(default_factory=dict)
    members: dict[int, User] = field(default_factory=dict)
    topics: dict[int, Topic] = field(default_factory=dict)
    messages: dict[int, Json] = field(default_factory=dict)
    edits: dict[int, int] = field(default_factory=dict)
    reactions: dict[tuple[int, int], list[Json]] = field(default_factory=dict)
    addressed: dict[int, set[int]] = field(default_factory=dict)
    last_bot: int | None = None
    blocked: bool = False
    upgraded_to: int | None = None
    counter: Iterator[int] | None = None

    def json(self) -> Json:
        shown: Json = {"id": self.id, "type": self.kind}
        if self.person is not None:
            shown.update({key: value for key, value in self.person.json().items() if "name" in key})
        else:
            shown["title"] = self.title
            if self.username:
                shown["username"] = self.username
        return {**shown, "is_forum": True} if self.is_forum else shown

    def name(self) -> str:
        return self.person.name() if self.person is not None else self.title

    def member(self, user: int) -> str:
        """The status as in ChatMember."""
        return self.status.get(user, "left")

    def is_admin(self, user: int) -> bool:
        return self.member(user) in ("creator", "administrator")


@dataclass(frozen=True, slots=True)
class File:
    """A file on the platform. `size` may be claimed: larger than the content, to have large files without bytes."""

    id: str
    unique_id: str
    path: str
    content: bytes
    size: int
    name: str = ""
    mime: str = ""


@dataclass(frozen=True, slots=True)
class Press:
    """A button that was pressed, until the bot answers."""

    time: float
    chat: Chat
    person: User


@dataclass
class World(platform.World[Chat]):
    """Everything, with the counters for ids."""

    longest_poll: float = 50.0
    bots: dict[str, Bot] = field(default_factory=dict)
    users: dict[int, User] = field(default_factory=dict)
    chats: dict[tuple[int, int], Chat] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    linked: dict[str, tuple[str, float]] = field(default_factory=dict)
    callbacks: dict[str, Press] = field(default_factory=dict)
    common_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add_user(self, first_name: str, *, is_bot: bool = False, **names: str) -> User:
        number = 100_000_000 + 7_919 * next(self.numbers)
        user = User(number, first_name, is_bot=is_bot, **names)
        self.users[user.id] = user
        return user

    def add_bot(self, username: str, first_name: str, *, privacy: bool, hears_bots: bool) -> Bot:
        user = self.add_user(first_name, is_bot=True, username=username)
        token = f"{user.id}:AA{username[:12]:x<12}{user.id:021d}"
        queue = Queue(self.clock.now, FIRST_UPDATE + 100_000 * len(self.bots))
        bot = Bot(user, token, queue, privacy, hears_bots)
        self.bots[token] = bot
        return bot

    def add_chat(self, chat: Chat) -> Chat:
        if chat.kind in ("supergroup", "channel"):
            chat.counter = itertools.count(1)
        self.chats[self.key(chat)] = chat
        return chat

    def key(self, chat: Chat) -> tuple[int, int]:
        return (chat.owner.user.id if chat.owner else 0, chat.id)

    def title(self, key: tuple[int, int]) -> str:
        chat = self.chats[key]
        return f"{chat.name()} ({'forum' if chat.is_forum else chat.kind})"

    def remark(self, happening: platform.Happening) -> str:
        """Name the topic of a message."""
        chat = self.chats[happening.chat]
        thread = chat.messages.get(happening.message or 0, {}).get("message_thread_id")
        topic = chat.topics.get(thread) if thread and happening.what in ("message", "edit") else None
        return f"  [in {topic.name}]" if topic else ""

    def find_chat(self, bot: Bot, given: str) -> Chat | None:
        """By number or by @name, as this bot sees it."""
        if given.startswith("@"):
            named = given[1:].lower()
            return next((chat for chat in self.chats.values() if named and chat.username.lower() == named), None)
        try:
            number = int(given)
        except ValueError:
            return None
        return self.chats.get((bot.user.id, number)) or self.chats.get((0, number))

    def next_message(self, chat: Chat) -> int:
        """Supergroups and channels count for themselves; private chats and groups share the account's numbers."""
        return next(chat.counter or self.common_ids)

    def add_file(self, folder: str, content: bytes, *, name: str = "", mime: str = "", size: int | None = None) -> File:
        number = next(self.numbers)
        ending = name.rpartition(".")[2] if "." in name else "jpg" if folder == "photos" else "bin"
        file_id, unique = f"AgACAgIAAxkBAAI{number:06d}AAjKL{folder[:4]}QADLwQ", f"AQAD{number:06d}AA"
        path = f"{folder}/file_{number}.{ending}"
        file = File(file_id, unique, path, content, len(content) if size is None else size, name, mime)
        self.files[file_id] = file
        return file

    def bots_in(self, chat: Chat) -> list[Bot]:
        """Bots that are in a chat now."""
        if chat.owner is not None:
            return [] if chat.blocked else [chat.owner]
        return [bot for bot in self.bots.values() if chat.member(bot.user.id) not in ("left", "kicked")]
