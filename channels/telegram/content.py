"""Content of a Telegram message besides its text: files as attachments, everything else in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from telegram import ExternalReplyInfo, Message, PhotoSize, Sticker

from bubbot.ports.channel import Attachment, AttachmentKind

Content: TypeAlias = Message | ExternalReplyInfo
"""The classes with the same fields for media."""

_FILES: tuple[tuple[str, AttachmentKind, str], ...] = (
    ("animation", "video", "video/mp4"),
    ("audio", "audio", "audio/mpeg"),
    ("document", "file", ""),
    ("video", "video", "video/mp4"),
    ("video_note", "video", "video/mp4"),
    ("voice", "voice", "audio/ogg"),
)
"""Fields with a file: name, kind, and media type if Telegram does not name one."""
_KINDS: dict[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}
_NOTES = {
    "checklist": "checklist",
    "game": "game",
    "giveaway": "giveaway",
    "invoice": "invoice",
    "paid_media": "paid media",
    "story": "story",
}
"""Fields whose content we only name."""


def read_attachments(content: Content) -> tuple[Attachment, ...]:
    """Return the files of a message, in the order of their fields."""
    return tuple(_attachments(content))


def _attachments(content: Content) -> Iterator[Attachment]:
    if content.photo:
        largest = max(content.photo, key=_area)
        yield Attachment(require_text(largest.file_id), "", "image/jpeg", _size(largest), "image")
    if content.sticker and _is_still(content.sticker):
        sticker = content.sticker
        note = f"sticker {sticker.emoji or ''}".strip()
        yield Attachment(require_text(sticker.file_id), "", "image/webp", _size(sticker), "image", note)
    for name, kind, media_type in _FILES:
        file = getattr(content, name)
        # An animation comes a second time as a document, for clients that do not support animations.
        if file and not (name == "document" and content.animation):
            yield _make_attachment(file, kind, media_type)


def _make_attachment(file: Any, kind: AttachmentKind, media_type: str) -> Attachment:
    name = getattr(file, "file_name", None) or getattr(file, "title", None) or ""
    media_type = getattr(file, "mime_type", None) or media_type
    if kind == "file":
        kind = _KINDS.get(require_text(media_type).partition("/")[0], "file")
    return Attachment(require_text(file.file_id), require_text(name), require_text(media_type), _size(file), kind)


def _area(photo: PhotoSize) -> int:
    return photo.width * photo.height


def _is_still(sticker: Sticker) -> bool:
    return not (sticker.is_animated or sticker.is_video)


def _size(file: Any) -> int | None:
    size: int | None = file.file_size
    if size is not None and not isinstance(size, int):
        raise TypeError("the size of a file is not a number")
    return size


def require_text(value: object) -> str:
    """Return the value if it is a text. Raises `TypeError`: the library passes on values of any type."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} was sent instead of a text")
    return value


def describe_content(content: Content) -> str:
    """Describe the content of a message that is neither text nor file; empty if there is none."""
    return "\n".join(_descriptions(content))


def _descriptions(content: Content) -> Iterator[str]:
    if content.sticker and not _is_still(content.sticker):
        yield f"[sticker {content.sticker.emoji or ''}".strip() + "]"
    if venue := content.venue:  # a venue has a location, too
        yield f"[venue {venue.title}, {venue.address}, {venue.location.latitude}, {venue.location.longitude}]"
    elif content.location:
        yield f"[location {content.location.latitude}, {content.location.longitude}]"
    if contact := content.contact:
        name = " ".join(part for part in (contact.first_name, contact.last_name) if part)
        yield f"[contact {name}, {contact.phone_number}]"
    if poll := content.poll:
        yield "\n".join([f"[poll {poll.question}]", *(f"- {option.text}" for option in poll.options)])
    if content.dice:
        yield f"[dice {content.dice.emoji} {content.dice.value}]"
    yield from (f"[{note}]" for name, note in _NOTES.items() if getattr(content, name, None))
