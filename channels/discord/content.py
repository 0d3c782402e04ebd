"""The parts of a Discord message besides its text: files as attachments, the rest as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from bubbot.formatting import clean_label
from bubbot.ports.channel import Attachment, AttachmentKind
from channels.discord.rich_content import component_texts, embed_texts, uploaded_media, write_note
from channels.platform.json_values import (
    Raw,
    find_object,
    require_object,
    require_objects,
    require_text,
)

VOICE_MESSAGE_FLAG = 1 << 13
"""The message flag of a voice message."""
_KINDS: dict[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}
_ACTIVITIES: dict[object, str] = {
    1: "invitation to join",
    2: "invitation to watch",
    3: "invitation to listen to",
    5: "wish to join",
}
"""Types of activities, whose name is that of the application."""
_PROGRAM_FIELDS = frozenset({"embeds", "components", "interaction", "interaction_metadata"})
"""Fields that only programs write."""


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
    files = [*require_objects(message.get("attachments")), *_shown_files(message)]
    return tuple(_read_file(file, channel_id, message_id, voice=voice) for file in files)


def _shown_files(message: Raw) -> Iterator[Raw]:
    """Yield the files that only the components of a message name, in the form of its attachments."""
    listed = {file.get("id") for file in require_objects(message.get("attachments"))}
    for medium, name in uploaded_media(message.get("components")):
        number, url = str(medium.get("attachment_id")), require_text(medium.get("url"))
        if number not in listed:
            listed.add(number)
            yield {**medium, "id": number, "filename": name or unquote(PurePosixPath(urlsplit(url).path).name)}


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
    """Describe what people see of a message besides its text and its files; with `include_embeds` also the embeds."""
    return "\n".join(_describe(message, embeds=include_embeds))


def leave_out_program_fields(message: Raw) -> Raw:
    """Return a message of the bot without its embeds, its buttons and the command that it answers, which are on the tape."""
    return {name: value for name, value in message.items() if name not in _PROGRAM_FIELDS}


def _describe(message: Raw, *, embeds: bool) -> Iterator[str]:
    for sticker in require_objects(message.get("sticker_items") or message.get("stickers")):
        yield write_note("sticker", require_text(sticker.get("name")))
    if poll := find_object(message, "poll"):
        yield _describe_poll(poll)
    if activity := find_object(message, "activity"):
        words = _ACTIVITIES.get(activity.get("type"), "invitation to")
        yield write_note(words, _name(message.get("application")) or "an activity")
    if message.get("call"):
        yield "[call]"
    if subscription := find_object(message, "role_subscription_data"):
        yield write_note("subscription", require_text(subscription.get("tier_name")))
    if purchase := find_object(message, "purchase_notification"):
        product = find_object(purchase, "guild_product_purchase") or {}
        yield write_note("purchase", require_text(product.get("product_name")))
    if theme := find_object(message, "shared_client_theme"):
        yield write_note("theme for Discord", ", ".join(map(require_text, theme.get("colors") or [])))
    yield from component_texts(message.get("components"))
    if embeds:
        for embed in require_objects(message.get("embeds")):
            yield from embed_texts(embed)


def _describe_poll(poll: Raw) -> str:
    results = find_object(poll, "results") or {}
    votes = {count.get("id"): count.get("count") for count in require_objects(results.get("answer_counts"))}
    lines = [write_note("poll", _poll_text(poll.get("question")))]
    for answer in require_objects(poll.get("answers")):
        count = votes.get(answer.get("answer_id"))
        counted = f" ({count})" if isinstance(count, int) and count else ""
        lines.append(f"- {clean_label(_poll_text(answer.get('poll_media')))}{counted}")
    return "\n".join(lines)


def _poll_text(value: object) -> str:
    media = {} if value is None else require_object(value)
    emoji = find_object(media, "emoji") or {}
    return f"{require_text(emoji.get('name'))} {require_text(media.get('text'))}".strip()


def describe_command(message: Raw) -> str:
    """Return the line above an answer to a slash command, which says who used which; empty if it is none."""
    used = find_object(message, "interaction") or find_object(message, "interaction_metadata")
    if used is None:
        return ""
    user, name = find_object(used, "user") or {}, require_text(used.get("name"))
    person = require_text(user.get("global_name")) or require_text(user.get("username"))
    return write_note("answer to", f"{f'/{name}' if name else 'a command'} of {person or 'somebody'}")


def _name(value: object) -> str:
    return require_text(value.get("name")) if isinstance(value, dict) else ""
