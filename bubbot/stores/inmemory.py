"""The reference store: what the port means, in plain Python. The oracle the other stores are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bubbot.errors import EntryNotFound, StoreUnavailable, TapeConflict, TapeError
from bubbot.tape.blobs import digest_of
from bubbot.tape.entry import EMPTY, Kind, TapeEntry
from bubbot.tape.query import TapeQuery, evaluate
from bubbot.tape.store import Batch, ForkRecord, Reset, TapeSummary


@dataclass
class _Tape:
    entries: list[TapeEntry]
    blobs: dict[str, bytes]
    archived_from: str | None = None


class InMemoryStore:
    """Keeps everything in dictionaries; nothing survives the process."""

    def __init__(self) -> None:
        self._tapes: dict[str, _Tape] = {}
        self._forks: dict[str, ForkRecord] = {}
        self._open = True

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        self._check()
        drafts, stored = self._draft(batches)
        self._keep(drafts)
        return stored

    async def append_along(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append_along`."""
        return await self.append(batches)

    def _draft(self, batches: Sequence[Batch]) -> tuple[dict[str, list[TapeEntry]], list[tuple[TapeEntry, ...]]]:
        drafts: dict[str, list[TapeEntry]] = {}
        stored: list[tuple[TapeEntry, ...]] = []
        for batch in batches:
            draft = drafts.setdefault(batch.tape, list(self._entries(batch.tape)))
            if batch.expect_head is not None and len(draft) != batch.expect_head:
                raise TapeConflict(f"{batch.tape} has entries to {len(draft)}, not to {batch.expect_head}")
            stored.append(tuple(_place(batch, draft, entry) for entry in batch.entries))
        return drafts, stored

    def _keep(self, drafts: dict[str, list[TapeEntry]]) -> None:
        for name, draft in drafts.items():
            if draft:
                self._tapes.setdefault(name, _Tape([], {})).entries = draft

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        self._check()
        return [tuple(evaluate(self._entries(query.tape), query)) for query in queries]

    async def head(self, tape: str) -> int:
        """See `TapeStore.head`."""
        self._check()
        return len(self._entries(tape))

    async def tapes(self) -> list[TapeSummary]:
        """See `TapeStore.tapes`; this store keeps no hashes."""
        self._check()
        return [
            TapeSummary(name, len(tape.entries), "", tape.archived_from, sum(entry.erased for entry in tape.entries))
            for name, tape in sorted(self._tapes.items())
        ]

    async def open_fork(self, record: ForkRecord) -> None:
        """See `TapeStore.open_fork`."""
        self._check()
        self._check_base(record)
        self._forks[record.id] = record

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: Reset | None = None) -> None:
        """See `TapeStore.extend_fork`."""
        self._check()
        record = self._forks.get(fork)
        if record is None:
            raise EntryNotFound(f"no fork {fork} is open")
        self._forks[fork] = replace(record, staged=(*record.staged, *staged), reset=reset or record.reset)

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, Reset] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.merge_fork`."""
        self._check()
        record = self._forks.get(fork)
        if record is None:
            raise EntryNotFound(f"no fork {fork} is open")
        if reset and reset[0] == record.tape:
            self._check_base(record)  # a reset puts nothing aside that the fork has not seen
        stored = self._restart(*reset, batches) if reset else await self.append(batches)
        del self._forks[fork]
        return stored

    async def drop_fork(self, fork: str) -> None:
        """See `TapeStore.drop_fork`."""
        self._check()
        self._forks.pop(fork, None)

    async def forks(self) -> list[ForkRecord]:
        """See `TapeStore.forks`."""
        self._check()
        return list(self._forks.values())

    async def reset(self, tape: str, how: Reset, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """See `TapeStore.reset`."""
        self._check()
        return self._restart(tape, how, [Batch(tape, tuple(first))])[0]

    async def put_blob(self, tape: str, data: bytes) -> str:
        """See `BlobStore.put_blob`."""
        self._check()
        digest = digest_of(data)
        self._tapes.setdefault(tape, _Tape([], {})).blobs[digest] = data
        return digest

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """See `BlobStore.get_blob`."""
        self._check()
        kept = self._tapes.get(tape)
        if kept is None or digest not in kept.blobs:
            raise EntryNotFound(f"{tape} has no blob {digest}")
        return kept.blobs[digest]

    async def aclose(self) -> None:
        """See `TapeStore.aclose`."""
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")

    def _entries(self, tape: str) -> list[TapeEntry]:
        kept = self._tapes.get(tape)
        return kept.entries if kept else []

    def _check_base(self, record: ForkRecord) -> None:
        head = len(self._entries(record.tape))
        if head != record.base:
            raise TapeConflict(f"{record.tape} has entries to {head}, not to {record.base}")

    def _restart(self, tape: str, how: Reset, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        before = dict(self._tapes)
        self._put_aside(tape, how)
        try:
            drafts, stored = self._draft(batches)
            facts = [entry for entry in drafts.get(tape, ()) if (entry.kind, entry.name) == (Kind.EVENT, "tape/erased")]
            if how.erase and not facts:
                raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
        except TapeError:
            self._tapes = before
            raise
        self._keep(drafts)
        self._erase(tape, how)
        return stored

    def _put_aside(self, tape: str, how: Reset) -> None:
        old = self._tapes.pop(tape, None)
        if old:
            self._tapes[how.archive] = replace(old, archived_from=tape)

    def _erase(self, tape: str, how: Reset) -> None:
        if not how.erase:
            return
        for kept in self._tapes.values():
            if kept.archived_from == tape:
                kept.entries = [_blank(entry) for entry in kept.entries]
                kept.blobs.clear()
        for name, ids in how.also:
            if other := self._tapes.get(name):
                other.entries = [_blank(entry) if entry.id in ids else entry for entry in other.entries]


def _place(batch: Batch, draft: list[TapeEntry], entry: TapeEntry) -> TapeEntry:
    """Puts the entry at the end of the draft, or finds the one already there under its key."""
    if entry.key is not None:
        known = next((old for old in draft if old.key == entry.key), None)
        if known is not None:
            if batch.keep_first or known.erased or known.same_content(entry):
                return known
            raise TapeConflict(f"{batch.tape} already has other content under the key {entry.key} (entry {known.id})")
    stored = entry.stored(len(draft) + 1)
    draft.append(stored)
    return stored


def _blank(entry: TapeEntry) -> TapeEntry:
    return replace(entry, payload=EMPTY, meta=EMPTY, erased=True)
