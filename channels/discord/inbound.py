"""From a message, as Discord's gateway or its REST API sends it, to what the port calls it. Pure; nothing is raised."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from bubbot.ports.channel import Deletion, Edit, Inbound, Quote, Sender, UnparsedUpdate
from channels.discord.content import Raw, attachments, number_of, objects, text_of, words
from channels.discord.inbound_text import DiscordBotUser, MentionNames, plain, said

DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE = 0, 19, 20, 23
SAID = frozenset({DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE})
"""Types of messages in which somebody says something; all others are notices of Discord's own (somebody joined, a
message was pinned, a thread begins with what stands elsewhere)."""
FORWARD = 1
"""The type of a reference to a message that was forwarded."""

_HALF = re.compile("[\ud800-\udfff]")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class DiscordPlace:
    """A chat as the port names it; `title` is that of a forum's post."""

    chat: str
    thread: str = ""
    space: str = ""
    direct: bool = False
    title: str = ""

    @property
    def id(self) -> str:
        """Discord's own id of it: threads are channels there."""
        return self.thread or self.chat


@dataclass(frozen=True, slots=True)
class MessageScene:
    """What has to be known to read a message: our channel's name, who we are, the chat, and what is called how."""

    channel: str
    me: DiscordBotUser
    where: DiscordPlace
    channels: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)


def read_message(scene: MessageScene, raw: Any, roles: tuple[str, ...] = ()) -> Inbound | UnparsedUpdate | None:
    """The inbound of a message; None where nobody says anything to us. `roles`: the sender's, where they are not in it.

    What cannot be read is `UnparsedUpdate`, with the message as JSON; its id is the same when the message comes again.
    """
    return _read(scene, raw, "m", lambda whole: _DiscordMessageReader(scene, whole, roles).inbound())


def read_edit(scene: MessageScene, raw: Any, roles: tuple[str, ...] = ()) -> Edit | UnparsedUpdate | None:
    """The edit of a changed message; None where only its looks changed (a link was unfolded, it was pinned)."""
    return _read(scene, raw, "e", lambda whole: _DiscordMessageReader(scene, whole, roles).edit())


def read_deletion(scene: MessageScene, raw: Any, now: str) -> list[Deletion | UnparsedUpdate]:
    """One deletion for each message that is gone."""

    def read(whole: Raw) -> list[Deletion | UnparsedUpdate]:
        where, gone = scene.where, whole.get("ids", [whole.get("id")])
        if not isinstance(gone, list):
            raise TypeError("no list of messages")
        ids = [number_of(one) for one in gone]
        return [Deletion(scene.channel, f"d{one}", where.chat, one, now, where.thread) for one in ids]

    found = _read(scene, raw, "d", read)
    return found if isinstance(found, list) else [found]


def author_without_roles(where: DiscordPlace, raw: Any) -> str:
    """The id of the person who wrote a message of a server, where the message does not tell their roles."""
    if not where.space or not isinstance(raw, dict) or isinstance(raw.get("member"), dict) or raw.get("webhook_id"):
        return ""
    author = raw.get("author")
    if not isinstance(author, dict) or author.get("bot"):
        return ""
    number = author.get("id")
    return number if isinstance(number, str) and number.isascii() and number.isdigit() else ""


def unparsed(channel: str, chat: str, mark: str, raw: Any, reason: str) -> UnparsedUpdate:
    """What cannot be read. Its id is that of the message where it has one, else its content."""
    content = _bytes(raw)
    number = raw.get("id") if isinstance(raw, dict) else None
    stamp = raw.get("edited_timestamp") if isinstance(raw, dict) and mark == "e" else None
    known = f"{number}:{stamp}" if isinstance(stamp, str) else number
    if not isinstance(number, str) or not re.fullmatch(r"[\w:.+-]{1,80}", str(known), re.ASCII):
        known = hashlib.sha256(content).hexdigest()[:32]
    return UnparsedUpdate(channel, f"u{mark}{known}", chat, content, reason, _sender_of(raw))


def _sender_of(raw: Any) -> str:
    """The numeric id of who sent something, if it can be found."""
    if not isinstance(raw, dict):
        return ""
    author = raw.get("author")
    number = author.get("id") if isinstance(author, dict) else raw.get("user_id")
    return number if isinstance(number, str) and number.isdecimal() else ""


def whole_text(value: Any) -> Any:
    """The value with every half of a surrogate pair replaced: it is legal JSON and no text."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(_HALF.sub("\N{REPLACEMENT CHARACTER}", text)) if _HALF.search(text) else value


def person(user: Raw, member: object = None, roles: tuple[str, ...] = ()) -> Sender:
    """A user, with what a server adds about it."""
    more: Raw = member if isinstance(member, dict) else {}
    given = more.get("roles")
    if isinstance(given, list):
        roles = tuple(number_of(one) for one in given)
    name = text_of(more.get("nick")) or text_of(user.get("global_name")) or text_of(user.get("username"))
    # On one line: it comes to stand within what others say.
    return Sender(number_of(user.get("id")), " ".join(name.split()), bool(user.get("bot")), roles)


def utc(value: object) -> str:
    """A time as the port writes it. Raises `TypeError` or `ValueError`."""
    found = datetime.fromisoformat(text_of(value))
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _read(scene: MessageScene, raw: Any, mark: str, read: Callable[[Raw], Read]) -> Read | UnparsedUpdate:
    try:
        whole = whole_text(raw)
        if not isinstance(whole, dict):
            raise TypeError(f"a {type(raw).__name__} stands where an object should")
        return read(whole)
    except Exception as error:  # noqa: BLE001 - the form is not ours: whatever is odd about it, it is kept
        reason = f"a message cannot be read ({type(error).__name__}: {str(error)[:200]})"
        return unparsed(scene.channel, scene.where.chat, mark, raw, reason)


def _bytes(raw: Any) -> bytes:
    try:
        return json.dumps(raw).encode()
    except (RecursionError, TypeError, ValueError):
        return b""  # nested deeper than anything can write it


class _DiscordMessageReader:
    """Reads one message. Raises whatever its form leads to."""

    def __init__(self, scene: MessageScene, raw: Raw, roles: tuple[str, ...]) -> None:
        self._scene = scene
        self._raw = raw
        self._id = number_of(raw.get("id"))
        author = raw.get("author")
        if not isinstance(author, dict):
            raise TypeError("a message without an author")
        self._sender = person(author, raw.get("member"), roles)
        if raw.get("webhook_id"):
            self._sender = Sender(self._sender.id, self._sender.name, bot=True)
        self._names = MentionNames(_mentioned(raw), scene.channels, scene.roles)
        self._files = attachments(raw, scene.where.id, self._id)
        self._said = said(text_of(raw.get("content")), scene.me, self._names)
        more = words(raw, embeds=self._sender.bot)
        self._text = "\n".join(part for part in (self._said.text, more) if part.strip())

    @property
    def _of_somebody(self) -> bool:
        kind = self._raw.get("type", DEFAULT_MESSAGE)
        if not isinstance(kind, int):
            raise TypeError("a type that is no number")
        return kind in SAID and self._sender.id != self._scene.me.id

    def inbound(self) -> Inbound | None:
        where, quote = self._scene.where, self._quote()
        # Without content it is a notice, or Discord does not show it to us.
        if not self._of_somebody or not (self._text or self._files or (quote and quote.text) or self._forwarded):
            return None
        title = where.title if where.thread and self._id == where.thread else ""
        return Inbound(
            self._scene.channel,
            f"m{self._id}",
            where.chat,
            self._sender,
            "\n\n".join(part for part in (title, self._text) if part),
            utc(self._raw.get("timestamp")),
            thread=where.thread,
            reply_to=self._replied_to(),
            attachments=self._files,
            message=self._id,
            direct=where.direct,
            addressed=where.direct or self._said.called or bool(quote and quote.own),
            quote=quote,
            space=where.space,
        )

    def edit(self) -> Edit | None:
        stamp, where = self._raw.get("edited_timestamp"), self._scene.where
        if not stamp or "content" not in self._raw or not self._of_somebody or not (self._text or self._files):
            return None
        return Edit(
            self._scene.channel, f"e{self._id}:{text_of(stamp)}", where.chat, self._id, self._sender, self._text,
            utc(stamp), where.thread, where.space,
        )  # fmt: skip

    @property
    def _reference(self) -> Raw:
        found = self._raw.get("message_reference")
        return found if isinstance(found, dict) else {}

    @property
    def _forwarded(self) -> bool:
        return self._reference.get("type") == FORWARD

    def _replied_to(self) -> str:
        number = self._reference.get("message_id")
        # A copy of a followed channel and a forwarded message name one as well, in another chat.
        return number_of(number) if self._raw.get("type") == REPLY_MESSAGE and number else ""

    def _quote(self) -> Quote | None:
        if self._forwarded:
            snapshots = objects(self._raw.get("message_snapshots"))
            message = snapshots[0].get("message") if snapshots else None
            # Who wrote it is not told.
            return self._quoted(message, "", Sender("")) if isinstance(message, dict) else None
        replied = self._raw.get("referenced_message")
        if self._raw.get("type") != REPLY_MESSAGE or not isinstance(replied, dict):
            return None
        author = replied.get("author")
        sender = person(author) if isinstance(author, dict) else Sender("")
        return self._quoted(replied, number_of(replied.get("id")), sender)

    def _quoted(self, message: Raw, number: str, sender: Sender) -> Quote:
        me = self._scene.me
        names = MentionNames({**_mentioned(message), **self._names.people}, self._names.channels, self._names.roles)
        text = plain(text_of(message.get("content")), me, names)
        text = "\n".join(part for part in (text, words(message, embeds=sender.bot and sender.id != me.id)) if part)
        elsewhere = number_of(self._reference.get("channel_id")) if not number else self._scene.where.id
        files = attachments(message, elsewhere, number or number_of(self._reference.get("message_id")))
        return Quote(number, sender, text, files, own=bool(sender.id) and sender.id == me.id)


def _mentioned(raw: Raw) -> dict[str, str]:
    """The names of the people whom a message mentions."""
    return {one.id: one.name for one in (person(user, user.get("member")) for user in objects(raw.get("mentions")))}
