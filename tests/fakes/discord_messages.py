"""Messages of every shape, made from a description of Discord's API, and what a reader of each has to find."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from channels.discord.message_types import SET_ASIDE_TYPES, USER_MESSAGE_TYPES
from tests.fakes.schema_values import SchemaValues

Json = dict[str, Any]
ME, GUILD, ROOM, DIRECT = "900", "5", "50", "60"
IDS = [ME, "7", "8", ROOM, "51", "77"]
UNKNOWN_TYPES = (33, 64, 999)
"""Types that nobody describes, which a later API may have."""
_WORD = re.compile(r"w[0-9]+w")
_SHOWN_OF_COMPONENTS = ("content", "label", "placeholder", "description", "name")


class MessageMaker:
    """Makes messages as the gateway sends them, each with an id of its own.

    Args:
        seed: of all choices.
        resolve: gives a schema by its reference.
        message: the schema of a message.
    """

    def __init__(self, seed: int, resolve: Callable[[str], Json], message: Json) -> None:
        self._values = SchemaValues(seed, resolve, IDS)
        self._message = message
        self._made = 0

    def make(self) -> Json:
        """A message in the server or in the direct conversation."""
        made: Json = self._values.make(self._message)
        random = self._values.random
        self._made += 1
        made |= {"id": str(1_000_000 + self._made), "timestamp": "2026-11-22T10:00:00+00:00"}
        if random.random() < 0.7:
            made["type"] = random.choice(sorted(USER_MESSAGE_TYPES))
        elif random.random() < 0.2:
            made["type"] = random.choice(UNKNOWN_TYPES)
        for name in ("member", "guild_id"):
            made.pop(name, None)
        if random.random() < 0.5:
            made |= {"channel_id": ROOM, "guild_id": GUILD, "channel_type": 0, "member": {"roles": [], "nick": None}}
        else:
            made |= {"channel_id": DIRECT, "channel_type": 1}
        return made


def is_direct(message: Json) -> bool:
    """Whether a message is of the direct conversation."""
    return bool(message["channel_id"] == DIRECT)


def may_be_set_aside(message: Json) -> bool:
    """Whether a message may end as nothing: a notice, our own, or one in a server that has nothing and is for nobody."""
    is_own = message["author"]["id"] == ME
    is_unknown = message["type"] not in USER_MESSAGE_TYPES or not set(shown_words(message))
    return is_own or message["type"] in SET_ASIDE_TYPES or (is_unknown and not is_direct(message))


def shown_words(message: Json) -> Iterator[str]:
    """The words of a message that people see on the screen, each of which is nowhere else."""
    is_program = bool(message["author"].get("bot") or message.get("webhook_id"))
    yield from _shown(message, has_embeds=is_program or not (message.get("content") or "").strip())
    replied = message.get("referenced_message")
    if message["type"] == 19 and replied and replied["author"]["id"] != ME:
        yield from _shown(replied, has_embeds=True)


def _shown(message: Json, *, has_embeds: bool) -> Iterator[str]:
    yield from words(message.get("content"))
    for sticker in message.get("sticker_items") or message.get("stickers") or []:
        yield from words(sticker["name"])
    if poll := message.get("poll"):
        yield from words(poll["question"].get("text"))
        for answer in poll["answers"]:
            yield from words(answer["poll_media"].get("text"))
    for file in message.get("attachments") or []:
        yield from words(file["filename"])
    yield from _of_components(message.get("components") or [])
    for embed in message.get("embeds") or [] if has_embeds else []:
        if embed.get("type") != "poll_result":
            yield from _of_embed(embed)
    for snapshot in message.get("message_snapshots") or []:
        yield from _shown(snapshot["message"], has_embeds=True)


def _of_embed(embed: Json) -> Iterator[str]:
    for value in (embed.get("title"), embed.get("description"), *(
        (embed.get(outer) or {}).get(inner) for outer, inner in (("author", "name"), ("provider", "name"), ("footer", "text"))
    )):  # fmt: skip
        yield from words(value)
    for field in embed.get("fields") or []:
        yield from words(field["name"])
        yield from words(field["value"])
    yield from _of_components(embed.get("components") or [])


def _of_components(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _of_components(one)
    elif isinstance(value, dict):
        hidden = {"placeholder"} if value.get("value") else set()  # of an input with text
        if (value.get("file") or {}).get("attachment_id"):
            hidden.add("name")  # it is the name of a file of the message
        for name in _SHOWN_OF_COMPONENTS:
            if name not in hidden and isinstance(value.get(name), str):
                yield from words(value[name])
        for name in ("components", "component", "accessory", "items", "options"):
            yield from _of_components(value.get(name))


def words(text: object) -> list[str]:
    """The words of a text that no other text has."""
    return _WORD.findall(text) if isinstance(text, str) else []
