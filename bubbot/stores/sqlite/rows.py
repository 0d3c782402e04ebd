"""Entries as rows, and queries as SQL."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any

from bubbot.errors import EntryInvalid, TapeCorrupt
from bubbot.ports.store import PositionedEntry
from bubbot.records import dataclass
from bubbot.tape.chain import chain_value, content_digest
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry
from bubbot.tape.query import Matcher, Span, TapeQuery, build_matcher, parse_moment, resolve

ENTRY_COLUMNS = "seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain"
INSERT_ENTRY = f"INSERT INTO entries ({ENTRY_COLUMNS}) VALUES ({', '.join('?' * 14)})"
INSERTED_AT_ONCE = 32
"""Rows of one statement, at most."""
SELECT_ENTRIES = (
    "SELECT id, kind, key, date, payload, meta, salt, digest, CASE WHEN payload IS NULL THEN "
    "(SELECT fact FROM erased WHERE erased.tape = entries.tape AND erased.id = entries.id) END FROM entries"
)
_WAY_OUT = "Go on after it with ,new, or put the tape aside with bubbot tape archive"
_NAMED = (Kind.ANCHOR, Kind.EVENT)
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RECENT_ANCHORS = 100  # looked through before the names
_LONGEST_LIKE = 1000  # letters
_BLOCK_ROWS = 64  # rows whose words are compared at once
_LARGEST = 2**63 - 1  # limit of an INTEGER; no id and no count reaches it


def microseconds(at: datetime) -> int:
    """Convert a time to whole microseconds since 1970."""
    return (at - UNIX_EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class StoredContent:
    """What a row holds of an entry wherever it comes to stand: its texts, and their digest with the salt."""

    payload: str
    meta: str
    salt: bytes
    digest: bytes


def encode_content(entry: TapeEntry, salt: bytes) -> StoredContent:
    """Encode an entry, with or without its id; `salt`: 16 random bytes."""
    payload, meta = entry.take_texts()
    return StoredContent(payload, meta, salt, content_digest(salt, payload, meta))


def to_row(entry: TapeEntry, content: StoredContent, *, seq: int, tape: int, previous: bytes) -> tuple[Any, ...]:
    """Build the row of an entry that has its id, chained to the entry before it.

    Args:
        entry: with its id.
        content: what `encode_content` made of it.
        seq: its global position.
        tape: the number of its tape.
        previous: the chain value of the entry before it.
    """
    digest = content.digest
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
        content.payload,
        content.meta,
        content.salt,
        digest,
        chain,
    )


def insert_rows(conn: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows of `to_row`, `INSERTED_AT_ONCE` of them or fewer, in one statement.

    Each statement lets the event loop have the interpreter, and then waits for it.

    `sqlite3` looks for an adapter of every value but numbers, texts and bytearrays, and before Python 3.13 an exception
    tells that there is none: 0.5 microseconds a value, a third of what binding a row takes. So the digests go as
    bytearrays, and NULL as 0, which no key and no name is.
    """
    values: list[Any] = []
    for seq, tape, entry_id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain in rows:
        values += (
            seq,
            tape,
            entry_id,
            kind,
            0 if key is None else key,
            0 if name is None else name,
            opens or 0,
            at,
            date,
            payload,
            meta,
            bytearray(salt),
            bytearray(digest),
            bytearray(chain),
        )
    conn.execute(_insert_statement(len(rows)), values)


@cache
def _insert_statement(rows: int) -> str:
    """Return the statement that inserts so many rows, with the same text each time: `sqlite3` keeps it prepared."""
    row = ", ".join(
        "nullif(?, 0)" if column in ("key", "name", "opens") else "?" for column in ENTRY_COLUMNS.split(", ")
    )
    return f"INSERT INTO entries ({ENTRY_COLUMNS}) VALUES {', '.join([f'({row})'] * rows)}"


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
    with closing(rows):  # at once, also after an error: see `find_entries`
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

    def opening_anchor(self, fork: str = "") -> TapeEntry | None:
        """Find the newest anchor that opens the window of the tape, or that of a sub-task."""
        opening = self._select_one(
            "INDEXED BY entries_window WHERE tape = ? AND opens = 1 AND id < ? ORDER BY id DESC LIMIT 1", self._end
        )
        return self._opening_of(fork, opening) or opening if fork else opening

    def _opening_of(self, fork: str, opening: TapeEntry | None) -> TapeEntry | None:
        """Find the newest anchor after the tape's own that opens the window of a sub-task."""
        rows = self.conn.execute(
            f"{SELECT_ENTRIES} INDEXED BY entries_id WHERE tape = ? AND id > ? AND id < ? AND kind = 'anchor' "
            "ORDER BY id DESC",
            (self.tape, opening.id if opening else 0, self._end),
        )
        with closing(rows):
            anchors = (from_row(self.name, row) for row in rows)
            return next((entry for entry in anchors if entry.opens_window_of(fork)), None)

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

    def newest_anchor_ids(self, prefix: str, wanted: int | None = None) -> list[int]:
        """Find the newest anchor of each name that begins with `prefix`, or the `wanted` newest of these.

        The latter are mostly among the newest anchors of the tape; else it takes a few steps in the index for each name.
        """
        end = _after_prefix(prefix)
        is_before_end = "" if end is None else "AND name < :end"
        values = {"tape": self.tape, "prefix": prefix, "end": end, "above": self._end, "recent": _RECENT_ANCHORS}
        if wanted is not None:
            any_name = (
                f"SELECT 1 FROM entries INDEXED BY entries_name WHERE tape = :tape AND name >= :prefix {is_before_end}"
            )
            if self.conn.execute(f"{any_name} LIMIT 1", values).fetchone() is None:
                return []
            recent = self.conn.execute(
                f"""
                SELECT max(id) FROM (
                    SELECT id, name FROM entries INDEXED BY entries_anchor
                    WHERE tape = :tape AND kind = 'anchor' AND id < :above ORDER BY id DESC LIMIT :recent
                ) WHERE name >= :prefix {is_before_end} GROUP BY name
                """,
                values,
            ).fetchall()
            if len(recent) >= wanted:
                return [entry_id for (entry_id,) in recent]
        rows = self.conn.execute(
            f"""
            WITH RECURSIVE names(name) AS (
                SELECT min(name) FROM entries INDEXED BY entries_name
                WHERE tape = :tape AND name >= :prefix {is_before_end}
                UNION ALL
                SELECT (
                    SELECT min(entries.name) FROM entries INDEXED BY entries_name
                    WHERE tape = :tape AND entries.name > names.name {is_before_end.replace("name", "entries.name")}
                ) FROM names WHERE names.name IS NOT NULL
            )
            SELECT (
                SELECT id FROM entries INDEXED BY entries_name
                WHERE tape = :tape AND entries.name = names.name AND id < :above AND kind = 'anchor'
                ORDER BY id DESC LIMIT 1
            ) FROM names WHERE names.name IS NOT NULL
            """,
            values,
        )
        return [entry_id for (entry_id,) in rows if entry_id is not None]

    @property
    def _end(self) -> int:
        """The id after the last one to look at."""
        return _LARGEST if self.head is None else min(self.head + 1, _LARGEST)

    def _select_one(self, condition: str, *values: object) -> TapeEntry | None:
        row = self.conn.execute(f"{SELECT_ENTRIES} {condition}", (self.tape, *values)).fetchone()
        return None if row is None else from_row(self.name, row)


def _after_prefix(prefix: str) -> str | None:
    """Return the least text above all that begin with `prefix`, by code point; None if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[place]) + 1
        if following <= sys.maxunicode:
            return prefix[:place] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)  # no text has surrogates
    return None


def tape_number(conn: sqlite3.Connection, name: str) -> int | None:
    """Return the number of a tape, or None if no tape has that name."""
    row = conn.execute("SELECT tape FROM tapes WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def find_entries(conn: sqlite3.Connection, query: TapeQuery) -> tuple[TapeEntry, ...]:
    """Find the entries of a query; equal to `evaluate` over the whole tape."""
    number = tape_number(conn, query.tape)
    spans = resolve(query, RowFinder(conn, query.tape, -1 if number is None else number, query.as_of))
    if number is None or not spans:
        return ()
    matcher = build_matcher(query)
    if matcher.reads_texts:
        # SQLite asks it, so that only rows that may match are read whole.
        conn.create_function("may_match", 2, matcher.build_precheck(), deterministic=True)
    entries: list[TapeEntry] = []
    # A statement for each range: with several in one, SQLite goes through the whole tape.
    parts: Iterable[Span] = spans[::-1] if query.newest else spans
    if matcher.spelling:
        parts = _blocks_that_may_match(conn, query, number, parts)
    for span in parts:
        limit = _LARGEST if query.limit is None else query.limit - len(entries)
        if limit <= 0:
            break
        # Closed at once, also after an error: an open cursor would keep the connection at an old state.
        with closing(conn.execute(*_select(query, number, span, limit, matcher))) as rows:
            found = (from_row(query.tape, row) for row in rows)
            matching = filter(matcher.matches, found) if matcher.reads_texts else found
            entries += islice(matching, min(limit, sys.maxsize))
    return tuple(entries)


def _blocks_that_may_match(
    conn: sqlite3.Connection, query: TapeQuery, tape: int, spans: Iterable[Span]
) -> Iterator[Span]:
    """Cut ranges into blocks, in the query's order, and leave out those that lack a word; by rows it costs twice as much."""
    newest = (
        conn.execute("SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = ?", (tape,)).fetchone()[0] or 0
    )
    texts = "may_match(CAST(group_concat(payload || ' ' || meta, char(10)) AS BLOB), x'')"
    for low, high in spans:
        starts = range(low, (newest if high is None else min(high, newest)) + 1, _BLOCK_ROWS)
        for start in reversed(starts) if query.newest else starts:
            block = start, min(start + _BLOCK_ROWS, starts.stop) - 1
            sql = f"SELECT {texts} FROM entries INDEXED BY entries_id WHERE tape = ? AND id BETWEEN ? AND ?"
            if conn.execute(sql, (tape, *block)).fetchone()[0]:
                yield block


def _text_condition(matcher: Matcher) -> tuple[str, list[str]]:
    """Build a condition that leaves out most rows whose texts cannot match, and its values.

    SQLite decides on rows of ASCII alone; it asks Python about the others, in bytes, since they may not be UTF-8 any
    more.
    """
    ask = "may_match(CAST(payload AS BLOB), CAST(meta AS BLOB))"
    needle = next((needle for needle in matcher.raw_needles if len(needle) <= _LONGEST_LIKE), "")
    if not needle:
        return ask, []
    is_ascii = " AND ".join(
        # GLOB: instr takes three times as long for a sign that is rare.
        f"length({column}) = length(CAST({column} AS BLOB)) AND {column} NOT GLOB '*\\u*'"
        for column in ("payload", "meta")
    )
    if not needle.isascii():
        return f"CASE WHEN {is_ascii} THEN 0 ELSE {ask} END", []
    pattern = "%" + re.sub("[%_^]", r"^\g<0>", needle) + "%"
    may_hold = " OR ".join(f"{column} LIKE ? ESCAPE '^'" for column in ("payload", "meta"))
    return f"CASE WHEN {may_hold} THEN {ask} WHEN {is_ascii} THEN 0 ELSE {ask} END", [pattern, pattern]


def _select(query: TapeQuery, tape: int, span: Span, limit: int, matcher: Matcher) -> tuple[str, list[Any]]:
    """Build the SQL for a range of ids, with every filter except those on texts, which only Python can decide."""
    low, high = span
    conditions = ["tape = ?", "id BETWEEN ? AND ?"]
    values: list[Any] = [tape, min(low, _LARGEST), _LARGEST if high is None else min(high, _LARGEST)]
    only_anchors = query.kinds == (Kind.ANCHOR,)
    if only_anchors:
        conditions.append("kind = 'anchor'")  # a literal: with a parameter SQLite does not use the partial index
    if matcher.reads_texts:  # first, since most rows have the kinds and few the text
        condition, patterns = _text_condition(matcher)
        conditions.append(condition)
        values += patterns
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
    if not matcher.reads_texts:
        sql += " LIMIT ?"
        values.append(min(limit, _LARGEST))
    return sql, values


def _index_name(query: TapeQuery) -> str:
    if query.keys:
        return "entries_key"
    if query.names and query.kinds and set(query.kinds) <= set(_NAMED):
        return "entries_name"
    return "entries_anchor" if query.kinds == (Kind.ANCHOR,) else "entries_id"


def _placeholders(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
