"""The reference store: what the port means, in plain Python. The oracle the other stores are tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bubbot.errors import EntryNotFound, StoreUnavailable, TapeConflict, TapeError
from bubbot.tape import erasure
from bubbot.tape.blobs import digest_of
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry
from bubbot.tape.query import TapeQuery, evaluate
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeSummary


@dataclass
class _Tape:
    entries: list[TapeEntry]
    blobs: dict[str, bytes]
    archived_from: str | None = None
    facts: set[int] = field(default_factory=set)
    """Ids of facts that erased something: they stay."""


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
            if batch.entries:
                self._refuse_archive(batch.tape)
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

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """See `TapeStore.extend_fork`."""
        self._check()
        record = self._forks.get(fork)
        if record is None:
            raise EntryNotFound(f"no fork {fork} is open")
        self._forks[fork] = replace(record, staged=(*record.staged, *staged), reset=reset or record.reset)

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
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

    async def reset(self, tape: str, how: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """See `TapeStore.reset`."""
        self._check()
        return self._restart(tape, how, [Batch(tape, tuple(first))])[0]

    async def put_blob(self, tape: str, data: bytes) -> str:
        """See `BlobStore.put_blob`."""
        self._check()
        digest = digest_of(data)
        self._refuse_archive(tape)
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

    def _refuse_archive(self, tape: str) -> None:
        kept = self._tapes.get(tape)
        if kept is not None and kept.archived_from is not None:
            raise TapeConflict(f"{tape} is an archive, and takes nothing more: write to {kept.archived_from}")

    def _restart(self, tape: str, how: ResetBatch, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        before = dict(self._tapes)
        self._put_aside(tape, how, batches)
        ids = self._doomed(tape, how)
        first, *more = erasure.chunks(ids)
        doomed = {name: self._tapes[name] for name in ids}  # a batch may make a tape of the same name anew
        try:
            drafts, stored = self._draft(erasure.with_covers(batches, tape, first) if how.erase else batches)
            facts = [
                entry for entry in drafts.get(tape, ()) if (entry.kind, entry.name) == (Kind.EVENT, erasure.TAPE_ERASED)
            ]
            if how.erase and not facts:
                raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
        except TapeError:
            self._tapes = before
            raise
        self._keep(drafts)
        if how.erase:
            if first:  # one that covered nothing is no fact of an erasure
                self._tapes[tape].facts.add(facts[-1].id)
            self._erase(doomed, ids)
            self._tell_home(tape, more, erasure.date_of(batches))
        return stored

    def _put_aside(self, tape: str, how: ResetBatch, batches: Sequence[Batch]) -> None:
        old = self._tapes.pop(tape, None)
        if old:
            last = erasure.renamed(tape, how.archive, batches).stored(len(old.entries) + 1)
            self._tapes[how.archive] = replace(old, entries=[*old.entries, last], archived_from=tape)

    def _doomed(self, tape: str, how: ResetBatch) -> dict[str, set[int]]:
        """What is there to be erased, before the facts of it are written (see `sqlite_write`)."""
        if not how.erase:
            return {}
        archives = [name for name, kept in self._tapes.items() if kept.archived_from == tape]
        ids = {name: self._with_content(name, None) for name in archives}
        for name, some in how.also:
            if name in self._tapes:
                ids[name] = ids.get(name, set()) | self._with_content(name, set(some))
        return ids

    def _with_content(self, name: str, some: set[int] | None) -> set[int]:
        kept = self._tapes[name]
        return {
            entry.id
            for entry in kept.entries
            if (some is None or entry.id in some) and not entry.erased and not _stays(kept, name, entry)
        }

    def _erase(self, doomed: dict[str, _Tape], ids: dict[str, set[int]]) -> None:
        for name, kept in doomed.items():
            kept.entries = [_blank(entry) if entry.id in ids[name] else entry for entry in kept.entries]

    def _tell_home(self, tape: str, more: Sequence[Mapping[str, Any]], date: str) -> None:
        """Facts that the first one had no room for, and those about blobs, which go."""
        facts = [erasure.further(covers, date) for covers in more]
        further = len(facts)
        for name, kept in sorted(self._tapes.items()):
            if kept.archived_from == tape:
                facts += erasure.removals(name, kept.blobs, "erased", date)
                kept.blobs = {}
        if facts:
            drafts, stored = self._draft([Batch(erasure.HOME_TAPE, tuple(facts))])
            self._keep(drafts)
            self._tapes[erasure.HOME_TAPE].facts.update(fact.id for fact in stored[0][:further])


def _stays(kept: _Tape, name: str, entry: TapeEntry) -> bool:
    """Whether no erasure blanks it: it says how the tape was called, or what was erased."""
    if kept.archived_from is not None and entry.id == len(kept.entries):
        return erasure.is_rename(entry.kind, entry.payload, kept.archived_from, name)
    return entry.id in kept.facts


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
    return replace(entry, payload=EMPTY_OBJECT, meta=EMPTY_OBJECT, erased=True)
