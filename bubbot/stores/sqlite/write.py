"""The store's writes, as functions that run inside the writer's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.stores.sqlite.index.schema import next_generation
from bubbot.stores.sqlite.names import staying, tape_names
from bubbot.stores.sqlite.rows import INSERT, SELECT_ENTRIES, from_row, tape_number, to_row
from bubbot.tape import erasure
from bubbot.tape.blobs import digest_of
from bubbot.tape.chain import genesis
from bubbot.tape.entry import TapeEntry, encode
from bubbot.tape.store import Batch, ForkRecord, ResetBatch

Salt: TypeAlias = Callable[[int], bytes]
"""So many random bytes."""
Traces: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Single entries of tapes: (tape, ids) each."""


def ensure_tape(conn: sqlite3.Connection, name: str) -> int:
    """The number of a tape, which is made where it is missing. Raises `TapeConflict` for an archive."""
    row = conn.execute("SELECT tape, archived_from FROM tapes WHERE name = ?", (name,)).fetchone()
    if row is not None:
        if row[1] is not None:
            raise TapeConflict(f"{name} is an archive, and takes nothing more: write to {row[1]}")
        return int(row[0])
    conn.execute("INSERT INTO tapes (name) VALUES (?)", (name,))
    return int(conn.execute("SELECT last_insert_rowid()").fetchone()[0])


@dataclass
class _TapePosition:
    """Where a tape ends: its number, newest id and chain value."""

    tape: int
    head: int
    chain: bytes


@dataclass
class _GlobalPosition:
    """The newest global position; within one transaction nobody else moves it."""

    seq: int


def _end(conn: sqlite3.Connection, tape: int, name: str) -> _TapePosition:
    row = conn.execute(
        "SELECT id, chain FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1", (tape,)
    ).fetchone()
    return _TapePosition(tape, *row) if row else _TapePosition(tape, 0, genesis(name))


def append(conn: sqlite3.Connection, batches: Sequence[Batch], salt: Salt) -> list[tuple[TapeEntry, ...]]:
    """Appends the batches; the caller's transaction makes them one."""
    stored: list[tuple[TapeEntry, ...]] = []
    place = _GlobalPosition(int(conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]))
    for batch in batches:
        number = ensure_tape(conn, batch.tape) if batch.entries else tape_number(conn, batch.tape)
        end = _end(conn, -1 if number is None else number, batch.tape)
        if batch.expect_head is not None and end.head != batch.expect_head:
            raise TapeConflict(f"{batch.tape} has entries to {end.head}, not to {batch.expect_head}")
        stored.append(tuple([_place(conn, batch, (end, place), entry, salt) for entry in batch.entries]))
    return stored


def _place(
    conn: sqlite3.Connection, batch: Batch, ends: tuple[_TapePosition, _GlobalPosition], entry: TapeEntry, salt: Salt
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
    row = conn.execute(f"{SELECT_ENTRIES} INDEXED BY entries_key WHERE tape = ? AND key = ?", (tape, key)).fetchone()
    return None if row is None else from_row(name, row)


def reset(
    conn: sqlite3.Connection, tape: str, how: ResetBatch, batches: Sequence[Batch], salt: Salt
) -> list[tuple[TapeEntry, ...]]:
    """Puts the tape aside, appends the batches (which start it anew), and erases where asked."""
    old = tape_number(conn, tape)
    if old is not None:
        append(conn, [Batch(tape, (erasure.renamed(tape, how.archive, batches),))], salt)
        conn.execute("UPDATE tapes SET name = ?, archived_from = ? WHERE tape = ?", (how.archive, tape, old))
    if not how.erase:
        return append(conn, batches, salt)
    archives = [
        name for (name,) in conn.execute("SELECT name FROM tapes WHERE archived_from = ? ORDER BY name", (tape,))
    ]
    return _erase(conn, tape, _doomed(conn, archives, how.also), batches, salt)


def erase_archive(conn: sqlite3.Connection, archive: str, fact: Batch, also: Traces, salt: Salt) -> None:
    """Erases one archive, and single entries of other tapes. The batch is the event `tape/erased`, for a tape of the
    system. Raises `EntryNotFound` where there is no such archive."""
    if not conn.execute("SELECT 1 FROM tapes WHERE name = ? AND archived_from IS NOT NULL", (archive,)).fetchone():
        raise EntryNotFound(f"{archive} is no archive")
    _erase(conn, fact.tape, _doomed(conn, [archive], also), [fact], salt)


def erasable(conn: sqlite3.Connection, archive: str) -> int:
    """How many entries of an archive an erasure would blank."""
    return len(_doomed(conn, [archive], ()).ids[archive])


@dataclass(frozen=True)
class _ErasureTargets:
    """What an erasure takes: the ids of entries, by tape, and the archives whose blobs go."""

    ids: dict[str, set[int]]
    archives: tuple[str, ...]


def _doomed(conn: sqlite3.Connection, archives: Sequence[str], also: Traces) -> _ErasureTargets:
    """Finds what is there to be erased, before the facts of it are written: what is blank already does not count, and
    what says how a tape was called, or was erased, stays."""
    tapes = {one.name: one for one in tape_names(conn)}
    ids: dict[str, set[int]] = {}
    for name in archives:
        found = _with_content(conn, tapes[name].number)
        ids[name] = found - staying(conn, tapes[name])
    for name, some in also:
        if name in tapes:
            found = _with_content(conn, tapes[name].number, some)
            ids[name] = ids.get(name, set()) | (found - staying(conn, tapes[name]))
    return _ErasureTargets(ids, tuple(archives))


def _with_content(conn: sqlite3.Connection, tape: int, some: Sequence[int] | None = None) -> set[int]:
    sql = "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND payload IS NOT NULL"
    if some is None:
        return {entry_id for (entry_id,) in conn.execute(sql, (tape,))}
    return {one for one in some if conn.execute(f"{sql} AND id = ?", (tape, one)).fetchone()}


def _erase(
    conn: sqlite3.Connection, tape: str, doomed: _ErasureTargets, batches: Sequence[Batch], salt: Salt
) -> list[tuple[TapeEntry, ...]]:
    """Appends the batches, with what is erased in the fact of it among them, and blanks that. A search index that was
    filled by now is stale with the commit.

    Where the fact would become too long, further ones stand on the tape of the home, as do those about blobs.
    """
    next_generation(conn)
    numbers = {name: tape_number(conn, name) for name in doomed.ids}  # a batch may make a tape of the same name anew
    first, *more = erasure.chunks(doomed.ids)
    stored = append(conn, erasure.with_covers(batches, tape, first), salt)
    fact = conn.execute(
        "SELECT seq FROM entries INDEXED BY entries_name WHERE tape = ? AND name = 'tape/erased' AND kind = 'event' "
        "ORDER BY id DESC LIMIT 1",
        (tape_number(conn, tape),),
    ).fetchone()
    if fact is None:
        raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
    date = erasure.date_of(batches)
    _blank(conn, fact[0], first, numbers)
    for covers in more:
        append(conn, [Batch(erasure.HOME_TAPE, (erasure.further(covers, date),))], salt)
        _blank(conn, _newest(conn), covers, numbers)
    for archive in doomed.archives:
        digests = conn.execute(
            "SELECT digest FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?)", (archive,)
        ).fetchall()
        remove_blobs(conn, archive, [digest for (digest,) in digests], ("erased", date), salt)
    return stored


def _blank(
    conn: sqlite3.Connection, fact: int, covers: dict[str, list[list[int]]], numbers: dict[str, int | None]
) -> None:
    places = [
        (numbers[name], entry_id)
        for name, spans in covers.items()
        for low, high in spans
        for entry_id in range(low, high + 1)
    ]
    conn.executemany("INSERT INTO erased (tape, id, fact) VALUES (?, ?, ?)", [(*place, fact) for place in places])
    conn.executemany(
        "UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL "
        "WHERE tape = ? AND id = ?",
        places,
    )


def _newest(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0])


def remove_blobs(conn: sqlite3.Connection, tape: str, digests: Sequence[str], why: tuple[str, str], salt: Salt) -> None:
    """Removes blobs of a tape, each after a fact on the tape of the home that names it. `why`: a word, and the date."""
    for fact in erasure.removals(tape, digests, *why):
        append(conn, [Batch(erasure.HOME_TAPE, (fact,))], salt)
        conn.executemany(
            "DELETE FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND digest = ?",
            [(tape, digest) for digest in fact.payload["data"]["digests"]],
        )


def put_blob(conn: sqlite3.Connection, tape: str, data: bytes) -> str:
    """Keeps the bytes where the tape does not have them yet."""
    digest, number = digest_of(data), ensure_tape(conn, tape)
    if not conn.execute("SELECT 1 FROM blobs WHERE tape = ? AND digest = ?", (number, digest)).fetchone():
        conn.execute("INSERT INTO blobs (tape, digest, data) VALUES (?, ?, ?)", (number, digest, data))
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
    head = 0 if tape is None else _end(conn, tape, name).head
    if head != base:
        raise TapeConflict(f"{name} has entries to {head}, not to {base}")


def extend_fork(conn: sqlite3.Connection, fork: str, staged: Sequence[Batch], how: ResetBatch | None) -> None:
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
    how: tuple[str, ResetBatch] | None,
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


def _reset_of(text: str | None) -> ResetBatch | None:
    if text is None:
        return None
    kept = json.loads(text)
    return ResetBatch(
        kept["archive"], erase=kept["erase"], also=tuple((name, tuple(ids)) for name, ids in kept["also"])
    )


def _as_json(entry: TapeEntry) -> str:
    kept = {"kind": entry.kind, "payload": entry.payload, "meta": entry.meta, "date": entry.date, "key": entry.key}
    return encode(kept)


def _from_json(item: dict[str, Any]) -> TapeEntry:
    return replace(TapeEntry(item["kind"], item["payload"], item["meta"], item["date"]), key=item["key"])
