"""What the bot asks about itself, guilds and channels, and what it does with threads."""

from __future__ import annotations

from typing import Any

from tests.fakes.discordapi import events, posting, shapes
from tests.fakes.discordapi.asked import Asked, Route
from tests.fakes.discordapi.errors import Json, Refusal, form, missing_access, missing_permissions, required, unknown
from tests.fakes.discordapi.messages import parts_of
from tests.fakes.discordapi.permissions import Permission
from tests.fakes.discordapi.world import FORUM, PRIVATE_THREAD, PUBLIC_THREAD, TEXT, Channel, Guild


def me(asked: Asked) -> Json:
    """The bot's own account."""
    shown = shapes.user(asked.me)
    return {**shown, "bio": "", "locale": "en-US", "mfa_enabled": False, "verified": True, "email": None, "flags": 0}


def user(asked: Asked) -> Json:
    """Anybody's account."""
    found = asked.world.users.get(asked.id("user"))
    if found is None:
        raise unknown("user")
    return shapes.user(found)


def application(asked: Asked) -> Json:
    """The application with its switches for privileged intents."""
    bot = asked.world.bot
    return {
        "id": str(bot.application_id),
        "name": bot.name,
        "icon": None,
        "description": "",
        "summary": "",
        "type": None,
        "is_monetized": False,
        "hook": True,
        "storefront_available": False,
        "bot_public": True,
        "bot_require_code_grant": False,
        "verify_key": f"{bot.application_id:064x}",
        "flags": bot.flags(),
        "flags_new": str(bot.flags()),
        "bot": shapes.user(bot.user),
        "owner": {**shapes.user(bot.user), "id": str(bot.application_id - 1), "username": "owner"},
        "team": None,
        "redirect_uris": [],
        "interactions_endpoint_url": bot.endpoint,
        "role_connections_verification_url": None,
        "integration_types_config": {"0": {}, "1": {}},
        "approximate_guild_count": len(asked.world.guilds),
        "approximate_user_install_count": 0,
        "approximate_user_authorization_count": 0,
        "explicit_content_filter": 0,
        "eligible_oauth2_scopes": ["applications.commands", "bot", "identify"],
    }


def direct(asked: Asked) -> Json:
    """Opens the conversation with a user; the same one each time."""
    number = str(asked.json.get("recipient_id", ""))
    if not number:
        raise form(required("recipient_id"))
    found = asked.world.users.get(int(number)) if number.isdigit() else None
    if found is None:
        raise Refusal(400, 50033, "Invalid Recipient(s)")
    if found.is_bot:
        raise Refusal(400, 50007, "Cannot send messages to this user")
    return shapes.channel(asked.world.direct(found), viewer=asked.me)


def channel(asked: Asked) -> Json:
    """One channel."""
    return shapes.channel(asked.channel(), viewer=asked.me)


def change_channel(asked: Asked) -> Json:
    """Renames; archives, opens and locks threads."""
    one, given = asked.channel(), asked.json
    changes = {name: given[name] for name in ("name", "archived", "locked") if name in given}
    if "name" in changes and not 1 <= len(str(changes["name"])) <= 100:
        raise form(("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."))
    if one.kind not in (TEXT, FORUM) and not one.is_thread:
        raise Refusal(400, 50024, "Cannot execute action on this channel type")
    if one.is_thread:
        own = one.owner is not None and one.owner.id == asked.me.id and "locked" not in changes and not one.locked
        opens = changes == {"archived": False} and not one.locked
        if not own and not opens:
            asked.allowed(one, Permission.MANAGE_THREADS, otherwise=missing_permissions())
        if one.archived and changes.get("archived") is not False:
            raise Refusal(400, 50083, "Thread is archived")
        posting.set_thread(asked.world, one, **changes)
    else:
        asked.allowed(one, Permission.MANAGE_CHANNELS, otherwise=missing_permissions())
        one.name = str(changes.get("name", one.name))
        one.topic = given.get("topic", one.topic)
        events.channel(asked.world, "UPDATE", one)
    return shapes.channel(one, viewer=asked.me)


def remove_channel(asked: Asked) -> Json:
    """Deletes a channel or a thread; a direct conversation is only closed."""
    one = asked.channel()
    shown = shapes.channel(one, viewer=asked.me)
    if one.guild is not None:
        needed = Permission.MANAGE_THREADS if one.is_thread else Permission.MANAGE_CHANNELS
        asked.allowed(one, needed, otherwise=missing_permissions())
        posting.remove_channel(asked.world, one)
    return shown


def _name(given: Json) -> str:
    name = given.get("name")
    if not name:
        raise form(required("name"))
    if len(str(name)) > 100:
        raise form(("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."))
    return str(name)


def thread_from_message(asked: Asked) -> Json:
    """Begins a thread at a message; a message has at most one."""
    parent = asked.channel()
    one, name = asked.message(parent), _name(asked.json)
    if parent.guild is None or parent.is_thread:
        raise Refusal(400, 50024, "Cannot execute action on this channel type")
    asked.allowed(parent, Permission.CREATE_PUBLIC_THREADS, otherwise=missing_permissions())
    if one.thread is not None:
        raise Refusal(400, 160004, "A thread has already been created for this message")
    thread = posting.open_thread(asked.world, parent, asked.me, name, starter=one)
    return shapes.channel(thread, viewer=asked.me)


def thread(asked: Asked) -> Json:
    """Begins a thread without a message, or a post of a forum."""
    parent, given = asked.channel(), asked.json
    name = _name(given)
    if parent.guild is None or parent.is_thread:
        raise Refusal(400, 50024, "Cannot execute action on this channel type")
    if parent.kind == FORUM:
        if not isinstance(given.get("message"), dict):
            raise form(required("message"))
        asked.allowed(parent, Permission.SEND_MESSAGES, otherwise=missing_permissions())
        parts = parts_of(asked, parent, given["message"])
        opened, first = posting.open_post(asked.world, parent, asked.me, name, parts.pop("content"), **parts)
        shown = shapes.channel(opened, viewer=asked.me)
        return {**shown, "message": shapes.message(asked.world, first)}
    kind = int(given.get("type", PRIVATE_THREAD))
    if kind not in (PUBLIC_THREAD, PRIVATE_THREAD):
        raise form(("type", "BASE_TYPE_CHOICES", "Value must be one of {10, 11, 12}."))
    public = kind == PUBLIC_THREAD
    needed = Permission.CREATE_PUBLIC_THREADS if public else Permission.CREATE_PRIVATE_THREADS
    asked.allowed(parent, needed, otherwise=missing_permissions())
    opened = posting.open_thread(asked.world, parent, asked.me, name, kind=kind)
    if public:
        posting.announce_thread(asked.world, opened, asked.me)
    return shapes.channel(opened, viewer=asked.me)


def join(asked: Asked) -> None:
    """The bot becomes a member of a thread."""
    one = asked.channel()
    if not one.is_thread:
        raise Refusal(400, 50024, "Cannot execute action on this channel type")
    posting.join(asked.world, one, asked.me)


def leave(asked: Asked) -> None:
    """The bot leaves a thread."""
    asked.channel().joined.pop(asked.me.id, None)


def _guild(asked: Asked) -> Guild:
    found = asked.world.guilds.get(asked.id("guild"))
    if found is None:
        raise unknown("guild")
    if asked.me.id not in found.members:
        raise missing_access()
    return found


def guild(asked: Asked) -> Json:
    """One guild."""
    found = _guild(asked)
    counted = {"approximate_member_count": len(found.members), "approximate_presence_count": 0}
    return shapes.guild(found) | (counted if asked.query.get("with_counts") == "true" else {})


def guilds(asked: Asked) -> list[Json]:
    """The guilds of the bot, in short."""
    there = [one for one in asked.world.guilds.values() if asked.me.id in one.members]
    return [{"id": str(one.id), "name": one.name, "icon": None, "owner": False, "permissions": "0", "features": []} for one in there]  # fmt: skip


def member(asked: Asked) -> Json:
    """One member."""
    found, number = _guild(asked), asked.id("user")
    if number not in asked.world.users:
        raise unknown("user")
    if number not in found.members:
        raise unknown("member")
    return shapes.member(found.members[number])


def members(asked: Asked) -> list[Json]:
    """The members by id; needs the privileged intent."""
    found = _guild(asked)
    if not asked.world.bot.members_intent:
        raise missing_access()
    limit, after = asked.number("limit", 1, 1, 1000), asked.snowflake("after") or 0
    there = sorted(number for number in found.members if number > after)[:limit]
    return [shapes.member(found.members[number]) for number in there]


def roles(asked: Asked) -> list[Json]:
    """The roles of a guild."""
    return [shapes.role(one) for _, one in sorted(_guild(asked).roles.items())]


def channels(asked: Asked) -> list[Json]:
    """The channels of a guild, without threads."""
    return [shapes.channel(one) for one in _guild(asked).channels.values() if not one.is_thread]


def active(asked: Asked) -> Json:
    """The threads of a guild that are open and that the bot sees."""
    there = [one for one in _guild(asked).channels.values() if one.is_thread and not one.archived and _sees(asked, one)]
    joined = [shapes.thread_member(one, asked.me.id) for one in there if asked.me.id in one.joined]
    return {"threads": [shapes.channel(one, viewer=asked.me) for one in there], "members": joined, "has_more": False}


def _sees(asked: Asked, one: Channel) -> bool:
    try:
        asked.allowed(one, Permission.VIEW_CHANNEL, otherwise=missing_access())
    except Refusal:
        return False
    return one.kind != PRIVATE_THREAD or asked.me.id in one.joined


def archived(asked: Asked) -> Json:
    """The public threads of a channel that are archived, the latest first."""
    parent = asked.channel()
    found: list[Any] = [
        one for one in asked.world.channels.values() if one.parent is parent and one.archived and not one.gone
    ]
    found.sort(key=lambda one: one.archived_at, reverse=True)
    joined = [shapes.thread_member(one, asked.me.id) for one in found if asked.me.id in one.joined]
    shown = [shapes.channel(one, viewer=asked.me) for one in found]
    return {"threads": shown, "members": joined, "has_more": False}


def leave_guild(asked: Asked) -> None:
    """The bot goes out of a guild, whose sessions learn that it is gone."""
    found = asked.world.guilds.get(asked.id("guild"))
    if found is None or asked.me.id not in found.members:
        raise unknown("guild")
    del found.members[asked.me.id]
    events.guild(asked.world, found, "DELETE")


PLACES: dict[str, Route] = {
    "GET /users/@me": me,
    "GET /users/{user}": user,
    "GET /users/@me/guilds": guilds,
    "POST /users/@me/channels": direct,
    "GET /applications/@me": application,
    "GET /oauth2/applications/@me": application,
    "GET /channels/{channel}": channel,
    "PATCH /channels/{channel}": change_channel,
    "DELETE /channels/{channel}": remove_channel,
    "POST /channels/{channel}/threads": thread,
    "POST /channels/{channel}/messages/{message}/threads": thread_from_message,
    "PUT /channels/{channel}/thread-members/@me": join,
    "DELETE /channels/{channel}/thread-members/@me": leave,
    "GET /channels/{channel}/threads/archived/public": archived,
    "DELETE /users/@me/guilds/{guild}": leave_guild,
    "GET /guilds/{guild}": guild,
    "GET /guilds/{guild}/channels": channels,
    "GET /guilds/{guild}/members": members,
    "GET /guilds/{guild}/members/{user}": member,
    "GET /guilds/{guild}/roles": roles,
    "GET /guilds/{guild}/threads/active": active,
}
