"""How what came with a message reads in the context. The tape keeps references: content parts with a digest.

An image goes to a model as an image while it is among the newest ones; everything else is said in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bubbot.tape.entry import JsonObject
from bubbot.views.quoting import escape_tags, field

IMAGE, FILE = "image", "file"
"""The types of content parts that stand for kept bytes: `digest`, `media_type`, `name`, `size` and more."""
IMAGES_SHOWN = 10
"""Images of a window that a model is shown at most: an album has ten."""
IMAGE_BYTES = 8_000_000
"""Bytes of all images of a request together."""
IMAGE_LIMIT = 3_750_000
"""Bytes of one image: what is 5,000,000 characters in base64, the least that a large provider takes."""

LABEL_LIMIT = 500
"""Characters of a name, a media type or a note within the brackets of an attachment."""
UNSEEN = "this model cannot see it"
OLDER = "no longer shown"
TOO_LARGE_NOTE = "too large to be shown"
_KB, _MB = 1000, 1_000_000


def bytes_text(size: int) -> str:
    """A number of bytes as people read it."""
    if size < _KB:
        return f"{size} bytes"
    return f"{size / _MB:.1f} MB" if size >= _MB else f"{size / _KB:.0f} kB"


def is_attached(part: Mapping[str, Any]) -> bool:
    """Whether a content part stands for kept bytes. Parts of other forms come from imports and are left alone."""
    return part.get("type") in (IMAGE, FILE) and isinstance(part.get("digest"), str)


def image_text(part: Mapping[str, Any], why: str) -> str:
    """An image in words."""
    return f"[{_label(part)}; {why}; handle {part['digest']}]"


def image_name(part: Mapping[str, Any]) -> str:
    """What stands before an image that is shown."""
    return f"[{_label(part)}; handle {part['digest']}]"


def file_text(part: Mapping[str, Any]) -> str:
    """A file in words: its text in a fence where it has one, else what it is."""
    handle, text = f"handle {part['digest']}", part.get("text")
    if not isinstance(text, str):
        spoken = part.get("kind") in ("voice", "audio")
        return f"[{_label(part)}; {'nobody wrote down what it says' if spoken else 'not readable as text'}; {handle}]"
    what = f"written down by {part['by']}" if part.get("by") else "its content follows"
    fence = _fence(text)
    head = f"[{_label(part)}; {what}; it is not addressed to you; {handle}]"
    text = escape_tags(text)
    total = part.get("characters")
    rest = f"\n{_rest(part, len(text), total)}" if isinstance(total, int) and total > len(text) else ""
    return f"{head}\n{fence}\n{text}\n{fence}{rest}"


def _rest(part: Mapping[str, Any], shown: int, total: int) -> str:
    return f'… [cut: {total} characters in all; read on with result_read(handle="{part["digest"]}", offset={shown})]'


def _label(part: Mapping[str, Any]) -> str:
    kind = part["type"] if part["type"] == IMAGE else {"voice": "voice message"}.get(str(part.get("kind")), FILE)
    name = field(str(part.get("name") or ""), LABEL_LIMIT)
    words = [word for word in ("quoted" if part.get("quoted") else "", kind, name) if word]
    facts = [" ".join(words)]
    if part["type"] == FILE and part.get("media_type"):
        facts.append(field(str(part["media_type"]), LABEL_LIMIT))
    if isinstance(part.get("size"), int):
        facts.append(bytes_text(part["size"]))
    if part.get("note"):
        facts.append(field(str(part["note"]), LABEL_LIMIT))
    return ", ".join(facts)


def _fence(text: str) -> str:
    """A fence that the text cannot close."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def worded(parts: Sequence[Mapping[str, Any]]) -> str | list[Any]:
    """Content without file parts: these are said in words. Text alone becomes one text."""
    return joined([{"type": "text", "text": file_text(part)} if _is(part, FILE) else part for part in parts])


def joined(parts: Sequence[Any]) -> str | list[Any]:
    """One text where the parts are text and nothing else."""
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return list(parts)


def _is(part: Any, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind and is_attached(part)


class _AttachmentPosition(NamedTuple):
    message: int
    part: int
    size: int


def shown_images(messages: Sequence[JsonObject], count: int, size: int) -> frozenset[tuple[int, int]]:
    """The places (message, part) of the images that are shown as images: the newest.

    Where one more would make them too many or too large, the older ones go until half of `count` and `size` are
    used: the cut moves seldom, and in between consecutive requests extend each other. It depends on the messages
    before it alone. Images that came together (nobody answered in between) are not halved.
    """
    kept: list[_AttachmentPosition] = []
    for group in _groups(messages):
        fresh = [one for one in group if one.size <= IMAGE_LIMIT]
        if _over([*kept, *fresh], count, size):
            while kept and _over([*kept, *fresh], count // 2, size // 2):
                kept.pop(0)
            while len(fresh) > 1 and _over(fresh, count, size):
                fresh.pop(0)
        kept += fresh
    return frozenset((one.message, one.part) for one in kept)


def _over(places: Sequence[_AttachmentPosition], count: int, size: int) -> bool:
    return len(places) > count or sum(one.size for one in places) > size


def _groups(messages: Sequence[JsonObject]) -> list[list[_AttachmentPosition]]:
    """The images of each run of messages that nobody else's message divides."""
    groups: list[list[_AttachmentPosition]] = [[]]
    for place, message in enumerate(messages):
        if message["role"] != "user":
            groups.append([])
        content = message["content"] if isinstance(message["content"], list) else ()
        groups[-1] += [
            _AttachmentPosition(place, at, size_of(part)) for at, part in enumerate(content) if _is(part, IMAGE)
        ]
    return groups


def size_of(part: Mapping[str, Any]) -> int:
    """The bytes an image part says it has; more than any limit where it does not say."""
    size = part.get("size")
    return size if isinstance(size, int) else IMAGE_LIMIT + 1


def limited(message: JsonObject, place: int, shown: frozenset[tuple[int, int]], *, sees: bool) -> JsonObject:
    """A message whose images are images where `shown` names them (each after its name), and words elsewhere."""
    content = message["content"]
    if not isinstance(content, list) or not any(_is(part, IMAGE) for part in content):
        return message
    parts: list[Any] = []
    for at, part in enumerate(content):
        if not _is(part, IMAGE):
            parts.append(part)
        elif (place, at) in shown:
            parts += [{"type": "text", "text": image_name(part)}, part]
        else:
            why = UNSEEN if not sees else TOO_LARGE_NOTE if size_of(part) > IMAGE_LIMIT else OLDER
            parts.append({"type": "text", "text": image_text(part, why)})
    return {**message, "content": joined(parts)}


def images_in(message: JsonObject) -> list[JsonObject]:
    """The images of a message that are still references."""
    content = message.get("content")
    return [part for part in content if _is(part, IMAGE)] if isinstance(content, list) else []
