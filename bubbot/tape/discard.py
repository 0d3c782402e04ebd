# ruff: noqa: ARG002 - the methods of a port that refuse
"""A store that never writes: forks and blobs live in memory, for work on a copy of the tapes."""

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
    """Reads from another store, keeps blobs in memory until a fork is dropped, and refuses other writes.

    See `TapeStore`.
    """

    def __init__(self, store: TapeStore) -> None:
        self._store = store
        self.tape_shards = count_shards(store)
        self._blobs: dict[tuple[str, str], bytes] = {}

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        return await self._store.fetch(queries)

    async def head(self, tape: str) -> int:
        return await self._store.head(tape)

    async def tapes(self) -> list[TapeSummary]:
        return await self._store.tapes()

    async def get_blob(self, tape: str, digest: str) -> bytes:
        own = self._blobs.get((tape, digest))
        return await self._store.get_blob(tape, digest) if own is None else own

    async def put_blob(self, tape: str, data: bytes) -> str:
        digest = blob_digest(data)
        self._blobs[tape, digest] = data
        return digest

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        """Do nothing: the fork keeps its entries."""

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """Do nothing: the fork keeps its entries."""

    async def drop_fork(self, fork: str) -> None:
        """Forget the blobs together with a fork of the tape."""
        if "/" not in fork:
            self._blobs.clear()

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """Merge a fork of a fork, which keeps its entries; refuse to merge into a tape."""
        if "/" not in fork:
            self._refuse()
        return [batch.entries for batch in batches]

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        return []

    async def forked_sessions(self) -> list[ForkedSession]:
        return []

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        self._refuse()

    def append_deferred(self, batches: Sequence[Batch]) -> Awaitable[list[tuple[TapeEntry, ...]]]:
        self._refuse()

    async def raise_epoch(self, tape: str) -> int:
        self._refuse()

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        self._refuse()

    async def erase(
        self,
        batches: Sequence[Batch],
        entries: Sequence[tuple[str, tuple[int, ...]]],
        blobs: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> list[tuple[TapeEntry, ...]]:
        self._refuse()

    async def aclose(self) -> None:
        """Leave the other store open: its owner closes it."""

    def _refuse(self) -> NoReturn:
        raise TapeConflict("this is a copy of the tapes, in which nothing is written")
