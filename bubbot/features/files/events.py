"""The payloads of the facts about files."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NotRequired, TypedDict

from bubbot.tape.references import BlobDigest, EntryId

CHANGED = "file/changed"
FAILED = "file/failed"


class FileChanged(TypedDict):
    """`file/changed`: durable before the file is changed, so that its old content is never lost.

    `before` and `after` are digests of what it held and holds; empty: there was, or is, no file. `blobs` are these
    digests without the empty one: the versions are kept with the tape. `undoes` is the change that was taken back.
    """

    path: str
    before: str
    after: str
    size: int
    blobs: Sequence[BlobDigest]
    undoes: NotRequired[EntryId]


class FileFailed(TypedDict):
    """`file/failed`: the change that an entry announced did not happen."""

    change: EntryId
    reason: str


FILE_EVENTS: Mapping[str, type] = MappingProxyType({CHANGED: FileChanged, FAILED: FileFailed})
