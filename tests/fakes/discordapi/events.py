"""What happens, as the events of the gateway, with the intents that they need."""

from __future__ import annotations

from typing import Any

from tests.fakes.discordapi import shapes
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.world import Channel, Event, Guild, Member, Message, User, World

GUILDS, MEMBERS, PRESENCES = 1 << 0, 1 << 1, 1 << 8
MESSAGES, REACTIONS, TYPING = (1 << 9, 1 << 12), (1 << 10, 1 << 13), (1 << 11, 1 << 14)
CONTENT = 1 << 15
KNOWN = sum(1 << bit for bit in [*range(17), 20, 21, 24, 25])
"""All intents that there are."""


def _where(channel: Channel) -> Json:
    return {"guild_id": str(channel.guild.id)} if channel.guild is not None else {}


def _tell(world: World, name: str, data: Json, channel: Channel, pair: tuple[int, int], **more: Any) -> None:
    intents = pair[0] if channel.guild is not None else pair[1]
    world.tell(Event(name, data, channel.guild, channel, intents=intents, **more))


def message(world: World, name: str, one: Message) -> None:
    """MESSAGE_CREATE or MESSAGE_UPDATE. The gateway makes the object itself, as the intents of a session want it."""
    _tell(world, name, around(one), one.channel, MESSAGES, message=one)


def around(one: Message) -> Json:
    """What the gateway adds to the object of a message."""
    channel = one.channel
    shown: Json = {"channel_type": channel.kind, **_where(channel)}
    if channel.guild is not None and one.webhook is None and one.author.id in channel.guild.members:
        shown["member"] = shapes.member(channel.guild.members[one.author.id], with_user=False)
    if channel.guild is not None and one.mentions:
        there = channel.guild.members
        shown["mentions"] = [
            {**shapes.user(user), "member": shapes.member(there[user.id], with_user=False)}
            if user.id in there
            else shapes.user(user)
            for user in one.mentions
        ]
    return shown


def deleted(world: World, channel: Channel, numbers: list[int], *, bulk: bool = False) -> None:
    """One MESSAGE_DELETE each, or one MESSAGE_DELETE_BULK."""
    base: Json = {"channel_id": str(channel.id), **_where(channel)}
    if bulk:
        data = {"ids": [str(number) for number in numbers], **base}
        _tell(world, "MESSAGE_DELETE_BULK", data, channel, MESSAGES)
        return
    for number in numbers:
        _tell(world, "MESSAGE_DELETE", {"id": str(number), **base}, channel, MESSAGES)


def reaction(world: World, one: Message, user: User, emoji: str, *, added: bool) -> None:
    """MESSAGE_REACTION_ADD or MESSAGE_REACTION_REMOVE."""
    data: Json = {
        "user_id": str(user.id),
        "type": 0,
        "message_id": str(one.id),
        "channel_id": str(one.channel.id),
        "emoji": shapes.emoji(emoji),
        "burst": False,
        **_where(one.channel),
    }
    guild = one.channel.guild
    if added:
        data |= {"message_author_id": str(one.author.id)}
        if guild is not None and user.id in guild.members:
            data["member"] = shapes.member(guild.members[user.id])
    _tell(world, "MESSAGE_REACTION_ADD" if added else "MESSAGE_REACTION_REMOVE", data, one.channel, REACTIONS)


def typing(world: World, channel: Channel, user: User) -> None:
    """TYPING_START."""
    data: Json = {"channel_id": str(channel.id), "user_id": str(user.id), "timestamp": int(world.clock.now())}
    data |= _where(channel)
    if channel.guild is not None:
        data["member"] = shapes.member(channel.guild.members[user.id])
    _tell(world, "TYPING_START", data, channel, TYPING)


def channel(world: World, what: str, one: Channel, **more: object) -> None:
    """CHANNEL_ or THREAD_ with CREATE, UPDATE or DELETE. Direct conversations are not told."""
    if one.guild is None:
        return
    name = f"{'THREAD' if one.is_thread else 'CHANNEL'}_{what}"
    data = shapes.channel(one, viewer=world.bot.user) | more
    if name == "THREAD_DELETE":
        data = {key: data[key] for key in ("id", "guild_id", "parent_id", "type")}
    world.tell(Event(name, data, one.guild, one, intents=GUILDS))


def member(world: World, guild: Guild, one: Member, what: str = "UPDATE") -> None:
    """GUILD_MEMBER_ADD, _UPDATE or _REMOVE; an update of the bot itself needs no intent."""
    data: Json = {"guild_id": str(guild.id), **shapes.member(one)}
    if what == "REMOVE":
        data = {"guild_id": str(guild.id), "user": shapes.user(one.user)}
    own = one.user.id == world.bot.id and what == "UPDATE"
    world.tell(Event(f"GUILD_MEMBER_{what}", data, guild, intents=0 if own else MEMBERS))


def role(world: World, guild: Guild, number: int, what: str) -> None:
    """GUILD_ROLE_CREATE or GUILD_ROLE_UPDATE."""
    data = {"guild_id": str(guild.id), "role": shapes.role(guild.roles[number])}
    world.tell(Event(f"GUILD_ROLE_{what}", data, guild, intents=GUILDS))


def guild(world: World, one: Guild, what: str, **data: object) -> None:
    """GUILD_CREATE, which each session gets in its own form, or GUILD_DELETE."""
    world.tell(Event(f"GUILD_{what}", {"id": str(one.id), **data}, one if what == "CREATE" else None, intents=GUILDS))
