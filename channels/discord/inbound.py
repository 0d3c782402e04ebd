"""Translation of Discord's messages (from the gateway or the REST API) to the port's events. Pure; raises nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar

from msgspec import Struct, field, structs

from bubbot.formatting import clean_json, clean_label
from bubbot.ports.channel import (
    FOREIGN_WORDS,
    OWN_WORDS,
    Attachment,
    Deletion,
    Edit,
    Inbound,
    Quote,
    Sender,
    UnparsedUpdate,
)
from channels.discord.content import (
    describe_command,
    describe_extras,
    leave_out_program_fields,
    read_attachments,
    require_id,
)
from channels.discord.inbound_text import DiscordBotUser, MentionNames, has_mention, read_text, replace_tags
from channels.discord.message_types import (
    CONTENT_FIELDS,
    DEFAULT_MESSAGE,
    OTHER_FIELDS,
    REPLY_MESSAGE,
    SET_ASIDE_TYPES,
    USER_MESSAGE_TYPES,
)
from channels.discord.rich_content import component_texts
from channels.platform.json_values import Raw, find_object, require_number, require_objects, require_text
from channels.platform.labels import clean_note_name

FORWARD_REFERENCE_TYPE = 1
"""The type of a reference to a forwarded message."""

T = TypeVar("T")


class DiscordPlace(Struct, frozen=True):
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


class MessageScene(Struct, frozen=True):
    """The context needed to read a message.

    Attributes:
        space_title: the name of the server; empty if unknown.
        zone: the time zone in which times are read.
    """

    channel: str
    bot_user: DiscordBotUser
    place: DiscordPlace
    channel_names: Mapping[str, str] = field(default_factory=dict)
    role_names: Mapping[str, str] = field(default_factory=dict)
    space_title: str = ""
    zone: tzinfo = UTC


def read_message(scene: MessageScene, raw: Any, roles: tuple[str, ...] = ()) -> Inbound | UnparsedUpdate | None:
    """Read a message; return None for service notices and the bot's own. `roles`: the sender's, if the message lacks them.

    A message without readable content becomes a note if it is for the bot. An unreadable one becomes an
    `UnparsedUpdate` with its JSON; its id is the same if the message comes again.
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
        chat: the id of the chat; empty if it is unknown.
        id_prefix: a letter for the kind of event, part of the id.
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
        self._type = require_number(raw.get("type", DEFAULT_MESSAGE))
        author = raw.get("author")
        if not isinstance(author, dict):
            raise TypeError("a message without an author")
        self._sender = read_sender(author, raw.get("member"), roles)
        if raw.get("webhook_id"):
            self._sender = Sender(self._sender.id, self._sender.name, bot=True)
        self._names = self._names_in(raw)
        self._content = read_text(require_text(raw.get("content")), scene.bot_user, self._names)
        # The preview of a page comes or not, and would be a part of what a person says, also of a command.
        has_embeds = self._sender.bot or not self._content.text.strip()
        self._text = self._shown(raw, self._content.text, describe_extras(raw, include_embeds=has_embeds))
        self._files = self._all_files(raw, scene.place.channel_id, self._id)

    @property
    def _is_read(self) -> bool:
        """True unless the bot or Discord itself wrote it."""
        return self._type not in SET_ASIDE_TYPES and self._sender.id != self._scene.bot_user.id

    def inbound(self) -> Inbound | None:
        if not self._is_read:
            return None
        place, quote = self._scene.place, self._quote()
        addressed = place.is_direct or self._has_mention or bool(quote and quote.own)
        text = self._text
        if note := self._find_unsupported(quote):
            if not addressed:  # a notice of a new kind, or Discord withholds the content from this bot
                return None
            text = _join_lines(text, f"[unsupported message: {note}]")
        title = place.title if place.thread and self._id == place.thread else ""
        return Inbound(
            self._scene.channel,
            f"m{self._id}",
            place.chat,
            self._sender,
            "\n\n".join(part for part in (title, text) if part),
            to_utc(self._raw.get("timestamp")),
            thread=place.thread,
            reply_to=self._replied_to(),
            attachments=self._files,
            message=self._id,
            direct=place.is_direct,
            addressed=addressed,
            quote=quote,
            space=place.space,
            provenance=self._provenance,
            chat_title=self._scene.space_title,
        )

    def edit(self) -> Edit | None:
        stamp, place = self._raw.get("edited_timestamp"), self._scene.place
        if not stamp or "content" not in self._raw or not self._is_read or not (self._text or self._files):
            return None
        return Edit(
            self._scene.channel, f"e{self._id}:{require_text(stamp)}", place.chat, self._id, self._sender, self._text,
            to_utc(stamp), place.thread, place.space, self._provenance,
        )  # fmt: skip

    @property
    def _has_mention(self) -> bool:
        shown = "\n".join(component_texts(self._raw.get("components")))
        return self._content.has_mention or has_mention(shown, self._scene.bot_user)

    @property
    def _provenance(self) -> str:
        has_page = _has_page_preview(self._raw, self._sender) and not self._content.text.strip()
        return FOREIGN_WORDS if has_page or _is_forwarded(self._raw) else OWN_WORDS

    def _find_unsupported(self, quote: Quote | None) -> str:
        """Name the content of a message of a new type, or of one without known content."""
        if self._type not in USER_MESSAGE_TYPES:
            return f"type {self._type}"
        if self._text or self._files or (quote and quote.text):
            return ""
        unknown = sorted(name for name, value in self._raw.items() if value and name not in KNOWN_FIELDS)
        return clean_label(", ".join(unknown)) or "no content"

    def _names_in(self, message: Raw) -> MentionNames:
        scene = self._scene
        channels = {
            require_id(channel.get("id")): require_text(channel.get("name"))
            for channel in require_objects(message.get("mention_channels"))
        }
        return MentionNames(
            _mentioned_names(message), {**channels, **scene.channel_names} if channels else scene.channel_names,
            scene.role_names, scene.zone,
        )  # fmt: skip

    def _shown(self, message: Raw, content: str, extras: str) -> str:
        """Return what people read of a message from top to bottom, also of the messages that it forwards."""
        me, parts = self._scene.bot_user, [content, replace_tags(extras, self._scene.bot_user, self._names_in(message))]
        if _is_forwarded(message):
            parts.append(self._describe_origin(message))
            for inner in _snapshots(message):
                names = self._names_in(inner)
                parts.append(replace_tags(require_text(inner.get("content")), me, names))
                parts.append(replace_tags(describe_extras(inner, include_embeds=True), me, names))
        text = _join_lines(*parts)
        return _join_lines(describe_command(message), text) if text else ""

    def _describe_origin(self, message: Raw) -> str:
        """Return the mark of a forward. Discord does not name the author, and the channel only by its id."""
        reference = find_object(message, "message_reference") or {}
        channel = clean_note_name(self._scene.channel_names.get(str(reference.get("channel_id")), ""))
        return f"[forwarded from #{channel}]" if channel else "[forwarded]"

    def _all_files(self, message: Raw, channel: str, number: str) -> tuple[Attachment, ...]:
        """Return the files of a message and of the messages that it forwards, which lead back to the original."""
        files = read_attachments(message, channel, number)
        for inner in _snapshots(message):
            reference = find_object(message, "message_reference") or {}
            origin = (require_text(reference.get(name)) for name in ("channel_id", "message_id"))
            files += read_attachments(inner, *origin)
        return files

    def _replied_to(self) -> str:
        # Copies from a followed channel and forwarded messages have a reference, too, into another chat.
        number = (find_object(self._raw, "message_reference") or {}).get("message_id")
        return require_id(number) if self._type == REPLY_MESSAGE and number else ""

    def _quote(self) -> Quote | None:
        replied = self._raw.get("referenced_message")
        if self._type != REPLY_MESSAGE or not isinstance(replied, dict):
            return None
        me, number = self._scene.bot_user, require_id(replied.get("id"))
        author = replied.get("author")
        sender = read_sender(author) if isinstance(author, dict) else Sender("")
        is_own = bool(sender.id) and sender.id == me.id
        names = self._names_in(replied)
        names = structs.replace(names, people={**names.people, **self._names.people})
        shown = leave_out_program_fields(replied) if is_own else replied
        extras = describe_extras(shown, include_embeds=True)
        text = self._shown(shown, replace_tags(require_text(replied.get("content")), me, names), extras)
        files = self._all_files(replied, self._scene.place.channel_id, number)
        is_foreign = _is_forwarded(replied) or _has_page_preview(replied, sender)
        provenance = FOREIGN_WORDS if is_foreign else OWN_WORDS
        return Quote(number, sender, text, files, own=is_own, provenance=provenance)


KNOWN_FIELDS = CONTENT_FIELDS | OTHER_FIELDS.keys()
"""Fields of a message that we know of."""


def _join_lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part.strip())


def _snapshots(message: Raw) -> Iterator[Raw]:
    """Yield the messages that a message forwards."""
    for snapshot in require_objects(message.get("message_snapshots")):
        if inner := find_object(snapshot, "message"):
            yield inner


def _is_forwarded(message: Raw) -> bool:
    """Return true for a message that shows one of another chat, of which Discord does not name the author."""
    reference = message.get("message_reference")
    is_forward = isinstance(reference, dict) and reference.get("type") == FORWARD_REFERENCE_TYPE
    return is_forward or bool(message.get("message_snapshots"))


def _has_page_preview(message: Raw, sender: Sender) -> bool:
    """Return true if a person's message shows the words of a page; what a program embeds are its own words."""
    return bool(message.get("embeds")) and not sender.bot


def _mentioned_names(raw: Raw) -> dict[str, str]:
    """Return the names of the people that a message mentions, by id."""
    senders = (read_sender(user, user.get("member")) for user in require_objects(raw.get("mentions")))
    return {sender.id: sender.name for sender in senders}
