"""Entries as rows, and queries as SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bubbot.errors import EntryInvalid, TapeCorrupt
from bubbot.ports.store import PositionedEntry
from bubbot.tape.chain import chain_value, content_digest
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, encode
from bubbot.tape.query import Matcher, Span, TapeQuery, build_matcher, parse_moment, resolve

ENTRY_COLUMNS = "seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain"
INSERT_ENTRY = f"INSERT INTO entries ({ENTRY_COLUMNS}) VALUES ({', '.join('?' * 14)})"
SELECT_ENTRIES = (
    "SELECT id, kind, key, date, payload, meta, salt, digest, CASE WHEN payload IS NULL THEN "
    "(SELECT fact FROM erased WHERE erased.tape = entries.tape AND erased.id = entries.id) END FROM entries"
)
_WAY_OUT = "Go on after it with ,new, or put the tape aside with bubbot tape archive"
_NAMED = (Kind.ANCHOR, Kind.EVENT)
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPANS = 100  # id ranges in one statement; SQLite refuses an expression of a thousand terms
_LARGEST = 2**63 - 1  # limit of an INTEGER; no id and no count reaches it


def microseconds(at: datetime) -> int:
    """Convert a time to whole microseconds since 1970."""
    return (at - UNIX_EPOCH) // timedelta(microseconds=1)


def to_row(entry: TapeEntry, *, seq: int, tape: int, previous: bytes, salt: bytes) -> tuple[Any, ...]:
    """Build the row of an entry that has its id, chained to the entry before it.

    Args:
        entry: with its id.
        seq: its global position.
        tape: the number of its tape.
        previous: the chain value of the entry before it.
        salt: 16 random bytes for its digest.
    """
    payload, meta = encode(entry.payload), encode(entry.meta)
    digest = content_digest(salt, payload, meta)
    chain = chain_value(previous, entry_id=entry.id, kind=entry.kind, date=entry.date, key=entry.key, digest=digest)
    at = parse_moment(entry.date)
    return (
        seq,
        tape,
        entry.id,
        str(entry.kind),
        entry.key,
        entry.name,
        1 if entry.opens_window else None,
        None if at is None else microseconds(at),
        entry.date,
        payload,
        meta,
        salt,
        digest,
        chain,
    )


def from_row(tape: str, row: tuple[Any, ...]) -> TapeEntry:
    """Build the entry of a row of `SELECT_ENTRIES`. Raises `TapeCorrupt` if its bytes are unreadable or altered."""
    entry_id, kind, key, date, payload, meta, _, _, fact = row
    if fact is not None:
        return TapeEntry(kind, EMPTY_OBJECT, EMPTY_OBJECT, date, key, entry_id, erased=True)
    check_row(tape, row)
    try:
        return TapeEntry.from_stored(
            entry_id=entry_id, kind=kind, key=key, date=date, payload=json.loads(payload), meta=json.loads(meta)
        )
    except (ValueError, TypeError, AttributeError, EntryInvalid) as error:
        raise TapeCorrupt(f"entry {entry_id} of the tape {tape} is unreadable: {error}. {_WAY_OUT}") from error


def check_row(tape: str, row: tuple[Any, ...]) -> None:
    """Raise `TapeCorrupt` if the bytes of a row of `SELECT_ENTRIES` were altered. An erased row has none."""
    entry_id, _, _, _, payload, meta, salt, digest, fact = row
    if fact is not None:
        return
    if payload is None:
        raise TapeCorrupt(f"entry {entry_id} of the tape {tape} lost its content: no fact says that it was erased")
    try:
        intact = content_digest(salt, payload, meta) == digest
    except (ValueError, TypeError, AttributeError) as error:
        raise TapeCorrupt(f"entry {entry_id} of the tape {tape} is unreadable: {error}. {_WAY_OUT}") from error
    if not intact:
        raise TapeCorrupt(
            f"entry {entry_id} of the tape {tape} was altered: its content is not what was stored. {_WAY_OUT}"
        )


def count_entries(conn: sqlite3.Connection) -> int:
    """Count the entries of all tapes; the ids of a tape have no gaps."""
    newest = "SELECT max(id) FROM entries INDEXED BY entries_id WHERE entries.tape = tapes.tape"
    return int(conn.execute(f"SELECT coalesce(sum(({newest})), 0) FROM tapes").fetchone()[0])


def newest_position(conn: sqlite3.Connection) -> int:
    """Return the newest global position; 0 in an empty database."""
    return int(conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0])


def read_after(conn: sqlite3.Connection, position: int, limit: int) -> list[PositionedEntry]:
    """Read the entries of all tapes after a global position, in its order."""
    columns, _, source = SELECT_ENTRIES.rpartition(" FROM ")
    rows = conn.execute(
        f"{columns}, seq, (SELECT tapes.name FROM tapes WHERE tapes.tape = {source}.tape) FROM {source} "
        "WHERE seq > ? ORDER BY seq LIMIT ?",
        (min(position, _LARGEST), min(limit, _LARGEST)),
    )
    return [PositionedEntry(seq, name, from_row(name, tuple(row))) for *row, seq, name in rows]


@dataclass(frozen=True, slots=True)
class RowFinder:
    """A finder of anchors on one tape, through the indexes.

    Every query names its index, because the planner may choose a scan.

    Attributes:
        conn: the database.
        name: the name of the tape.
        tape: its number.
        head: the newest id to look at; None: all of them.
    """

    conn: sqlite3.Connection
    name: str
    tape: int
    head: int | None = None

    def opening_anchor(self) -> TapeEntry | None:
        """Find the newest anchor that opens a window."""
        return self._select_one(
            "INDEXED BY entries_window WHERE tape = ? AND opens = 1 AND id < ? ORDER BY id DESC LIMIT 1", self._end
        )

    def newest_anchor(self, name: str, before: int | None = None) -> TapeEntry | None:
        """Find the newest anchor of this name, below id `before` if set."""
        return self._select_one(
            "INDEXED BY entries_name WHERE tape = ? AND name = ? AND id < ? AND kind = 'anchor' "
            "ORDER BY id DESC LIMIT 1",
            name,
            self._end if before is None else min(before, self._end),
        )

    def first_anchor(self, name: str, after: int) -> TapeEntry | None:
        """Find the oldest anchor of this name above id `after`."""
        return self._select_one(
            "INDEXED BY entries_name WHERE tape = ? AND name = ? AND id > ? AND id < ? AND kind = 'anchor' "
            "ORDER BY id LIMIT 1",
            name,
            after,
            self._end,
        )

    @property
    def _end(self) -> int:
        """The id after the last one to look at."""
        return _LARGEST if self.head is None else min(self.head + 1, _LARGEST)

    def _select_one(self, condition: str, *values: object) -> TapeEntry | None:
        row = self.conn.execute(f"{SELECT_ENTRIES} {condition}", (self.tape, *values)).fetchone()
        return None if row is None else from_row(self.name, row)


def tape_number(conn: sqlite3.Connection, name: str) -> int | None:
    """Return the number of a tape, or None if no tape has that name."""
    row = conn.execute("SELECT tape FROM tapes WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def find_entries(conn: sqlite3.Connection, query: TapeQuery) -> tuple[TapeEntry, ...]:
    """Find the entries of a query; equal to `evaluate` over the whole tape."""
    number = tape_number(conn, query.tape)
    spans = resolve(query, RowFinder(conn, query.tape, -1 if number is None else number, query.as_of))
    if number is None or not spans or (query.limit is not None and query.limit <= 0):
        return ()
    chunks = [spans[start : start + _SPANS] for start in range(0, len(spans), _SPANS)]
    passes = build_matcher(query) if query.text or query.searchable_text else None
    entries: list[TapeEntry] = []
    for chunk in chunks[::-1] if query.newest else chunks:
        # Closed at once, also after an error: an open cursor would keep the connection at an old state.
        with closing(conn.execute(*_select(query, number, chunk))) as rows:
            _collect(rows, query, passes, entries)
    return tuple(entries)


def _collect(
    rows: Iterable[tuple[Any, ...]],
    query: TapeQuery,
    passes: Matcher | None,
    entries: list[TapeEntry],
) -> None:
    for row in rows:
        if query.limit is not None and len(entries) >= query.limit:
            return
        if passes is not None and not passes.may_hold(row[4], row[5]):
            check_row(query.tape, row)
            continue
        entry = from_row(query.tape, row)
        if passes is None or passes.matches(entry):
            entries.append(entry)


def _select(query: TapeQuery, tape: int, spans: tuple[Span, ...]) -> tuple[str, list[Any]]:
    """Build the SQL with every filter except those on texts, which only Python can decide."""
    conditions = ["tape = ?"]
    values: list[Any] = [tape]
    bounds = []
    for low, high in spans:
        bounds.append("id >= ?" if high is None else "id BETWEEN ? AND ?")
        values += [min(end, _LARGEST) for end in (low, high) if end is not None]
    conditions.append(f"({' OR '.join(bounds)})")
    only_anchors = query.kinds == (Kind.ANCHOR,)
    if only_anchors:
        conditions.append("kind = 'anchor'")  # a literal: with a parameter SQLite does not use the partial index
    for column, allowed in (("kind", () if only_anchors else query.kinds), ("key", query.keys)):
        if allowed:
            conditions.append(f"{column} IN ({_placeholders(allowed)})")
            values += allowed
    if query.names:
        only_named = bool(query.kinds) and set(query.kinds) <= set(_NAMED)
        conditions.append(f"({'' if only_named else 'kind NOT IN (?, ?) OR '}name IN ({_placeholders(query.names)}))")
        values += query.names if only_named else [*_NAMED, *query.names]
    for comparison, instant in (("at >= ?", query.since), ("at <= ?", query.until)):
        if instant is not None:
            conditions.append(comparison)
            values.append(microseconds(instant))
    sql = f"{SELECT_ENTRIES} INDEXED BY {_index_name(query)} WHERE {' AND '.join(conditions)} ORDER BY id"
    if query.newest:
        sql += " DESC"
    if query.limit is not None and not (query.text or query.searchable_text):
        sql += " LIMIT ?"
        values.append(min(query.limit, _LARGEST))
    return sql, values


def _index_name(query: TapeQuery) -> str:
    if query.keys:
        return "entries_key"
    if query.names and query.kinds and set(query.kinds) <= set(_NAMED):
        return "entries_name"
    return "entries_anchor" if query.kinds == (Kind.ANCHOR,) else "entries_id"


def _placeholders(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
