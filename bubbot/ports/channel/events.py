"""What comes in: who says what, where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias


class Role(StrEnum):
    """What a sender may do, least first; compare with `at_least`."""

    STRANGER = "stranger"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def at_least(self, other: Role) -> bool:
        """Whether this role includes the other one."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class HasChat:
    """What has a place in a chat."""

    __slots__ = ()
    channel: str
    chat: str
    thread: str

    @property
    def session(self) -> str:
        """The session id, `channel:chat` or `channel:chat:thread`."""
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote a message: the platform's numeric id as text, and the name it shows, which proves nothing.

    `bot`: the platform says that it is a bot. `roles`: the numeric ids of the roles that the platform gives the person
    in this space.
    """

    id: str
    name: str = ""
    bot: bool = False
    roles: tuple[str, ...] = ()


AttachmentKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message: the adapter's own reference to it, fetched after acceptance.

    `size` in bytes as the platform states it. `note` is what it says in words (a sticker's emoji, say).
    """

    reference: str
    name: str = ""
    media_type: str = ""
    size: int | None = None
    kind: AttachmentKind = "file"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """The message that a message replies to, as far as the platform shows it. `own`: the bot itself wrote it."""

    message: str
    sender: Sender
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    own: bool = False


@dataclass(frozen=True, slots=True)
class Inbound(HasChat):
    """A normalised message in.

    `channel` is the configured instance's name; `external_id` is unique on it and the same when the platform
    delivers the message again; `time` is ISO 8601 in UTC, when it was sent. `message` is the platform's id of the
    message within its chat, which replies, edits and reactions name; `reply_to` is that of the message quoted.
    `direct`: a chat with one person. `addressed`: the platform shows that the bot is meant (direct, a mention, a
    reply to it). Messages of one `group` (an album) belong together. `space`: the numeric id of what the chat is part
    of (a Discord server), where the platform has such a thing. `origin`: `human`, or `schedule` for what no channel
    received: a job fired.
    """

    channel: str
    external_id: str
    chat: str
    sender: Sender
    text: str
    time: str
    thread: str = ""
    reply_to: str = ""
    attachments: tuple[Attachment, ...] = ()
    message: str = ""
    direct: bool = True
    addressed: bool = True
    quote: Quote | None = None
    group: str = ""
    space: str = ""
    origin: str = "human"


@dataclass(frozen=True, slots=True)
class Edit(HasChat):
    """A message that its sender changed; `text` is the new one, whole. `external_id` is that of the change."""

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    text: str
    time: str
    thread: str = ""
    space: str = ""


@dataclass(frozen=True, slots=True)
class Deletion(HasChat):
    """A message that was deleted on the platform."""

    channel: str
    external_id: str
    chat: str
    message: str
    time: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Reaction(HasChat):
    """What somebody now shows on a message; no `emojis`: what was shown is taken back."""

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    emojis: tuple[str, ...]
    time: str
    thread: str = ""
    space: str = ""


@dataclass(frozen=True, slots=True)
class ChatMigration:
    """A chat that the platform goes on with under another id (a group that became a supergroup)."""

    channel: str
    external_id: str
    chat: str
    to: str
    time: str


@dataclass(frozen=True, slots=True)
class UnparsedUpdate:
    """Something the adapter received and could not read; its bytes are kept as a fact if its sender may speak.

    `sender`: the numeric id of who sent it, as far as that can be read; empty if not.
    """

    channel: str
    external_id: str
    chat: str
    raw: bytes
    reason: str
    sender: str = ""


@dataclass(frozen=True, slots=True)
class StopRequest(HasChat):
    """Somebody wants the running turn of a session to end. It overtakes what waits and is not itself kept."""

    channel: str
    chat: str
    thread: str = ""


ChannelEvent: TypeAlias = Inbound | Edit | Deletion | Reaction | ChatMigration | UnparsedUpdate | StopRequest
