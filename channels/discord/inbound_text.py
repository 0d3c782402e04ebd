"""Texts as Discord sends them: people, roles, channels and own emoji stand in them as numbers in angle brackets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TAG = re.compile(r"<(@!?|@&|#|a?:\w{1,64}:)(\d{1,20})>", re.ASCII)
_AFTER_NAME = re.compile(r"[,:;]?\s*")
"""What people put between the name they call and what they say: "@bot, hello". A comma would make it a command."""


@dataclass(frozen=True, slots=True)
class DiscordBotUser:
    """The bot as Discord knows it. `roles`: those that Discord made for it, one in each server."""

    id: str
    name: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DiscordText:
    """A text as we take it. `called`: our name is in it."""

    text: str
    called: bool


@dataclass(frozen=True, slots=True)
class MentionNames:
    """What the numbers in a text stand for."""

    people: Mapping[str, str]
    channels: Mapping[str, str]
    roles: Mapping[str, str]


def said(text: str, me: DiscordBotUser, names: MentionNames) -> DiscordText:
    """The text with our name taken from its beginning, and words where numbers stand."""
    called = any(_is_me(one, me) for one in _TAG.finditer(text))
    rest = text.lstrip()
    found = _TAG.match(rest)
    if found and _is_me(found, me):
        rest = rest[found.end() :]
        after = _AFTER_NAME.match(rest)
        rest = rest[after.end() :] if after else rest
    else:
        rest = text
    # Nothing but the name: there is nothing else to show.
    return DiscordText(plain(rest if rest.strip() else text, me, names), called)


def plain(text: str, me: DiscordBotUser, names: MentionNames) -> str:
    """The text with words where numbers stand."""
    return _TAG.sub(lambda one: _word(one, me, names), text)


def _is_me(tag: re.Match[str], me: DiscordBotUser) -> bool:
    kind, number = tag[1], tag[2]
    return (kind in ("@", "@!") and number == me.id) or (kind == "@&" and number in me.roles)


def _word(tag: re.Match[str], me: DiscordBotUser, names: MentionNames) -> str:
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
