"""The facts about attachments, on the tape of the session."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import BlobDigest, TapeEntryId


class AttachmentFailed(Fact):
    """A file could not be fetched, or a recording not transcribed.

    Attributes:
        name: of the file; its kind if it has none.
        kind: such as `voice` or `file`.
        reason: why not, without a full stop.
    """

    EVENTS = ("attachment/failed",)
    inbound: TapeEntryId
    name: str
    kind: str
    reason: str


class AttachmentTranscribed(Fact):
    """A recording with this digest was transcribed by a model; the transcript has so many characters."""

    EVENTS = ("attachment/transcribed",)
    inbound: TapeEntryId
    digest: BlobDigest
    model: str
    characters: int


FACTS: tuple[type[Fact], ...] = (AttachmentFailed, AttachmentTranscribed)
