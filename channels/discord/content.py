"""The parts of a Discord message besides its text: files as attachments, the rest as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bubbot.ports.channel import Attachment, AttachmentKind
from channels.platform.json_values import Raw, require_objects, require_text

VOICE_MESSAGE_FLAG = 1 << 13
"""The message flag of a voice message."""
_KINDS: dict[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}


def require_id(value: object) -> str:
    """Return the value if it is an id. Raise `TypeError` otherwise."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return value
    raise TypeError(f"a {type(value).__name__} was sent instead of an id")


def is_voice(message: Raw) -> bool:
    """Return true for a voice message."""
    flags = message.get("flags")
    return isinstance(flags, int) and bool(flags & VOICE_MESSAGE_FLAG)


def read_attachments(message: Raw, channel_id: str, message_id: str) -> tuple[Attachment, ...]:
    """Return the files of a message. Their URLs expire after a day; the reference allows fetching new ones."""
    voice = is_voice(message)
    return tuple(
        _read_file(file, channel_id, message_id, voice=voice) for file in require_objects(message.get("attachments"))
    )


def _read_file(file: Raw, channel: str, message: str, *, voice: bool) -> Attachment:
    media_type = require_text(file.get("content_type"))
    kind = _KINDS.get(media_type.partition("/")[0], "file")
    if voice and kind == "audio":
        kind = "voice"
    reference = {
        "url": require_text(file.get("url")), "channel": channel, "message": message, "id": require_id(file.get("id")),
    }  # fmt: skip
    size, seconds = file.get("size"), file.get("duration_secs")
    length = f"{round(seconds)} s" if isinstance(seconds, int | float) and 0.5 <= seconds < 10**6 else ""
    return Attachment(
        json.dumps(reference, separators=(",", ":")),
        require_text(file.get("filename")),
        media_type.partition(";")[0].strip(),
        size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        kind,
        require_text(file.get("description")) or length,
    )


def describe_extras(message: Raw, *, include_embeds: bool = False) -> str:
    """Describe stickers and polls as text; with `include_embeds` also the embeds, which only programs write."""
    return "\n".join(_describe(message, embeds=include_embeds))


def _describe(message: Raw, *, embeds: bool) -> Iterator[str]:
    for sticker in require_objects(message.get("sticker_items")):
        yield f"[sticker {require_text(sticker.get('name'))}]"
    poll = message.get("poll")
    if isinstance(poll, dict):
        question = _poll_text(poll.get("question"))
        answers = [f"- {_poll_text(answer.get('poll_media'))}" for answer in require_objects(poll.get("answers"))]
        yield "\n".join([f"[poll {question}]", *answers])
    if embeds:
        for embed in require_objects(message.get("embeds")):
            yield from _embed_texts(embed)


def _poll_text(media: object) -> str:
    return require_text(media.get("text")) if isinstance(media, dict) else ""


def _embed_texts(embed: Raw) -> Iterator[str]:
    parts = [embed.get("title"), embed.get("description")]
    for field in require_objects(embed.get("fields")):
        parts += [field.get("name"), field.get("value")]
    yield from (text for part in parts if (text := require_text(part)))
