"""The directory of channels, threads and roles: from the gateway's events, and from the REST API for the rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from bubbot.ports.channel import CommandInfo
from channels.discord.content import require_id
from channels.discord.errors import DiscordApiError
from channels.discord.inbound import DiscordPlace
from channels.discord.inbound_text import DiscordBotUser
from channels.discord.retry import RetryingDiscordApi
from channels.platform.json_values import Raw

DIRECT_MESSAGE_TYPE = 1
THREAD_TYPES = frozenset({10, 11, 12})
TYPES_WITHOUT_MESSAGES = frozenset({4, 14, 15, 16})
"""Channel types without their own messages: categories, directories, forums."""
MAX_FETCHED_CHATS = 1000
"""Cached channels that were fetched; those that the gateway lists are kept until it removes them."""
MAX_CACHED_MEMBERS = 2000


class DiscordChat(Struct, frozen=True):
    """A channel or a thread.

    Attributes:
        kind: Discord's channel type.
        name: empty if there is none.
        guild: the server's id; empty for a direct message.
        parent: the channel that a thread belongs to; empty otherwise.
        last_message_id: the id of its newest message; 0 if there is none or it is unknown.
    """

    id: str
    kind: int
    name: str = ""
    guild: str = ""
    parent: str = ""
    last_message_id: int = 0

    @property
    def place(self) -> DiscordPlace:
        """The chat as the port names it."""
        if self.kind == DIRECT_MESSAGE_TYPE:
            return DiscordPlace(self.id, is_direct=True)
        if self.parent:
            return DiscordPlace(self.parent, self.id, self.guild, title=self.name)
        return DiscordPlace(self.id, space=self.guild)


class ChatDirectory:
    """A cache of chats and roles, fed by the gateway; fetches chats that it does not list (archived threads)."""

    def __init__(self, api: RetryingDiscordApi, list_commands: Callable[[], Sequence[CommandInfo]]) -> None:
        self._api = api
        self._list_commands = list_commands
        self._listed: dict[str, DiscordChat] = {}
        self._fetched: OrderedDict[str, DiscordChat] = OrderedDict()
        self._own_roles: dict[str, set[str]] = {}
        self.channel_names: dict[str, str] = {}
        self.role_names: dict[str, str] = {}
        self.guild_names: dict[str, str] = {}
        self.bot_user = DiscordBotUser("0", "")

    def start_session(self, user: object) -> None:
        """Start a session, in which the gateway lists everything again; `user` is the bot. Raise `TypeError`."""
        if not isinstance(user, dict):
            raise TypeError("READY names no user")
        self.bot_user = DiscordBotUser(
            require_id(user.get("id")),
            str(user.get("username") or ""),
            self.bot_user.roles,
        )
        self.update_commands()
        self._listed.clear()
        self._fetched.clear()
        self.channel_names.clear()

    def update_commands(self) -> None:
        """Recognize the current commands."""
        names = frozenset(name for info in self._list_commands() for name in info.slash_names)
        self.bot_user = structs.replace(self.bot_user, commands=names)

    def update(self, event: str, raw: Any) -> None:
        """Update the cache from an event about channels, threads, roles or a server; skip malformed items."""
        if not isinstance(raw, dict):
            return
        if event.startswith("GUILD_ROLE"):
            self._learn_roles(_id_or_empty(raw.get("guild_id")), [raw.get("role")])
        elif event.startswith("GUILD_"):
            self._learn_guild(event, _id_or_empty(raw.get("id")), raw)
        elif event == "THREAD_LIST_SYNC":
            for chat in parse_chats(_id_or_empty(raw.get("guild_id")), raw):
                self._keep(chat)
        elif event.startswith(("CHANNEL_", "THREAD_")):
            self._learn_channel(event, raw)

    def _learn_guild(self, event: str, guild: str, raw: Raw) -> None:
        if event in ("GUILD_CREATE", "GUILD_UPDATE"):
            self._learn_roles(guild, raw.get("roles"))
            self.guild_names[guild] = str(raw.get("name") or "")
            for chat in parse_chats(guild, raw):
                self._keep(chat)
        elif event == "GUILD_DELETE" and not raw.get("unavailable"):
            for number in [chat.id for chat in self._listed.values() if chat.guild == guild]:
                self._forget(number)
            self._own_roles.pop(guild, None)
            self.guild_names.pop(guild, None)
            self._update_own_roles()

    def _learn_channel(self, event: str, raw: Raw) -> None:
        chat, state = parse_chat(raw), raw.get("thread_metadata")
        if event.endswith("_DELETE"):
            self._forget(_id_or_empty(raw.get("id")))
        elif chat and event.endswith(("_CREATE", "_UPDATE")):
            self._forget(chat.id)
            # An archived thread is fetched when it is used again: their number is unlimited.
            store = self._remember if isinstance(state, dict) and state.get("archived") else self._keep
            store(chat)

    def find_cached(self, chat_id: str) -> DiscordChat | None:
        """Return the cached channel or thread; None if it is not cached."""
        return self._listed.get(chat_id) or self._fetched.get(chat_id)

    async def find_place(self, chat_id: str, raw: Any = None) -> DiscordPlace:
        """Return the place of a channel or thread; fetch it if unknown. `raw` is an event that happened in it."""
        guild = _id_or_empty(raw.get("guild_id")) if isinstance(raw, dict) else ""
        chat = self.find_cached(chat_id)
        if chat is None and raw is not None and not guild:
            chat = self._remember(DiscordChat(chat_id, DIRECT_MESSAGE_TYPE))  # an event in a server names the server
        if chat is None:
            try:
                chat = await self.fetch(chat_id)
            except DiscordApiError:
                chat = DiscordChat(chat_id, 0, guild=guild)  # the bot may not view it; assume that it is not a thread
                if guild:
                    self._remember(chat)
        return chat.place

    async def fetch(self, chat_id: str) -> DiscordChat:
        """Fetch a channel or thread. Raise `DiscordApiError`."""
        chat = parse_chat(await self._api("GET", f"/channels/{chat_id}"))
        if chat is None or chat.id != chat_id:
            raise DiscordApiError(404, 0, "it answers with something else than the channel")
        return self._remember(chat)

    async def open_direct_chat(self, person: str) -> DiscordChat | None:
        """Open the direct messages with a person and return their current state. Raise `DiscordApiError`."""
        chat = parse_chat(await self._api("POST", "/users/@me/channels", json={"recipient_id": person}))
        return self._remember(chat) if chat else None

    def _remember(self, chat: DiscordChat) -> DiscordChat:
        if chat.id not in self._listed:
            self._fetched[chat.id] = chat
            self._fetched.move_to_end(chat.id)
            while len(self._fetched) > MAX_FETCHED_CHATS:
                self._fetched.popitem(last=False)
        return chat

    def _keep(self, chat: DiscordChat) -> None:
        self._listed[chat.id] = chat
        self.channel_names[chat.id] = chat.name

    def _forget(self, number: str) -> None:
        self._listed.pop(number, None)
        self._fetched.pop(number, None)
        self.channel_names.pop(number, None)

    def _learn_roles(self, guild: str, roles: object) -> None:
        for role in roles if isinstance(roles, list) else []:
            number = _id_or_empty(role.get("id")) if isinstance(role, dict) else ""
            if not number:
                continue
            self.role_names[number] = str(role.get("name") or "")
            tags = role.get("tags")
            if isinstance(tags, dict) and tags.get("bot_id") == self.bot_user.id:
                self._own_roles.setdefault(guild, set()).add(number)
        self._update_own_roles()

    def _update_own_roles(self) -> None:
        roles = frozenset(role for guild_roles in self._own_roles.values() for role in guild_roles)
        self.bot_user = structs.replace(self.bot_user, roles=roles)


class MemberRoles:
    """A cache of members' roles, fetched if an event does not contain them, and kept for `ttl_seconds` seconds."""

    def __init__(self, api: RetryingDiscordApi, monotonic: Callable[[], float], ttl_seconds: float) -> None:
        self._api = api
        self._monotonic = monotonic
        self._ttl = ttl_seconds
        self._members: OrderedDict[tuple[str, str], tuple[float, tuple[str, ...]]] = OrderedDict()

    async def fetch_roles(self, guild: str, person: str) -> tuple[str, ...]:
        """Return the roles of a person; none if they left the server."""
        key = (guild, person)
        entry = self._members.get(key)
        if entry is None or self._monotonic() - entry[0] > self._ttl:
            try:
                raw = await self._api("GET", f"/guilds/{guild}/members/{person}")
            except DiscordApiError:
                raw = None
            self.update(guild, person, raw)
        return self._members[key][1]

    def update(self, guild: str, person: str, member: object) -> None:
        """Cache the roles that a member object contains; none if it is not one."""
        ids = member.get("roles") if isinstance(member, dict) else None
        roles = tuple(role for role in ids if _id_or_empty(role)) if isinstance(ids, list) else ()
        self._members[guild, person] = (self._monotonic(), roles)
        self._members.move_to_end((guild, person))
        while len(self._members) > MAX_CACHED_MEMBERS:
            self._members.popitem(last=False)


def parse_chats(guild: str, raw: Raw) -> Iterator[DiscordChat]:
    """Yield the channels and threads that an event lists."""
    for name in ("channels", "threads"):
        items = raw.get(name)
        for item in items if isinstance(items, list) else []:
            if chat := parse_chat(item, guild):
                yield chat


def parse_chat(raw: object, guild: str = "") -> DiscordChat | None:
    """Parse a channel or thread; return None if the JSON is neither."""
    if not isinstance(raw, dict):
        return None
    number, kind = _id_or_empty(raw.get("id")), raw.get("type")
    if not number or not isinstance(kind, int):
        return None
    parent = _id_or_empty(raw.get("parent_id")) if kind in THREAD_TYPES else ""
    name, last = raw.get("name"), _id_or_empty(raw.get("last_message_id"))
    return DiscordChat(
        number, kind, name if isinstance(name, str) else "", _id_or_empty(raw.get("guild_id")) or guild, parent,
        int(last or 0),
    )  # fmt: skip


def _id_or_empty(value: object) -> str:
    try:
        return require_id(value)
    except TypeError:
        return ""
