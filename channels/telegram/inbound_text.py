"""Parsing of Telegram's texts: entities count UTF-16 units, commands begin with a slash, bots are @mentioned.

Most entities only say how words look: bold, code, a hidden spoiler that a tap opens, a custom emoji, whose text is an
ordinary one. Those that carry something a reader sees, and the text lacks, are written into the text: the address behind
words, the time of a date, what is struck out, what is quoted, and the language above code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct

from channels.platform.json_values import Raw, find_object, require_number, require_text

_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""Separator between the bot's name and the message: "@bot, hello". A remaining comma would make it a command."""
_DOTTED_NAME = re.compile(r"(?:\.[A-Za-z0-9_]+)+(?=\s|$)")
"""The rest of a name that was typed with dots, `/memory.save`: the platform's commands have none, and end before it."""


class TelegramBotUser(Struct, frozen=True):
    """The bot's user on Telegram. `commands` are the names that are ours in a group even without `@`."""

    id: int
    username: str
    commands: Collection[str] = ()


class TelegramText(Struct, frozen=True):
    """A parsed text. `is_addressed`: it is a command for us, or contains our name."""

    text: str
    is_addressed: bool


_LOW_SURROGATES = range(0xDC00, 0xE000)
"""The second halves of characters of two units: nothing begins there."""


class Utf16Text:
    """A text that is sliced by UTF-16 offsets."""

    def __init__(self, text: str) -> None:
        self._units = text.encode("utf-16-le", "surrogatepass")

    def __len__(self) -> int:
        return len(self._units) // 2

    def align(self, offset: int) -> int:
        """Return the offset, within the text and behind a character that it would cut in two."""
        offset = min(max(offset, 0), len(self))
        unit = int.from_bytes(self._units[2 * offset : 2 * offset + 2], "little")
        return offset + 1 if unit in _LOW_SURROGATES else offset

    def slice_units(self, start: int, length: int | None = None) -> str:
        """Return `length` units from `start`; None: all to the end."""
        end = None if length is None else 2 * (start + length)
        return self._units[2 * start : end].decode("utf-16-le", "replace")


def parse_text(text: str, entities: Sequence[Raw], me: TelegramBotUser, *, is_direct: bool) -> TelegramText:
    """Remove our name from the beginning, and write a command for us as `,name arguments`.

    Args:
        entities: the entities of `text`. A text without entities has no command and does not name the bot.
        me: the bot.
        is_direct: the chat is private, so every command is for us.
    """
    if not entities:
        return TelegramText(text, is_addressed=False)
    units = Utf16Text(text)
    called = any(_is_our_name(units, entity, me) for entity in entities)
    start = _skip_our_name(units, entities, me)
    rest = _annotate(units, entities, start)
    command = _read_command(units, start, entities, me, direct=is_direct or start > 0)
    if command is not None:
        return TelegramText(command, is_addressed=True)
    # If the text is only our name, keep it: there is nothing else to show.
    return TelegramText(rest if rest.strip() else text, called)


def annotate_text(text: str, entities: Sequence[Raw], start: int = 0, end: int | None = None) -> str:
    """Return a text, or the part between two offsets, with what its entities show and the text lacks."""
    if not entities:
        return text if not start and end is None else Utf16Text(text).slice_units(start, end and end - start)
    return _annotate(Utf16Text(text), entities, start, end)


_Insertion: TypeAlias = tuple[int, bool, int, str]
"""An insertion: its offset, true at the beginning of an entity, the entity's other end (negated), the inserted text.

Insertions at one offset are sorted as tuples: ends before beginnings, inner ends and outer beginnings first.
"""


def _annotate(units: Utf16Text, entities: Sequence[Raw], start: int, end: int | None = None) -> str:
    start, end = units.align(start), units.align(len(units) if end is None else end)
    insertions: list[_Insertion] = []
    for entity in entities:
        if entity["type"] in _ANNOTATED:
            offset = require_number(entity["offset"])
            first, last = units.align(offset), units.align(offset + require_number(entity["length"]))
            if (first := max(first, start)) < (last := min(last, end)):
                insertions += _insert(units, entity, first, last)
    pieces = []
    for offset, _, _, text in sorted(insertions):
        pieces += [units.slice_units(start, offset - start), text]
        start = offset
    return "".join([*pieces, units.slice_units(start, end - start)])


def _insert(units: Utf16Text, entity: Raw, start: int, end: int) -> Iterator[_Insertion]:
    before, after = "", ""
    match entity["type"]:
        case "text_link":
            address = " ".join(require_text(entity.get("url")).split())
            is_shown = not address or _bare(address) == _bare(units.slice_units(start, end - start))
            after = "" if is_shown else f" ({address})"
        case "date_time":
            if (moment := entity.get("unix_time")) is not None:
                after = f" ({datetime.fromtimestamp(require_number(moment), UTC):%Y-%m-%d %H:%M} UTC)"
        case "strikethrough":
            before = after = "~~"
        case "pre":
            if language := " ".join(require_text(entity.get("language")).split()):
                before, after = f"```{language}\n", "\n```"
        case _:  # a quotation
            lines = units.slice_units(start, end - start).split("\n")
            for line in lines:
                yield start, True, -end, "> "
                start += len(Utf16Text(line)) + 1
            return
    if before:
        yield start, True, -end, before
    if after:
        yield end, False, -start, after


_ANNOTATED = frozenset({"text_link", "date_time", "strikethrough", "pre", "blockquote", "expandable_blockquote"})


def _bare(address: str) -> str:
    return address.strip().removeprefix("https://").removeprefix("http://").removesuffix("/")


def _is_our_name(units: Utf16Text, entity: Raw, me: TelegramBotUser) -> bool:
    if entity["type"] == "text_mention":
        return (find_object(entity, "user") or {}).get("id") == me.id
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
            rest = _annotate(units, entities, end).strip()
            # The button for the first message sends /start, with a word of the link that led here.
            return ",start" if name == "start" else f",{name} {rest}".rstrip()
    return None
