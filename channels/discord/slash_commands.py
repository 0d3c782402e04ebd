"""Interactions: the registration of slash commands, the messages that their use stands for, and pressed buttons."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from bubbot.formatting import clean_json, read_language
from bubbot.ports.channel import ButtonPress, CommandInfo, Inbound, Sender
from channels.discord.api import DiscordApi
from channels.discord.content import require_id
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.inbound import read_sender
from channels.platform.json_values import require_text

log = logging.getLogger(__name__)
MAX_MENU_COMMANDS = 24
"""Commands to offer, with those that call agents; Discord would take 100, which nobody reads. The others may be typed: `/memory_save`."""
MAX_DESCRIPTION_CHARS = 100
"""Characters of a description."""
MAX_OPTIONS = 25
COMPONENT_INTERACTION_TYPE, BUTTON_COMPONENT_TYPE = 3, 2
COMMAND_INTERACTION_TYPE = 2
"""The interaction type of a used command; `CHAT_INPUT_COMMAND` is the command type of a slash command."""
CHAT_INPUT_COMMAND, STRING_OPTION = 1, 3
THREAD_CHANNEL_TYPES = (10, 11, 12)
_DISCORD_EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
_LOCALES = {"en": ("en-GB", "en-US"), "zh": ("zh-CN", "zh-TW")}
"""Discord's names of our languages, where they differ."""
_NAME = re.compile(r"[a-z0-9_-]{1,32}")


def build_commands(infos: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """Build Discord's form of the commands for menus, with an optional string for each argument."""
    by_name = {info.slash_names[0]: info for info in infos if info.in_menu}
    return [_build_command(name, info) for name, info in by_name.items() if _NAME.fullmatch(name)][:MAX_MENU_COMMANDS]


def _build_command(name: str, info: CommandInfo) -> dict[str, Any]:
    command: dict[str, Any] = {
        "name": name,
        "type": CHAT_INPUT_COMMAND,
        "description": _shorten(info.summary) or name,
        # Servers and direct messages with the bot; not private chats between others.
        "contexts": [0, 1],
        "integration_types": [0],
    }
    locales = {
        locale: _shorten(text)
        for tag, text in sorted(info.translations.items())
        for locale in _LOCALES.get(tag, (tag,))
        if _shorten(text) != command["description"]
    }
    if locales:
        command["description_localizations"] = locales
    names = [name for name in info.arguments if _NAME.fullmatch(name)][:MAX_OPTIONS]
    if names:
        command["options"] = [
            {"type": STRING_OPTION, "name": name, "description": name, "required": False} for name in names
        ]
    return command


def _shorten(summary: str) -> str:
    text = " ".join(summary.split())
    return text if len(text) <= MAX_DESCRIPTION_CHARS else text[: MAX_DESCRIPTION_CHARS - 1].rstrip() + "…"


async def sync_commands(api: DiscordApi, application_id: str, infos: Sequence[CommandInfo]) -> None:
    """Register the commands if others are registered. A failure is only logged."""
    expected, path = build_commands(infos), f"/applications/{application_id}/commands"
    try:
        if _comparable(await api.call("GET", path)) != _comparable(expected):
            await api.call("PUT", path, json=expected)
    except (DiscordApiError, DiscordUnavailable) as error:
        log.warning("slash commands not updated: %s", error, extra={"action": "discord.commands"})


def _comparable(body: Any) -> list[Any]:
    """Extract the fields that bubbot sets, sorted: Discord adds ids, versions and defaults."""
    items = [item for item in body if isinstance(item, dict)] if isinstance(body, list) else []
    return sorted(
        [
            item.get("name"),
            item.get("type", CHAT_INPUT_COMMAND),
            item.get("description"),
            sorted((item.get("description_localizations") or {}).items()),
            sorted(item.get("contexts") or []),
            sorted(item.get("integration_types") or []),
            [
                [option.get("type"), option.get("name"), option.get("description"), bool(option.get("required"))]
                for option in item.get("options") or []
            ],
        ]
        for item in items
    )


def read_interaction(channel: str, bot_id: str, raw: Any) -> Inbound | None:
    """Read a used command as the equivalent message; return None for other or malformed interactions.

    `channel` is the configured name of the bot's channel, `bot_id` the bot's own id.
    """
    try:
        raw = clean_json(raw)
        if raw["type"] != COMMAND_INTERACTION_TYPE or raw["data"].get("type", CHAT_INPUT_COMMAND) != CHAT_INPUT_COMMAND:
            return None
        return _read(channel, bot_id, raw)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        log.warning(
            "unreadable slash command: channel=%s error=%s", channel, type(error).__name__,
            extra={"action": "discord.interaction"},
        )  # fmt: skip
        return None


def is_press(raw: Any) -> bool:
    """Return true for an interaction with a component of a message."""
    return isinstance(raw, dict) and raw.get("type") == COMPONENT_INTERACTION_TYPE


def read_press(channel: str, raw: Any) -> ButtonPress | None:
    """Read the press of a button; return None for other components and malformed interactions."""
    try:
        raw = clean_json(raw)
        if raw["data"]["component_type"] != BUTTON_COMPONENT_TYPE:
            return None
        member = raw.get("member") or {}
        number, chat, thread = require_id(raw["id"]), *_place(raw)
        space = str(raw.get("guild_id") or "")
        return ButtonPress(
            channel,
            f"i{number}",
            chat,
            require_id(raw["message"]["id"]),
            _sender(raw, member),
            require_text(raw["data"]["custom_id"]),
            _used_at(number),
            thread=thread,
            direct=not space,
            space=space,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        log.warning(
            "unreadable press: channel=%s error=%s", channel, type(error).__name__,
            extra={"action": "discord.interaction"},
        )  # fmt: skip
        return None


def _sender(raw: dict[str, Any], member: dict[str, Any]) -> Sender:
    """Return the user of a command or button, with the language, which only interactions contain."""
    sender = read_sender(member.get("user") or raw["user"], member)
    return structs.replace(sender, language=read_language(raw.get("locale")))


def _place(raw: dict[str, Any]) -> tuple[str, str]:
    """Return chat and thread of an interaction; the thread is empty if it is in none."""
    place = raw.get("channel") or {}
    channel_id = require_id(raw.get("channel_id") or place.get("id"))
    if place.get("type") in THREAD_CHANNEL_TYPES and place.get("parent_id"):
        return require_id(place["parent_id"]), channel_id
    return channel_id, ""


def _used_at(number: str) -> str:
    """Return when an interaction was made, which its id contains."""
    return (_DISCORD_EPOCH + timedelta(milliseconds=int(number) >> 22)).isoformat()


def _read(channel: str, me: str, raw: dict[str, Any]) -> Inbound | None:
    member = raw.get("member") or {}
    sender = _sender(raw, member)
    if sender.id == me:
        return None
    number, chat, thread = require_id(raw["id"]), *_place(raw)
    space = str(raw.get("guild_id") or "")
    return Inbound(
        channel,
        f"i{number}",
        chat,
        sender,
        _command_text(raw["data"]),
        _used_at(number),
        thread=thread,
        message=number,
        direct=not space,
        addressed=True,
        space=space,
    )


def _command_text(data: dict[str, Any]) -> str:
    """Return the command as typed text, `,name key="value"`. A quote within a value is doubled."""
    parts = [f",{data['name']}"]
    for option in data.get("options") or []:
        value = option["value"]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        parts.append(f'{option["name"]}="{text.replace(chr(34), chr(34) * 2)}"')
    return " ".join(parts)
