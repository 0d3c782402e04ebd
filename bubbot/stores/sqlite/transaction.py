"""The transaction of a group of writes, whose queries and changes are combined into few statements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import aiosqlite

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.stores.sqlite.rows import INSERT_ENTRY, SELECT_ENTRIES, StoredContent, encode_content, from_row, to_row
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


MAX_ASKED = 256
"""The most names or keys in one query."""
_AFTER_SLASH = chr(ord("/") + 1)  # the ids of a fork's forks begin with its own id and a slash

_SELECT_ENDS = """
WITH asked(asked_name) AS (VALUES {values})
SELECT asked_name, tapes.tape, archived_from, head.id, head.chain,
    (SELECT epoch FROM leases WHERE leases.tape = asked_name),
    (SELECT coalesce(max(seq), 0) FROM entries), (SELECT coalesce(max(tape), 0) FROM tapes)
FROM asked LEFT JOIN tapes ON tapes.name = asked_name
LEFT JOIN entries AS head INDEXED BY entries_id ON head.tape = tapes.tape
    AND head.id = (SELECT max(id) FROM entries INDEXED BY entries_id WHERE entries.tape = tapes.tape)
"""
_SELECT_KEYS = (
    "WITH asked(asked_name, asked_key) AS (VALUES {values}) "
    + SELECT_ENTRIES.replace("SELECT ", "SELECT asked_name, ", 1).rpartition(" FROM ")[0]
    + " FROM asked CROSS JOIN tapes ON tapes.name = asked_name "
    "CROSS JOIN entries INDEXED BY entries_key ON entries.tape = tapes.tape AND entries.key = asked_key"
)
_SELECT_FORKS = """
SELECT fork, tape, base, (SELECT count(*) FROM fork_batches WHERE fork_batches.fork = forks.fork) FROM forks
"""
_INSERT_TAPE = "INSERT INTO tapes (tape, name) VALUES (?, ?)"
_INSERT_FORK = "INSERT INTO forks (fork, tape, base, reset, session, epoch) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_FORK_BATCH = "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) VALUES (?, ?, ?, ?, ?)"
_RESET_FORK = "UPDATE forks SET reset = ? WHERE fork = ?"
_DELETE_FORK_BATCHES = "DELETE FROM fork_batches WHERE fork = ? OR (fork > ? AND fork < ?)"
_DELETE_FORKS = "DELETE FROM forks WHERE fork = ? OR (fork > ? AND fork < ?)"
_STAGED = (
    _INSERT_TAPE,
    INSERT_ENTRY,
    _INSERT_FORK,
    _INSERT_FORK_BATCH,
    _RESET_FORK,
    _DELETE_FORK_BATCHES,
    _DELETE_FORKS,
)
"""The combined statements, in the order in which they run."""


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

    def find_end(self, name: str) -> StoredEnd | None:
        """Return the end of a tape; None if it does not exist."""
        return self.ends.get(name) or self._transaction.ends[name]

    def writable_end(self, name: str) -> StoredEnd:
        """Return the end of a tape; begin the tape if it does not exist. Raise `TapeConflict` for an archive."""
        end = self.find_end(name)
        if end is None:
            self.last_tape += 1
            self.tapes.append((self.last_tape, name))
            end = self.ends[name] = StoredEnd(self.last_tape, 0, genesis(name))
        elif end.archived_from is not None:
            raise TapeConflict(f"{name} is an archive, and takes nothing more: write to {end.archived_from}")
        return end

    def find_by_key(self, name: str, key: str) -> TapeEntry | None:
        """Return the entry of a tape with a key. Raise `TapeCorrupt` if it is unreadable."""
        found = self.keys.get((name, key)) or self._transaction.keys.get((name, key))
        return from_row(name, found) if isinstance(found, tuple) else found


class Transaction:
    """A write transaction, which serves one group of jobs after another.

    It reads ends of tapes and entries by key only once. It collects changes; `execute` and `fetch` write them first, so
    that no statement misses one.

    Attributes:
        ends: the ends of tapes read so far; None for a missing tape.
        keys: the rows or entries by the keys read so far.
        seq: the newest global position.
        last_tape: the highest number of a tape.
        changes: a counter of changes, to compare.
    """

    def __init__(self, conn: aiosqlite.Connection, salt: Salt) -> None:
        self._conn = conn
        self.salt = salt
        self.changes = 0
        self._staged: dict[str, list[Row]] = {statement: [] for statement in _STAGED}
        self._forget()

    def _forget(self) -> None:
        """Forget everything read, after a statement that may have changed it."""
        self.ends: dict[str, StoredEnd | None] = {}
        self.keys: dict[tuple[str, str], Row | TapeEntry | None] = {}
        self.seq = self.last_tape = 0
        self._epochs: dict[str, int] = {}
        self._forks: dict[str, OpenFork] | None = None

    async def begin(self, batches: Sequence[Batch], *, asks_forks: bool) -> None:
        """Begin, and read what the batches need in one round trip to the thread; with `asks_forks` also the forks."""
        forks = [self._open_forks()] if asks_forks else []
        await _run_together([self._conn.execute("BEGIN IMMEDIATE"), *self._list_questions(batches), *forks])

    async def commit(self) -> None:
        """Write the collected changes and commit."""
        await self._flush()
        await self._conn.execute("COMMIT")

    async def execute(self, sql: str, *rows: Sequence[Any]) -> None:
        """Run a changing statement once for each row of values."""
        await self._flush()
        self.changes += 1
        await self._conn.executemany(sql, rows)
        self._forget()

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        await self._flush()
        return list(await self._conn.execute_fetchall(sql, values))  # type: ignore[arg-type]  # rows are plain tuples

    def _stage(self, statement: str, *rows: Row) -> None:
        self._staged[statement] += rows
        self.changes += len(rows)

    async def _flush(self) -> None:
        staged, self._staged = self._staged, {statement: [] for statement in _STAGED}
        # One after the other: an error may have ended the transaction, and a later statement would start its own.
        for statement, rows in staged.items():
            if rows:
                await self._conn.executemany(statement, rows)

    async def load(self, batches: Sequence[Batch], *names: str) -> None:
        """Read the ends of tapes, leases and stored keys that the batches need and that are not known yet."""
        await _run_together(self._list_questions(batches, *names))

    def _list_questions(self, batches: Sequence[Batch], *names: str) -> list[Coroutine[Any, Any, None]]:
        tapes = {name for name in names if name not in self.ends}
        keys: dict[tuple[str, str], None] = {}
        for batch in batches:
            if batch.tape not in self.ends:
                tapes.add(batch.tape)
            if batch.lease is not None and batch.lease.tape not in self.ends:
                tapes.add(batch.lease.tape)
            for entry in batch.entries:
                if entry.key is not None and (batch.tape, entry.key) not in self.keys:
                    keys[batch.tape, entry.key] = None
        return [
            *(self._load_ends(part) for part in _portions([(name,) for name in tapes])),
            *(self._load_keys(part) for part in _portions([*keys])),
        ]

    async def _load_ends(self, names: Sequence[Row]) -> None:
        sql = _SELECT_ENDS.format(values=", ".join(["(?)"] * len(names)))
        for name, tape, archived_from, head, chain, epoch, seq, last_tape in await self._ask(sql, names):
            end = None if tape is None else StoredEnd(tape, head or 0, chain or genesis(name), archived_from)
            self.ends.setdefault(name, end)
            self._epochs.setdefault(name, epoch or 0)
            self.seq, self.last_tape = max(self.seq, seq), max(self.last_tape, last_tape)

    async def _load_keys(self, keys: Sequence[Row]) -> None:
        sql = _SELECT_KEYS.format(values=", ".join(["(?, ?)"] * len(keys)))
        found = {(name, row[2]): row for name, *columns in await self._ask(sql, keys) for row in [tuple(columns)]}
        for key in keys:
            self.keys.setdefault(key, found.get(key))

    async def _ask(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        values = [value for row in rows for value in row]
        return list(await self._conn.execute_fetchall(sql, values))  # type: ignore[arg-type]  # rows are plain tuples

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
        self._stage(_INSERT_TAPE, *plan.tapes)
        self._stage(INSERT_ENTRY, *plan.entries)

    async def raise_epoch(self, tape: str) -> int:
        """Raise the epoch of a tape's lease; return the new one."""
        await self.load((), tape)
        epoch = self._epochs[tape] + 1
        sql = (
            "INSERT INTO leases (epoch, tape) VALUES (?, ?)"
            if epoch == 1
            else "UPDATE leases SET epoch = ? WHERE tape = ?"
        )
        await self.execute(sql, (epoch, tape))
        return epoch

    async def open_fork(self, record: ForkRecord, texts: Sequence[str], *, expect_head: bool) -> None:
        """Store an open fork with its staged batches; `texts`: their `encode_staged` form."""
        await self.refuse_lost_leases(record.staged)
        forks = await self._open_forks()
        if record.parent:
            self._require_fork(forks, record.parent)
        else:
            await self.require_head(record.tape, record.base, exact=expect_head)
        if any(record.id in (low, name) or low < record.id < high for name, low, high in self._staged[_DELETE_FORKS]):
            await self._flush()
        forks[record.id] = OpenFork(record.tape, record.base, 0)
        self._stage(_INSERT_FORK, (record.id, record.tape, record.base, None, record.session, record.epoch))
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
        self._stage(_DELETE_FORK_BATCHES, names)
        self._stage(_DELETE_FORKS, names)

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
            self._forks = {fork: OpenFork(*columns) for fork, *columns in await self._ask(_SELECT_FORKS, ())}
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
            self._stage(_INSERT_FORK_BATCH, (fork, place, batch.tape, int(batch.if_absent), text))
        if reset_batch is not None:
            reset = {"archive": reset_batch.archive, "erase": reset_batch.erase, "also": reset_batch.erase_also}
            self._stage(_RESET_FORK, (json.dumps(reset), fork))


async def _run_together(statements: Sequence[Awaitable[Any]]) -> None:
    """Run statements in order, in one round trip to the thread."""
    if len(statements) == 1:
        await statements[0]
    elif statements:
        await asyncio.gather(*statements)


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + MAX_ASKED] for start in range(0, len(rows), MAX_ASKED))


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
