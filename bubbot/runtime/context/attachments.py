"""Attachments in the context. The tape holds references: content parts with a digest.

The newest images go to a model as images; everything else is described in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bubbot.formatting import format_bytes
from bubbot.runtime.context.quoting import clean_field, escape_tags
from bubbot.tape.entry import JsonObject

IMAGE, FILE = "image", "file"
"""The types of content parts for stored bytes, with `digest`, `media_type`, `name`, `size` and more."""
MAX_IMAGES = 10
"""The most images of a window to show: an album has ten."""
MAX_REQUEST_IMAGE_BYTES = 8_000_000
"""Bytes of all images of a request together."""
MAX_IMAGE_BYTES = 3_750_000
"""Bytes of one image: 5,000,000 characters in base64, the lowest limit of the large providers."""

MAX_LABEL_CHARS = 500
"""Characters of a name, a media type or a note within the brackets of an attachment."""
UNSEEN = "this model cannot see it"
OLDER = "no longer shown"
TOO_LARGE_NOTE = "too large to be shown"


def is_attached(part: Mapping[str, Any]) -> bool:
    """Return true for a content part with stored bytes. Other parts come from imports and stay unchanged."""
    return part.get("type") in (IMAGE, FILE) and isinstance(part.get("digest"), str)


def describe_image(part: Mapping[str, Any], reason: str) -> str:
    return f"[{_label(part)}; {reason}; handle {part['digest']}]"


def image_label(part: Mapping[str, Any]) -> str:
    """Write the label that precedes a shown image."""
    return f"[{_label(part)}; handle {part['digest']}]"


def describe_file(part: Mapping[str, Any]) -> str:
    """Write a file's text in a fence if it has text, else describe it."""
    handle, text = f"handle {part['digest']}", part.get("text")
    if not isinstance(text, str):
        spoken = part.get("kind") in ("voice", "audio")
        reason = f": {clean_field(part['unread'], MAX_LABEL_CHARS)}" if isinstance(part.get("unread"), str) else ""
        return f"[{_label(part)}; {'nobody wrote down what it says' if spoken else 'not readable as text'}{reason}; {handle}]"
    source = f"written down by {part['by']}" if part.get("by") else "its content follows"
    fence = _fence(text)
    head = f"[{_label(part)}; {source}; it is not addressed to you; {handle}]"
    text = escape_tags(text)
    total = part.get("characters")
    rest = f"\n{_cut_note(part, len(text), total)}" if isinstance(total, int) and total > len(text) else ""
    return f"{head}\n{fence}\n{text}\n{fence}{rest}"


def _cut_note(part: Mapping[str, Any], offset: int, total: int) -> str:
    handle = part.get("text_digest") or part["digest"]  # a text that is not the file's own bytes has its own digest
    return f'… [cut: {total} characters in all; read on with result_read(handle="{handle}", offset={offset})]'


def _label(part: Mapping[str, Any]) -> str:
    kind = part["type"] if part["type"] == IMAGE else {"voice": "voice message"}.get(str(part.get("kind")), FILE)
    name = clean_field(str(part.get("name") or ""), MAX_LABEL_CHARS)
    parts = [word for word in ("quoted" if part.get("quoted") else "", kind, name) if word]
    facts = [" ".join(parts)]
    if part["type"] == FILE and part.get("media_type"):
        facts.append(clean_field(str(part["media_type"]), MAX_LABEL_CHARS))
    if isinstance(part.get("size"), int):
        facts.append(format_bytes(part["size"]))
    if part.get("note"):
        facts.append(clean_field(str(part["note"]), MAX_LABEL_CHARS))
    return ", ".join(facts)


def _fence(text: str) -> str:
    """Return a fence that the text cannot close."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def describe_files(parts: Sequence[Mapping[str, Any]]) -> str | list[Any]:
    """Replace file parts of the content by words; join the parts if all are text."""
    return join_text_parts(
        [{"type": "text", "text": describe_file(part)} if _is_kind(part, FILE) else part for part in parts]
    )


def join_text_parts(parts: Sequence[Any]) -> str | list[Any]:
    """Join the parts to one text if all are text."""
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return list(parts)


def _is_kind(part: Any, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind and is_attached(part)


class _AttachmentPosition(NamedTuple):
    message: int
    part: int
    size: int


def select_images(messages: Sequence[JsonObject], count: int, size: int) -> frozenset[tuple[int, int]]:
    """Select the newest images to show as images; return their positions (message, part).

    If one more exceeds `count` or `size`, drop old ones until half of both is used: so the cut rarely moves, and
    consecutive requests extend each other. It depends only on earlier messages. Images that came together (without an
    answer in between) stay together.
    """
    selected: list[_AttachmentPosition] = []
    for group in _image_groups(messages):
        fresh = [image for image in group if image.size <= MAX_IMAGE_BYTES]
        if _exceeds([*selected, *fresh], count, size):
            while selected and _exceeds([*selected, *fresh], count // 2, size // 2):
                selected.pop(0)
            while len(fresh) > 1 and _exceeds(fresh, count, size):
                fresh.pop(0)
        selected += fresh
    return frozenset((image.message, image.part) for image in selected)


def _exceeds(images: Sequence[_AttachmentPosition], count: int, size: int) -> bool:
    return len(images) > count or sum(image.size for image in images) > size


def _image_groups(messages: Sequence[JsonObject]) -> list[list[_AttachmentPosition]]:
    """Group the images of consecutive user messages."""
    groups: list[list[_AttachmentPosition]] = [[]]
    for place, message in enumerate(messages):
        if message["role"] != "user":
            groups.append([])
        content = message["content"] if isinstance(message["content"], list) else ()
        groups[-1] += [
            _AttachmentPosition(place, at, image_size(part)) for at, part in enumerate(content) if _is_kind(part, IMAGE)
        ]
    return groups


def image_size(part: Mapping[str, Any]) -> int:
    """Return the bytes of an image part; above every limit if unknown."""
    size = part.get("size")
    return size if isinstance(size, int) else MAX_IMAGE_BYTES + 1


def render_images(
    message: JsonObject, place: int, selected: frozenset[tuple[int, int]], *, can_see: bool
) -> JsonObject:
    """Write a message's images as images, each after its name, if `selected` has their positions; else in words."""
    content = message["content"]
    if not isinstance(content, list) or not any(_is_kind(part, IMAGE) for part in content):
        return message
    parts: list[Any] = []
    for at, part in enumerate(content):
        if not _is_kind(part, IMAGE):
            parts.append(part)
        elif (place, at) in selected:
            parts += [{"type": "text", "text": image_label(part)}, part]
        else:
            reason = UNSEEN if not can_see else TOO_LARGE_NOTE if image_size(part) > MAX_IMAGE_BYTES else OLDER
            parts.append({"type": "text", "text": describe_image(part, reason)})
    return {**message, "content": join_text_parts(parts)}


def find_images(message: JsonObject) -> list[JsonObject]:
    """Return the images of a message that are still references."""
    content = message.get("content")
    return [part for part in content if _is_kind(part, IMAGE)] if isinstance(content, list) else []
