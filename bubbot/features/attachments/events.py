"""The payloads of the facts about attachments."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.references import BlobDigest, TapeEntryId


class AttachmentFailed(TypedDict):
    """`attachment/failed`"""

    inbound: TapeEntryId
    name: str
    kind: str
    reason: str


class AttachmentTranscribed(TypedDict):
    """`attachment/transcribed`"""

    inbound: TapeEntryId
    digest: BlobDigest
    model: str
    characters: int


ATTACHMENT_EVENTS: Mapping[str, type] = MappingProxyType(
    {"attachment/failed": AttachmentFailed, "attachment/transcribed": AttachmentTranscribed}
)
