"""Who and what there is: people, guilds, channels, threads, messages, files. It knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes.discordapi.errors import Json
from tests.fakes.platform import world as platform

EPOCH = 1_420_070_400_000
"""Discord's first millisecond, 2015-01-01, in Unix time."""
TEXT, DM, VOICE, CATEGORY, NEWS, PUBLIC_THREAD, PRIVATE_THREAD, FORUM = 0, 1, 2, 4, 5, 11, 12, 15
THREADS = (10, PUBLIC_THREAD, PRIVATE_THREAD)
DEFAULT, REPLY, THREAD_CREATED, SLASH, STARTER = 0, 19, 18, 20, 21


@dataclass(slots=True)
class Snowflakes:
    """Ids with the time in them; each is larger than the one before."""

    clock: platform.Clock
    last: int = 0

    def next(self) -> int:
        self.last = max(self.last + 1, (int(self.clock.now() * 1000) - EPOCH) << 22)
        return self.last


@dataclass(frozen=True, slots=True)
class User:
    """A person, or the user behind a bot."""

    id: int
    username: str
    global_name: str | None = None
    is_bot: bool = False

    @property
    def mention(self) -> str:
        return f"<@{self.id}>"

    def name(self) -> str:
        return self.global_name or self.username


@dataclass(slots=True)
class Bot:
    """The application, its user and its token. Privileged intents are switches of the application."""

    user: User
    application_id: int
    token: str
    members_intent: bool = True
    presence_intent: bool = False
    content_intent: bool = True
    commands: list[Json] = field(default_factory=list)
    endpoint: str | None = None
    """Where Discord posts interactions instead of telling the gateway."""

    @property
    def id(self) -> int:
        return self.user.id

    @property
    def name(self) -> str:
        return self.user.username

    @property
    def mention(self) -> str:
        return self.user.mention

    def flags(self) -> int:
        """As of an application in fewer than 100 guilds."""
        switched = ((self.presence_intent, 13), (self.members_intent, 15), (self.content_intent, 19))
        return sum(1 << bit for on, bit in switched if on)


@dataclass(slots=True)
class Role:
    """A role of a guild; the one with the guild's id is everybody's."""

    id: int
    name: str
    permissions: int = 0
    position: int = 1
    managed_by: int | None = None

    @property
    def mention(self) -> str:
        return f"<@&{self.id}>"


@dataclass(slots=True)
class Member:
    """A user in a guild."""

    user: User
    joined: str
    roles: list[int] = field(default_factory=list)
    nick: str | None = None


@dataclass(slots=True)
class Guild:
    """A guild with its people and channels. `available` turns false in an outage."""

    id: int
    name: str
    owner: User
    roles: dict[int, Role] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    available: bool = True


@dataclass(slots=True)
class Channel:
    """A channel, a direct conversation or a thread. Overwrites are (allow, deny) by role or user."""

    id: int
    kind: int
    name: str = ""
    guild: Guild | None = None
    parent: Channel | None = None
    owner: User | None = None
    recipients: list[User] = field(default_factory=list)
    topic: str | None = None
    position: int = 0
    overwrites: dict[int, tuple[int, int]] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    last_message: int | None = None
    created: str = ""
    archived: bool = False
    archived_at: str = ""
    locked: bool = False
    archive_after: int = 1440
    joined: dict[int, str] = field(default_factory=dict)
    sent: int = 0
    gone: bool = False

    @property
    def is_thread(self) -> bool:
        return self.kind in THREADS

    @property
    def mention(self) -> str:
        return f"<#{self.id}>"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message. `size` may be claimed: larger than the content, to have large files without bytes."""

    id: int
    name: str
    content: bytes
    mime: str
    size: int
    url: str
    description: str | None = None
    width: int | None = None
    height: int | None = None


@dataclass(slots=True)
class Message:
    """A message as it stands now."""

    id: int
    channel: Channel
    author: User
    content: str
    timestamp: str
    kind: int = DEFAULT
    flags: int = 0
    edited: str | None = None
    tts: bool = False
    pinned: bool = False
    mentions: list[User] = field(default_factory=list)
    mention_roles: list[int] = field(default_factory=list)
    mention_everyone: bool = False
    files: list[File] = field(default_factory=list)
    embeds: list[Json] = field(default_factory=list)
    components: list[Json] = field(default_factory=list)
    stickers: list[Json] = field(default_factory=list)
    reference: tuple[Channel, int] | None = None
    reactions: dict[str, list[int]] = field(default_factory=dict)
    nonce: str | None = None
    webhook: int | None = None
    interaction: Json | None = None
    thread: Channel | None = None
    seen_by: int | None = None
    more: Json = field(default_factory=dict)

    @property
    def ephemeral(self) -> bool:
        return bool(self.flags & 1 << 6)


@dataclass(frozen=True, slots=True)
class Event:
    """What the gateway may tell. `intents` names those that have it, in a guild and in a direct conversation."""

    name: str
    data: Json
    guild: Guild | None = None
    channel: Channel | None = None
    message: Message | None = None
    intents: int = 0


@dataclass
class World(platform.World[Channel]):
    """Everything, with the ids. `tell` is set by the gateway; `origin` is where files are fetched."""

    bot: Bot
    ids: Snowflakes
    users: dict[int, User] = field(default_factory=dict)
    guilds: dict[int, Guild] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    files: dict[int, File] = field(default_factory=dict)
    nonces: dict[tuple[int, str], tuple[Message, float]] = field(default_factory=dict)
    blocked: set[int] = field(default_factory=set)
    numbers: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    tell: Callable[[Event], None] = lambda event: None
    origin: str = ""

    def add_user(self, name: str, *, bot: bool = False) -> User:
        """A new account; the shown name is as given, the user name in small letters."""
        user = User(self.ids.next(), name.lower().replace(" ", "."), None if bot else name, bot)
        self.users[user.id] = user
        return user

    def add_channel(self, kind: int, name: str = "", *, guild: Guild | None = None, **more: object) -> Channel:
        """A new channel or thread; threads are kept by their guild as well."""
        number = more.pop("id", None) or self.ids.next()
        channel = Channel(number, kind, name, guild, created=self.clock.stamp(), **more)  # type: ignore[arg-type]
        channel.archived_at = channel.created
        self.channels[channel.id] = channel
        if guild is not None:
            channel.position = len(guild.channels)
            guild.channels[channel.id] = channel
        return channel

    def direct(self, user: User) -> Channel:
        """The conversation of the bot with a user; the same each time."""
        for channel in self.channels.values():
            if channel.kind == DM and any(one.id == user.id for one in channel.recipients):
                return channel
        return self.add_channel(DM, recipients=[self.bot.user, user])

    def key(self, chat: Channel) -> int:
        return chat.id

    def title(self, key: int) -> str:
        channel = self.channels[key]
        if channel.kind == DM:
            names = [one.name() for one in channel.recipients if one.id != self.bot.id]
            return f"{', '.join(names)} (direct)"
        if channel.is_thread and channel.parent is not None:
            kind = "post" if channel.parent.kind == FORUM else "thread"
            return f"{channel.name} ({kind} in #{channel.parent.name})"
        return f"#{channel.name} ({channel.guild.name if channel.guild else ''})"

    def number(self, message: int) -> int:
        """Return a message's place in its channel."""
        return self.numbers.get(message, 0)

    def happened(self, chat: Channel, what: platform.Mark, who: str, text: str, message: int | None = None) -> None:
        """Record what people see, and number a new message."""
        if message is not None and message not in self.numbers:
            self.counts[chat.id] = self.counts.get(chat.id, 0) + 1
            self.numbers[message] = self.counts[chat.id]
        super().happened(chat, what, who, text, message)
