"""Texts from Discord, in which people, roles, channels and custom emoji are ids in angle brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TAG = re.compile(r"<(@!?|@&|#|a?:\w{1,64}:)(\d{1,20})>", re.ASCII)
_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""Punctuation after the bot's name, as in "@bot, hello". A leading comma would make the text a command."""


_TYPED_COMMAND = re.compile(r"\s*/([A-Za-z0-9_.]{1,32})(?=\s|$)")


@dataclass(frozen=True, slots=True)
class DiscordBotUser:
    """The bot's account on Discord.

    Attributes:
        id: of the account.
        name: of the account.
        roles: the roles that Discord created for it, one in each server.
        commands: the names of its commands, also of those that are no slash commands: people may type them.
    """

    id: str
    name: str
    roles: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DiscordText:
    """A readable text. `has_mention`: it mentions the bot."""

    text: str
    has_mention: bool


@dataclass(frozen=True, slots=True)
class MentionNames:
    """Names of people, channels and roles by id."""

    people: Mapping[str, str]
    channels: Mapping[str, str]
    roles: Mapping[str, str]


def read_text(text: str, bot_user: DiscordBotUser, names: MentionNames) -> DiscordText:
    """Remove the bot's name from the beginning of a text, and replace ids with names."""
    called = any(_is_me(tag, bot_user) for tag in _TAG.finditer(text))
    rest = text.lstrip()
    first = _TAG.match(rest)
    if first and _is_me(first, bot_user):
        rest = rest[first.end() :]
        after = _AFTER_NAME.match(rest)
        rest = rest[after.end() :] if after else rest
    else:
        rest = text
    # If the text is only the name, keep the name.
    shown = replace_tags(rest if rest.strip() else text, bot_user, names)
    return DiscordText(_read_command(shown, bot_user), called)


def _read_command(text: str, bot_user: DiscordBotUser) -> str:
    """Translate a command that was typed as `/memory_save …` or `/memory.save …` into the comma form; else return the text."""
    if (found := _TYPED_COMMAND.match(text)) is None:
        return text
    name = found[1].lower().replace(".", "_")
    return f",{name}{text[found.end() :]}" if name in bot_user.commands else text


def replace_tags(text: str, bot_user: DiscordBotUser, names: MentionNames) -> str:
    """Replace the ids in a text with names."""
    return _TAG.sub(lambda tag: _tag_name(tag, bot_user, names), text)


def _is_me(tag: re.Match[str], me: DiscordBotUser) -> bool:
    kind, number = tag[1], tag[2]
    return (kind in ("@", "@!") and number == me.id) or (kind == "@&" and number in me.roles)


def _tag_name(tag: re.Match[str], me: DiscordBotUser, names: MentionNames) -> str:
    kind, number = tag[1], tag[2]
    if _is_me(tag, me):
        return f"@{me.name}"
    if kind in ("@", "@!"):
        name, sign = names.people.get(number), "@"
    elif kind == "@&":
        name, sign = names.roles.get(number), "@"
    elif kind == "#":
        name, sign = names.channels.get(number), "#"
    else:
        return ":" + kind.removeprefix("a").strip(":") + ":"
    return f"{sign}{name}" if name else tag[0]
