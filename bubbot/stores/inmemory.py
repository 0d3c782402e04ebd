"""The reference store: the port's meaning in plain Python. Tests compare the other stores with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec import structs

from bubbot.errors import BubbotError, EntryNotFound, StoreUnavailable, TapeConflict, TapeError
from bubbot.ports.store import PositionedEntry
from bubbot.tape import erasure
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, thaw
from bubbot.tape.query import TapeQuery, evaluate
from bubbot.tape.references import MovedIds
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, TapeSummary, refuse_lost_leases


@dataclass
class _Tape:
    entries: list[TapeEntry]
    blobs: dict[str, bytes]
    archived_from: str | None = None
    facts: set[int] = field(default_factory=set)
    """Ids of facts about erasures, which no erasure blanks."""
    positions: list[int] = field(default_factory=list)
    """The global position of each entry."""


class InMemoryStore:
    """A `TapeStore` in dictionaries; nothing survives the process.

    Attributes:
        commit_count: see `CountsEntries.commit_count`.
        tape_shards: see `bubbot.tape.shards`.
    """

    def __init__(self, position_step: int = 1, tape_shards: int = 1) -> None:
        """Build an empty store; `position_step` is the distance between two positions."""
        self.tape_shards = tape_shards
        self._position_step = position_step
        self._position = 0
        self._tapes: dict[str, _Tape] = {}
        self._forks: dict[str, ForkRecord] = {}
        self._epochs: dict[str, int] = {}
        self._open = True
        self._workspace = ""
        self.commit_count = 0

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        self._check_open()
        drafts, stored = self._draft(batches)
        self._commit(drafts)
        return stored

    def append_deferred(self, batches: Sequence[Batch]) -> asyncio.Future[list[tuple[TapeEntry, ...]]]:
        stored: asyncio.Future[list[tuple[TapeEntry, ...]]] = asyncio.get_running_loop().create_future()
        try:
            self._check_open()
            drafts, entries = self._draft(batches)
            self._commit(drafts)
        except BubbotError as error:
            stored.set_exception(error)
        else:
            stored.set_result(entries)
        return stored

    def _draft(self, batches: Sequence[Batch]) -> tuple[dict[str, list[TapeEntry]], list[tuple[TapeEntry, ...]]]:
        self._check_leases(batches)
        drafts: dict[str, list[TapeEntry]] = {}
        stored: list[tuple[TapeEntry, ...]] = []
        moved: MovedIds | None = None
        for batch in batches:
            if batch.entries:
                self._refuse_archive(batch.tape)
            draft = drafts.setdefault(batch.tape, list(self._entries(batch.tape)))
            if batch.expect_head is not None and len(draft) != batch.expect_head:
                raise TapeConflict(f"{batch.tape} has entries to {len(draft)}, not to {batch.expect_head}")
            if batch.rebase is not None:
                moved = batch.rebase.plan(batch.tape, batch.entries, len(draft), partial(_find_by_key, draft))
            entries = [moved.move(batch.tape, entry) for entry in batch.entries] if moved else batch.entries
            stored.append(tuple(_place(batch, draft, entry) for entry in entries))
        return drafts, stored

    async def workspace(self, default: str) -> str:
        self._check_open()
        self._workspace = self._workspace or default
        return self._workspace

    async def count_entries(self) -> int:
        self._check_open()
        return sum(len(tape.entries) for tape in self._tapes.values())

    def _commit(self, drafts: dict[str, list[TapeEntry]]) -> None:
        self.commit_count += 1
        for name, draft in drafts.items():
            if draft:
                stored_tape = self._tapes.setdefault(name, _Tape([], {}))
                stored_tape.entries = draft
                self._number(stored_tape)

    def _number(self, stored_tape: _Tape) -> None:
        """Give the new entries of a tape their positions."""
        for _ in stored_tape.entries[len(stored_tape.positions) :]:
            self._position += self._position_step
            stored_tape.positions.append(self._position)

    async def newest_position(self) -> int:
        self._check_open()
        return self._position

    async def read_after(self, position: int, limit: int) -> list[PositionedEntry]:
        self._check_open()
        entries = [
            PositionedEntry(at, name, entry)
            for name, stored_tape in self._tapes.items()
            for at, entry in zip(stored_tape.positions, stored_tape.entries, strict=True)
            if at > position
        ]
        return sorted(entries, key=lambda positioned: positioned.position)[:limit]

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        self._check_open()
        return [tuple(evaluate(self._entries(query.tape), query)) for query in queries]

    async def head(self, tape: str) -> int:
        self._check_open()
        return len(self._entries(tape))

    async def tapes(self) -> list[TapeSummary]:
        """See `TapeStore.tapes`; the hashes are empty."""
        self._check_open()
        return [
            TapeSummary(name, len(tape.entries), "", tape.archived_from, sum(entry.erased for entry in tape.entries))
            for name, tape in sorted(self._tapes.items())
        ]

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        self._check_open()
        self._check_leases(record.staged)
        if record.parent:
            self._fork(record.parent)
        else:
            self._check_base(record, exact=expect_head)
        self._forks[record.id] = structs.replace(record, staged=_without_leases(record.staged))

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        self._check_open()
        self._check_leases(staged)
        record = self._fork(fork)
        self._forks[fork] = structs.replace(
            record, staged=(*record.staged, *_without_leases(staged)), reset=reset or record.reset
        )

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        self._check_open()
        self._check_leases(batches)
        record = self._fork(fork)
        if len(self._with_forks(fork)) > 1:
            raise TapeConflict(f"the fork {fork} still has open forks: merge or discard them first")
        if record.parent:
            await self.extend_fork(record.parent, batches)
            stored = [batch.entries for batch in batches]
        else:
            if reset and reset[0] == record.tape:
                self._check_base(record)  # a reset must not archive entries that the fork has not seen
            stored = self._restart(*reset, batches) if reset else await self.append(batches)
        del self._forks[fork]
        return stored

    async def drop_fork(self, fork: str) -> None:
        self._check_open()
        for dropped in self._with_forks(fork):
            del self._forks[dropped]

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        self._check_open()
        return [record for record in self._forks.values() if tape in (None, record.tape)]

    async def forked_sessions(self) -> list[ForkedSession]:
        self._check_open()
        found = sorted({(record.tape, record.session) for record in self._forks.values()})
        return [ForkedSession(*each) for each in found]

    async def raise_epoch(self, tape: str) -> int:
        self._check_open()
        self._epochs[tape] = self._epochs.get(tape, 0) + 1
        return self._epochs[tape]

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        self._check_open()
        return self._restart(tape, reset_batch, [Batch(tape, tuple(first))])[0]

    async def erase(
        self,
        batches: Sequence[Batch],
        entries: Sequence[tuple[str, tuple[int, ...]]],
        blobs: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> list[tuple[TapeEntry, ...]]:
        self._check_open()
        tape, date = erasure.require_erasure(batches).tape, erasure.erasure_date(batches)
        ids = self._with_contents(entries)
        covers, tapes = erasure.split_covers(ids), {name: self._tapes[name] for name in ids}
        drafts, stored = self._draft(erasure.with_covers(batches, tape, covers[0]))
        self._commit(drafts)
        self._complete_erasure(tape, tapes, ids, covers=covers, archives=(), date=date)
        for name, digests in blobs:
            self._record_in_home(
                (), self._remove_blobs(name, self._stored_blobs(name).intersection(digests), date), date
            )
        return stored

    async def put_blob(self, tape: str, data: bytes) -> str:
        self._check_open()
        digest = blob_digest(data)
        self._refuse_archive(tape)
        self._tapes.setdefault(tape, _Tape([], {})).blobs[digest] = data
        return digest

    async def get_blob(self, tape: str, digest: str) -> bytes:
        self._check_open()
        stored_tape = self._tapes.get(tape)
        if stored_tape is None or digest not in stored_tape.blobs:
            raise EntryNotFound(f"{tape} has no blob {digest}")
        return stored_tape.blobs[digest]

    async def aclose(self) -> None:
        self._open = False

    def _check_leases(self, batches: Sequence[Batch]) -> None:
        refuse_lost_leases(batches, lambda tape: self._epochs.get(tape, 0))

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")

    def _entries(self, tape: str) -> list[TapeEntry]:
        stored_tape = self._tapes.get(tape)
        return stored_tape.entries if stored_tape else []

    def _fork(self, fork: str) -> ForkRecord:
        record = self._forks.get(fork)
        if record is None:
            raise EntryNotFound(f"no fork {fork} is open")
        return record

    def _with_forks(self, fork: str) -> list[str]:
        """List the open forks among a fork and its nested forks."""
        return [name for name in self._forks if name == fork or name.startswith(f"{fork}/")]

    def _check_base(self, record: ForkRecord, *, exact: bool = True) -> None:
        head = len(self._entries(record.tape))
        if head < record.base or (exact and head != record.base):
            raise TapeConflict(f"{record.tape} has entries to {head}, not to {record.base}")

    def _refuse_archive(self, tape: str) -> None:
        stored_tape = self._tapes.get(tape)
        if stored_tape is not None and stored_tape.archived_from is not None:
            raise TapeConflict(f"{tape} is an archive, and takes nothing more: write to {stored_tape.archived_from}")

    def _restart(self, tape: str, reset: ResetBatch, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        before = dict(self._tapes)
        self._archive(tape, reset, batches)
        ids = self._find_erasable(tape, reset)
        first, *overflow = erasure.split_covers(ids)
        erased_tapes = {name: self._tapes[name] for name in ids}  # a batch may create a tape with the same name again
        try:
            drafts, stored = self._draft(erasure.with_covers(batches, tape, first) if reset.erase else batches)
            facts = [entry for entry in drafts.get(tape, ()) if _is_erasure(entry)]
            if reset.erase and not facts:
                raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
        except TapeError:
            self._tapes = before
            raise
        self._commit(drafts)
        if reset.erase:
            archives = [name for name, stored_tape in sorted(self._tapes.items()) if stored_tape.archived_from == tape]
            date = erasure.erasure_date(batches)
            self._complete_erasure(tape, erased_tapes, ids, covers=(first, *overflow), archives=archives, date=date)
        return stored

    def _complete_erasure(
        self,
        tape: str,
        tapes: Mapping[str, _Tape],
        ids: Mapping[str, set[int]],
        *,
        covers: Sequence[Mapping[str, Any]],
        archives: Sequence[str],
        date: str,
    ) -> None:
        """Blank the entries, whose fact is the newest on `tape`, and remove their blobs; of archives, all blobs."""
        if covers[0]:  # a fact that covers nothing erased nothing
            self._tapes[tape].facts.add([entry.id for entry in self._entries(tape) if _is_erasure(entry)][-1])
        cited = {name: self._cited_blobs(name, some_ids) for name, some_ids in ids.items() if name not in archives}
        self._erase(tapes, ids)
        gone = {name: self._stored_blobs(name) for name in archives}
        gone |= {name: digests - self._named_blobs(name) for name, digests in cited.items()}
        removals = [fact for name, digests in gone.items() for fact in self._remove_blobs(name, digests, date)]
        self._record_in_home(covers[1:], removals, date)

    def _archive(self, tape: str, reset: ResetBatch, batches: Sequence[Batch]) -> None:
        old_tape = self._tapes.pop(tape, None)
        if old_tape:
            last = erasure.build_rename(tape, reset.archive, batches).with_id(len(old_tape.entries) + 1)
            archive = replace(old_tape, entries=[*old_tape.entries, last], archived_from=tape)
            archive.positions = list(old_tape.positions)  # a conflict brings the tape back
            self._tapes[reset.archive] = archive
            self._number(archive)

    def _find_erasable(self, tape: str, reset: ResetBatch) -> dict[str, set[int]]:
        """Find the entries to erase, before the facts about the erasure are written."""
        if not reset.erase:
            return {}
        archives = [name for name, stored_tape in self._tapes.items() if stored_tape.archived_from == tape]
        ids = {name: self._with_content(name, None) for name in archives}
        for name, some_ids in self._with_contents(reset.erase_also).items():
            ids[name] = ids.get(name, set()) | some_ids
        return ids

    def _with_contents(self, entries: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, set[int]]:
        """Return those of the entries that an erasure would blank, by tape."""
        ids: dict[str, set[int]] = {}
        for name, some_ids in entries:
            if name in self._tapes:
                ids[name] = ids.get(name, set()) | self._with_content(name, set(some_ids))
        return ids

    def _with_content(self, name: str, only: set[int] | None) -> set[int]:
        stored_tape = self._tapes[name]
        return {
            entry.id
            for entry in stored_tape.entries
            if (only is None or entry.id in only) and not entry.erased and not _is_protected(stored_tape, name, entry)
        }

    def _erase(self, tapes: Mapping[str, _Tape], ids: Mapping[str, set[int]]) -> None:
        for name, stored_tape in tapes.items():
            stored_tape.entries = [_blank(entry) if entry.id in ids[name] else entry for entry in stored_tape.entries]

    def _stored_blobs(self, name: str) -> set[str]:
        return set(self._tapes[name].blobs) if name in self._tapes else set()

    def _cited_blobs(self, name: str, ids: set[int]) -> set[str]:
        """Return the stored blobs of a tape that some of these entries cite."""
        entries = [entry for entry in self._entries(name) if entry.id in ids]
        return self._stored_blobs(name) & _digests_in(entries)

    def _named_blobs(self, name: str) -> set[str]:
        """Return the digests in the entries of a tape and in the open forks."""
        staged = (entry for record in self._forks.values() for batch in record.staged for entry in batch.entries)
        return _digests_in([*self._entries(name), *staged])

    def _remove_blobs(self, name: str, digests: set[str], date: str) -> list[TapeEntry]:
        """Remove blobs of a tape; return the facts about it, which are not stored yet."""
        facts = list(erasure.build_blob_removals(name, digests, "erased", date))
        for digest in digests:
            del self._tapes[name].blobs[digest]
        return facts

    def _record_in_home(self, overflow: Sequence[Mapping[str, Any]], removals: Sequence[TapeEntry], date: str) -> None:
        """Record the erasures that did not fit into the first fact, and the removed blobs."""
        facts = [*(erasure.build_further_erasure(covers, date) for covers in overflow), *removals]
        if facts:
            drafts, stored = self._draft([Batch(erasure.HOME_TAPE, tuple(facts))])
            self._commit(drafts)
            self._tapes[erasure.HOME_TAPE].facts.update(fact.id for fact in stored[0][: len(overflow)])


def _is_erasure(entry: TapeEntry) -> bool:
    return (entry.kind, entry.name) == (Kind.EVENT, erasure.TAPE_ERASED)


def _digests_in(entries: Iterable[TapeEntry]) -> set[str]:
    texts = (json.dumps([thaw(entry.payload), thaw(entry.meta)]) for entry in entries)
    return {digest for text in texts for digest in erasure.find_digests(text)}


def _is_protected(stored_tape: _Tape, name: str, entry: TapeEntry) -> bool:
    """Return true if erasures must not blank the entry: it names the tape or records an erasure."""
    if stored_tape.archived_from is not None and entry.id == len(stored_tape.entries):
        return erasure.is_rename(entry.kind, entry.payload, stored_tape.archived_from, name)
    return entry.id in stored_tape.facts


def _without_leases(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    return tuple(structs.replace(batch, lease=None) for batch in batches)


def _find_by_key(entries: Sequence[TapeEntry], key: str) -> TapeEntry | None:
    return next((entry for entry in entries if entry.key == key), None)


def _place(batch: Batch, draft: list[TapeEntry], entry: TapeEntry) -> TapeEntry:
    """Append the entry to the draft, or return the stored entry with its key."""
    if entry.key is not None:
        stored_entry = _find_by_key(draft, entry.key)
        if stored_entry is not None:
            if batch.skips(entry.key) or stored_entry.erased or stored_entry.same_content(entry):
                return stored_entry
            raise TapeConflict(
                f"{batch.tape} already has other content under the key {entry.key} (entry {stored_entry.id})"
            )
    stored = entry.with_id(len(draft) + 1)
    draft.append(stored)
    return stored


def _blank(entry: TapeEntry) -> TapeEntry:
    return replace(entry, payload=EMPTY_OBJECT, meta=EMPTY_OBJECT, erased=True)
