"""The store's writes, as functions that run inside the writer's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.stores.sqlite_rows import INSERT, READ, from_row, tape_number, to_row
from bubbot.tape.blobs import digest_of
from bubbot.tape.chain import GENESIS
from bubbot.tape.entry import TapeEntry, encode
from bubbot.tape.store import Batch, ForkRecord, Reset

Salt: TypeAlias = Callable[[int], bytes]
"""So many random bytes."""


def ensure_tape(conn: sqlite3.Connection, name: str) -> int:
    """The number of a tape, which is made where it is missing."""
    number = tape_number(conn, name)
    if number is not None:
        return number
    conn.execute("INSERT INTO tapes (name) VALUES (?)", (name,))
    return int(conn.execute("SELECT last_insert_rowid()").fetchone()[0])


@dataclass
class _End:
    """Where a tape ends: its number, newest id and chain value."""

    tape: int
    head: int
    chain: bytes


@dataclass
class _Place:
    """The newest global position; within one transaction nobody else moves it."""

    seq: int


def _end(conn: sqlite3.Connection, tape: int) -> _End:
    row = conn.execute(
        "SELECT id, chain FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1", (tape,)
    ).fetchone()
    return _End(tape, *row) if row else _End(tape, 0, GENESIS)


def append(conn: sqlite3.Connection, batches: Sequence[Batch], salt: Salt) -> list[tuple[TapeEntry, ...]]:
    """Appends the batches; the caller's transaction makes them one."""
    stored: list[tuple[TapeEntry, ...]] = []
    place = _Place(int(conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]))
    for batch in batches:
        number = ensure_tape(conn, batch.tape) if batch.entries else tape_number(conn, batch.tape)
        end = _end(conn, -1 if number is None else number)
        if batch.expect_head is not None and end.head != batch.expect_head:
            raise TapeConflict(f"{batch.tape} has entries to {end.head}, not to {batch.expect_head}")
        stored.append(tuple([_place(conn, batch, (end, place), entry, salt) for entry in batch.entries]))
    return stored


def _place(
    conn: sqlite3.Connection, batch: Batch, ends: tuple[_End, _Place], entry: TapeEntry, salt: Salt
) -> TapeEntry:
    end, place = ends
    known = None if entry.key is None else _under_key(conn, batch.tape, end.tape, entry.key)
    if known is not None:
        if batch.keep_first or known.erased or known.same_content(entry):
            return known
        raise TapeConflict(f"{batch.tape} already has other content under the key {entry.key} (entry {known.id})")
    stored = entry.stored(end.head + 1)
    place.seq += 1
    row = to_row(stored, seq=place.seq, tape=end.tape, previous=end.chain, salt=salt(16))
    conn.execute(INSERT, row)
    end.head, end.chain = stored.id, row[-1]
    return stored


def _under_key(conn: sqlite3.Connection, name: str, tape: int, key: str) -> TapeEntry | None:
    row = conn.execute(f"{READ} INDEXED BY entries_key WHERE tape = ? AND key = ?", (tape, key)).fetchone()
    return None if row is None else from_row(name, row)


def reset(
    conn: sqlite3.Connection, tape: str, how: Reset, batches: Sequence[Batch], salt: Salt
) -> list[tuple[TapeEntry, ...]]:
    """Puts the tape aside, appends the batches (which start it anew), and erases where asked."""
    old = tape_number(conn, tape)
    if old is not None:
        conn.execute("UPDATE tapes SET name = ?, archived_from = ? WHERE tape = ?", (how.archive, tape, old))
    stored = append(conn, batches, salt)
    if how.erase:
        new = ensure_tape(conn, tape)
        fact = conn.execute(
            "SELECT seq FROM entries INDEXED BY entries_name WHERE tape = ? AND name = 'tape/erased' AND kind = 'event' "
            "ORDER BY id DESC LIMIT 1",
            (new,),
        ).fetchone()
        if fact is None:
            raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
        _erase(conn, fact[0], tape, how.also)
    return stored


def _erase(conn: sqlite3.Connection, fact: int, tape: str, also: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
    """Blanks every entry of the tape's archives, and single entries of others, citing the fact."""
    archives = "(SELECT tape FROM tapes WHERE archived_from = ?)"
    doomed = conn.execute(
        f"SELECT tape, id FROM entries WHERE tape IN {archives} AND payload IS NOT NULL", (tape,)
    ).fetchall()
    conn.execute(f"DELETE FROM blobs WHERE tape IN {archives}", (tape,))
    for name, ids in also:
        other = tape_number(conn, name)
        doomed += [
            (other, entry_id)
            for entry_id in ids
            if conn.execute(
                "SELECT 1 FROM entries WHERE tape = ? AND id = ? AND payload IS NOT NULL", (other, entry_id)
            ).fetchone()
        ]
    doomed = list(dict.fromkeys(doomed))
    conn.executemany("INSERT INTO erased (tape, id, fact) VALUES (?, ?, ?)", [(*place, fact) for place in doomed])
    conn.executemany(
        "UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL "
        "WHERE tape = ? AND id = ?",
        doomed,
    )


def put_blob(conn: sqlite3.Connection, tape: str, data: bytes) -> str:
    """Keeps the bytes where the tape does not have them yet."""
    digest = digest_of(data)
    conn.execute(
        "INSERT INTO blobs (tape, digest, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (ensure_tape(conn, tape), digest, data),
    )
    return digest


def open_fork(conn: sqlite3.Connection, record: ForkRecord) -> None:
    """Keeps an open fork with what it holds so far."""
    _check_base(conn, record.tape, record.base)
    conn.execute(
        "INSERT INTO forks (fork, tape, base, reset) VALUES (?, ?, ?, NULL)", (record.id, record.tape, record.base)
    )
    extend_fork(conn, record.id, record.staged, record.reset)


def _check_base(conn: sqlite3.Connection, name: str, base: int) -> None:
    tape = tape_number(conn, name)
    head = 0 if tape is None else _end(conn, tape).head
    if head != base:
        raise TapeConflict(f"{name} has entries to {head}, not to {base}")


def extend_fork(conn: sqlite3.Connection, fork: str, staged: Sequence[Batch], how: Reset | None) -> None:
    """Adds batches to an open fork."""
    row = conn.execute("SELECT count(*) FROM fork_batches WHERE fork = ?", (fork,)).fetchone()
    if not conn.execute("SELECT 1 FROM forks WHERE fork = ?", (fork,)).fetchone():
        raise EntryNotFound(f"no fork {fork} is open")
    conn.executemany(
        "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) VALUES (?, ?, ?, ?, ?)",
        [
            (fork, place, batch.tape, int(batch.keep_first), f"[{','.join(map(_as_json, batch.entries))}]")
            for place, batch in enumerate(staged, row[0])
        ],
    )
    if how is not None:
        text = json.dumps({"archive": how.archive, "erase": how.erase, "also": how.also})
        conn.execute("UPDATE forks SET reset = ? WHERE fork = ?", (text, fork))


def close_fork(conn: sqlite3.Connection, fork: str) -> bool:
    """Forgets a fork; says whether it was open."""
    conn.execute("DELETE FROM fork_batches WHERE fork = ?", (fork,))
    return bool(conn.execute("DELETE FROM forks WHERE fork = ?", (fork,)).rowcount)


def merge_fork(
    conn: sqlite3.Connection,
    fork: str,
    batches: Sequence[Batch],
    how: tuple[str, Reset] | None,
    salt: Salt,
) -> list[tuple[TapeEntry, ...]]:
    """Closes the fork and appends its batches, after the reset where there is one."""
    opened = conn.execute("SELECT tape, base FROM forks WHERE fork = ?", (fork,)).fetchone()
    if not close_fork(conn, fork):
        raise EntryNotFound(f"no fork {fork} is open")
    if how is not None and how[0] == opened[0]:
        _check_base(conn, *opened)  # a reset puts nothing aside that the fork has not seen
    return append(conn, batches, salt) if how is None else reset(conn, *how, batches, salt)


def forks(conn: sqlite3.Connection) -> list[ForkRecord]:
    """The open forks, oldest first."""
    records = []
    for fork, tape, base, how in conn.execute("SELECT fork, tape, base, reset FROM forks ORDER BY rowid"):
        staged = tuple(
            Batch(name, tuple(_from_json(item) for item in json.loads(entries)), keep_first=bool(keep_first))
            for name, keep_first, entries in conn.execute(
                "SELECT tape, keep_first, entries FROM fork_batches WHERE fork = ? ORDER BY place", (fork,)
            )
        )
        records.append(ForkRecord(fork, tape, base, staged, _reset_of(how)))
    return records


def _reset_of(text: str | None) -> Reset | None:
    if text is None:
        return None
    kept = json.loads(text)
    return Reset(kept["archive"], erase=kept["erase"], also=tuple((name, tuple(ids)) for name, ids in kept["also"]))


def _as_json(entry: TapeEntry) -> str:
    kept = {"kind": entry.kind, "payload": entry.payload, "meta": entry.meta, "date": entry.date, "key": entry.key}
    return encode(kept)


def _from_json(item: dict[str, Any]) -> TapeEntry:
    return replace(TapeEntry(item["kind"], item["payload"], item["meta"], item["date"]), key=item["key"])
