# ruff: noqa: ARG002 - the methods of a port that refuse
"""A store whose forks are thrown away: work on a copy of the tapes, of which nothing is ever written."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NoReturn

from bubbot.errors import TapeConflict
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.shards import count_shards
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, TapeStore, TapeSummary


class DiscardingStore:
    """Reads from another store. What a fork and its blobs write stays in memory until it is dropped; any other write is refused.

    See `TapeStore`.
    """

    def __init__(self, store: TapeStore) -> None:
        self._store = store
        self.tape_shards = count_shards(store)
        self._blobs: dict[tuple[str, str], bytes] = {}

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return the entries of each query."""
        return await self._store.fetch(queries)

    async def head(self, tape: str) -> int:
        """Return the newest id."""
        return await self._store.head(tape)

    async def tapes(self) -> list[TapeSummary]:
        """List every tape."""
        return await self._store.tapes()

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """Read the bytes of a blob, its own first."""
        own = self._blobs.get((tape, digest))
        return await self._store.get_blob(tape, digest) if own is None else own

    async def put_blob(self, tape: str, data: bytes) -> str:
        """Keep the bytes in memory."""
        digest = blob_digest(data)
        self._blobs[tape, digest] = data
        return digest

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        """Do nothing: the fork has its entries."""

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """Do nothing: the fork has its entries."""

    async def drop_fork(self, fork: str) -> None:
        """Forget the blobs with a fork of the tape: what it wrote is needed no more."""
        if "/" not in fork:
            self._blobs.clear()

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """Merge a fork of a fork, which has its entries; refuse to merge into a tape."""
        if "/" not in fork:
            self._refuse()
        return [batch.entries for batch in batches]

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        """List none: nothing was stored."""
        return []

    async def forked_sessions(self) -> list[ForkedSession]:
        """List none."""
        return []

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """Refuse."""
        self._refuse()

    def append_deferred(self, batches: Sequence[Batch]) -> Awaitable[list[tuple[TapeEntry, ...]]]:
        """Refuse."""
        self._refuse()

    async def raise_epoch(self, tape: str) -> int:
        """Refuse."""
        self._refuse()

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Refuse."""
        self._refuse()

    async def aclose(self) -> None:
        """Leave the other store open: it is its owner's."""

    def _refuse(self) -> NoReturn:
        raise TapeConflict("this is a copy of the tapes, in which nothing is written")
