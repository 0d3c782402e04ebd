"""Outgoing messages: a complete message, its parts, and the receipt of a delivered part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from bubbot.ports.channel.events import HasChat
from bubbot.records import dataclass


@dataclass(frozen=True, slots=True)
class OutboundFile:
    """A file to send: its text, or the digest of a stored blob."""

    name: str
    media_type: str = "text/plain"
    text: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Outbound(HasChat):
    """A complete message to send. `text` is Markdown (CommonMark, with tables); `reply_to` a message id."""

    channel: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    files: tuple[OutboundFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of an outbound that fits the platform; stored with the intent, so that a restart sends the same part.

    Attributes:
        chat: the platform's id of the chat.
        text: the text that people read.
        thread: the platform's id of the thread; empty if none.
        reply_to: the id of the message it replies to; empty if none.
        markup: the adapter's own plain JSON about the formatting, such as entities.
        file: the file to send; None if there is none.
        key: an idempotency key of at most 25 characters; a platform that supports one sends the part once. It is not
            stored but set for sending, and is the same at each try, also of a later process. Empty for notices, which
            are never retried.
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
    """The receipt of a delivered part.

    Attributes:
        external_id: the platform's id of the part within its chat; empty if it has none.
        chat: the chat that holds the part, if the platform put it into another than the requested one (a group that
            became a supergroup); else empty.
    """

    external_id: str = ""
    chat: str = ""
