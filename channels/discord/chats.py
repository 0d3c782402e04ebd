"""What is where on Discord: channels, threads and roles as the gateway tells them, and what has to be asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from channels.discord.content import Raw, number_of
from channels.discord.errors import DiscordApiError
from channels.discord.inbound import DiscordPlace
from channels.discord.inbound_text import DiscordBotUser
from channels.discord.retry import RetryingDiscordApi

DIRECT = 1
THREAD_TYPES = frozenset({10, 11, 12})
SILENT = frozenset({4, 14, 15, 16})
"""Kinds of channels that hold no messages of their own: categories, directories, forums."""
ASKED_FOR = 1000
"""Channels that were asked for and are remembered; those of the gateway are kept while it says that they are there."""
PEOPLE = 2000


@dataclass(frozen=True, slots=True)
class DiscordChat:
    """A channel or a thread. `last`: its newest message, 0 for none or not known."""

    id: str
    kind: int
    name: str = ""
    guild: str = ""
    parent: str = ""
    last: int = 0

    @property
    def where(self) -> DiscordPlace:
        """As the port names it."""
        if self.kind == DIRECT:
            return DiscordPlace(self.id, direct=True)
        if self.kind in THREAD_TYPES and self.parent:
            return DiscordPlace(self.parent, self.id, self.guild, title=self.name)
        return DiscordPlace(self.id, space=self.guild)


class ChatDirectory:
    """Learns from the gateway, and asks for what it does not tell (threads that slept)."""

    def __init__(self, ask: RetryingDiscordApi) -> None:
        self._ask = ask
        self._told: dict[str, DiscordChat] = {}
        self._asked: OrderedDict[str, DiscordChat] = OrderedDict()
        self._guilds: dict[str, set[str]] = {}
        self._own_roles: dict[str, set[str]] = {}
        self.channel_names: dict[str, str] = {}
        self.role_names: dict[str, str] = {}
        self.me = DiscordBotUser("0", "")

    def begin(self, user: object) -> None:
        """A session begins, in which everything is told anew; `user` is who we are. Raises `TypeError`."""
        if not isinstance(user, dict):
            raise TypeError("READY names no user")
        self.me = DiscordBotUser(number_of(user.get("id")), str(user.get("username") or ""), self.me.roles)
        self._told.clear()
        self._asked.clear()
        self._guilds.clear()
        self.channel_names.clear()

    def learn(self, event: str, raw: Any) -> None:
        """Takes in an event about channels, threads, roles or a server; what is odd in it is passed over."""
        if not isinstance(raw, dict):
            return
        if event.startswith("GUILD_ROLE"):
            self._learn_roles(_number(raw.get("guild_id")), [raw.get("role")])
        elif event.startswith("GUILD_"):
            self._learn_guild(event, _number(raw.get("id")), raw)
        elif event == "THREAD_LIST_SYNC":
            for one in places(_number(raw.get("guild_id")), raw):
                self._keep(one)
        elif event.startswith(("CHANNEL_", "THREAD_")):
            self._learn_channel(event, raw)

    def _learn_guild(self, event: str, guild: str, raw: Raw) -> None:
        if event in ("GUILD_CREATE", "GUILD_UPDATE"):
            self._learn_roles(guild, raw.get("roles"))
            for one in places(guild, raw):
                self._keep(one)
        elif event == "GUILD_DELETE" and not raw.get("unavailable"):
            for number in self._guilds.pop(guild, set()):
                self._forget(number)
            self._own_roles.pop(guild, None)
            self._name_me()

    def _learn_channel(self, event: str, raw: Raw) -> None:
        place, state = place_of(raw), raw.get("thread_metadata")
        if event.endswith("_DELETE"):
            self._forget(_number(raw.get("id")))
        elif place and event.endswith(("_CREATE", "_UPDATE")):
            self._forget(place.id)
            # A thread that sleeps is asked for when it wakes up: there is no end of them.
            keep = self._remember if isinstance(state, dict) and state.get("archived") else self._keep
            keep(place)

    def known(self, number: str) -> DiscordChat | None:
        """What is known of a channel or thread."""
        return self._told.get(number) or self._asked.get(number)

    async def find(self, number: str, raw: Any = None) -> DiscordPlace:
        """Where a channel or thread is; `raw` is something that happened in it. Asks where it is not known."""
        guild = _number(raw.get("guild_id")) if isinstance(raw, dict) else ""
        place = self.known(number)
        if place is None and raw is not None and not guild:
            place = self._remember(DiscordChat(number, DIRECT))  # whatever happens in a server names it
        if place is None:
            try:
                place = await self.ask(number)
            except DiscordApiError:
                place = DiscordChat(number, 0, guild=guild)  # it may not be looked at: nothing says that it is a thread
                if guild:
                    self._remember(place)
        return place.where

    async def ask(self, number: str) -> DiscordChat:
        """Asks about a channel or thread. Raises `DiscordApiError`."""
        place = place_of(await self._ask("GET", f"/channels/{number}"))
        if place is None or place.id != number:
            raise DiscordApiError(404, 0, "it answers with something else than the channel")
        return self._remember(place)

    async def direct(self, person: str) -> DiscordChat | None:
        """The conversation with a person, as it is now. Raises `DiscordApiError`."""
        found = await self._ask("POST", "/users/@me/channels", json={"recipient_id": person})
        place = place_of(found)
        return self._remember(place) if place else None

    def _remember(self, place: DiscordChat) -> DiscordChat:
        if place.id not in self._told:
            self._asked[place.id] = place
            self._asked.move_to_end(place.id)
            while len(self._asked) > ASKED_FOR:
                self._asked.popitem(last=False)
        return place

    def _keep(self, place: DiscordChat) -> DiscordChat:
        self._told[place.id] = place
        self._asked.pop(place.id, None)
        self._guilds.setdefault(place.guild, set()).add(place.id)
        self.channel_names[place.id] = place.name
        return place

    def _forget(self, number: str) -> None:
        place = self._told.pop(number, None)
        self._asked.pop(number, None)
        self.channel_names.pop(number, None)
        if place is not None:
            self._guilds.get(place.guild, set()).discard(number)

    def _learn_roles(self, guild: str, roles: object) -> None:
        for role in roles if isinstance(roles, list) else []:
            number = _number(role.get("id")) if isinstance(role, dict) else ""
            if not number:
                continue
            self.role_names[number] = str(role.get("name") or "")
            tags = role.get("tags")
            if isinstance(tags, dict) and tags.get("bot_id") == self.me.id:
                self._own_roles.setdefault(guild, set()).add(number)
        self._name_me()

    def _name_me(self) -> None:
        roles = frozenset(role for mine in self._own_roles.values() for role in mine)
        self.me = replace(self.me, roles=roles)


class MemberRoles:
    """The roles of people in servers, asked for where an event does not tell them, and believed for a while."""

    def __init__(self, ask: RetryingDiscordApi, monotonic: Callable[[], float], believed: float) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._believed = believed
        self._known: OrderedDict[tuple[str, str], tuple[float, tuple[str, ...]]] = OrderedDict()

    async def roles(self, guild: str, person: str) -> tuple[str, ...]:
        """The roles a person has; none where they have left."""
        key = (guild, person)
        found = self._known.get(key)
        if found is None or self._monotonic() - found[0] > self._believed:
            try:
                raw = await self._ask("GET", f"/guilds/{guild}/members/{person}")
            except DiscordApiError:
                raw = None
            self.learn(guild, person, raw)
        return self._known[key][1]

    def learn(self, guild: str, person: str, member: object) -> None:
        """Takes in what something says about a person's roles."""
        given = member.get("roles") if isinstance(member, dict) else None
        roles = tuple(one for one in given if _number(one)) if isinstance(given, list) else ()
        self._known[guild, person] = (self._monotonic(), roles)
        self._known.move_to_end((guild, person))
        while len(self._known) > PEOPLE:
            self._known.popitem(last=False)


def places(guild: str, raw: Raw) -> Iterator[DiscordChat]:
    """The channels and threads that an event lists."""
    for name in ("channels", "threads"):
        listed = raw.get(name)
        for one in listed if isinstance(listed, list) else []:
            if place := place_of(one, guild):
                yield place


def place_of(raw: object, guild: str = "") -> DiscordChat | None:
    """A channel or thread out of its JSON; None where it is none."""
    if not isinstance(raw, dict):
        return None
    number, kind = _number(raw.get("id")), raw.get("type")
    if not number or not isinstance(kind, int):
        return None
    parent = _number(raw.get("parent_id")) if kind in THREAD_TYPES else ""
    name, last = raw.get("name"), _number(raw.get("last_message_id"))
    return DiscordChat(
        number, kind, name if isinstance(name, str) else "", _number(raw.get("guild_id")) or guild, parent,
        int(last or 0),
    )  # fmt: skip


def _number(value: object) -> str:
    try:
        return number_of(value)
    except TypeError:
        return ""
