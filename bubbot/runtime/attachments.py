"""Attachments as a turn uses them: the files that were taken in with its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from bubbot.errors import FetchFailed
from bubbot.formatting import clean, clean_label, format_bytes
from bubbot.ports.channel import Attachment, Inbound
from bubbot.ports.turn import AcceptedInbound
from bubbot.runtime.context.selectors import OWN_PART_KEY
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import TapeHandle

MAX_FILE_NAME_CHARS = 80
"""Characters of a file name."""
MAX_NOTE_CHARS = 500

Fetch: TypeAlias = Callable[[Attachment, int], Awaitable[bytes]]
"""The `FetchesAttachments.fetch` of a channel."""


@dataclass
class AttachmentResult:
    """The result for the attachments of one message.

    Attributes:
        parts: content parts of the message.
        facts: entries for the tape.
        notices: sentences to show to people.
    """

    parts: list[JsonObject] = field(default_factory=list)
    facts: list[TapeEntry] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class TakesAttachments(Protocol):
    """Takes in the attachments of messages before a turn."""

    async def take_in(
        self, tape: TapeHandle, inbox: str, batch: Sequence[AcceptedInbound], fetch: Fetch
    ) -> dict[int, AttachmentResult]:
        """Take in the attachments of messages and their quotes, in order; return the results by message id.

        Args:
            tape: stores the bytes.
            fetch: fetches a file of the channel, up to so many bytes.

        Raises:
            StoreError: a blob could not be stored.
        """
        ...


def describe_unfetched(batch: Sequence[AcceptedInbound]) -> dict[int, AttachmentResult]:
    """Describe the attachments of messages, by message id, for a bot that fetches none."""
    return {
        accepted.id: AttachmentResult([unfetched_part(item) for item, _ in list_attachments(accepted.inbound)])
        for accepted in batch
    }


async def refuse_fetch(attachment: Attachment, limit: int) -> bytes:  # noqa: ARG001 - the port's signature
    """Raise `FetchFailed`, for channels that cannot fetch files."""
    raise FetchFailed("this channel cannot fetch files")


def list_attachments(inbound: Inbound) -> list[tuple[Attachment, bool]]:
    """List the attachments of a message, then those of its quote, marked true."""
    quoted = inbound.quote.attachments if inbound.quote else ()
    return [
        *((attachment, False) for attachment in inbound.attachments),
        *((attachment, True) for attachment in quoted),
    ]


def unfetched_part(attachment: Attachment) -> JsonObject:
    """Build the content part for an attachment that is not fetched."""
    words = [attachment.kind, file_name(attachment.name), format_bytes(attachment.size) if attachment.size else ""]
    note = one_line(attachment.note, MAX_NOTE_CHARS)
    title = " ".join(word for word in words if word) if attachment.reference or not note else ""
    text = ", ".join(word for word in (title, note, "not fetched" if attachment.reference else "") if word)
    return {"type": "text", "text": f"[{text}]", OWN_PART_KEY: True}


def file_name(name: str) -> str:
    """Clean a file name for use within brackets: one line without folders and brackets."""
    name = one_line(name.replace("\\", "/").rpartition("/")[2], 10_000)
    stem, dot, suffix = name.rpartition(".")
    return (
        name
        if len(name) <= MAX_FILE_NAME_CHARS
        else f"{(stem or suffix)[: MAX_FILE_NAME_CHARS - 12]}…{dot}{suffix[:10]}"
    )


def one_line(text: str, limit: int) -> str:
    """Put a text on one line that cannot close the brackets around it."""
    return clean_label(clean(text), limit)


def image_type(data: bytes) -> str:
    """Detect by its first bytes the media type of an image that models accept; empty for other data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""
