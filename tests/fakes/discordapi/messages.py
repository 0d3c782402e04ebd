"""What the bot does with messages: it reads, sends, edits and deletes them, and reacts."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from tests.fakes.discordapi import posting, shapes
from tests.fakes.discordapi.asked import Asked, Route
from tests.fakes.discordapi.errors import (
    Json,
    Refusal,
    empty_message,
    form,
    missing_access,
    missing_permissions,
    no_snowflake,
    too_large,
    unknown,
)
from tests.fakes.discordapi.permissions import Permission, may
from tests.fakes.discordapi.world import DEFAULT, DM, FORUM, REPLY, SLASH, Channel, File, Message

LONGEST = "BASE_TYPE_MAX_LENGTH"


def shown(asked: Asked, one: Message) -> Json:
    """A message as an answer."""
    return shapes.message(asked.world, one, content=asked.world.bot.content_intent)


def history(asked: Asked) -> list[Json]:
    """Newest first: those before an id, those closest after one, or those around one."""
    channel = asked.channel()
    limit = asked.number("limit", 50, 1, 100)
    if not may(channel, asked.me, Permission.READ_MESSAGE_HISTORY):
        return []
    there = sorted(number for number, one in channel.messages.items() if not one.ephemeral)
    before, after, around = (asked.snowflake(name) for name in ("before", "after", "around"))
    if around is not None:
        half = limit // 2
        older = [number for number in there if number < around]
        newer = [number for number in there if number >= around]
        there = older[max(0, len(older) - half) :] + newer[: limit - half]
    elif after is not None:
        there = [number for number in there if number > after][:limit]
    elif before is not None:
        there = [number for number in there if number < before]
    return [shown(asked, channel.messages[number]) for number in reversed(there[-limit:])]


def get(asked: Asked) -> Json:
    """One message."""
    channel = asked.channel()
    asked.allowed(channel, Permission.READ_MESSAGE_HISTORY, otherwise=missing_access())
    return shown(asked, asked.message(channel))


def content_of(asked: Asked, given: Json) -> str:
    """The text, without white space around it; too long a one is refused."""
    content = given.get("content")
    if content is None:
        return ""
    if not isinstance(content, str | int | float):
        raise form(("content", "STRING_TYPE_CONVERT", "Could not interpret value as string."))
    limit = asked.site.sizes.text
    if len(str(content)) > limit:
        raise form(("content", LONGEST, f"Must be {limit} or fewer in length."))
    return str(content).strip()


def embeds_of(given: Json) -> list[Json]:
    """The embeds, checked for the lengths that are met in practice."""
    embeds = given.get("embeds") or []
    if not isinstance(embeds, list):
        raise form(("embeds", "LIST_TYPE_CONVERT", "Could not interpret value as list."))
    if len(embeds) > 10:
        raise form(("embeds", LONGEST, "Must be 10 or fewer in length."))
    for place, embed in enumerate(embeds):
        for name, limit in (("title", 256), ("description", 4096)):
            if len(embed.get(name) or "") > limit:
                raise form((f"embeds.{place}.{name}", LONGEST, f"Must be {limit} or fewer in length."))
    if sum(len(embed.get("title") or "") + len(embed.get("description") or "") for embed in embeds) > 6000:
        raise form(("embeds", "MAX_EMBED_SIZE_EXCEEDED", "Embed size exceeds maximum size of 6000"))
    return [{"type": "rich", "content_scan_version": 0, **embed} for embed in embeds]


def files_of(asked: Asked, channel: Channel, given: Json, kept: list[File] | None = None) -> list[File]:
    """The files of a message: those that stay, by id, and those that came, by number."""
    limit = asked.site.sizes.upload
    if any(len(upload.content) > limit for upload in asked.files.values()):
        raise too_large()
    listed = given.get("attachments")
    if listed is None:
        listed = [{"id": number} for number in asked.files]
        stay = list(kept or [])
    else:
        wanted = {str(one.get("id")) for one in listed}
        stay = [file for file in kept or [] if str(file.id) in wanted]
    if len(listed) > 10:
        raise form(("attachments", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 10 in length."))
    files = stay
    for place, one in enumerate(listed):
        number = int(one.get("id", -1))
        if number in asked.files:
            upload = asked.files[number]
            name, words = one.get("filename") or upload.name, one.get("description")
            files.append(posting.store_file(asked.world, channel, name, upload.content, upload.mime, description=words))
        elif number not in {file.id for file in files}:
            raise form((f"attachments.{place}.id", "ATTACHMENT_NOT_FOUND", "The referenced attachment was not found."))
    return files


def mentions_of(given: Json) -> Json | None:
    """`allowed_mentions`; a list of ids and `parse` for the same kind exclude each other."""
    allowed = given.get("allowed_mentions")
    if allowed is None:
        return None
    for kind in ("users", "roles"):
        if kind in allowed.get("parse", []) and allowed.get(kind):
            words = f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.'
            raise form(("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", words))
    return dict(allowed)


def writable(asked: Asked) -> Channel:
    """The channel of the path, if the bot may write there now."""
    channel = asked.channel()
    if channel.kind in (FORUM, 4):
        raise Refusal(400, 50008, "Cannot send messages in a non-text channel")
    if channel.kind == DM and any(one.id in asked.world.blocked or one.is_bot for one in channel.recipients if one.id != asked.me.id):  # fmt: skip
        raise Refusal(403, 50007, "Cannot send messages to this user")
    needed = Permission.SEND_MESSAGES_IN_THREADS if channel.is_thread else Permission.SEND_MESSAGES
    asked.allowed(channel, needed, otherwise=missing_permissions())
    if channel.locked and not may(channel, asked.me, Permission.MANAGE_THREADS):
        raise (
            Refusal(400, 50083, "Thread is archived") if channel.archived else Refusal(400, 160005, "Thread is locked")
        )
    return channel


def _reference(asked: Asked, channel: Channel, given: Json) -> tuple[Channel, int] | None:
    reference = given.get("message_reference")
    if not reference:
        return None
    number = str(reference.get("message_id", ""))
    if not number.isdigit():
        raise form(no_snowflake("message_reference.message_id", number))
    if str(reference.get("channel_id") or channel.id) != str(channel.id):
        words = "Cannot reply to a message in a different channel"
        raise form(("message_reference", "MESSAGE_REFERENCE_CHANNEL_MISMATCH", words))
    asked.allowed(
        channel,
        Permission.READ_MESSAGE_HISTORY,
        otherwise=Refusal(403, 160002, "Cannot reply without permission to read message history"),
    )
    answered = channel.messages.get(int(number))
    if answered is None or answered.ephemeral:
        if reference.get("fail_if_not_exists", True):
            raise form(("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message"))
        return None
    if answered.kind not in (DEFAULT, REPLY, SLASH):
        words = "Cannot reply to a system message"
        raise form(("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", words))
    return channel, int(number)


def _nonce(asked: Asked, given: Json) -> tuple[str | None, Message | None]:
    """The nonce, and the message that already has it where it is enforced."""
    value = given.get("nonce")
    if value is None:
        return None, None
    nonce, world = str(value), asked.world
    if len(nonce) > 25:
        raise form(("nonce", LONGEST, "Must be 25 or fewer in length."))
    if given.get("enforce_nonce") is True:
        earlier, end = world.nonces.get((asked.me.id, nonce), (None, 0.0))
        if earlier is not None and end > world.clock.now():
            return nonce, earlier
    return nonce, None


def parts_of(asked: Asked, channel: Channel, given: Json) -> Json:
    """What a new message is made of; one of nothing is refused."""
    content, embeds = content_of(asked, given), embeds_of(given)
    stickers = [{"id": str(one), "name": "sticker", "format_type": 1} for one in given.get("sticker_ids") or []]
    allowed = mentions_of(given)
    files = files_of(asked, channel, given)
    components = given.get("components") or []
    if not (content or embeds or stickers or files or components or given.get("poll")):
        raise empty_message()
    if files and channel.guild is not None:
        asked.allowed(channel, Permission.ATTACH_FILES, otherwise=missing_permissions())
    return {
        "content": content,
        "embeds": embeds,
        "stickers": stickers,
        "files": files,
        "components": components,
        "allowed": allowed,
    }


def create(asked: Asked) -> Json:
    """Sends a message."""
    channel, given = writable(asked), asked.json
    nonce, earlier = _nonce(asked, given)
    if earlier is not None:
        return shown(asked, earlier)
    reference = _reference(asked, channel, given)
    parts = parts_of(asked, channel, given)
    more: dict[str, Any] = {"kind": REPLY, "reference": reference} if reference else {}
    flags = int(given.get("flags") or 0) & (1 << 2 | 1 << 12)
    content = parts.pop("content")
    one = posting.post(asked.world, channel, asked.me, content, nonce=nonce, flags=flags, tts=given.get("tts") is True, **parts, **more)  # fmt: skip
    if nonce is not None:
        asked.world.nonces[asked.me.id, nonce] = (one, asked.world.clock.now() + asked.site.sizes.nonce)
    return shown(asked, one)


def changes_of(asked: Asked, one: Message, given: Json) -> dict[str, Any]:
    """What an edit sets. Nothing may be left of a message only if it was nothing before."""
    changes: dict[str, Any] = {}
    if "content" in given:
        changes["content"] = content_of(asked, given)
    if "embeds" in given:
        changes["embeds"] = embeds_of(given)
    if "components" in given:
        changes["components"] = given["components"] or []
    if "attachments" in given or asked.files:
        changes["files"] = files_of(asked, one.channel, given, one.files)
    if "flags" in given:
        changes["flags"] = one.flags & ~(1 << 2) | int(given["flags"] or 0) & 1 << 2
    left = [changes.get(name, getattr(one, name)) for name in ("content", "embeds", "components", "files")]
    if not any(left) and not one.stickers:
        raise empty_message()
    return changes


def change(asked: Asked) -> Json:
    """Edits a message of the bot."""
    channel = asked.channel()
    one, given = asked.message(channel), asked.json
    if one.author.id != asked.me.id:
        raise Refusal(403, 50005, "Cannot edit a message authored by another user")
    if one.kind not in (DEFAULT, REPLY, SLASH):
        raise Refusal(403, 50021, "Cannot execute action on a system message")
    if channel.archived:
        raise Refusal(400, 50083, "Thread is archived")
    posting.edit(asked.world, one, allowed=mentions_of(given), **changes_of(asked, one, given))
    return shown(asked, one)


def remove(asked: Asked) -> None:
    """Deletes a message: an own one, or with the permission that of another."""
    channel = asked.channel()
    one = asked.message(channel)
    if one.author.id != asked.me.id:
        if channel.kind == DM:
            raise Refusal(403, 50003, "Cannot execute action on a DM channel")
        asked.allowed(channel, Permission.MANAGE_MESSAGES, otherwise=missing_permissions())
    posting.delete(asked.world, channel, [one.id])


def remove_many(asked: Asked) -> None:
    """Deletes 2 to 100 messages of a guild at once."""
    channel = asked.channel()
    if channel.kind == DM:
        raise Refusal(403, 50003, "Cannot execute action on a DM channel")
    asked.allowed(channel, Permission.MANAGE_MESSAGES, otherwise=missing_permissions())
    given = asked.json.get("messages", [])
    if not 2 <= len(given) <= 100:
        raise Refusal(400, 50016, "Provided too few or too many messages to delete. Must provide at least 2 and fewer than 100 messages to delete")  # fmt: skip
    posting.delete(asked.world, channel, [int(one) for one in given if int(one) in channel.messages], bulk=True)


def _emoji(asked: Asked) -> str:
    emoji = unquote(asked.path["emoji"])
    name, colon, number = emoji.partition(":")
    if emoji.isascii() and not (colon and number.isdigit() and name) and emoji not in "*#0123456789":
        raise unknown("emoji")
    return emoji


def react(asked: Asked) -> None:
    """Adds a reaction of the bot."""
    channel = asked.channel()
    one, emoji = asked.message(channel), _emoji(asked)
    asked.allowed(channel, Permission.READ_MESSAGE_HISTORY, otherwise=missing_access())
    if emoji not in one.reactions:
        asked.allowed(channel, Permission.ADD_REACTIONS, otherwise=missing_permissions())
    if channel.archived:
        raise Refusal(400, 50083, "Thread is archived")
    if emoji not in one.reactions and len(one.reactions) >= 20:
        raise Refusal(403, 30010, "Maximum number of reactions reached (20)")
    posting.react(asked.world, one, asked.me, emoji)


def unreact(asked: Asked) -> None:
    """Takes the bot's own reaction back; one that is not there is no error."""
    channel = asked.channel()
    posting.unreact(asked.world, asked.message(channel), asked.me, _emoji(asked))


def unreact_of(asked: Asked) -> None:
    """Takes the reaction of somebody else away."""
    channel = asked.channel()
    one, emoji, user = asked.message(channel), _emoji(asked), asked.world.users.get(asked.id("user"))
    if user is None:
        raise unknown("user")
    if channel.kind == DM:
        raise Refusal(403, 50003, "Cannot execute action on a DM channel")
    asked.allowed(channel, Permission.MANAGE_MESSAGES, otherwise=missing_permissions())
    posting.unreact(asked.world, one, user, emoji)


def reactions(asked: Asked) -> list[Json]:
    """Who reacted with an emoji, by id."""
    one, limit, after = asked.message(asked.channel()), asked.number("limit", 25, 1, 100), asked.snowflake("after") or 0
    there = sorted(number for number in one.reactions.get(_emoji(asked), []) if number > after)
    return [shapes.user(asked.world.users[number]) for number in there[:limit]]


def typing(asked: Asked) -> None:
    """Shows that the bot types."""
    posting.typing(asked.world, writable(asked), asked.me)


_ONE = "/channels/{channel}/messages/{message}"
MESSAGES: dict[str, Route] = {
    "GET /channels/{channel}/messages": history,
    f"GET {_ONE}": get,
    "POST /channels/{channel}/messages": create,
    "POST /channels/{channel}/messages/bulk-delete": remove_many,
    f"PATCH {_ONE}": change,
    f"DELETE {_ONE}": remove,
    f"GET {_ONE}/reactions/{{emoji}}": reactions,
    f"PUT {_ONE}/reactions/{{emoji}}/@me": react,
    f"DELETE {_ONE}/reactions/{{emoji}}/@me": unreact,
    f"DELETE {_ONE}/reactions/{{emoji}}/{{user}}": unreact_of,
    "POST /channels/{channel}/typing": typing,
}
