"""Outgoing messages: a complete message, its buttons, its parts, and the receipt of a delivered part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bubbot.ports.channel.events import HasChat, Role


class OutboundFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file to send: its text, or the digest of a stored blob."""

    name: str
    media_type: str = "text/plain"
    text: str = ""
    digest: str = ""


class Button(Struct, frozen=True, forbid_unknown_fields=True):
    """A button below a message.

    Attributes:
        label: for people; a channel truncates it to its platform's limit.
        command: the comma command that a press runs, in the role of the person who pressed.
        value: a text for the feature that runs the command (see `Inbound.press`); people never see or type it.
    """

    label: str
    command: str
    value: str = ""


MAX_BUTTON_ID_BYTES = 64
"""The most bytes of a button's id, by Telegram's limit."""
ONE_DAY_SECONDS = 86_400


class ButtonSet(Struct, frozen=True, forbid_unknown_fields=True):
    """The buttons of a message. The first accepted press settles the whole set.

    The text of the message must explain how to do the same without buttons: not every channel shows them.

    Attributes:
        buttons: in the order they are shown.
        person: the numeric id of the only person who may press; empty: everybody with the role.
        role: the least role that may press.
        lifetime_seconds: after so many seconds a press does nothing.
        key: the name of the set; the outbox sets it.
    """

    buttons: tuple[Button, ...]
    person: str = ""
    role: Role = Role.MEMBER
    lifetime_seconds: int = ONE_DAY_SECONDS
    key: str = ""

    def button_id(self, index: int) -> str:
        """Return the id that the platform returns with a press, at most `MAX_BUTTON_ID_BYTES` bytes of ASCII."""
        return f"{self.key}/{index}"


class Outbound(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """A complete message to send.

    Attributes:
        channel: the name of the channel.
        chat: the platform's id of the chat.
        text: Markdown (CommonMark, with tables).
        thread: the platform's id of the thread; empty if none.
        reply_to: the id of the message it replies to; empty if none.
        files: the files to send with it.
        buttons: its buttons, if any.
        edits: the id of the bot's own message that the first text replaces; empty for a new message. If the channel
            cannot edit, that message stays and the text is not sent.
        has_no_link_previews: tell the platform to show no link previews: fetching an address reveals its content to the
            server.
    """

    channel: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    files: tuple[OutboundFile, ...] = ()
    buttons: ButtonSet | None = None
    edits: str = ""
    has_no_link_previews: bool = False


class MessagePart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of an outbound that fits the platform. It is stored with the intent, so that a restart sends the same
    part.

    Attributes:
        chat: the platform's id of the chat.
        text: the text that people read.
        thread: the platform's id of the thread; empty if none.
        reply_to: the id of the message it replies to; empty if none.
        markup: the adapter's own plain JSON about the formatting, such as entities.
        file: the file to send, if any.
        key: an idempotency key of at most 25 characters; a platform that supports one sends the part once. It is not
            stored but set for sending, and is the same at each attempt, even of a later process. Empty for notices,
            which are never retried.
        buttons: the buttons to show below it; `SupportsEditing.edit` with None removes existing ones.
        edits: the id of the bot's own message that it replaces by `SupportsEditing.edit`; empty for a new one.
        has_no_link_previews: see `Outbound`.
    """

    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    markup: Mapping[str, Any] = {}
    file: OutboundFile | None = None
    key: str = ""
    buttons: ButtonSet | None = None
    edits: str = ""
    has_no_link_previews: bool = False


class Receipt(Struct, frozen=True, forbid_unknown_fields=True):
    """The receipt of a delivered part.

    Attributes:
        external_id: the platform's id of the part within its chat; empty if it has none.
        chat: the actual chat of the part, if it differs from the requested one (a group that became a supergroup); else
            empty.
    """

    external_id: str = ""
    chat: str = ""
