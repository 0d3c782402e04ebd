"""Parsing of Telegram's texts: entities count UTF-16 units, commands begin with a slash, bots are @mentioned."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from channels.platform.json_values import Raw, require_number

_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""Separator between the bot's name and the message: "@bot, hello". A remaining comma would make it a command."""
_DOTTED_NAME = re.compile(r"(?:\.[A-Za-z0-9_]+)+(?=\s|$)")
"""The rest of a name that was typed with dots, `/memory.save`: the platform's commands have none, and end before it."""


@dataclass(frozen=True, slots=True)
class TelegramBotUser:
    """The bot's user on Telegram. `commands` are the names that are ours in a group even without `@`."""

    id: int
    username: str
    commands: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class TelegramText:
    """A parsed text. `is_addressed`: it is a command for us, or contains our name."""

    text: str
    is_addressed: bool


class Utf16Text:
    """A text that is sliced by UTF-16 offsets."""

    def __init__(self, text: str) -> None:
        self._units = text.encode("utf-16-le", "surrogatepass")

    def slice_units(self, start: int, length: int | None = None) -> str:
        """Return `length` units from `start`; None: all to the end."""
        end = None if length is None else 2 * (start + length)
        return self._units[2 * start : end].decode("utf-16-le", "replace")


def parse_text(text: str, entities: Sequence[Raw], me: TelegramBotUser, *, is_direct: bool) -> TelegramText:
    """Remove our name from the beginning, and write a command for us as `,name arguments`.

    Args:
        text: the text of a message.
        entities: its entities; of a text without any nothing is ours.
        me: the bot.
        is_direct: the chat is private, so every command is for us.
    """
    if not entities:
        return TelegramText(text, is_addressed=False)
    units = Utf16Text(text)
    called = any(_is_our_name(units, entity, me) for entity in entities)
    start = _skip_our_name(units, entities, me)
    rest = units.slice_units(start)
    command = _read_command(units, start, entities, me, direct=is_direct or start > 0)
    if command is not None:
        return TelegramText(command, is_addressed=True)
    # If the text is only our name, keep it: there is nothing else to show.
    return TelegramText(rest if rest.strip() else text, called)


def _is_our_name(units: Utf16Text, entity: Raw, me: TelegramBotUser) -> bool:
    if entity["type"] == "text_mention":
        return bool(entity["user"]["id"] == me.id)
    if entity["type"] != "mention":
        return False
    return units.slice_units(entity["offset"], entity["length"]).casefold() == f"@{me.username}".casefold()


def _skip_our_name(units: Utf16Text, entities: Sequence[Raw], me: TelegramBotUser) -> int:
    """Return the offset behind our name and the separator; 0 if the text does not begin with our name."""
    for entity in entities:
        if entity["offset"] == 0 and _is_our_name(units, entity, me):
            length = require_number(entity["length"])
            separator = _AFTER_NAME.match(units.slice_units(length))
            # White space and punctuation here are one unit each.
            return length + (len(separator[0]) if separator else 0)
    return 0


def _read_command(
    units: Utf16Text, start: int, entities: Sequence[Raw], me: TelegramBotUser, *, direct: bool
) -> str | None:
    """Translate a command for us into a comma command; return None for any other text."""
    for entity in entities:
        if entity["type"] != "bot_command" or entity["offset"] != start:
            continue
        name, _, bot = units.slice_units(start, entity["length"]).removeprefix("/").lower().partition("@")
        end = start + require_number(entity["length"])
        if not bot and (dotted := _DOTTED_NAME.match(units.slice_units(end))):
            name, end = name + dotted[0].lower().replace(".", "_"), end + dotted.end()
        # In a group other bots have commands, too: those without a bot's name are ours if we have them.
        is_ours = bot == me.username.lower() if bot else direct or name in me.commands
        if is_ours and name:
            rest = units.slice_units(end).strip()
            # The button for the first message sends /start, with a word of the link that led here.
            return ",start" if name == "start" else f",{name} {rest}".rstrip()
    return None
