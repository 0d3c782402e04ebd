"""The hash chain of a tape, which reveals altered and missing entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Literal

from msgspec import Struct

GENESIS = bytes(32)
"""The chain value before the first entry of a tape that is older than `genesis`."""


def genesis(name: str) -> bytes:
    """Return the chain value before the first entry of a tape created under this name."""
    return sha256(b"bubbot tape\n" + _bytes(name)).digest()


_HEAD = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def content_digest(salt: bytes, payload: str, meta: str) -> bytes:
    """Hash the salt and the exact stored texts with SHA-256.

    The salt keeps anybody from guessing an erased short text. JSON escapes line feeds, so neither text can contain the
    separator. Stored bytes that are no longer UTF-8 arrive as surrogate escapes (PEP 383) and are hashed as the bytes
    they are.
    """
    return sha256(salt + f"{payload}\n{meta}".encode(errors="surrogateescape")).digest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def chain_value(previous: bytes, *, entry_id: int, kind: str, date: str, key: str | None, digest: bytes) -> bytes:
    """Compute an entry's chain value: SHA-256 over the previous one and everything that erasure keeps."""
    quoted = encode_basestring  # a list of texts, as JSON: for a list the encoder would make a new one each time
    head = f'[{entry_id},{quoted(kind)},{quoted(date)},{"null" if key is None else quoted(key)},"{digest.hex()}"]'
    return sha256(previous + _bytes(head)).digest()


class StoredLink(Struct, frozen=True):
    """An entry as an audit reads it.

    Attributes:
        date: as stored.
        payload: the stored text; None after erasure.
        meta: the stored text; None after erasure.
        salt: None after erasure.
        digest: `content_digest` of the entry as it was stored.
        chain: the chain value.
        fact: the position of the fact that records its erasure; None if there is none.
    """

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

    @property
    def has_types(self) -> bool:
        """False if a damaged page changed the type of a column: SQLite has types by value."""
        texts = (self.kind, self.date, self.key or "", self.payload or "", self.meta or "")
        return (
            type(self.id) is int
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(data, bytes) for data in (self.salt or b"", self.digest, self.chain))
        )


class AuditFinding(Struct, frozen=True):
    """A finding of an audit at one entry.

    Attributes:
        tape: the name of the tape.
        id: the entry; 0 for the tape as a whole.
        problem: the kind of finding.
        detail: the finding, for people.
    """

    tape: str
    id: int
    problem: Literal["altered", "missing", "renamed", "erased"]
    detail: str = ""

    @property
    def location(self) -> str:
        """The tape and the id, for people."""
        return f"{self.tape} #{self.id}" if self.id else self.tape


def audit(tape: str, links: Iterable[StoredLink], start: bytes = GENESIS) -> Iterator[AuditFinding]:
    """Check a tape and yield what is altered, missing or erased.

    Args:
        links: the entries in ascending order.
        start: the chain value before the first entry.
    """
    previous, expected = start, 1
    for stored in links:
        if not stored.has_types:
            yield AuditFinding(tape, expected, "altered", "its columns do not have the types that were stored")
            previous, expected = b"", expected + 1  # the next one follows from nothing
            continue
        if stored.id > expected:
            gap = f"{expected}" if stored.id == expected + 1 else f"{expected} to {stored.id - 1}"
            yield AuditFinding(tape, expected, "missing", f"entries {gap} are missing")
        trusted = stored.id == expected
        expected = stored.id + 1
        chained = chain_value(
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


class TapeEnd(Struct, frozen=True):
    """The end of a tape at some position of the database. `chain` is the chain value of the newest entry, `id`.

    Attributes:
        number: of the tape, in the database.
        name: its name at that position.
    """

    number: int
    name: str
    id: int
    chain: bytes


def deployment_head(position: int, ends: Iterable[TapeEnd]) -> str:
    """Return the state of all tapes as one line, `POSITION:HASH`, to keep outside the database.

    The position makes an old head checkable after the tapes have grown.
    """
    digest = sha256(b"bubbot deployment head\n")
    for end in sorted(ends, key=lambda tape: _bytes(tape.name)):
        digest.update(_bytes(_HEAD.encode([end.name, end.id, end.chain.hex()]) + "\n"))
    return f"{position}:{digest.hexdigest()}"


def older_head(position: int, ends: Iterable[TapeEnd]) -> str:
    """Return the deployment head as databases up to version 2 had it: it does not cover names."""
    digest = sha256()
    for end in sorted(ends, key=lambda tape: tape.number):
        digest.update(f"{end.number}:{end.id}:{end.chain.hex()}\n".encode())
    return f"{position}:{digest.hexdigest()}"
