"""The menu of commands that Telegram shows next to the text field."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from bubbot.ports.channel import CommandInfo
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable

log = logging.getLogger(__name__)
PREFERRED_COMMANDS = ("help", "new", "stop", "status", "model", "memory", "search", "handoff", "context")
"""Commands that come first in the menu, in this order. In a group these are ours even without `@`."""
_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MAX_COMMANDS = 100
_MAX_DESCRIPTION_CHARS = 256


def build_menu(commands: Sequence[CommandInfo]) -> list[dict[str, str]]:
    """Build the menu in Telegram's format: commands whose names are one word, the preferred ones first."""
    summaries = {command.name: command.summary for command in commands if _NAME.fullmatch(command.name)}
    names = [
        *(name for name in PREFERRED_COMMANDS if name in summaries),
        *(name for name in summaries if name not in PREFERRED_COMMANDS),
    ]
    return [
        {"command": name, "description": summaries[name][:_MAX_DESCRIPTION_CHARS] or name}
        for name in names[:_MAX_COMMANDS]
    ]


async def set_menu(api: TelegramApi, channel: str, commands: Sequence[CommandInfo]) -> None:
    """Set the menu if it differs. A failure is logged and has no other effect."""
    entries = build_menu(commands)
    try:
        if entries and await api.call("getMyCommands") != entries:
            await api.call("setMyCommands", {"commands": entries})
    except (TelegramApiError, TelegramUnavailable) as error:
        log.warning("command menu not set: channel=%s error=%s", channel, error, extra={"action": "telegram.menu"})
