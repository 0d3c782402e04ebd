"""The hash chain of a tape: what makes an altered or missing entry visible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

GENESIS = bytes(32)
"""The chain value before the first entry."""


_HEAD = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # kept: `json.dumps` would make one each time


def content_digest(salt: bytes, payload: str, meta: str) -> bytes:
    """SHA-256 over the salt and the exact stored texts. The salt keeps an erased short text from being guessed.

    JSON escapes line feeds, so the one between the texts cannot be part of either. Stored bytes that are no
    UTF-8 any more arrive as surrogate escapes (PEP 383) and are hashed as the bytes they are.
    """
    return sha256(salt + _bytes(payload) + b"\n" + _bytes(meta)).digest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def link(previous: bytes, *, entry_id: int, kind: str, date: str, key: str | None, digest: bytes) -> bytes:
    """The chain value of an entry: SHA-256 over the one before and everything that erasure leaves standing."""
    head = _HEAD.encode([entry_id, kind, date, key, digest.hex()])
    return sha256(previous + _bytes(head)).digest()


@dataclass(frozen=True, slots=True)
class StoredLink:
    """An entry as an audit sees it. `payload`, `meta` and `salt` are None after erasure; `fact` says who erased."""

    id: int
    kind: str
    date: str
    key: str | None
    payload: str | None
    meta: str | None
    salt: bytes | None
    digest: bytes
    chain: bytes
    fact: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What an audit found at one entry."""

    tape: str
    id: int
    what: Literal["altered", "missing", "erased"]
    detail: str = ""


def audit(tape: str, links: Iterable[StoredLink]) -> Iterator[Finding]:
    """Walks a tape in ascending order and yields what is altered, missing or erased."""
    previous, expected = GENESIS, 1
    for stored in links:
        if stored.id > expected:
            gap = f"{expected}" if stored.id == expected + 1 else f"{expected} to {stored.id - 1}"
            yield Finding(tape, expected, "missing", f"entries {gap} are missing")
        trusted = stored.id == expected
        expected = stored.id + 1
        chained = link(
            previous, entry_id=stored.id, kind=stored.kind, date=stored.date, key=stored.key, digest=stored.digest
        )
        if trusted and chained != stored.chain:
            yield Finding(tape, stored.id, "altered", "its hash does not follow from the entry before it")
        if stored.payload is None or stored.meta is None or stored.salt is None:
            if stored.fact is None:
                yield Finding(tape, stored.id, "altered", "its content is gone and no fact says that it was erased")
            else:
                yield Finding(tape, stored.id, "erased", f"by the fact at position {stored.fact}")
        elif content_digest(stored.salt, stored.payload, stored.meta) != stored.digest:
            yield Finding(tape, stored.id, "altered", "its content is not what was stored")
        previous = stored.chain


def deployment_head(position: int, heads: Iterable[tuple[int, int, bytes]]) -> str:
    """One line for the state of all tapes, `POSITION:HASH`, to keep outside the database.

    `heads` are (tape number, newest id, its chain value) as of the global position, in order of tape number.
    The position makes an old head checkable after the tapes have grown.
    """
    whole = sha256()
    for number, head, chain in heads:
        whole.update(f"{number}:{head}:{chain.hex()}\n".encode())
    return f"{position}:{whole.hexdigest()}"
