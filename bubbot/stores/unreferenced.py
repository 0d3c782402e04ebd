"""Blobs that no entry names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from bubbot.ports.store import UnreferencedBlobs
from bubbot.stores.names import DatabaseRows
from bubbot.stores.transaction import Fetch

_CHUNK = 5000
_DIGEST = r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"
_SELECT_CHUNK = (
    "SELECT seq, coalesce(payload, ''), coalesce(meta, '') FROM entries "
    "WHERE seq > ? AND coalesce(name, '') <> 'blob/removed' ORDER BY seq LIMIT ?"
)
_SELECT_STAGED = "SELECT entries FROM fork_batches"


def find_unreferenced_blobs(conn: DatabaseRows, size: str = "length(data)") -> UnreferencedBlobs:
    """Find blobs that no entry names; facts about removed blobs with the same digest do not count.

    It reads in short transactions, so that it holds nothing back.

    Args:
        conn: outside of a transaction.
        size: the expression for the bytes of a row of `blobs`.
    """
    loose = {digest for (digest,) in conn.execute("SELECT DISTINCT digest FROM blobs")}
    position = 0
    while loose and (rows := conn.execute(_SELECT_CHUNK, (position, _CHUNK)).fetchall()):
        position = rows[-1][0]
        loose -= _digests_in(rows)
    loose -= _digests_in(conn.execute(_SELECT_STAGED).fetchall())
    by_tape: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, digest, bytes_ in conn.execute(
        f"SELECT tapes.name, digest, {size} FROM blobs JOIN tapes USING (tape) ORDER BY tapes.name, digest"
    ):
        if digest in loose:
            by_tape[name] = (*by_tape.get(name, ()), (digest, bytes_))
    return UnreferencedBlobs(position, by_tape)


async def still_unreferenced(fetch: Fetch, tape: str, blobs: UnreferencedBlobs) -> list[str]:
    """Return those blobs of a tape that are still unreferenced.

    Call it in a write transaction: no entry can name one meanwhile.
    """
    digests = {digest for digest, _ in blobs.tapes.get(tape, ())} - _digests_in(await fetch(_SELECT_STAGED))
    position = blobs.position
    while digests and (rows := await fetch(_SELECT_CHUNK, (position, _CHUNK))):
        position = rows[-1][0]
        digests -= _digests_in(rows)
    return sorted(digests)


def _digests_in(rows: Iterable[tuple[Any, ...]]) -> set[str]:
    return {digest for row in rows for text in row if isinstance(text, str) for digest in re.findall(_DIGEST, text)}
