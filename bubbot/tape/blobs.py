"""The blob port: bytes stored with a tape, by content hash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol

from bubbot.tape.entry import JsonObject, Kind, TapeEntry

_PARTS_WITH_BLOB = ("image", "file")


def blob_digest(data: bytes) -> str:
    """Compute the digest that names a blob: SHA-256 of its bytes, in hex."""
    return sha256(data).hexdigest()


class BlobStore(Protocol):
    """Bytes that are too large for an entry or repeated too often: system prompts, tool schemas, spilled results.

    Blobs belong to a tape: a reset moves them into its archive, an erasure deletes them.
    """

    async def put_blob(self, tape: str, data: bytes) -> str:
        """Store the bytes durably and return their digest; repeated calls write nothing."""
        ...

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """Read the bytes of a blob.

        Raises:
            EntryNotFound: the tape has no such blob.
            TapeCorrupt: the bytes changed.
        """
        ...


_CUT = r'\n… \[cut: \d+ characters in all; read on with result_read\(handle="([0-9a-f]{64})", offset=(\d+)(?:, limit=\d+)?\)\]\Z'
_NAME = re.compile(r"[0-9a-f]{64}")


def cited_blobs(entry: TapeEntry) -> set[str]:
    """Return the digests of the blobs that an entry needs: prompts, tool schemas, attachments, truncated results.

    Events list them under `blobs`.
    """
    payload = entry.payload
    digests: list[object] = []
    if entry.kind == Kind.SYSTEM:
        digests.append(payload.get("digest"))
    elif entry.kind == Kind.MESSAGE and not isinstance(payload.get("content"), str):
        parts = payload.get("content")
        digests += [
            part.get(key)
            for part in parts or ()
            if isinstance(part, Mapping) and part.get("type") in _PARTS_WITH_BLOB
            for key in ("digest", "text_digest")
        ]
    elif entry.kind == Kind.TOOL_RESULT:
        digests += _items(payload, "blobs") if "blobs" in payload else _older_cuts(_items(payload, "results"))
    elif entry.kind == Kind.EVENT and isinstance(data := payload.get("data"), Mapping):
        digests += _items(data, "blobs")
        if entry.name == "loop.step":
            digests += [data.get("system"), data.get("tools"), data.get("messages")]
    return {digest for digest in digests if isinstance(digest, str) and _NAME.fullmatch(digest)}


def _items(payload: JsonObject, key: str) -> Sequence[object]:
    items = payload.get(key)
    return items if isinstance(items, (list, tuple)) else ()


def _older_cuts(results: Sequence[object]) -> list[str]:
    """Find the blobs of results that were truncated before entries listed them under `blobs`.

    Anybody can write a text that looks like such a mark, and a reference to a blob that never existed would be damage
    that nothing repairs. So a mark counts only at the end of a result; marks in the middle of a text or in the output
    of a command are ignored.
    """
    texts = [result.get("content") for result in results if isinstance(result, Mapping)]
    cuts = [re.search(_CUT, text) for text in texts if isinstance(text, str)]
    return [cut[1] for cut in cuts if cut and cut[2] == str(cut.start())]
