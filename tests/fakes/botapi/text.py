"""Texts and their entities. Offsets and lengths count UTF-16 code units, as everywhere in the Bot API."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.fakes.botapi.errors import Json, bad

TEXT_LIMIT, CAPTION_LIMIT = 4096, 1024
"""Units after the markup was parsed. The documentation says characters; we count UTF-16 units, which is never less."""

KINDS = frozenset(
    [
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
    ]
)
_FOUND = (
    (
        "url",
        re.compile(r"(?:https?://|www\.)[^\s<>\"'`]*[^\s<>\"'`.,;:!?)]|\b[\w-]+\.(?:com|org|net|dev)\b(?:/[^\s]*)?"),
    ),
    ("email", re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")),
    ("mention", re.compile(r"(?<![\w@])@[A-Za-z]\w{2,31}\b")),
    ("bot_command", re.compile(r"(?<![\w/@])/[A-Za-z0-9_]{1,64}(?:@\w{3,32})?(?![\w/])")),
    ("hashtag", re.compile(r"(?<![\w#])#\w*[^\W\d]\w*")),
)
_ALONE = ("code", "pre")
_QUOTES = ("blockquote", "expandable_blockquote")


def units(text: str) -> int:
    """How long a text is, in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def piece(text: str, entity: Json) -> str:
    """What an entity covers."""
    coded = text.encode("utf-16-le", "surrogatepass")
    start = entity["offset"] * 2
    return coded[start : start + entity["length"] * 2].decode("utf-16-le", "surrogatepass")


def words_of(message: Json) -> str:
    """The text of a message, or its caption; empty where it has neither."""
    return str(message.get("text") or message.get("caption") or "")


def find(text: str, taken: Iterable[Json] = ()) -> list[Json]:
    """The entities that the platform finds itself, not within what is marked already as code, a link or a mention."""
    closed = [one for one in taken if one["type"] in {*_ALONE, "text_link", "text_mention"}]
    found: list[Json] = []
    for kind, pattern in _FOUND:
        for match in pattern.finditer(text):
            new = {"offset": units(text[: match.start()]), "length": units(match[0]), "type": kind}
            if not any(_touch(new, one) for one in [*closed, *found]):
                found.append(new)
    return in_order([*taken, *found])


def in_order(entities: Iterable[Json]) -> list[Json]:
    """As the server lists them: by offset, the outer one first."""
    return sorted(entities, key=lambda one: (one["offset"], -one["length"]))


def _touch(one: Json, other: Json) -> bool:
    return bool(one["offset"] < other["offset"] + other["length"] and other["offset"] < one["offset"] + one["length"])


def strip(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    """Without white space at both ends, as the platform stores a message; entities are moved and cut with it."""
    inner = text.strip()
    before, whole = units(text[: len(text) - len(text.lstrip())]), units(inner)
    kept = []
    for one in entities:
        start = max(one["offset"] - before, 0)
        end = min(one["offset"] + one["length"] - before, whole)
        if end > start:
            kept.append({**one, "offset": start, "length": end - start})
    return inner, kept


def check(text: str, entities: object) -> list[Json]:
    """Entities that a client sent.

    The real server repairs entities that overlap in part, and drops empty ones. Here overlaps are refused, so that
    a bot never leans on the repair.
    """
    if not isinstance(entities, list):
        raise bad("can't parse entities: expected an Array of MessageEntity")
    checked = [_one(text, entity) for entity in entities]
    _nesting(checked)
    return [one for one in checked if one["length"] > 0]


def _one(text: str, entity: object) -> Json:
    if not isinstance(entity, dict):
        raise bad("can't parse MessageEntity: expected an Object")
    kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
    if not isinstance(offset, int) or not isinstance(length, int):
        raise bad('can\'t parse MessageEntity: field "offset" and "length" must be of type Number')
    if kind not in KINDS:
        raise bad("can't parse MessageEntity: unsupported type of an entity")
    if offset < 0 or length < 0:
        raise bad("can't parse MessageEntity: negative offset or length")
    if offset + length > units(text):
        raise bad(
            f"entity beginning at UTF-16 offset {offset} ends after the end of the text at UTF-16 offset {units(text)}"
        )
    for place in (offset, offset + length):
        _between_symbols(text, offset, place)
    if kind == "text_link" and not entity.get("url"):
        raise bad("can't parse MessageEntity: can't find field \"url\"")
    return dict(entity)


def _between_symbols(text: str, offset: int, place: int) -> None:
    try:
        text.encode("utf-16-le", "surrogatepass")[: place * 2].decode("utf-16-le")
    except UnicodeDecodeError as error:
        where = "begins" if place == offset else "ends"
        raise bad(f"entity beginning at UTF-16 offset {offset} {where} in a middle of a UTF-16 symbol") from error


def _nesting(entities: list[Json]) -> None:
    for place, one in enumerate(entities):
        for other in entities[place + 1 :]:
            if not _touch(one, other):
                continue
            inner, outer = sorted((one, other), key=lambda entity: entity["length"])
            inside = outer["offset"] <= inner["offset"] and (
                inner["offset"] + inner["length"] <= outer["offset"] + outer["length"]
            )
            alone = any(entity["type"] in _ALONE for entity in (one, other))
            quotes = all(entity["type"] in _QUOTES for entity in (one, other))
            if not inside or alone or quotes:
                raise bad(
                    f"can't parse entities: {one['type']} and {other['type']} can't be nested at offset {one['offset']}"
                )
