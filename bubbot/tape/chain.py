"""The hash chain of a tape: what makes an altered or missing entry visible."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

GENESIS = bytes(32)
"""The chain value before the first entry of a tape that is older than `genesis`."""


def genesis(name: str) -> bytes:
    """Return the chain value before the first entry of a tape that began under this name."""
    return sha256(b"bubbot tape\n" + _bytes(name)).digest()


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
class AuditFinding:
    """What an audit found at one entry; `id` is 0 for what belongs to the tape as a whole."""

    tape: str
    id: int
    what: Literal["altered", "missing", "renamed", "erased"]
    detail: str = ""

    @property
    def place(self) -> str:
        """Tape and id, for people."""
        return f"{self.tape} #{self.id}" if self.id else self.tape


def audit(tape: str, links: Iterable[StoredLink], start: bytes = GENESIS) -> Iterator[AuditFinding]:
    """Walks a tape in ascending order and yields what is altered, missing or erased. `start`: the chain value before
    its first entry."""
    previous, expected = start, 1
    for stored in links:
        if stored.id > expected:
            gap = f"{expected}" if stored.id == expected + 1 else f"{expected} to {stored.id - 1}"
            yield AuditFinding(tape, expected, "missing", f"entries {gap} are missing")
        trusted = stored.id == expected
        expected = stored.id + 1
        chained = link(
            previous, entry_id=stored.id, kind=stored.kind, date=stored.date, key=stored.key, digest=stored.digest
        )
        if trusted and chained != stored.chain:
            yield AuditFinding(tape, stored.id, "altered", "its hash does not follow from the entry before it")
        if stored.payload is None or stored.meta is None or stored.salt is None:
            if stored.fact is None:
                yield AuditFinding(
                    tape, stored.id, "altered", "its content is gone and no fact says that it was erased"
                )
            else:
                yield AuditFinding(tape, stored.id, "erased", f"by the fact at position {stored.fact}")
        elif content_digest(stored.salt, stored.payload, stored.meta) != stored.digest:
            yield AuditFinding(tape, stored.id, "altered", "its content is not what was stored")
        previous = stored.chain


@dataclass(frozen=True, slots=True)
class TapeEnd:
    """Where a tape ended at some position: its number in the database, the name it had then, newest id, chain value."""

    number: int
    name: str
    id: int
    chain: bytes


def deployment_head(position: int, ends: Iterable[TapeEnd]) -> str:
    """Return one line for the state of all tapes, `POSITION:HASH`, to keep outside the database.

    The position makes an old head checkable after the tapes have grown.
    """
    whole = sha256(b"bubbot deployment head\n")
    for end in sorted(ends, key=lambda one: _bytes(one.name)):
        whole.update(_bytes(_HEAD.encode([end.name, end.id, end.chain.hex()]) + "\n"))
    return f"{position}:{whole.hexdigest()}"


def older_head(position: int, ends: Iterable[TapeEnd]) -> str:
    """Return the deployment head in the form of databases up to version 2, which did not cover names."""
    whole = sha256()
    for end in sorted(ends, key=lambda one: one.number):
        whole.update(f"{end.number}:{end.id}:{end.chain.hex()}\n".encode())
    return f"{position}:{whole.hexdigest()}"
