"""The blob port: bytes kept beside a tape, by content hash."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from bubbot.tape.entry import Kind, TapeEntry

_PARTS = ("image", "file")


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


_CUT = re.compile(
    r'\n… \[cut: \d+ characters in all; read on with result_read\(handle="([0-9a-f]{64})", offset=(\d+)[^\n]*\Z'
)
_NAME = re.compile(r"[0-9a-f]{64}")


def cited_blobs(entry: TapeEntry) -> set[str]:
    """Return the digests of blobs that an entry needs: prompts, tool schemas, attachments, results that were cut."""
    payload = entry.payload
    found: list[object] = []
    if entry.kind == Kind.SYSTEM:
        found.append(payload.get("digest"))
    elif entry.kind == Kind.MESSAGE and not isinstance(payload.get("content"), str):
        parts = payload.get("content")
        found += [
            part.get("digest") for part in parts or () if isinstance(part, Mapping) and part.get("type") in _PARTS
        ]
    elif entry.kind == Kind.TOOL_RESULT:
        results = payload.get("results")
        for one in results if isinstance(results, (list, tuple)) else ():
            text = one.get("content") if isinstance(one, Mapping) else None
            cut = _CUT.search(text) if isinstance(text, str) else None
            found += [cut[1]] if cut and cut.start() == int(cut[2]) else []  # text that only looks like it does not fit
    elif entry.name == "loop.step" and isinstance(data := payload.get("data"), Mapping):
        found += [data.get("system"), data.get("tools")]
    return {one for one in found if isinstance(one, str) and _NAME.fullmatch(one)}
