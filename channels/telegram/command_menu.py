"""The menu of commands that Telegram shows beside the text field."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from bubbot.ports.channel import CommandInfo
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable

log = logging.getLogger(__name__)
PREFERRED_COMMANDS = ("help", "new", "stop", "status", "model", "memory", "search", "handoff", "context")
"""What stands first in the menu, in this order; other commands follow. In a group these are ours without `@`."""
_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MOST = 100
_LONGEST = 256


def menu(commands: Sequence[CommandInfo]) -> list[dict[str, str]]:
    """The commands as Telegram takes them: those whose names are one word, the best known first."""
    words = {one.name: one.summary for one in commands if _NAME.fullmatch(one.name)}
    names = [
        *(name for name in PREFERRED_COMMANDS if name in words),
        *(name for name in words if name not in PREFERRED_COMMANDS),
    ]
    return [{"command": name, "description": words[name][:_LONGEST] or name} for name in names[:_MOST]]


async def set_menu(api: TelegramApi, channel: str, commands: Sequence[CommandInfo]) -> None:
    """Sets the menu where it is another one. A failure is logged and costs nothing else."""
    wanted = menu(commands)
    try:
        if wanted and await api.call("getMyCommands") != wanted:
            await api.call("setMyCommands", {"commands": wanted})
    except (TelegramApiError, TelegramUnavailable) as error:
        log.warning(
            "channel %s: the menu of commands was not set: %s", channel, error, extra={"action": "telegram.menu"}
        )
