"""A write transaction on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from typing import Any

import aiosqlite

from bubbot.stores.rows import INSERT_ENTRY, SELECT_ENTRIES, SELECT_SHARDS, shards_of
from bubbot.stores.sqlite.index.schema import ADVANCE_GENERATION
from bubbot.stores.transaction import Change, Needs, OpenFork, Row, Salt, StoredEnd, Transaction
from bubbot.tape.chain import genesis
from bubbot.tape.store import Batch

MAX_ASKED = 256
"""The most names or keys in one query."""

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
_STATEMENTS = {
    Change.INSERT_TAPE: "INSERT INTO tapes (tape, name) VALUES (?, ?)",
    Change.INSERT_ENTRY: INSERT_ENTRY,
    Change.INSERT_FORK: "INSERT INTO forks (fork, tape, base, reset, session, epoch) VALUES (?, ?, ?, ?, ?, ?)",
    Change.INSERT_FORK_BATCH: "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) VALUES (?, ?, ?, ?, ?)",
    Change.RESET_FORK: "UPDATE forks SET reset = ? WHERE fork = ?",
    Change.DELETE_FORK_BATCHES: "DELETE FROM fork_batches WHERE fork = ? OR (fork > ? AND fork < ?)",
    Change.DELETE_FORKS: "DELETE FROM forks WHERE fork = ? OR (fork > ? AND fork < ?)",
}


class SqliteTransaction(Transaction):
    """See `Transaction`.

    It reads ends of tapes and entries by key only once. It collects changes; `execute` and `fetch` write them first, so
    that no statement misses one.
    """

    def __init__(self, conn: aiosqlite.Connection, salt: Salt) -> None:
        super().__init__(salt)
        self._conn = conn

    def _forget(self) -> None:
        super()._forget()
        self.seq = self.last_tape = 0

    async def begin(self, needs: Needs) -> None:
        """See `Transaction.begin`. SQLite has one writer: it is always exclusive."""
        forks = [self._open_forks()] if needs.forks else []
        questions = self._list_questions(needs.batches, *needs.names)
        await _run_together([self._conn.execute("BEGIN IMMEDIATE"), *questions, *forks])

    async def commit(self) -> None:
        await self.flush()
        await self._conn.execute("COMMIT")

    async def execute(self, sql: str, *rows: Sequence[Any]) -> None:
        await self.flush()
        self.changes += 1
        await self._conn.executemany(sql, rows)
        self._forget()

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        await self.flush()
        return list(await self._conn.execute_fetchall(sql, values))  # type: ignore[arg-type]  # rows are plain tuples

    async def flush(self) -> None:
        # One after the other: an error may have ended the transaction, and a later statement would start its own.
        for change, rows in self._take_staged().items():
            if rows:
                await self._conn.executemany(_STATEMENTS[change], rows)

    async def load(self, batches: Sequence[Batch], *names: str) -> None:
        await _run_together(self._list_questions(batches, *names))

    def _list_questions(self, batches: Sequence[Batch], *names: str) -> list[Coroutine[Any, Any, None]]:
        return [
            *(self._load_ends(part) for part in _portions([(name,) for name in self._missing_names(batches, names)])),
            *(self._load_keys(part) for part in _portions(self._missing_keys(batches))),
        ]

    async def _load_ends(self, names: Sequence[Row]) -> None:
        sql = _SELECT_ENDS.format(values=", ".join(["(?)"] * len(names)))
        for name, tape, archived_from, head, chain, epoch, seq, last_tape in await self._ask(sql, names):
            end = None if tape is None else StoredEnd(tape, head or 0, chain or genesis(name), archived_from)
            self.ends.setdefault(name, end)
            self._epochs.setdefault(name, epoch or 0)
            self.seq, self.last_tape = max(self.seq, seq), max(self.last_tape, last_tape)

    async def _load_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        sql = _SELECT_KEYS.format(values=", ".join(["(?, ?)"] * len(keys)))
        found = {(name, row[2]): row for name, *columns in await self._ask(sql, keys) for row in [tuple(columns)]}
        for key in keys:
            self.keys.setdefault(key, found.get(key))

    async def _load_forks(self) -> dict[str, OpenFork]:
        return {fork: OpenFork(*columns) for fork, *columns in await self._ask(_SELECT_FORKS, ())}

    async def _ask(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        values = [value for row in rows for value in row]
        return list(await self._conn.execute_fetchall(sql, values))  # type: ignore[arg-type]  # rows are plain tuples

    async def raise_epoch(self, tape: str) -> int:
        await self.load((), tape)
        epoch = self._epochs[tape] + 1
        sql = (
            "INSERT INTO leases (epoch, tape) VALUES (?, ?)"
            if epoch == 1
            else "UPDATE leases SET epoch = ? WHERE tape = ?"
        )
        await self.execute(sql, (epoch, tape))
        return epoch

    async def begin_erasure(self) -> None:
        """See `Transaction.begin_erasure`: all existing search indexes become stale."""
        await self.execute(ADVANCE_GENERATION, ())

    async def rename(self, tape: int, name: str, archived_from: str) -> None:
        await self.execute("UPDATE tapes SET name = ?, archived_from = ? WHERE tape = ?", (name, archived_from, tape))

    async def blank(self, fact: int, rows: Sequence[tuple[int, int]]) -> None:
        await self.execute("INSERT INTO erased (tape, id, fact) VALUES (?, ?, ?)", *((*row, fact) for row in rows))
        await self.execute(
            "UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL "
            "WHERE tape = ? AND id = ?",
            *rows,
        )

    async def put_blob(self, tape: str, digest: str, data: bytes) -> None:
        number = await self.begin_tape(tape)
        if not await self.fetch("SELECT 1 FROM blobs WHERE tape = ? AND digest = ?", (number, digest)):
            await self.execute("INSERT INTO blobs (tape, digest, data) VALUES (?, ?, ?)", (number, digest, data))

    async def keep_label(self, label: str) -> str:
        await self.execute("INSERT INTO deployment VALUES ('workspace', ?) ON CONFLICT DO NOTHING", (label,))
        return str((await self.fetch("SELECT value FROM deployment WHERE key = 'workspace'"))[0][0])

    async def keep_shards(self, number: int, *, is_copied: bool = False) -> int:
        """See `Transaction.keep_shards`. Without the row there is one: a single process writes."""
        if is_copied:
            await self.execute("INSERT OR REPLACE INTO deployment VALUES ('tape_shards', ?)", (str(number),))
        return shards_of(await self.fetch(SELECT_SHARDS))

    async def delete_blobs(self, tape: str, digests: Sequence[str]) -> None:
        await self.execute(
            "DELETE FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND digest = ?",
            *((tape, digest) for digest in digests),
        )


async def _run_together(statements: Sequence[Awaitable[Any]]) -> None:
    """Run statements in order, in one round trip to the thread."""
    if len(statements) == 1:
        await statements[0]
    elif statements:
        await asyncio.gather(*statements)


def _portions(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + MAX_ASKED] for start in range(0, len(rows), MAX_ASKED))
