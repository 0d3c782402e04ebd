"""The menu of commands that Telegram shows next to the text field."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence

from bubbot.ports.channel import CommandInfo
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable

log = logging.getLogger(__name__)
_NAME = re.compile(r"[a-z0-9_]{1,32}")
MAX_MENU_COMMANDS = 24
"""Commands in a menu, with those that call agents; Telegram would take 100, which nobody reads."""
_MAX_DESCRIPTION_CHARS = 256
_PRIVATE_SCOPES = ("all_private_chats", "all_chat_administrators")
_GROUP_SCOPE = "all_group_chats"


def build_menu(commands: Sequence[CommandInfo], language: str = "") -> list[dict[str, str]]:
    """Build a menu in Telegram's format. `language`: the tag of one of the translations; empty: the bot's language."""
    found = [(command.slash_names[0], command) for command in commands if command.in_menu]
    return [
        {
            "command": name,
            "description": command.translations.get(language, command.summary)[:_MAX_DESCRIPTION_CHARS] or name,
        }
        for name, command in found
        if _NAME.fullmatch(name)
    ][:MAX_MENU_COMMANDS]


async def set_menu(api: TelegramApi, channel: str, commands: Sequence[CommandInfo]) -> None:
    """Set the menus of private chats, groups and their admins that differ, in the bot's language and in each other.

    A failure is logged and has no other effect.
    """
    languages = sorted({language for command in commands for language in command.translations})
    shared = [command for command in commands if command.is_shared]
    try:
        await asyncio.gather(
            *(
                _set_one(api, scope, language, build_menu(shared if scope == _GROUP_SCOPE else commands, language))
                for scope in (*_PRIVATE_SCOPES, _GROUP_SCOPE)
                for language in ("", *languages)
            )
        )
    except (TelegramApiError, TelegramUnavailable) as error:
        log.warning("command menu not set: channel=%s error=%s", channel, error, extra={"action": "telegram.menu"})


async def _set_one(api: TelegramApi, scope: str, language: str, entries: Sequence[Mapping[str, str]]) -> None:
    place = {"scope": {"type": scope}} | ({"language_code": language} if language else {})
    if entries and await api.call("getMyCommands", place) != entries:
        await api.call("setMyCommands", {"commands": entries, **place})
