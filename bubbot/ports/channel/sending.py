"""What goes out: a message whole, its parts, and the fact that one arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bubbot.ports.channel.events import HasChat


@dataclass(frozen=True, slots=True)
class OutboundFile:
    """A file to send: its text, or the digest of a stored blob."""

    name: str
    media_type: str = "text/plain"
    text: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Outbound(HasChat):
    """An intended message out, whole. `text` is Markdown (CommonMark, with tables); `reply_to` a message id."""

    channel: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    files: tuple[OutboundFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A piece of an outbound that fits the platform; stored with the intent, so that a restart sends the same.

    `text` is what people read; `markup` is the adapter's own plain JSON about how it looks (entities, say). `key` is
    not stored: it is set for the sending, the same at each try of the same part, also by a later process, and at most
    25 characters long. A platform that takes such a key sends the part once. Empty for what nothing is owed for and is
    never tried again: notices.
    """

    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    markup: Mapping[str, Any] = field(default_factory=dict)
    file: OutboundFile | None = None
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The platform's id of a delivered part, within its chat; empty where it has none.

    `chat`: the chat in which the part stands now, if the platform has put it into another one than was asked (a group
    that became a supergroup); empty if it is the one that was asked.
    """

    external_id: str = ""
    chat: str = ""
