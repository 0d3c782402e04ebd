"""Translation of Discord's messages (from the gateway or the REST API) to the port's events. Pure; raises nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from bubbot.ports.channel import FOREIGN_WORDS, OWN_WORDS, Deletion, Edit, Inbound, Quote, Sender, UnparsedUpdate
from bubbot.ports.text import clean_json
from channels.discord.content import describe_extras, read_attachments, require_id
from channels.discord.inbound_text import DiscordBotUser, MentionNames, read_text, replace_tags
from channels.platform.json_values import Raw, require_objects, require_text

DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE = 0, 19, 20, 23
USER_MESSAGE_TYPES = frozenset({DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE})
"""Types of messages that people write; all others are Discord's notices (somebody joined, a message was pinned, a
thread starts with a copy of a message)."""
FORWARD_REFERENCE_TYPE = 1
"""The type of a reference to a forwarded message."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiscordPlace:
    """A chat as the port names it.

    Attributes:
        chat: the id of the channel.
        thread: the id of the thread; empty if it is not one.
        space: the id of the server; empty for direct messages.
        is_direct: true for direct messages.
        title: the name of a thread, which is the title of a forum post.
    """

    chat: str
    thread: str = ""
    space: str = ""
    is_direct: bool = False
    title: str = ""

    @property
    def channel_id(self) -> str:
        """Discord's id of the place: on Discord a thread is a channel."""
        return self.thread or self.chat


@dataclass(frozen=True, slots=True)
class MessageScene:
    """The context needed to read a message.

    Attributes:
        channel: the configured name of the bot's channel.
        bot_user: the bot itself.
        place: the chat that the message is in.
        channel_names: names of channels by id.
        role_names: names of roles by id.
        space_title: the name of the server; empty if unknown.
    """

    channel: str
    bot_user: DiscordBotUser
    place: DiscordPlace
    channel_names: Mapping[str, str] = field(default_factory=dict)
    role_names: Mapping[str, str] = field(default_factory=dict)
    space_title: str = ""


def read_message(scene: MessageScene, raw: Any, roles: tuple[str, ...] = ()) -> Inbound | UnparsedUpdate | None:
    """Read a message; return None for notices, empty messages and the bot's own. `roles`: the sender's, if not in it.

    An unreadable message becomes an `UnparsedUpdate` with its JSON; its id is the same if the message comes again.
    """
    return _read(scene, raw, "m", lambda message: _DiscordMessageReader(scene, message, roles).inbound())


def read_edit(scene: MessageScene, raw: Any, roles: tuple[str, ...] = ()) -> Edit | UnparsedUpdate | None:
    """Read an edit; return None if the content is the same (a link preview was added, the message was pinned)."""
    return _read(scene, raw, "e", lambda message: _DiscordMessageReader(scene, message, roles).edit())


def read_deletion(scene: MessageScene, raw: Any, now: str) -> list[Deletion | UnparsedUpdate]:
    """Return one deletion for each deleted message."""

    def read(event: Raw) -> list[Deletion | UnparsedUpdate]:
        place, values = scene.place, event.get("ids", [event.get("id")])
        if not isinstance(values, list):
            raise TypeError("no list of messages")
        ids = [require_id(value) for value in values]
        return [Deletion(scene.channel, f"d{message}", place.chat, message, now, place.thread) for message in ids]

    result = _read(scene, raw, "d", read)
    return result if isinstance(result, list) else [result]


def author_id_without_roles(place: DiscordPlace, raw: Any) -> str:
    """Return the author's id of a server message without the author's roles; empty for any other message."""
    if not place.space or not isinstance(raw, dict) or isinstance(raw.get("member"), dict) or raw.get("webhook_id"):
        return ""
    author = raw.get("author")
    if not isinstance(author, dict) or author.get("bot"):
        return ""
    number = author.get("id")
    return number if isinstance(number, str) and number.isascii() and number.isdigit() else ""


def unparsed_update(channel: str, chat: str, id_prefix: str, raw: Any, reason: str) -> UnparsedUpdate:
    """Build the `UnparsedUpdate` of unreadable input, with an id from the message's id or else its content.

    Args:
        channel: the configured name of the bot's channel.
        chat: the id of the chat; empty if it is unknown.
        id_prefix: a letter for the kind of event, part of the id.
        raw: the input.
        reason: what is wrong with it.
    """
    content = _bytes(raw)
    number = raw.get("id") if isinstance(raw, dict) else None
    stamp = raw.get("edited_timestamp") if isinstance(raw, dict) and id_prefix == "e" else None
    key = f"{number}:{stamp}" if isinstance(stamp, str) else number
    if not isinstance(number, str) or not re.fullmatch(r"[\w:.+-]{1,80}", str(key), re.ASCII):
        key = hashlib.sha256(content).hexdigest()[:32]
    return UnparsedUpdate(channel, f"u{id_prefix}{key}", chat, content, reason, _sender_id(raw))


def _sender_id(raw: Any) -> str:
    """Return the sender's numeric id; empty if there is none."""
    if not isinstance(raw, dict):
        return ""
    author = raw.get("author")
    number = author.get("id") if isinstance(author, dict) else raw.get("user_id")
    return number if isinstance(number, str) and number.isdecimal() else ""


def read_sender(user: Raw, member: object = None, roles: tuple[str, ...] = ()) -> Sender:
    """Read a user, with nickname and roles from the server's member object. `roles` apply if it has none."""
    profile: Raw = member if isinstance(member, dict) else {}
    ids = profile.get("roles")
    if isinstance(ids, list):
        roles = tuple(require_id(role) for role in ids)
    name = (
        require_text(profile.get("nick")) or require_text(user.get("global_name")) or require_text(user.get("username"))
    )
    # On one line: the name appears inside other people's text.
    return Sender(require_id(user.get("id")), " ".join(name.split()), bool(user.get("bot")), roles)


def to_utc(value: object) -> str:
    """Convert a time to ISO 8601 in UTC. Raise `TypeError` or `ValueError`."""
    time = datetime.fromisoformat(require_text(value))
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _read(scene: MessageScene, raw: Any, mark: str, read: Callable[[Raw], T]) -> T | UnparsedUpdate:
    try:
        value = clean_json(raw)
        if not isinstance(value, dict):
            raise TypeError(f"a {type(raw).__name__} was sent instead of an object")
        return read(value)
    except Exception as error:  # noqa: BLE001 - the form is Discord's: unreadable input is kept whatever the error
        reason = f"a message cannot be read ({type(error).__name__}: {str(error)[:200]})"
        return unparsed_update(scene.channel, scene.place.chat, mark, raw, reason)


def _bytes(raw: Any) -> bytes:
    try:
        return json.dumps(raw).encode()
    except (RecursionError, TypeError, ValueError):
        return b""  # nested too deeply to serialize


class _DiscordMessageReader:
    """A reader of one message; its methods raise any error that a malformed message causes."""

    def __init__(self, scene: MessageScene, raw: Raw, roles: tuple[str, ...]) -> None:
        self._scene = scene
        self._raw = raw
        self._id = require_id(raw.get("id"))
        author = raw.get("author")
        if not isinstance(author, dict):
            raise TypeError("a message without an author")
        self._sender = read_sender(author, raw.get("member"), roles)
        if raw.get("webhook_id"):
            self._sender = Sender(self._sender.id, self._sender.name, bot=True)
        self._names = MentionNames(_mentioned_names(raw), scene.channel_names, scene.role_names)
        self._files = read_attachments(raw, scene.place.channel_id, self._id)
        self._content = read_text(require_text(raw.get("content")), scene.bot_user, self._names)
        extras = describe_extras(raw, include_embeds=self._sender.bot)
        self._text = "\n".join(part for part in (self._content.text, extras) if part.strip())

    @property
    def _is_from_user(self) -> bool:
        kind = self._raw.get("type", DEFAULT_MESSAGE)
        if not isinstance(kind, int):
            raise TypeError("a type that is not a number")
        return kind in USER_MESSAGE_TYPES and self._sender.id != self._scene.bot_user.id

    def inbound(self) -> Inbound | None:
        place, quote = self._scene.place, self._quote()
        # Without content it is a notice, or Discord withholds the content from this bot.
        if not self._is_from_user or not (self._text or self._files or (quote and quote.text) or self._is_forward):
            return None
        title = place.title if place.thread and self._id == place.thread else ""
        return Inbound(
            self._scene.channel,
            f"m{self._id}",
            place.chat,
            self._sender,
            "\n\n".join(part for part in (title, self._text) if part),
            to_utc(self._raw.get("timestamp")),
            thread=place.thread,
            reply_to=self._replied_to(),
            attachments=self._files,
            message=self._id,
            direct=place.is_direct,
            addressed=place.is_direct or self._content.has_mention or bool(quote and quote.own),
            quote=quote,
            space=place.space,
            provenance=FOREIGN_WORDS if self._is_forward else OWN_WORDS,
            chat_title=self._scene.space_title,
        )

    def edit(self) -> Edit | None:
        stamp, place = self._raw.get("edited_timestamp"), self._scene.place
        if not stamp or "content" not in self._raw or not self._is_from_user or not (self._text or self._files):
            return None
        return Edit(
            self._scene.channel, f"e{self._id}:{require_text(stamp)}", place.chat, self._id, self._sender, self._text,
            to_utc(stamp), place.thread, place.space, FOREIGN_WORDS if self._is_forward else OWN_WORDS,
        )  # fmt: skip

    @property
    def _reference(self) -> Raw:
        reference = self._raw.get("message_reference")
        return reference if isinstance(reference, dict) else {}

    @property
    def _is_forward(self) -> bool:
        return _is_forwarded(self._raw)

    def _replied_to(self) -> str:
        number = self._reference.get("message_id")
        # Copies from a followed channel and forwarded messages have a reference, too, into another chat.
        return require_id(number) if self._raw.get("type") == REPLY_MESSAGE and number else ""

    def _quote(self) -> Quote | None:
        if self._is_forward:
            snapshots = require_objects(self._raw.get("message_snapshots"))
            message = snapshots[0].get("message") if snapshots else None
            # Discord does not name the author.
            return self._build_quote(message, "", Sender("")) if isinstance(message, dict) else None
        replied = self._raw.get("referenced_message")
        if self._raw.get("type") != REPLY_MESSAGE or not isinstance(replied, dict):
            return None
        author = replied.get("author")
        sender = read_sender(author) if isinstance(author, dict) else Sender("")
        return self._build_quote(replied, require_id(replied.get("id")), sender)

    def _build_quote(self, message: Raw, number: str, sender: Sender) -> Quote:
        me = self._scene.bot_user
        names = MentionNames(
            {**_mentioned_names(message), **self._names.people}, self._names.channels, self._names.roles
        )
        text = replace_tags(require_text(message.get("content")), me, names)
        text = "\n".join(
            part for part in (text, describe_extras(message, include_embeds=sender.bot and sender.id != me.id)) if part
        )
        elsewhere = require_id(self._reference.get("channel_id")) if not number else self._scene.place.channel_id
        files = read_attachments(message, elsewhere, number or require_id(self._reference.get("message_id")))
        # Only what a forward shows has no number: it comes from another chat.
        is_foreign = not number or _is_forwarded(message)
        provenance = FOREIGN_WORDS if is_foreign else OWN_WORDS
        return Quote(number, sender, text, files, own=bool(sender.id) and sender.id == me.id, provenance=provenance)


def _is_forwarded(message: Raw) -> bool:
    """Return true for a message that shows one of another chat, of which Discord does not name the author."""
    reference = message.get("message_reference")
    is_forward = isinstance(reference, dict) and reference.get("type") == FORWARD_REFERENCE_TYPE
    return is_forward or bool(message.get("message_snapshots"))


def _mentioned_names(raw: Raw) -> dict[str, str]:
    """Return the names of the people that a message mentions, by id."""
    senders = (read_sender(user, user.get("member")) for user in require_objects(raw.get("mentions")))
    return {sender.id: sender.name for sender in senders}
