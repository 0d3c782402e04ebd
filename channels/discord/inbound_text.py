"""Texts from Discord, in which people, roles, channels, emoji, commands and times are tags in angle brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from msgspec import Struct

from channels.platform.labels import clean_note_name

_TAG = re.compile(
    r"<(?P<kind>@!?|@&|#|a?:[A-Za-z0-9_]{1,64}:)(?P<id>[0-9]{1,20})>"
    r"|<t:(?P<time>-?[0-9]{1,13})(?::[A-Za-z])?>"
    r"|</(?P<command>[\w-]{1,32}(?: [\w-]{1,32}){0,2}):[0-9]{1,20}>"
    r"|<id:(?P<page>customize|browse|guide|home|linked-roles)(?::[0-9]{1,20})?>"
)
_PAGES = {
    "customize": "Channels & Roles", "browse": "Browse Channels", "guide": "Server Guide", "home": "Server Guide",
    "linked-roles": "Linked Roles",
}  # fmt: skip
"""Pages of a server that a text can lead to, as clients call them."""
_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""Punctuation after the bot's name, as in "@bot, hello". A leading comma would make the text a command."""


_TYPED_COMMAND = re.compile(r"\s*/([A-Za-z0-9_.]{1,32})(?=\s|$)")


class DiscordBotUser(Struct, frozen=True):
    """The bot's account on Discord.

    Attributes:
        roles: the roles that Discord created for it, one in each server.
        commands: the names of its commands, also of those that are no slash commands: people may type them.
    """

    id: str
    name: str
    roles: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


class DiscordText(Struct, frozen=True):
    """A readable text. `has_mention`: it mentions the bot."""

    text: str
    has_mention: bool


class MentionNames(Struct, frozen=True):
    """Names of people, channels and roles by id, and the time zone of the times in a text."""

    people: Mapping[str, str]
    channels: Mapping[str, str]
    roles: Mapping[str, str]
    zone: tzinfo = UTC


def read_text(text: str, bot_user: DiscordBotUser, names: MentionNames) -> DiscordText:
    """Remove the bot's name from the beginning of a text, and replace tags with what people see."""
    called = has_mention(text, bot_user)
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


def has_mention(text: str, bot_user: DiscordBotUser) -> bool:
    """Return true if a text mentions the bot."""
    return any(_is_me(tag, bot_user) for tag in _TAG.finditer(text))


def replace_tags(text: str, bot_user: DiscordBotUser, names: MentionNames) -> str:
    """Replace the tags in a text with what people see: names and times."""
    return _TAG.sub(lambda tag: _shown(tag, bot_user, names), text)


def _is_me(tag: re.Match[str], me: DiscordBotUser) -> bool:
    kind, number = tag["kind"], tag["id"]
    return (kind in ("@", "@!") and number == me.id) or (kind == "@&" and number in me.roles)


def _shown(tag: re.Match[str], me: DiscordBotUser, names: MentionNames) -> str:
    if tag["time"]:
        return _read_time(int(tag["time"]), names.zone) or tag[0]
    if tag["command"]:
        return f"/{tag['command']}"
    if tag["page"]:
        return _PAGES[tag["page"]]
    return f"@{me.name}" if _is_me(tag, me) else _tag_name(tag["kind"], tag["id"], names) or tag[0]


def _read_time(seconds: int, zone: tzinfo) -> str:
    """Return the instant in any style, also in that of a countdown; empty if the calendar has no such time."""
    try:
        time = datetime.fromtimestamp(seconds, zone)
    except (OverflowError, ValueError, OSError):
        return ""
    return time.isoformat(" ", "seconds" if time.second else "minutes")


def _tag_name(kind: str, number: str, names: MentionNames) -> str:
    """Return the name that a tag stands for; empty if it is unknown."""
    if kind in ("@", "@!"):
        name, sign = names.people.get(number), "@"
    elif kind == "@&":
        name, sign = names.roles.get(number), "@"
    elif kind == "#":
        name, sign = names.channels.get(number), "#"
    else:
        return ":" + kind.removeprefix("a").strip(":") + ":"
    return f"{sign}{clean_note_name(name)}" if name else ""
