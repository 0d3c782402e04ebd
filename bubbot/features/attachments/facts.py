"""The facts about attachments, on the tape of the session."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import BlobDigest, TapeEntryId


class AttachmentFailed(Fact):
    """A file could not be fetched, or a recording not transcribed.

    Attributes:
        inbound: the message that it came with.
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
    """A recording was transcribed.

    Attributes:
        inbound: the message that it came with.
        digest: of the recording.
        model: the model that wrote it down.
        characters: of the transcript.
    """

    EVENTS = ("attachment/transcribed",)
    inbound: TapeEntryId
    digest: BlobDigest
    model: str
    characters: int
