"""The methods that ask, and those that set up the bot itself."""

from __future__ import annotations

import re

from tests.fakes.botapi.errors import Json, bad, forbidden
from tests.fakes.botapi.gatherings import as_member
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.reach import Site, find_chat, writable
from tests.fakes.botapi.sending import Method
from tests.fakes.botapi.world import Bot, Chat

DOWNLOAD_LIMIT = 20 * 1024 * 1024
LINK_SECONDS = 3600
GIFTS = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)


def get_me(site: Site, bot: Bot, params: Params) -> Json:
    return bot.user.json() | {
        "can_join_groups": True,
        "can_read_all_group_messages": not bot.privacy,
        "supports_inline_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
    }


def get_file(site: Site, bot: Bot, params: Params) -> Json:
    """The path of a file; its link works for an hour."""
    file = site.world.files.get(params.text("file_id"))
    if file is None:
        raise bad("invalid file_id" if params.text("file_id") else "file_id not specified")
    if file.size > DOWNLOAD_LIMIT:
        raise bad("file is too big")
    site.world.linked[file.path] = (file.id, site.world.clock.now() + LINK_SECONDS)
    return {"file_id": file.id, "file_unique_id": file.unique_id, "file_size": file.size, "file_path": file.path}


def _scope(params: Params) -> str:
    return f"{params.text('scope') or 'default'} {params.text('language_code')}"


def set_commands(site: Site, bot: Bot, params: Params) -> bool:
    commands = params.decoded("commands", list, "can't parse commands JSON object")
    if commands is None:
        raise bad("commands are not specified")
    if len(commands) > 100:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    for one in commands:
        if not isinstance(one, dict) or not re.fullmatch(r"/?[a-z0-9_]{1,32}", str(one.get("command", ""))):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(str(one.get("description", ""))) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    shown = [{"command": one["command"].lstrip("/"), "description": one["description"]} for one in commands]
    bot.commands[_scope(params)] = shown
    return True


def get_commands(site: Site, bot: Bot, params: Params) -> list[Json]:
    return bot.commands.get(_scope(params), [])


def delete_commands(site: Site, bot: Bot, params: Params) -> bool:
    bot.commands.pop(_scope(params), None)
    return True


def _seen(site: Site, bot: Bot, params: Params) -> Chat:
    """A chat that the bot can look at."""
    chat = find_chat(site, bot, params)
    if chat.kind != "private" and chat.member(bot.user.id) == "kicked":
        raise forbidden(f"bot was kicked from the {chat.kind} chat")
    return chat


def get_chat(site: Site, bot: Bot, params: Params) -> Json:
    chat = _seen(site, bot, params)
    return chat.json() | {"accent_color_id": 1, "max_reaction_count": 11, "accepted_gift_types": GIFTS}


def get_member(site: Site, bot: Bot, params: Params) -> Json:
    chat = _seen(site, bot, params)
    user = site.world.users.get(params.number("user_id"))
    if user is None:
        raise bad("invalid user_id specified" if not params.number("user_id") else "user not found")
    if chat.kind == "private":
        return as_member(user, "member")
    return as_member(user, chat.member(user.id))


def get_admins(site: Site, bot: Bot, params: Params) -> list[Json]:
    chat = _seen(site, bot, params)
    if chat.kind == "private":
        raise bad("there are no administrators in the private chat")
    admins = [user for user in chat.members.values() if chat.is_admin(user.id) and not user.is_bot]
    return [as_member(user, chat.member(user.id)) for user in admins]


def count_members(site: Site, bot: Bot, params: Params) -> int:
    chat = _seen(site, bot, params)
    return 2 if chat.kind == "private" else sum(status not in ("left", "kicked") for status in chat.status.values())


def leave_chat(site: Site, bot: Bot, params: Params) -> bool:
    chat = writable(site, bot, params)
    if chat.kind == "private":
        raise bad("chat member status can't be changed in private chats")
    chat.status[bot.user.id] = "left"
    site.world.happened(chat, "service", f"{bot.user.name()}:", f"{bot.user.name()} left")
    return True


def webhook_info(site: Site, bot: Bot, params: Params) -> Json:
    hook = bot.webhook
    shown: Json = {"url": hook.url if hook else "", "has_custom_certificate": False}
    shown["pending_update_count"] = len(bot.queue.pending())
    if hook is not None:
        shown["max_connections"] = hook.connections
        if hook.last_error:
            shown |= {"last_error_date": hook.last_error_date, "last_error_message": hook.last_error}
    return shown


ASKING: dict[str, Method] = {
    "getme": get_me,
    "getfile": get_file,
    "setmycommands": set_commands,
    "getmycommands": get_commands,
    "deletemycommands": delete_commands,
    "getchat": get_chat,
    "getchatmember": get_member,
    "getchatadministrators": get_admins,
    "getchatmembercount": count_members,
    "leavechat": leave_chat,
    "getwebhookinfo": webhook_info,
}
