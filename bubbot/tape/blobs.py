"""The blob port: bytes kept beside a tape, by content hash."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol


def digest_of(data: bytes) -> str:
    """The name of a blob: SHA-256 of its bytes, in hex."""
    return sha256(data).hexdigest()


class BlobStore(Protocol):
    """What is too large or too often repeated for an entry: system prompts, tool schemas, spilled results.

    Blobs belong to a tape: they follow it into its archive and end when it is erased.
    """

    async def put_blob(self, tape: str, data: bytes) -> str:
        """Keeps the bytes durably and returns their digest; putting them again writes nothing."""
        ...

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """The bytes. Raises `EntryNotFound` where the tape has no such blob, `TapeCorrupt` where they changed."""
        ...
