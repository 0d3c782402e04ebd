"""Content of a Telegram message besides its text: files as attachments, everything else in words."""

from __future__ import annotations

from collections.abc import Iterator

from bubbot.ports.channel import Attachment, AttachmentKind
from channels.platform.json_values import (
    Raw,
    find_object,
    require_number,
    require_object,
    require_objects,
    require_text,
)

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
_FILE_FIELDS = frozenset({"photo", "sticker", *(name for name, _, _ in _FILES)})
_DESCRIBED_FIELDS = frozenset({"sticker", "venue", "location", "contact", "poll", "dice", *_NOTES})


def read_attachments(content: Raw) -> tuple[Attachment, ...]:
    """Return the files of a message, or of a reply's original, in the order of their fields."""
    return () if _FILE_FIELDS.isdisjoint(content) else tuple(_attachments(content))


def _attachments(content: Raw) -> Iterator[Attachment]:
    if photo := require_objects(content.get("photo")):
        largest = max(photo, key=_area)
        yield Attachment(_file_id(largest), "", "image/jpeg", _size(largest), "image")
    if (sticker := find_object(content, "sticker")) and _is_still(sticker):
        note = f"sticker {require_text(sticker.get('emoji'))}".strip()
        yield Attachment(_file_id(sticker), "", "image/webp", _size(sticker), "image", note)
    for name, kind, media_type in _FILES:
        file = find_object(content, name)
        # An animation comes a second time as a document, for clients that do not support animations.
        if file and not (name == "document" and content.get("animation")):
            yield _make_attachment(file, kind, media_type)


def _make_attachment(file: Raw, kind: AttachmentKind, media_type: str) -> Attachment:
    name = require_text(file.get("file_name") or file.get("title"))
    media_type = require_text(file.get("mime_type")) or media_type
    if kind == "file":
        kind = _KINDS.get(media_type.partition("/")[0], "file")
    seconds = file.get("duration")
    note = f"{seconds} s" if isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0 else ""
    return Attachment(_file_id(file), name, media_type, _size(file), kind, note)


def _file_id(file: Raw) -> str:
    if found := require_text(file["file_id"]):
        return found
    raise ValueError("a file without an id")


def _area(photo: Raw) -> int:
    return require_number(photo["width"]) * require_number(photo["height"])


def _is_still(sticker: Raw) -> bool:
    return not (sticker.get("is_animated") or sticker.get("is_video"))


def _size(file: Raw) -> int | None:
    size = file.get("file_size")
    return None if size is None else require_number(size)


def describe_content(content: Raw) -> str:
    """Describe the content of a message that is neither text nor file; empty if there is none."""
    return "" if _DESCRIBED_FIELDS.isdisjoint(content) else "\n".join(_descriptions(content))


def _descriptions(content: Raw) -> Iterator[str]:
    if (sticker := find_object(content, "sticker")) and not _is_still(sticker):
        yield f"[sticker {require_text(sticker.get('emoji'))}".strip() + "]"
    if venue := find_object(content, "venue"):  # a venue has a location, too
        title, address = require_text(venue["title"]), require_text(venue["address"])
        yield f"[venue {title}, {address}, {_coordinates(require_object(venue['location']))}]"
    elif location := find_object(content, "location"):
        yield f"[location {_coordinates(location)}]"
    if contact := find_object(content, "contact"):
        names = [require_text(contact.get(field)) for field in ("first_name", "last_name")]
        yield f"[contact {' '.join(filter(None, names))}, {require_text(contact['phone_number'])}]"
    if poll := find_object(content, "poll"):
        options = [f"- {require_text(option['text'])}" for option in require_objects(poll["options"])]
        yield "\n".join([f"[poll {require_text(poll['question'])}]", *options])
    if dice := find_object(content, "dice"):
        yield f"[dice {require_text(dice['emoji'])} {require_number(dice['value'])}]"
    yield from (f"[{note}]" for name, note in _NOTES.items() if content.get(name))


def _coordinates(location: Raw) -> str:
    values = location["latitude"], location["longitude"]
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("coordinates that are not numbers")
    return f"{values[0]}, {values[1]}"
