"""What there is, as the objects of the API: users, members, channels, messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.permissions import in_channel
from tests.fakes.discordapi.world import (
    DM,
    FORUM,
    THREAD_CREATED,
    Channel,
    File,
    Guild,
    Member,
    Message,
    Role,
    User,
    World,
)


def user(one: User) -> Json:
    """A user as others see it; `bot` is there for bots only."""
    shown: Json = {
        "id": str(one.id),
        "username": one.username,
        "avatar": None,
        "discriminator": "0" if not one.is_bot else "4242",
        "public_flags": 0,
        "flags": 0,
        "global_name": one.global_name,
        "avatar_decoration_data": None,
        "primary_guild": None,
    }
    return {**shown, "bot": True} if one.is_bot else shown


def member(one: Member, *, with_user: bool = True) -> Json:
    """A guild member; in messages it comes without its user."""
    shown: Json = {
        "roles": [str(role) for role in one.roles],
        "nick": one.nick,
        "avatar": None,
        "banner": None,
        "joined_at": one.joined,
        "premium_since": None,
        "deaf": False,
        "mute": False,
        "pending": False,
        "flags": 0,
        "communication_disabled_until": None,
    }
    return {"user": user(one.user), **shown} if with_user else shown


def role(one: Role) -> Json:
    """A role of a guild."""
    shown: Json = {
        "id": str(one.id),
        "name": one.name,
        "description": None,
        "permissions": str(one.permissions),
        "position": one.position,
        "color": 0,
        "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        "hoist": False,
        "managed": one.managed_by is not None,
        "mentionable": False,
        "icon": None,
        "unicode_emoji": None,
        "flags": 0,
    }
    return {**shown, "tags": {"bot_id": str(one.managed_by)}} if one.managed_by else shown


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def channel(one: Channel, *, viewer: User | None = None) -> Json:
    """A channel of any kind. A direct conversation lists who is on the other side of the viewer."""
    shown: Json = {"id": str(one.id), "type": one.kind, "last_message_id": _number(one.last_message), "flags": 0}
    if one.kind == DM:
        others = [person for person in one.recipients if viewer is None or person.id != viewer.id]
        return {**shown, "recipients": [user(person) for person in others]}
    assert one.guild is not None
    shown |= {"guild_id": str(one.guild.id), "name": one.name, "rate_limit_per_user": 0}
    shown["parent_id"] = str(one.parent.id) if one.parent else None
    if one.is_thread:
        return {**shown, **_thread(one, viewer)}
    shown |= {
        "topic": one.topic,
        "position": one.position,
        "nsfw": False,
        "last_pin_timestamp": None,
        "permission_overwrites": [
            {"id": str(target), "type": 0 if target in one.guild.roles else 1, "allow": str(allow), "deny": str(deny)}
            for target, (allow, deny) in one.overwrites.items()
        ],
    }
    if one.kind == FORUM:
        shown |= {"available_tags": [], "default_reaction_emoji": None, "default_sort_order": None}
        shown |= {"default_forum_layout": 0, "template": ""}
    return shown


def _thread(one: Channel, viewer: User | None) -> Json:
    shown: Json = {
        "owner_id": str(one.owner.id) if one.owner else None,
        "message_count": one.sent,
        "member_count": min(len(one.joined), 50),
        "total_message_sent": one.sent,
        "applied_tags": [],
        "thread_metadata": {
            "archived": one.archived,
            "auto_archive_duration": one.archive_after,
            "archive_timestamp": one.archived_at,
            "locked": one.locked,
            "create_timestamp": one.created,
        },
    }
    if viewer is not None and viewer.id in one.joined:
        shown["member"] = thread_member(one, viewer.id)
    return shown


def thread_member(thread: Channel, who: int) -> Json:
    """Somebody who joined a thread."""
    return {"id": str(thread.id), "user_id": str(who), "join_timestamp": thread.joined[who], "flags": 1}


def file(one: File) -> Json:
    """An attachment."""
    shown: Json = {"id": str(one.id), "filename": one.name, "size": one.size, "url": one.url, "proxy_url": one.url}
    if one.description is not None:
        shown["description"] = one.description
    if one.width is not None:
        shown |= {"width": one.width, "height": one.height, "placeholder": "", "placeholder_version": 1}
    text = one.mime.startswith("text/")
    return {**shown, "content_type": one.mime + "; charset=utf-8" if text else one.mime, "content_scan_version": 0}


def emoji(name: str) -> Json:
    """`name:id` is one of a guild, anything else a character."""
    word, _, number = name.partition(":")
    return {"id": number or None, "name": word}


def _reactions(one: Message, viewer: User) -> list[Json]:
    return [
        {
            "emoji": emoji(name),
            "count": len(users),
            "count_details": {"burst": 0, "normal": len(users)},
            "burst_colors": [],
            "me_burst": False,
            "burst_me": False,
            "me": viewer.id in users,
            "burst_count": 0,
        }
        for name, users in one.reactions.items()
        if users
    ]


def may_read(world: World, one: Message) -> bool:
    """Whether the bot has the content without the privileged intent."""
    me = world.bot.user
    own = one.author.id == me.id or one.webhook == world.bot.application_id
    return own or one.channel.kind == DM or any(person.id == me.id for person in one.mentions)


def message(world: World, one: Message, *, content: bool = True, deep: bool = True) -> Json:
    """A message as the bot gets it. `content` is the privileged intent."""
    shown: Json = {
        "type": one.kind,
        "content": one.content,
        "mentions": [user(person) for person in one.mentions],
        "mention_roles": [str(number) for number in one.mention_roles],
        "attachments": [file(each) for each in one.files],
        "embeds": one.embeds,
        "timestamp": one.timestamp,
        "edited_timestamp": one.edited,
        "flags": one.flags,
        "components": _numbered(one.components, itertools.count(1)),
        "id": str(one.id),
        "channel_id": str(one.channel.id),
        "author": user(one.author),
        "pinned": one.pinned,
        "mention_everyone": one.mention_everyone,
        "tts": one.tts,
    }
    if not content and not may_read(world, one):
        shown |= {"content": "", "attachments": [], "embeds": [], "components": []}
    if one.stickers:
        shown["sticker_items"] = one.stickers
    if reactions := _reactions(one, world.bot.user):
        shown["reactions"] = reactions
    if one.nonce is not None:
        shown["nonce"] = one.nonce
    if one.webhook is not None:
        shown["webhook_id"] = str(one.webhook)
        shown["application_id"] = str(one.webhook)
    if one.interaction is not None:
        shown["interaction_metadata"] = one.interaction
    if one.thread is not None:
        shown["thread"] = channel(one.thread, viewer=world.bot.user)
    if one.channel.is_thread:
        shown["position"] = sum(1 for number in one.channel.messages if number < one.id)
    if one.reference is not None:
        shown |= _reference(world, one, content=content, deep=deep)
    return {**shown, **one.more}


def _numbered(components: list[Json], numbers: Iterator[int]) -> list[Json]:
    """Components as Discord gives them back: each has a number within its message."""
    shown = []
    for component in components:
        one = {"id": next(numbers), **component}
        if "components" in one:
            one["components"] = _numbered(one["components"], numbers)
        if "accessory" in one:
            [one["accessory"]] = _numbered([one["accessory"]], numbers)
        shown.append(one)
    return shown


def _reference(world: World, one: Message, *, content: bool, deep: bool) -> Json:
    assert one.reference is not None
    place, number = one.reference
    if one.kind == THREAD_CREATED:
        return {"message_reference": {"type": 0, "channel_id": str(place.id), "guild_id": str(place.guild.id)}}  # type: ignore[union-attr]
    shown: Json = {"type": 0, "message_id": str(number), "channel_id": str(place.id)}
    if place.guild is not None:
        shown["guild_id"] = str(place.guild.id)
    if not deep:
        return {"message_reference": shown}
    answered = place.messages.get(number)
    inner = message(world, answered, content=content, deep=False) if answered is not None else None
    return {"message_reference": shown, "referenced_message": inner}


def guild(one: Guild, *, viewer: User | None = None) -> Json:
    """A guild as `GET /guilds/{}` gives it."""
    return {
        "id": str(one.id),
        "name": one.name,
        "icon": None,
        "description": None,
        "home_header": None,
        "application_id": None,
        "incidents_data": None,
        "splash": None,
        "discovery_splash": None,
        "banner": None,
        "owner_id": str(one.owner.id),
        "region": "deprecated",
        "afk_channel_id": None,
        "afk_timeout": 300,
        "system_channel_id": None,
        "system_channel_flags": 0,
        "widget_enabled": False,
        "widget_channel_id": None,
        "verification_level": 0,
        "default_message_notifications": 0,
        "mfa_level": 0,
        "explicit_content_filter": 0,
        "max_presences": None,
        "max_members": 25_000_000,
        "max_stage_video_channel_users": 50,
        "max_video_channel_users": 25,
        "vanity_url_code": None,
        "premium_tier": 0,
        "premium_subscription_count": 0,
        "preferred_locale": "en-US",
        "rules_channel_id": None,
        "safety_alerts_channel_id": None,
        "public_updates_channel_id": None,
        "premium_progress_bar_enabled": False,
        "nsfw": False,
        "nsfw_level": 0,
        "features": [],
        "emojis": [],
        "stickers": [],
        "roles": [role(each) for _, each in sorted(one.roles.items())],
    }


def guild_create(world: World, one: Guild, *, everybody: bool) -> Json:
    """A guild as the gateway gives it: with the channels and threads that the bot sees."""
    me = world.bot.user
    seen = [each for each in one.channels.values() if not each.is_thread]
    threads = [each for each in one.channels.values() if each.is_thread and not each.archived and in_channel(each, me)]
    people = one.members.values() if everybody else [one.members[me.id]]
    return {
        **guild(one),
        "joined_at": one.members[me.id].joined,
        "large": False,
        "unavailable": False,
        "member_count": len(one.members),
        "members": [member(each) for each in people],
        "channels": [_in_guild(channel(each)) for each in seen],
        "threads": [channel(each, viewer=me) for each in threads],
        "presences": [],
        "voice_states": [],
        "stage_instances": [],
        "guild_scheduled_events": [],
        "soundboard_sounds": [],
        "activity_instances": [],
        "application_command_counts": {},
        "embedded_activities": [],
        "version": one.id,
    }


def _in_guild(shown: Json) -> Json:
    """Channels in GUILD_CREATE come without the guild's id."""
    return {key: value for key, value in shown.items() if key != "guild_id"}
