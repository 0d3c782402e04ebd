"""Who may do what in a channel: the roles of a guild, then the overwrites of the channel."""

from __future__ import annotations

from enum import IntFlag

from tests.fakes.discordapi.world import Channel, Guild, User


class Permission(IntFlag):
    """The bits that this server looks at, by Discord's names."""

    ADMINISTRATOR = 1 << 3
    MANAGE_CHANNELS = 1 << 4
    ADD_REACTIONS = 1 << 6
    VIEW_CHANNEL = 1 << 10
    SEND_MESSAGES = 1 << 11
    MANAGE_MESSAGES = 1 << 13
    EMBED_LINKS = 1 << 14
    ATTACH_FILES = 1 << 15
    READ_MESSAGE_HISTORY = 1 << 16
    MENTION_EVERYONE = 1 << 17
    USE_APPLICATION_COMMANDS = 1 << 31
    MANAGE_THREADS = 1 << 34
    CREATE_PUBLIC_THREADS = 1 << 35
    CREATE_PRIVATE_THREADS = 1 << 36
    SEND_MESSAGES_IN_THREADS = 1 << 38


EVERYTHING = (1 << 53) - 1
USUAL = (
    Permission.ADD_REACTIONS
    | Permission.VIEW_CHANNEL
    | Permission.SEND_MESSAGES
    | Permission.EMBED_LINKS
    | Permission.ATTACH_FILES
    | Permission.READ_MESSAGE_HISTORY
    | Permission.USE_APPLICATION_COMMANDS
    | Permission.CREATE_PUBLIC_THREADS
    | Permission.SEND_MESSAGES_IN_THREADS
)
"""What everybody in a guild may do unless it is taken away."""


def bits(*names: str) -> int:
    """Names such as `send_messages` as one number."""
    value = 0
    for name in names:
        value |= Permission[name.upper()]
    return value


def in_guild(guild: Guild, user: User) -> int:
    """What the roles of a member add up to."""
    if user.id == guild.owner.id:
        return EVERYTHING
    value = guild.roles[guild.id].permissions
    for role in guild.members[user.id].roles:
        value |= guild.roles[role].permissions
    return EVERYTHING if value & Permission.ADMINISTRATOR else value


def in_channel(channel: Channel, user: User) -> int:
    """What somebody may do in a channel; a thread goes by its parent. 0 for who is not there."""
    guild = channel.guild
    if guild is None:
        return EVERYTHING if user.id in (one.id for one in channel.recipients) else 0
    member = guild.members.get(user.id)
    if member is None:
        return 0
    value = in_guild(guild, user)
    if value == EVERYTHING:
        return value
    overwrites = (channel.parent or channel).overwrites
    allow, deny = overwrites.get(guild.id, (0, 0))
    value = value & ~deny | allow
    chosen = [overwrites[role] for role in member.roles if role in overwrites]
    for _, deny in chosen:
        value &= ~deny
    for allow, _ in chosen:
        value |= allow
    allow, deny = overwrites.get(user.id, (0, 0))
    return value & ~deny | allow


def may(channel: Channel, user: User, *needed: Permission) -> bool:
    """Whether somebody sees the channel and has all of these there."""
    value = in_channel(channel, user)
    return bool(value & Permission.VIEW_CHANNEL) and all(value & one for one in needed)
