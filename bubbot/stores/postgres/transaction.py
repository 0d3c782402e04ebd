"""A write transaction on PostgreSQL: one round trip to begin, which locks the tapes, and one to write and commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import TupleRow

from bubbot.errors import StoreError
from bubbot.stores.postgres.connections import WATCH_SILENCE, to_postgres
from bubbot.stores.postgres.schema import MAX_PLACES, PIECE_BYTES
from bubbot.stores.postgres.words import index_entry
from bubbot.stores.rows import ENTRY_COLUMNS, SELECT_ENTRIES
from bubbot.stores.transaction import Change, Needs, OpenFork, Row, Salt, StoredEnd, Transaction
from bubbot.tape.chain import genesis
from bubbot.tape.entry import TapeEntry
from bubbot.tape.shards import chat_of
from bubbot.tape.store import Batch

_HOLD = "SELECT * FROM hold(%s::text[], %s)"
_COUNT_GROUP = "SELECT count_group(%s, %s)"
_WAKE = "SELECT wake(%s::text[], %s::text[], false)"
_SELECT_KEYS = (
    SELECT_ENTRIES.replace("SELECT ", "SELECT asked_name, ", 1).rpartition(" FROM ")[0]
    + " FROM unnest(%s::text[], %s::text[]) AS asked (asked_name, asked_key) JOIN tapes ON tapes.name = asked_name "
    "JOIN entries ON entries.tape = tapes.tape AND entries.key = asked_key"
)
_SELECT_FORKS = (
    "SELECT fork, tape, base, (SELECT count(*) FROM fork_batches WHERE fork_batches.fork = forks.fork) FROM forks "
    "WHERE split_part(fork, '/', 1) = ANY (%s::text[]) ORDER BY fork FOR UPDATE"
)
_ENTRY_TYPES = (
    "bigint",
    "bigint",
    "bigint",
    "text",
    "text",
    "text",
    "smallint",
    "bigint",
    *["text"] * 3,
    *["bytea"] * 3,
)
_INSERT_ENTRIES = (
    f"INSERT INTO entries ({ENTRY_COLUMNS}) SELECT * FROM "
    f"unnest({', '.join(f'%b::{kind}[]' if kind == 'bytea' else f'%s::{kind}[]' for kind in _ENTRY_TYPES)})"
)
_MANY: Final = {
    Change.INSERT_ENTRY: _INSERT_ENTRIES,
    Change.INSERT_FORK: "INSERT INTO forks (fork, tape, base, reset, session, epoch) SELECT * FROM "
    "unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[])",
    Change.INSERT_FORK_BATCH: "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) SELECT * FROM "
    "unnest(%s::text[], %s::integer[], %s::text[], %s::smallint[], %s::text[])",
}
"""Statements that take all rows as columns."""
_SINGLE: Final = {
    Change.RESET_FORK: "UPDATE forks SET reset = %s WHERE fork = %s",
    Change.DELETE_FORK_BATCHES: "DELETE FROM fork_batches WHERE fork = %s OR (fork > %s AND fork < %s)",
    Change.DELETE_FORKS: "DELETE FROM forks WHERE fork = %s OR (fork > %s AND fork < %s)",
}
"""Statements that run once for each row."""
_RAISE_EPOCHS = (
    "INSERT INTO leases (tape, epoch) SELECT * FROM unnest(%s::text[], %s::bigint[]) "
    "ON CONFLICT (tape) DO UPDATE SET epoch = excluded.epoch"
)
_INSERT_BLOB = (
    "INSERT INTO blobs (tape, digest, size) SELECT %s, %s, %s "
    "WHERE NOT EXISTS (SELECT FROM blobs WHERE tape = %s AND digest = %s)"
)
_INSERT_PIECES = (
    "INSERT INTO blob_pieces (tape, digest, piece, data) SELECT %s, %s, piece - 1, data "
    "FROM unnest(%b::bytea[]) WITH ORDINALITY AS pieces (data, piece) "
    "WHERE NOT EXISTS (SELECT FROM blob_pieces WHERE tape = %s AND digest = %s)"
)


_INSERT_WORDS = (
    "INSERT INTO entry_words (tape, id, words, folded) "
    "SELECT tape, id, array_to_tsvector(string_to_array(words, ' ')), folded "
    "FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[]) AS added (tape, id, words, folded)"
)


class CommitRefused(Exception):
    """The server rolled back where a commit was asked for."""


class PostgresTransaction(Transaction):
    """See `Transaction`. The function `hold` of the schema locks the tapes.

    Attributes:
        is_committing: true once the commit was sent: without an answer nobody knows what became of it.
    """

    def __init__(
        self,
        conn: psycopg.AsyncConnection[TupleRow],
        salt: Salt,
        writer: str,
        group: int,
        queue_of: Callable[[str], str] | None = None,
    ) -> None:
        """Make the transaction of a group.

        Args:
            writer: who writes it, to find out what became of it.
            group: its number.
            queue_of: returns the queue of the workers that run a chat; None: no worker is told.
        """
        super().__init__(salt)
        self._queue_of = queue_of
        self._conn = conn
        self._writer, self._group = writer, group
        self._is_exclusive = False
        self._outermost: set[str] = set()
        self._raised: dict[str, int] = {}
        self._blobs: list[tuple[int, str, bytes]] = []
        self._words: list[tuple[int, int, str, str]] = []
        self._first = 0
        self.is_committing = False

    async def begin(self, needs: Needs) -> None:
        """Begin, lock the tapes, and read what the jobs need in one round trip."""
        self._is_exclusive = needs.is_exclusive
        self._outermost = {fork.partition("/")[0] for fork in needs.forks}
        names, keys = self._missing_names(needs.batches, needs.names), self._missing_keys(needs.batches)
        statements: list[tuple[str, Sequence[Any]]] = [
            ("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", ()),
            (_HOLD, (sorted(names), needs.is_exclusive)),
        ]
        if keys:
            statements.append(_keys_statement(keys))
        if self._outermost:
            statements.append((_SELECT_FORKS, (sorted(self._outermost),)))
        _, ends, *others = await self._run(statements)
        self._adopt_ends(ends)
        if keys:
            self._adopt_keys(keys, others.pop(0))
        if self._outermost:
            self._forks = {fork: OpenFork(*columns) for fork, *columns in others.pop(0)}

    async def commit(self) -> None:
        statements = self._take_changes()
        if self.woken and self._queue_of is not None:
            chats = sorted({chat_of(session) for session in self.woken})
            statements.append((_WAKE, (chats, [self._queue_of(chat) for chat in chats])))
        self.is_committing = True
        cursors = await self._send([*statements, (_COUNT_GROUP, (self._writer, self._group)), ("COMMIT", ())])
        if (status := cursors[-1].statusmessage) != "COMMIT":
            raise CommitRefused(f"the server answered {status} to a commit")

    async def rollback(self) -> None:
        """Give up; do nothing if the connection is gone."""
        if not self._conn.closed:
            await self._conn.execute("ROLLBACK")

    async def execute(self, sql: str, *rows: Sequence[Any]) -> None:
        statement = to_postgres(sql)
        await self._send([*self._take_changes(), *((statement, row) for row in rows)])
        self.changes += 1
        self._forget()

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return (await self._run([*self._take_changes(), (to_postgres(sql), values)]))[-1]

    async def flush(self) -> None:
        if statements := self._take_changes():
            await self._send(statements)

    def _take_changes(self) -> list[tuple[str, Sequence[Any]]]:
        """Return the statements that write the collected changes, which are no longer collected."""
        staged = self._take_staged()
        blobs, self._blobs = self._blobs, []
        words, self._words = self._words, []
        raised, self._raised = self._raised, {}
        statements: list[tuple[str, Sequence[Any]]] = []
        if self.seq - self._first >= MAX_PLACES:
            raise StoreError(f"one transaction writes {MAX_PLACES - 1} entries at most: write them in several steps")
        for change, rows in staged.items():
            if rows and change in _MANY:
                statements.append((_MANY[change], [list(column) for column in zip(*rows, strict=True)]))
            elif rows:
                statements += [(_SINGLE[change], row) for row in rows]
        if words:
            statements.append((_INSERT_WORDS, [list(column) for column in zip(*words, strict=True)]))
        for tape, digest, data in blobs:
            pieces = [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)] or [b""]
            statements.append((_INSERT_BLOB, (tape, digest, len(data), tape, digest)))
            statements.append((_INSERT_PIECES, (tape, digest, pieces, tape, digest)))
        if raised:
            statements.append((_RAISE_EPOCHS, ([*raised], [*raised.values()])))
        return statements

    async def load(self, batches: Sequence[Batch], *names: str) -> None:
        """See `Transaction.load`. Only an exclusive transaction may lock further tapes: others would wait in a circle."""
        missing, keys = self._missing_names(batches, names), self._missing_keys(batches)
        statements = self._take_changes() if missing or keys else []
        before = len(statements)
        if missing:
            statements.append((_HOLD, (sorted(missing), self._is_exclusive)))
        if keys:
            statements.append(_keys_statement(keys))
        if not statements:
            return
        rows = (await self._run(statements))[before:]
        if missing:
            self._adopt_ends(rows.pop(0))
        if keys:
            self._adopt_keys(keys, rows.pop(0))

    def _adopt_ends(self, rows: Sequence[Row]) -> None:
        for name, number, archived_from, head, chain, is_begun, epoch, base in rows:
            self.numbers[name] = number
            end = StoredEnd(number, head, chain or genesis(name), archived_from) if is_begun else None
            self.ends.setdefault(name, end)
            self._epochs.setdefault(name, epoch)
            if not self._first:
                self.seq = self._first = base

    def _adopt_keys(self, keys: Sequence[tuple[str, str]], rows: Sequence[Row]) -> None:
        found = {(name, columns[2]): tuple(columns) for name, *columns in rows}
        for key in keys:
            self.keys.setdefault(key, found.get(key))

    async def _load_forks(self) -> dict[str, OpenFork]:
        rows = (await self._run([*self._take_changes(), (_SELECT_FORKS, (sorted(self._outermost),))]))[-1]
        return {fork: OpenFork(*columns) for fork, *columns in rows}

    async def raise_epoch(self, tape: str) -> int:
        await self.load((), tape)
        epoch = self._epochs[tape] = self._raised[tape] = self._epochs[tape] + 1
        self.changes += 1
        return epoch

    async def put_blob(self, tape: str, digest: str, data: bytes) -> None:
        number = await self.begin_tape(tape)
        self.ends[tape] = self.ends[tape] or StoredEnd(number, 0, genesis(tape))
        self._blobs.append((number, digest, data))
        self.changes += 1

    def _index(self, placed: Sequence[tuple[str, int, TapeEntry]]) -> None:
        self._words += [found for each in placed if (found := index_entry(*each))]

    async def keep_label(self, label: str) -> str:
        return str((await self.fetch("SELECT keep_label(?)", (label,)))[0][0])

    async def keep_shards(self, number: int, *, is_copied: bool = False) -> int:
        """See `Transaction.keep_shards`."""
        return int((await self.fetch("SELECT keep_shards(?, ?)", (number, is_copied)))[0][0])

    def stage_stored(self, name: str, tape: int, columns: Row) -> int:
        """See `Transaction.stage_stored`. What is not blank is indexed."""
        entry_id, kind, key, *_, date, payload, meta, _, _, _ = columns
        if payload:
            stored = {"payload": json.loads(payload), "meta": json.loads(meta)}
            entry = TapeEntry.from_stored(entry_id=entry_id, kind=kind, key=key, date=date, **stored)
            self._index([(name, tape, entry)])
        return super().stage_stored(name, tape, columns)

    async def begin_erasure(self) -> None:
        """Do nothing: what search reads is erased with the entries."""

    async def rename(self, tape: int, name: str, archived_from: str) -> None:
        await self.execute("SELECT rename(?, ?, ?)", (tape, name, archived_from))

    async def blank(self, fact: int, rows: Sequence[tuple[int, int]]) -> None:
        if rows:
            numbers, ids = ([*column] for column in zip(*rows, strict=True))
            await self.execute("SELECT erase(?, ?, ?)", (fact, numbers, ids))

    async def delete_blobs(self, tape: str, digests: Sequence[str]) -> None:
        await self.execute("SELECT delete_blobs(?, ?)", (tape, [*digests]))

    async def _run(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
        """Run statements in one round trip; return the rows of each."""
        return [await cursor.fetchall() if cursor.description else [] for cursor in await self._send(statements)]

    async def _send(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[psycopg.AsyncCursor[TupleRow]]:
        async with self._conn.pipeline():
            cursors = [await self._conn.execute(statement, values or None) for statement, values in statements]
        if not self.is_committing:
            await self._conn.execute(WATCH_SILENCE)
        return cursors


def _keys_statement(keys: Sequence[tuple[str, str]]) -> tuple[str, Sequence[Any]]:
    return _SELECT_KEYS, ([name for name, _ in keys], [key for _, key in keys])
