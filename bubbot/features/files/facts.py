"""The facts about files."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from bubbot.tape.fact import Fact
from bubbot.tape.references import BlobDigest, EntryId


class FileChanged(Fact):
    """A file is changed. It is durable before the file is, so that its old content is never lost.

    Attributes:
        path: relative to the workspace of the chat, or absolute.
        before: the digest of what the file held; empty: there was none.
        after: the digest of what it holds; empty: there is none.
        size: of what it holds, in bytes.
        blobs: these digests without the empty one: the versions are kept with the tape.
        undoes: the change that is taken back.
    """

    EVENTS = ("file/changed",)
    path: str
    before: str
    after: str
    size: int
    blobs: tuple[BlobDigest, ...]
    undoes: EntryId | UnsetType = UNSET


class FileFailed(Fact):
    """A change that was announced did not happen.

    Attributes:
        change: its entry.
        reason: the name of the sentence that says why.
    """

    EVENTS = ("file/failed",)
    change: EntryId
    reason: str


FACTS: tuple[type[Fact], ...] = (FileChanged, FileFailed)
