"""The transaction of a group of writes, whose queries and changes are combined into few statements.

Jobs plan in memory what they write: each sees what the jobs before it have planned, and one that is refused has planned
nothing. A store adds how it reads and writes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum, auto
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.stores.rows import StoredContent, encode_content, from_row, to_row
from bubbot.tape.chain import genesis
from bubbot.tape.entry import TapeEntry, encode
from bubbot.tape.references import MovedIds
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, refuse_lost_leases

Salt: TypeAlias = Callable[[int], bytes]
"""Returns this many random bytes."""
Contents: TypeAlias = Mapping[int, StoredContent]
"""Contents encoded before the transaction, by the identity of the entry."""
Row: TypeAlias = tuple[Any, ...]


class Fetch(Protocol):
    """Returns the rows of a statement."""

    async def __call__(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...


_AFTER_SLASH = chr(ord("/") + 1)  # the ids of a fork's forks begin with its own id and a slash


class Change(StrEnum):
    """A change that a transaction collects; changes of one kind are written together, kind by kind in this order."""

    INSERT_TAPE = auto()
    INSERT_ENTRY = auto()
    INSERT_FORK = auto()
    INSERT_FORK_BATCH = auto()
    RESET_FORK = auto()
    DELETE_FORK_BATCHES = auto()
    DELETE_FORKS = auto()


_CHANGES = tuple(
    Change
)  # each message writes several transactions, and an iterator of an enumeration calls Python for each


class StoredEnd(NamedTuple):
    """The end of a tape in the database: its number, newest id and chain value, and the name it had before it became an archive."""

    tape: int
    head: int
    chain: bytes
    archived_from: str | None = None


class OpenFork(NamedTuple):
    """An open fork; `base` is the head of its parent at its opening, `batches` their number."""

    tape: str
    base: int
    batches: int


class _Plan:
    """The changes of an append, which apply only once the whole append is sure to succeed."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.ends: dict[str, StoredEnd] = {}
        self.keys: dict[tuple[str, str], TapeEntry] = {}
        self.seq, self.last_tape = transaction.seq, transaction.last_tape
        self.tapes: list[Row] = []
        self.entries: list[Row] = []
        self.placed: list[tuple[str, int, TapeEntry]] = []

    def find_end(self, name: str) -> StoredEnd | None:
        """Return the end of a tape; None if it does not exist."""
        return self.ends.get(name) or self._transaction.ends[name]

    def writable_end(self, name: str) -> StoredEnd:
        """Return the end of a tape; begin the tape if it does not exist. Raise `TapeConflict` for an archive."""
        end = self.find_end(name)
        if end is None:
            number = self._transaction.numbers.get(name)
            if number is None:
                self.last_tape += 1
                number = self.last_tape
                self.tapes.append((number, name))
            end = self.ends[name] = StoredEnd(number, 0, genesis(name))
        elif end.archived_from is not None:
            raise TapeConflict(f"{name} is an archive, and takes nothing more: write to {end.archived_from}")
        return end

    def find_by_key(self, name: str, key: str) -> TapeEntry | None:
        """Return the entry of a tape with a key. Raise `TapeCorrupt` if it is unreadable."""
        found = self.keys.get((name, key)) or self._transaction.keys.get((name, key))
        return from_row(name, found) if isinstance(found, tuple) else found


class Needs(Struct, frozen=True):
    """What a job reads, so that its group reads it together with what the others need.

    Attributes:
        batches: their tapes, keys and leases.
        names: further tapes.
        forks: forks, which are read with all forks of the same outermost one.
        is_exclusive: no other transaction may write meanwhile, since the job chooses its tapes only as it runs.
    """

    batches: Sequence[Batch] = ()
    names: Sequence[str] = ()
    forks: Sequence[str] = ()
    is_exclusive: bool = False


class Transaction(ABC):
    """A write transaction, which serves one group of jobs after another.

    It reads ends of tapes and entries by key only once. It collects changes; `execute` and `fetch` write them first, so
    that no statement misses one.

    Attributes:
        ends: the ends of tapes read so far; None for a missing tape.
        keys: the rows or entries by the keys read so far.
        seq: the newest global position.
        last_tape: the highest number of a tape.
        numbers: numbers of tapes without entries, by name, where the database has given them.
        changes: a counter of changes, to compare.
        woken: the sessions that have work after it.
    """

    def __init__(self, salt: Salt) -> None:
        self.salt = salt
        self.changes = 0
        self.numbers: dict[str, int] = {}
        self.ends: dict[str, StoredEnd | None] = {}
        self.keys: dict[tuple[str, str], Row | TapeEntry | None] = {}
        self.seq = self.last_tape = 0
        self.woken: list[str] = []
        self._staged: dict[Change, list[Row]] = {change: [] for change in _CHANGES}
        self._epochs: dict[str, int] = {}
        self._forks: dict[str, OpenFork] | None = None

    @abstractmethod
    async def begin(self, needs: Needs) -> None:
        """Begin, and read what the jobs need in one round trip."""

    @abstractmethod
    async def commit(self) -> None:
        """Write the collected changes and commit."""

    @abstractmethod
    async def load(self, batches: Sequence[Batch], *names: str) -> None:
        """Read the ends of tapes, leases and stored keys that the batches need and that are not known yet."""

    @abstractmethod
    async def execute(self, sql: str, *rows: Sequence[Any]) -> None:
        """Run a changing statement once for each row of values."""

    @abstractmethod
    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement."""

    @abstractmethod
    async def raise_epoch(self, tape: str) -> int:
        """Raise the epoch of a tape's lease; return the new one."""

    @abstractmethod
    async def begin_erasure(self) -> None:
        """Make what is derived from the entries, such as an index, stale with the commit."""

    @abstractmethod
    async def rename(self, tape: int, name: str, archived_from: str) -> None:
        """Rename a tape into the archive that its last entry names."""

    @abstractmethod
    async def blank(self, fact: int, rows: Sequence[tuple[int, int]]) -> None:
        """Erase the content of entries, (number of the tape, id), by the fact at this position."""

    @abstractmethod
    async def delete_blobs(self, tape: str, digests: Sequence[str]) -> None:
        """Delete blobs that the newest entry of all names."""

    @abstractmethod
    async def _load_forks(self) -> dict[str, OpenFork]:
        """Read the open forks."""

    @abstractmethod
    async def flush(self) -> None:
        """Write the collected changes."""

    @abstractmethod
    async def put_blob(self, tape: str, digest: str, data: bytes) -> None:
        """Add a blob to a tape unless it has it. Raise `TapeConflict` for an archive."""

    @abstractmethod
    async def keep_label(self, label: str) -> str:
        """Return the label in the names of tapes; the first caller's stays."""

    @abstractmethod
    async def keep_shards(self, number: int, *, is_copied: bool = False) -> int:
        """Return the number of shards of system tapes (see `bubbot.tape.shards`); the first caller's stays.

        `is_copied`: tapes follow that have this number. The store holds none yet.
        """

    def stage_stored(self, name: str, tape: int, columns: Row) -> int:  # noqa: ARG002 - some stores index by it
        """Insert a row of another store as it is; return its position here.

        Args:
            name: of its tape.
            tape: the number of its tape here.
            columns: those of `ENTRY_COLUMNS` from `id` on.
        """
        self.seq += 1
        self._stage(Change.INSERT_ENTRY, (self.seq, tape, *columns))
        return self.seq

    def _index(self, placed: Sequence[tuple[str, int, TapeEntry]]) -> None:  # noqa: B027 - few stores need it
        """Collect what is derived from new entries, (name of the tape, its number, entry), and written with them."""

    def _forget(self) -> None:
        """Forget everything read, after a statement that may have changed it."""
        self.ends, self.keys, self._epochs, self._forks = {}, {}, {}, None

    def _take_staged(self) -> Mapping[Change, Sequence[Row]]:
        """Return the collected changes, kind by kind in their order; they are no longer collected."""
        staged, self._staged = self._staged, {change: [] for change in _CHANGES}
        return staged

    def _stage(self, change: Change, *rows: Row) -> None:
        self._staged[change] += rows
        self.changes += len(rows)

    def _missing_names(self, batches: Sequence[Batch], names: Sequence[str]) -> set[str]:
        """Return the tapes that the batches need and whose ends are not known."""
        tapes = {*names, *(batch.tape for batch in batches)}
        tapes |= {batch.lease.tape for batch in batches if batch.lease is not None}
        return {name for name in tapes if name not in self.ends}

    def _missing_keys(self, batches: Sequence[Batch]) -> list[tuple[str, str]]:
        """Return (tape, key) of the entries whose stored ones are not known."""
        keys = dict.fromkeys(
            (batch.tape, entry.key) for batch in batches for entry in batch.entries if entry.key is not None
        )
        return [key for key in keys if key not in self.keys]

    async def find_tape(self, name: str) -> StoredEnd | None:
        """Return the end of a tape; None if it does not exist."""
        await self.load((), name)
        return self.ends[name]

    async def begin_tape(self, name: str) -> int:
        """Return the number of a tape; begin the tape if it does not exist. Raise `TapeConflict` for an archive."""
        await self.load((), name)
        plan = _Plan(self)
        end = plan.writable_end(name)
        self._adopt(plan)
        return end.tape

    async def append(self, batches: Sequence[Batch], contents: Contents | None = None) -> list[tuple[TapeEntry, ...]]:
        """Append the batches, all or nothing. Raise `LeaseLost` and `TapeConflict`.

        `contents`: contents that are encoded already.
        """
        await self.load(batches)
        refuse_lost_leases(batches, self._epochs.__getitem__)
        plan, contents = _Plan(self), contents or {}
        stored: list[tuple[TapeEntry, ...]] = []
        moved: MovedIds | None = None
        for batch in batches:
            end = plan.writable_end(batch.tape) if batch.entries else plan.find_end(batch.tape)
            head = end.head if end else 0
            if batch.expect_head is not None and head != batch.expect_head:
                raise TapeConflict(f"{batch.tape} has entries to {head}, not to {batch.expect_head}")
            if batch.rebase is not None:
                moved = batch.rebase.plan(batch.tape, batch.entries, head, partial(plan.find_by_key, batch.tape))
            entries = [moved.move(batch.tape, entry) for entry in batch.entries] if moved else batch.entries
            stored.append(tuple(self._place(plan, batch, entries, contents)))
        self._adopt(plan)
        self.woken += [batch.wakes for batch in batches if batch.wakes]
        return stored

    def _place(
        self, plan: _Plan, batch: Batch, entries: Sequence[TapeEntry], contents: Contents
    ) -> Iterator[TapeEntry]:
        """Yield each entry in its final form, or the stored one with its key. Raise `TapeConflict`."""
        for entry in entries:
            key = entry.key
            on_tape = None if key is None else plan.find_by_key(batch.tape, key)
            if on_tape is None:
                tape, head, chain, _ = plan.writable_end(batch.tape)
                placed = entry.with_id(head + 1)
                content = contents.get(id(entry)) or encode_content(entry, self.salt(16))
                plan.seq += 1
                row = to_row(placed, content, seq=plan.seq, tape=tape, previous=chain)
                plan.entries.append(row)
                plan.placed.append((batch.tape, tape, placed))
                plan.ends[batch.tape] = StoredEnd(tape, placed.id, row[-1])
                if key is not None:
                    plan.keys[batch.tape, key] = placed
                yield placed
            elif batch.skips(key) or on_tape.erased or on_tape.same_content(entry):
                yield on_tape
            else:
                raise TapeConflict(f"{batch.tape} already has other content under the key {key} (entry {on_tape.id})")

    def _adopt(self, plan: _Plan) -> None:
        self.ends.update(plan.ends)
        self.keys.update(plan.keys)
        self.seq, self.last_tape = plan.seq, plan.last_tape
        self._stage(Change.INSERT_TAPE, *plan.tapes)
        self._stage(Change.INSERT_ENTRY, *plan.entries)
        self._index(plan.placed)

    async def open_fork(self, record: ForkRecord, texts: Sequence[str], *, expect_head: bool) -> None:
        """Store an open fork with its staged batches; `texts`: their `encode_staged` form."""
        await self.refuse_lost_leases(record.staged)
        forks = await self._open_forks()
        if record.parent:
            self._require_fork(forks, record.parent)
        else:
            await self.require_head(record.tape, record.base, exact=expect_head)
        if any(
            record.id in (low, name) or low < record.id < high for name, low, high in self._staged[Change.DELETE_FORKS]
        ):
            await self.flush()
        forks[record.id] = OpenFork(record.tape, record.base, 0)
        self._stage(Change.INSERT_FORK, (record.id, record.tape, record.base, None, record.session, record.epoch))
        self._add_batches(forks, record.id, record.staged, texts, record.reset)

    async def extend_fork(
        self, fork: str, staged: Sequence[Batch], texts: Sequence[str], reset_batch: ResetBatch | None
    ) -> None:
        """Add batches to an open fork; `texts`: their `encode_staged` form."""
        await self.refuse_lost_leases(staged)
        forks = await self._open_forks()
        self._require_fork(forks, fork)
        self._add_batches(forks, fork, staged, texts, reset_batch)

    async def drop_fork(self, fork: str) -> None:
        """Delete a fork and its forks."""
        forks = await self._open_forks()
        for name in [fork, *_forks_of(fork, forks)]:
            forks.pop(name, None)
        names = (fork, f"{fork}/", f"{fork}{_AFTER_SLASH}")
        self._stage(Change.DELETE_FORK_BATCHES, names)
        self._stage(Change.DELETE_FORKS, names)

    async def find_fork(self, fork: str) -> OpenFork:
        """Return an open fork. Raise `EntryNotFound`, or `TapeConflict` if it has open forks itself."""
        forks = await self._open_forks()
        opened = self._require_fork(forks, fork)
        if _forks_of(fork, forks):
            raise TapeConflict(f"the fork {fork} still has open forks: merge or discard them first")
        return opened

    async def refuse_lost_leases(self, batches: Sequence[Batch]) -> None:
        """Raise `LeaseLost` if a batch's lease is lost to another holder."""
        await self.load((), *(batch.lease.tape for batch in batches if batch.lease))
        refuse_lost_leases(batches, self._epochs.__getitem__)

    async def require_head(self, name: str, base: int, *, exact: bool = True) -> None:
        """Raise `TapeConflict` if the head of a tape is below `base` or, if `exact`, not equal to it."""
        end = await self.find_tape(name)
        head = end.head if end else 0
        if head < base or (exact and head != base):
            raise TapeConflict(f"{name} has entries to {head}, not to {base}")

    async def _open_forks(self) -> dict[str, OpenFork]:
        if self._forks is None:
            self._forks = await self._load_forks()
        return self._forks

    def _require_fork(self, forks: Mapping[str, OpenFork], fork: str) -> OpenFork:
        if fork not in forks:
            raise EntryNotFound(f"no fork {fork} is open")
        return forks[fork]

    def _add_batches(
        self,
        forks: dict[str, OpenFork],
        fork: str,
        staged: Sequence[Batch],
        texts: Sequence[str],
        reset_batch: ResetBatch | None,
    ) -> None:
        opened = forks[fork]
        forks[fork] = opened._replace(batches=opened.batches + len(staged))
        for place, (batch, text) in enumerate(zip(staged, texts, strict=True), opened.batches):
            self._stage(Change.INSERT_FORK_BATCH, (fork, place, batch.tape, int(batch.if_absent), text))
        if reset_batch is not None:
            reset = {"archive": reset_batch.archive, "erase": reset_batch.erase, "also": reset_batch.erase_also}
            self._stage(Change.RESET_FORK, (json.dumps(reset), fork))


def _forks_of(fork: str, forks: Mapping[str, OpenFork]) -> list[str]:
    return [name for name in forks if name.startswith(f"{fork}/")]


def encode_batches(batches: Sequence[Batch], salt: Salt) -> Contents:
    """Encode and hash the entries of batches, before they wait for their group.

    The batches must stay alive while the result is used.
    """
    entries = [entry for batch in batches for entry in batch.entries]
    salts = salt(16 * len(entries))
    return {id(entry): encode_content(entry, salts[at * 16 : at * 16 + 16]) for at, entry in enumerate(entries)}


def encode_staged(staged: Sequence[Batch]) -> list[str]:
    """Encode the entries of each batch of a fork."""
    return [f"[{','.join(map(_encode_entry, batch.entries))}]" for batch in staged]


def decode_staged(tape: str, entries: str, *, if_absent: bool) -> Batch:
    """Decode a stored batch of a fork."""
    return Batch(tape, tuple(map(_decode_entry, json.loads(entries))), if_absent=if_absent)


def decode_reset(text: str | None) -> ResetBatch | None:
    """Decode the stored reset of a fork."""
    if text is None:
        return None
    data = json.loads(text)
    return ResetBatch(
        data["archive"], erase=data["erase"], erase_also=tuple((name, tuple(ids)) for name, ids in data["also"])
    )


def _encode_entry(entry: TapeEntry) -> str:
    payload, meta = entry.texts  # they stay cached: the merge needs them again
    head = encode({"kind": entry.kind, "date": entry.date, "key": entry.key})
    return f'{head[:-1]},"payload":{payload},"meta":{meta}}}'


def _decode_entry(item: dict[str, Any]) -> TapeEntry:
    return replace(TapeEntry(item["kind"], item["payload"], item["meta"], item["date"]), key=item["key"])
