"""Slash commands: what is offered, and what the use of one says."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bubbot.ports.channel import CommandInfo, Inbound
from channels.discord.api import DiscordApi
from channels.discord.content import number_of
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.inbound import person, whole_text

log = logging.getLogger(__name__)
PREFERRED_COMMANDS = ("help", "new", "stop", "status", "model", "memory", "search", "handoff", "context")
"""What is offered where there are too many, and first; other commands follow."""
MAX_COMMANDS = 100
MAX_DESCRIPTION_LENGTH = 100
"""Characters of a description."""
MAX_OPTIONS = 25
COMMAND = 2
"""The type of an interaction that is the use of a command; `CHAT_INPUT_COMMAND` is that of a command which is typed."""
CHAT_INPUT_COMMAND, STRING_OPTION = 1, 3
THREAD_CHANNEL_TYPES = (10, 11, 12)
_DISCORD_EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[a-z0-9_-]{1,32}")


def commands(infos: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """The commands as Discord takes them: those whose names are one word, with an optional text for each argument."""
    known = {one.name: one for one in infos if _NAME.fullmatch(one.name)}
    names = [
        *(name for name in PREFERRED_COMMANDS if name in known),
        *(name for name in known if name not in PREFERRED_COMMANDS),
    ]
    return [_command(known[name]) for name in names[:MAX_COMMANDS]]


def _command(info: CommandInfo) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": info.name,
        "type": CHAT_INPUT_COMMAND,
        "description": _described(info.summary) or info.name,
        # Servers and direct conversations with the bot; not the conversations of others.
        "contexts": [0, 1],
        "integration_types": [0],
    }
    names = [name for name in info.arguments if _NAME.fullmatch(name)][:MAX_OPTIONS]
    if names:
        made["options"] = [
            {"type": STRING_OPTION, "name": name, "description": name, "required": False} for name in names
        ]
    return made


def _described(summary: str) -> str:
    text = " ".join(summary.split())
    return text if len(text) <= MAX_DESCRIPTION_LENGTH else text[: MAX_DESCRIPTION_LENGTH - 1].rstrip() + "…"


async def sync_commands(api: DiscordApi, application: str, infos: Sequence[CommandInfo]) -> None:
    """Registers the commands where others are registered. A failure is logged and costs nothing else."""
    wanted, path = commands(infos), f"/applications/{application}/commands"
    try:
        if _compared(await api.call("GET", path)) != _compared(wanted):
            await api.call("PUT", path, json=wanted)
    except (DiscordApiError, DiscordUnavailable) as error:
        log.warning("the slash commands were not set: %s", error, extra={"action": "discord.commands"})


def _compared(given: Any) -> list[Any]:
    """What of commands we decide, in one form: Discord adds ids, versions and defaults."""
    found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return sorted(
        [
            one.get("name"),
            one.get("type", CHAT_INPUT_COMMAND),
            one.get("description"),
            sorted(one.get("contexts") or []),
            sorted(one.get("integration_types") or []),
            [
                [option.get("type"), option.get("name"), option.get("description"), bool(option.get("required"))]
                for option in one.get("options") or []
            ],
        ]
        for one in found
    )


def read_interaction(channel: str, me: str, raw: Any) -> Inbound | None:
    """The use of a command as the message that says the same; None for every other interaction, and odd ones.

    `channel` is our channel's name, `me` the bot's own id.
    """
    try:
        raw = whole_text(raw)
        if raw["type"] != COMMAND or raw["data"].get("type", CHAT_INPUT_COMMAND) != CHAT_INPUT_COMMAND:
            return None
        return _read(channel, me, raw)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        log.warning(
            "channel %s: the use of a command cannot be read (%s)", channel, type(error).__name__,
            extra={"action": "discord.interaction"},
        )  # fmt: skip
        return None


def _read(channel: str, me: str, raw: dict[str, Any]) -> Inbound | None:
    member = raw.get("member") or {}
    sender = person(member.get("user") or raw["user"], member)
    if sender.id == me:
        return None
    number, space = number_of(raw["id"]), str(raw.get("guild_id") or "")
    place = raw.get("channel") or {}
    here = number_of(raw.get("channel_id") or place.get("id"))
    in_thread = place.get("type") in THREAD_CHANNEL_TYPES and bool(place.get("parent_id"))
    return Inbound(
        channel,
        f"i{number}",
        number_of(place["parent_id"]) if in_thread else here,
        sender,
        _typed(raw["data"]),
        (_DISCORD_EPOCH + timedelta(milliseconds=int(number) >> 22)).isoformat(),
        thread=here if in_thread else "",
        message=number,
        direct=not space,
        addressed=True,
        space=space,
    )


def _typed(data: dict[str, Any]) -> str:
    """As it is typed: `,name key="value"`. A quote within a value is written twice."""
    words = [f",{data['name']}"]
    for option in data.get("options") or []:
        value = option["value"]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f'{option["name"]}="{text.replace(chr(34), chr(34) * 2)}"')
    return " ".join(words)
