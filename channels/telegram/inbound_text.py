"""Texts as Telegram sends them: entities count UTF-16 units, commands begin with a slash, bots are @mentioned."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from telegram import MessageEntity

_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""What people put between the name they call and what they say: "@bot, hello". A comma would make it a command."""
_ALIASES = {"start": "help"}
"""Telegram's own first button sends /start."""


@dataclass(frozen=True, slots=True)
class TelegramBotUser:
    """The bot as Telegram knows it. `commands`: the names that count as ours in a group without `@`."""

    id: int
    username: str
    commands: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class TelegramText:
    """A text as we take it. `called`: it is a command for us, or begins with our name, or has it somewhere."""

    text: str
    called: bool


class Utf16Text:
    """A text that is cut by UTF-16 offsets."""

    def __init__(self, text: str) -> None:
        self._units = text.encode("utf-16-le", "surrogatepass")

    def piece(self, start: int, length: int | None = None) -> str:
        """The units from `start` on, to the end or so many."""
        end = None if length is None else 2 * (start + length)
        return self._units[2 * start : end].decode("utf-16-le", "replace")


def said(text: str, entities: Sequence[MessageEntity], me: TelegramBotUser, *, direct: bool) -> TelegramText:
    """The text with our name taken from its beginning and a command of ours in the form `,name arguments`."""
    units = Utf16Text(text)
    called = any(_is_our_name(units, one, me) for one in entities)
    start = _after_our_name(units, entities, me)
    rest = units.piece(start)
    command = _command(units, start, entities, me, direct=direct or start > 0)
    if command is not None:
        return TelegramText(command, called=True)
    # Nothing but the name: there is nothing else to show.
    return TelegramText(rest if rest.strip() else text, called)


def _is_our_name(units: Utf16Text, entity: MessageEntity, me: TelegramBotUser) -> bool:
    if entity.type == MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == me.id
    if entity.type != MessageEntity.MENTION:
        return False
    return units.piece(entity.offset, entity.length).casefold() == f"@{me.username}".casefold()


def _after_our_name(units: Utf16Text, entities: Sequence[MessageEntity], me: TelegramBotUser) -> int:
    """The offset at which the text begins once our name and what follows it are off."""
    for entity in entities:
        if entity.offset == 0 and _is_our_name(units, entity, me):
            found = _AFTER_NAME.match(units.piece(entity.length))
            # White space and punctuation here are one unit each.
            return entity.length + (len(found[0]) if found else 0)
    return 0


def _command(
    units: Utf16Text, start: int, entities: Sequence[MessageEntity], me: TelegramBotUser, *, direct: bool
) -> str | None:
    """The comma command that the text is, if it is one for us."""
    for entity in entities:
        if entity.type != MessageEntity.BOT_COMMAND or entity.offset != start:
            continue
        name, _, bot = units.piece(start, entity.length).removeprefix("/").lower().partition("@")
        # In a group other bots have commands, too: those without a name are ours where we know them.
        ours = bot == me.username.lower() if bot else direct or name in me.commands
        if ours and name:
            rest = units.piece(start + entity.length).strip()
            return f",{_ALIASES[name]}" if name in _ALIASES else f",{name} {rest}".rstrip()
    return None
