"""The writes of the store, as functions that run inside the writer's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.records import dataclass
from bubbot.stores.sqlite.index.schema import advance_generation
from bubbot.stores.sqlite.names import protected_ids, tape_names
from bubbot.stores.sqlite.rows import (
    INSERTED_AT_ONCE,
    SELECT_ENTRIES,
    StoredContent,
    encode_content,
    from_row,
    insert_rows,
    newest_position,
    tape_number,
    to_row,
)
from bubbot.stores.sqlite.schema import LEASED_SINCE, check_version
from bubbot.tape import erasure
from bubbot.tape.blobs import blob_digest
from bubbot.tape.chain import genesis
from bubbot.tape.entry import TapeEntry, encode
from bubbot.tape.references import MovedIds
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, refuse_lost_leases

Salt: TypeAlias = Callable[[int], bytes]
"""Returns this many random bytes."""
_AFTER_SLASH = chr(ord("/") + 1)  # the ids of a fork's forks begin with its own id and a slash
Contents: TypeAlias = Mapping[int, StoredContent]
"""The contents of entries that were encoded before the transaction, by the identity of the entry."""
Traces: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Single entries of several tapes: (tape, ids) each."""


@dataclass
class _TapePosition:
    """The end of a tape: its number (-1 if there is no such tape), newest id and chain value."""

    tape: int
    head: int
    chain: bytes


_SELECT_END = """
SELECT tapes.tape, archived_from, id, chain
FROM tapes LEFT JOIN entries INDEXED BY entries_id ON entries.tape = tapes.tape
WHERE tapes.name = ? ORDER BY id DESC LIMIT 1
"""


def _find_end(conn: sqlite3.Connection, name: str, *, writes: bool = False) -> _TapePosition:
    """Return the end of a tape; if the caller `writes`, create one that is missing. Raise `TapeConflict` for an archive then."""
    row = conn.execute(_SELECT_END, (name,)).fetchone()
    if row is None:
        if writes:
            conn.execute("INSERT INTO tapes (name) VALUES (?)", (name,))
        tape = conn.execute("SELECT last_insert_rowid()").fetchone()[0] if writes else -1
        return _TapePosition(tape, 0, genesis(name))
    tape, archived_from, head, chain = row
    if writes and archived_from is not None:
        raise TapeConflict(f"{name} is an archive, and takes nothing more: write to {archived_from}")
    return _TapePosition(tape, 0, genesis(name)) if head is None else _TapePosition(tape, head, chain)


def encode_batches(batches: Sequence[Batch], salt: Salt) -> Contents:
    """Encode and hash the entries of batches, in the caller's thread, while the writer's commits other ones.

    The batches have to live as long as the result is used.
    """
    entries = [entry for batch in batches for entry in batch.entries]
    salts = salt(16 * len(entries))  # at once: each call of `os.urandom` gives other threads the interpreter
    return {id(entry): encode_content(entry, salts[at * 16 : at * 16 + 16]) for at, entry in enumerate(entries)}


def append(
    conn: sqlite3.Connection, batches: Sequence[Batch], salt: Salt, contents: Contents = MappingProxyType({})
) -> list[tuple[TapeEntry, ...]]:
    """Append the batches; the caller's transaction makes them atomic. Raises `LeaseLost` and `TapeConflict`."""
    _refuse_lost_leases(conn, batches)
    return _append(conn, batches, salt, contents)


def _append(
    conn: sqlite3.Connection, batches: Sequence[Batch], salt: Salt, contents: Contents
) -> list[tuple[TapeEntry, ...]]:
    """Append batches whose leases are held."""
    stored: list[tuple[TapeEntry, ...]] = []
    moved: MovedIds | None = None
    appending = _Appending(salt, contents, newest_position(conn))
    for batch in batches:
        tape_end = _find_end(conn, batch.tape, writes=bool(batch.entries))
        if batch.expect_head is not None and tape_end.head != batch.expect_head:
            raise TapeConflict(f"{batch.tape} has entries to {tape_end.head}, not to {batch.expect_head}")
        if batch.rebase is not None:
            find = partial(_find_by_key, conn, batch.tape, tape_end.tape)
            moved = batch.rebase.plan(batch.tape, batch.entries, tape_end.head, find)
        entries = [moved.move(batch.tape, entry) for entry in batch.entries] if moved else batch.entries
        stored.append(_append_entries(conn, batch, tape_end, entries, appending))
    return stored


def _refuse_lost_leases(conn: sqlite3.Connection, batches: Sequence[Batch]) -> None:
    refuse_lost_leases(batches, partial(_newest_epoch, conn))


def _newest_epoch(conn: sqlite3.Connection, tape: str) -> int:
    row = conn.execute("SELECT epoch FROM leases WHERE tape = ?", (tape,)).fetchone()
    return 0 if row is None else int(row[0])


def raise_epoch(conn: sqlite3.Connection, tape: str) -> int:
    """Raise the epoch of a tape's lease; return the new one."""
    epoch = _newest_epoch(conn, tape) + 1
    if epoch == 1:
        conn.execute("INSERT INTO leases (tape, epoch) VALUES (?, ?)", (tape, epoch))
    else:
        conn.execute("UPDATE leases SET epoch = ? WHERE tape = ?", (epoch, tape))
    return epoch


@dataclass
class _Appending:
    """What a transaction appends with.

    Attributes:
        salt: for entries that were not encoded before.
        contents: of those that were.
        seq: the newest global position; within one transaction no other writer moves it.
    """

    salt: Salt
    contents: Contents
    seq: int


def _append_entries(
    conn: sqlite3.Connection,
    batch: Batch,
    tape_end: _TapePosition,
    entries: Sequence[TapeEntry],
    appending: _Appending,
) -> tuple[TapeEntry, ...]:
    """Append the entries of a batch, and leave out those whose key the tape has. Raises `TapeConflict`."""
    stored: list[TapeEntry] = []
    for start in range(0, len(entries), INSERTED_AT_ONCE):
        some = entries[start : start + INSERTED_AT_ONCE]
        if _has_new_keys(conn, tape_end.tape, [entry.key for entry in some if entry.key is not None]):
            stored += _append_new(conn, tape_end, some, appending)
            continue
        for entry in some:
            on_tape = None if entry.key is None else _find_by_key(conn, batch.tape, tape_end.tape, entry.key)
            if on_tape is None:
                stored += _append_new(conn, tape_end, [entry], appending)
            elif batch.skips(entry.key) or on_tape.erased or on_tape.same_content(entry):
                stored.append(on_tape)
            else:
                raise TapeConflict(
                    f"{batch.tape} already has other content under the key {entry.key} (entry {on_tape.id})"
                )
    return tuple(stored)


def _has_new_keys(conn: sqlite3.Connection, tape: int, keys: Sequence[str]) -> bool:
    """Return true if the keys are all different and none is on the tape."""
    if not keys:
        return True
    query = f"SELECT 1 FROM entries INDEXED BY entries_key WHERE tape = ? AND key IN ({', '.join('?' * len(keys))})"
    return len(set(keys)) == len(keys) and conn.execute(f"{query} LIMIT 1", (tape, *keys)).fetchone() is None


def _append_new(
    conn: sqlite3.Connection, tape_end: _TapePosition, entries: Sequence[TapeEntry], appending: _Appending
) -> list[TapeEntry]:
    """Append entries, `INSERTED_AT_ONCE` or fewer, in one statement."""
    stored, rows = [], []
    for entry in entries:
        new_entry = entry.with_id(tape_end.head + 1)
        content = appending.contents.get(id(entry)) or encode_content(entry, appending.salt(16))
        appending.seq += 1
        row = to_row(new_entry, content, seq=appending.seq, tape=tape_end.tape, previous=tape_end.chain)
        tape_end.head, tape_end.chain = new_entry.id, row[-1]
        stored.append(new_entry)
        rows.append(row)
    insert_rows(conn, rows)
    return stored


def _find_by_key(conn: sqlite3.Connection, name: str, tape: int, key: str) -> TapeEntry | None:
    row = conn.execute(f"{SELECT_ENTRIES} INDEXED BY entries_key WHERE tape = ? AND key = ?", (tape, key)).fetchone()
    return None if row is None else from_row(name, row)


def reset(
    conn: sqlite3.Connection, tape: str, reset_batch: ResetBatch, batches: Sequence[Batch], salt: Salt
) -> list[tuple[TapeEntry, ...]]:
    """Archive the tape, append the batches that start it again, and erase if `reset_batch` says so.

    Args:
        conn: in a transaction.
        tape: its name.
        reset_batch: the name of the archive, and what to erase.
        batches: the first entries of the new tape.
        salt: for new entries.
    """
    old_tape = tape_number(conn, tape)
    if old_tape is not None:
        append(conn, [Batch(tape, (erasure.build_rename(tape, reset_batch.archive, batches),))], salt)
        conn.execute(
            "UPDATE tapes SET name = ?, archived_from = ? WHERE tape = ?", (reset_batch.archive, tape, old_tape)
        )
    if not reset_batch.erase:
        return append(conn, batches, salt)
    archives = [
        name for (name,) in conn.execute("SELECT name FROM tapes WHERE archived_from = ? ORDER BY name", (tape,))
    ]
    return _erase(conn, tape, _find_targets(conn, archives, reset_batch.erase_also), batches, salt)


def erase_archive(conn: sqlite3.Connection, archive: str, fact: Batch, also: Traces, salt: Salt) -> None:
    """Erase one archive, and single entries of other tapes.

    Args:
        conn: in a transaction.
        archive: its name.
        fact: the event `tape/erased`, for a system tape.
        also: single entries of other tapes.
        salt: for new entries.

    Raises:
        EntryNotFound: no such archive exists.
    """
    if not conn.execute("SELECT 1 FROM tapes WHERE name = ? AND archived_from IS NOT NULL", (archive,)).fetchone():
        raise EntryNotFound(f"{archive} is not an archive")
    _erase(conn, fact.tape, _find_targets(conn, [archive], also), [fact], salt)


def count_erasable(conn: sqlite3.Connection, archive: str) -> int:
    """Count the entries of an archive that an erasure would blank."""
    return len(_find_targets(conn, [archive], ()).ids[archive])


@dataclass(frozen=True)
class _ErasureTargets:
    """The scope of an erasure: ids of entries, by tape, and the archives that lose their blobs."""

    ids: dict[str, set[int]]
    archives: tuple[str, ...]


def _find_targets(conn: sqlite3.Connection, archives: Sequence[str], also: Traces) -> _ErasureTargets:
    """Find what to erase, before the facts about it are written.

    Blank entries do not count; entries about names of the tape and about erasures stay.
    """
    tapes = {tape.name: tape for tape in tape_names(conn)}
    ids: dict[str, set[int]] = {}
    for name in archives:
        ids_with_content = _with_content(conn, tapes[name].number)
        ids[name] = ids_with_content - protected_ids(conn, tapes[name])
    for name, some_ids in also:
        if name in tapes:
            ids_with_content = _with_content(conn, tapes[name].number, some_ids)
            ids[name] = ids.get(name, set()) | (ids_with_content - protected_ids(conn, tapes[name]))
    return _ErasureTargets(ids, tuple(archives))


def _with_content(conn: sqlite3.Connection, tape: int, only: Sequence[int] | None = None) -> set[int]:
    sql = "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND payload IS NOT NULL"
    if only is None:
        return {entry_id for (entry_id,) in conn.execute(sql, (tape,))}
    return {entry_id for entry_id in only if conn.execute(f"{sql} AND id = ?", (tape, entry_id)).fetchone()}


def _erase(
    conn: sqlite3.Connection, tape: str, targets: _ErasureTargets, batches: Sequence[Batch], salt: Salt
) -> list[tuple[TapeEntry, ...]]:
    """Append the batches, list the erased entries in their fact `tape/erased`, and blank these entries.

    If that fact would become too long, further ones go to the home tape, as do those about blobs. The commit makes
    every search index filled so far stale.
    """
    advance_generation(conn)
    numbers = {
        name: tape_number(conn, name) for name in targets.ids
    }  # a batch may create a tape of the same name again
    first, *overflow = erasure.split_covers(targets.ids)
    stored = append(conn, erasure.with_covers(batches, tape, first), salt)
    fact = conn.execute(
        "SELECT seq FROM entries INDEXED BY entries_name WHERE tape = ? AND name = 'tape/erased' AND kind = 'event' "
        "ORDER BY id DESC LIMIT 1",
        (tape_number(conn, tape),),
    ).fetchone()
    if fact is None:
        raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
    date = erasure.erasure_date(batches)
    _blank(conn, fact[0], first, numbers)
    for covers in overflow:
        append(conn, [Batch(erasure.HOME_TAPE, (erasure.build_further_erasure(covers, date),))], salt)
        _blank(conn, newest_position(conn), covers, numbers)
    for archive in targets.archives:
        digests = conn.execute(
            "SELECT digest FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?)", (archive,)
        ).fetchall()
        remove_blobs(conn, archive, [digest for (digest,) in digests], ("erased", date), salt)
    return stored


def _blank(
    conn: sqlite3.Connection, fact: int, covers: dict[str, list[list[int]]], numbers: dict[str, int | None]
) -> None:
    rows = [
        (numbers[name], entry_id)
        for name, spans in covers.items()
        for low, high in spans
        for entry_id in range(low, high + 1)
    ]
    conn.executemany("INSERT INTO erased (tape, id, fact) VALUES (?, ?, ?)", [(*row, fact) for row in rows])
    conn.executemany(
        "UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL "
        "WHERE tape = ? AND id = ?",
        rows,
    )


def remove_blobs(
    conn: sqlite3.Connection, tape: str, digests: Sequence[str], reason: tuple[str, str], salt: Salt
) -> None:
    """Remove blobs of a tape, each after a fact on the home tape that names it.

    Args:
        conn: in a transaction.
        tape: its name.
        digests: of the blobs.
        reason: a reason in one word, and the date of the facts.
        salt: for new entries.
    """
    for fact in erasure.build_blob_removals(tape, digests, *reason):
        append(conn, [Batch(erasure.HOME_TAPE, (fact,))], salt)
        conn.executemany(
            "DELETE FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND digest = ?",
            [(tape, digest) for digest in fact.payload["data"]["digests"]],
        )


def put_blob(conn: sqlite3.Connection, tape: str, data: bytes) -> str:
    """Store the bytes unless the tape has them already; return their digest."""
    digest, number = blob_digest(data), _find_end(conn, tape, writes=True).tape
    if not conn.execute("SELECT 1 FROM blobs WHERE tape = ? AND digest = ?", (number, digest)).fetchone():
        conn.execute("INSERT INTO blobs (tape, digest, data) VALUES (?, ?, ?)", (number, digest, data))
    return digest


def open_fork(conn: sqlite3.Connection, record: ForkRecord, texts: Sequence[str], *, expect_head: bool) -> None:
    """Store an open fork with its staged batches; `texts`: what `encode_staged` made of them."""
    _refuse_lost_leases(conn, record.staged)
    if record.parent:
        _require_fork(conn, record.parent)
    else:
        _check_base(conn, record.tape, record.base, exact=expect_head)
    conn.execute(
        "INSERT INTO forks (fork, tape, base, reset, session, epoch) VALUES (?, ?, ?, NULL, ?, ?)",
        (record.id, record.tape, record.base, record.session, record.epoch),
    )
    _insert_batches(conn, record.id, 0, record.staged, texts, reset_batch=record.reset)


def _check_base(conn: sqlite3.Connection, name: str, base: int, *, exact: bool = True) -> None:
    head = _find_end(conn, name).head
    if head < base or (exact and head != base):
        raise TapeConflict(f"{name} has entries to {head}, not to {base}")


def extend_fork(
    conn: sqlite3.Connection,
    fork: str,
    staged: Sequence[Batch],
    texts: Sequence[str],
    reset_batch: ResetBatch | None,
) -> None:
    """Add batches to an open fork; `texts`: what `encode_staged` made of them."""
    _refuse_lost_leases(conn, staged)
    row = conn.execute("SELECT count(*) FROM fork_batches WHERE fork = ?", (fork,)).fetchone()
    _require_fork(conn, fork)
    _insert_batches(conn, fork, row[0], staged, texts, reset_batch=reset_batch)


def encode_staged(staged: Sequence[Batch]) -> list[str]:
    """Encode the entries of each batch of a fork, in the caller's thread."""
    return [f"[{','.join(map(_encode_entry, batch.entries))}]" for batch in staged]


def _insert_batches(
    conn: sqlite3.Connection,
    fork: str,
    place: int,
    staged: Sequence[Batch],
    texts: Sequence[str],
    *,
    reset_batch: ResetBatch | None,
) -> None:
    """Store batches of a fork from this place on, and its reset."""
    conn.executemany(
        "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) VALUES (?, ?, ?, ?, ?)",
        [
            (fork, at, batch.tape, int(batch.if_absent), text)
            for at, (batch, text) in enumerate(zip(staged, texts, strict=True), place)
        ],
    )
    if reset_batch is not None:
        text = json.dumps({"archive": reset_batch.archive, "erase": reset_batch.erase, "also": reset_batch.erase_also})
        conn.execute("UPDATE forks SET reset = ? WHERE fork = ?", (text, fork))


def _require_fork(conn: sqlite3.Connection, fork: str) -> None:
    if not conn.execute("SELECT 1 FROM forks WHERE fork = ?", (fork,)).fetchone():
        raise EntryNotFound(f"no fork {fork} is open")


def close_fork(conn: sqlite3.Connection, fork: str) -> int:
    """Delete a fork and its forks; return how many were open."""
    names = (fork, f"{fork}/", f"{fork}{_AFTER_SLASH}")
    conn.execute("DELETE FROM fork_batches WHERE fork = ? OR (fork > ? AND fork < ?)", names)
    return conn.execute("DELETE FROM forks WHERE fork = ? OR (fork > ? AND fork < ?)", names).rowcount


def merge_fork(
    conn: sqlite3.Connection,
    fork: str,
    batches: Sequence[Batch],
    tape_reset: tuple[str, ResetBatch] | None,
    salt: Salt,
    *,
    contents: Contents = MappingProxyType({}),
) -> list[tuple[TapeEntry, ...]]:
    """Close the fork and append its batches, after the reset if there is one.

    Args:
        conn: in a transaction.
        fork: its id.
        batches: what it adds.
        tape_reset: the tape to reset first, and how; None for no reset.
        salt: for new entries.
        contents: of those that were encoded before.
    """
    _refuse_lost_leases(conn, batches)
    opened = conn.execute("SELECT tape, base FROM forks WHERE fork = ?", (fork,)).fetchone()
    closed = close_fork(conn, fork)
    if opened is None:
        raise EntryNotFound(f"no fork {fork} is open")
    if closed > 1:  # the writer undoes the batch
        raise TapeConflict(f"the fork {fork} still has open forks: merge or discard them first")
    if parent := ForkRecord(fork, opened[0], opened[1], ()).parent:
        extend_fork(conn, parent, batches, encode_staged(batches), None)
        return [batch.entries for batch in batches]
    if tape_reset is not None and tape_reset[0] == opened[0]:
        _check_base(conn, *opened)  # a reset must not archive entries that the fork has not seen
    return _append(conn, batches, salt, contents) if tape_reset is None else reset(conn, *tape_reset, batches, salt)


def forks(conn: sqlite3.Connection, only: str | None = None) -> list[ForkRecord]:
    """List the open forks of a tape, or of all, oldest first; a database that is only read may be of an older version."""
    lease = "session, epoch" if check_version(conn) >= LEASED_SINCE else "'', 0"
    rows = conn.execute(
        f"SELECT fork, tape, base, reset, {lease} FROM forks {'' if only is None else 'WHERE tape = ?'} ORDER BY rowid",
        () if only is None else (only,),
    ).fetchall()
    records = []
    for fork, tape, base, reset_text, session, epoch in rows:
        staged = tuple(
            Batch(name, tuple(_decode_entry(item) for item in json.loads(entries)), if_absent=bool(keep_first))
            for name, keep_first, entries in conn.execute(
                "SELECT tape, keep_first, entries FROM fork_batches WHERE fork = ? ORDER BY place", (fork,)
            ).fetchall()
        )
        records.append(ForkRecord(fork, tape, base, staged, _decode_reset(reset_text), session, epoch))
    return records


def forked_sessions(conn: sqlite3.Connection) -> list[ForkedSession]:
    """List the tapes with open forks and their sessions."""
    session = "session" if check_version(conn) >= LEASED_SINCE else "''"
    rows = conn.execute(f"SELECT DISTINCT tape, {session} FROM forks ORDER BY 1, 2").fetchall()
    return [ForkedSession(tape, session) for tape, session in rows]


def _decode_reset(text: str | None) -> ResetBatch | None:
    if text is None:
        return None
    data = json.loads(text)
    return ResetBatch(
        data["archive"], erase=data["erase"], erase_also=tuple((name, tuple(ids)) for name, ids in data["also"])
    )


def _encode_entry(entry: TapeEntry) -> str:
    payload, meta = entry.texts  # kept: the merge needs them again
    head = encode({"kind": entry.kind, "date": entry.date, "key": entry.key})
    return f'{head[:-1]},"payload":{payload},"meta":{meta}}}'


def _decode_entry(item: dict[str, Any]) -> TapeEntry:
    return replace(TapeEntry(item["kind"], item["payload"], item["meta"], item["date"]), key=item["key"])
