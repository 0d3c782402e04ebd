"""Entries as rows, and queries as SQL, as all databases understand it.

Statements name the index of SQLite and mark values as SQLite does; a store on another database rewrites both.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from bubbot.errors import EntryInvalid, TapeCorrupt
from bubbot.ports.store import PositionedEntry
from bubbot.tape.chain import chain_value, content_digest
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry
from bubbot.tape.query import IdRanges, Matcher, Span, TapeQuery, WholeTape, parse_moment

T = TypeVar("T")
DecodeRow: TypeAlias = Callable[[str, tuple[Any, ...]], TapeEntry]
"""Build the entry of a row of `SELECT_ENTRIES`, by the name of its tape. Raise `TapeCorrupt`."""
ENTRY_COLUMNS = "seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain"
INSERT_ENTRY = f"INSERT INTO entries ({ENTRY_COLUMNS}) VALUES ({', '.join('?' * 14)})"
SELECT_ENTRIES = (
    "SELECT id, kind, key, date, payload, meta, salt, digest, CASE WHEN payload IS NULL THEN "
    "(SELECT fact FROM erased WHERE erased.tape = entries.tape AND erased.id = entries.id) END FROM entries"
)
_WAY_OUT = "Go on after it with ,new, or put the tape aside with bubbot tape archive"
_NAMED = (Kind.ANCHOR, Kind.EVENT)
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RECENT_ANCHORS = 100  # searched before the names
DECODED_AT_ONCE = 64
"""Rows to decode before other tasks run."""
TAPE, TAPE_NAMED = (f"SELECT tapes.tape FROM tapes WHERE tapes.name = {value}" for value in ("?", ":tape"))
"""Select the number of a tape, by its name as a value in order, or as the value `tape`."""
LARGEST = 2**63 - 1  # limit of an INTEGER; no id and no count reaches it


def microseconds(at: datetime) -> int:
    """Convert a time to whole microseconds since 1970."""
    return (at - UNIX_EPOCH) // _MICROSECOND


class StoredContent(Struct, frozen=True):
    """The part of a row that does not depend on its place: the texts, their salt and their digest."""

    payload: str
    meta: str
    salt: bytes
    digest: bytes


def encode_content(entry: TapeEntry, salt: bytes) -> StoredContent:
    """Encode an entry, with or without an id; `salt`: 16 random bytes."""
    payload, meta = entry.take_texts()
    return StoredContent(payload, meta, salt, content_digest(salt, payload, meta))


def to_row(entry: TapeEntry, content: StoredContent, *, seq: int, tape: int, previous: bytes) -> tuple[Any, ...]:
    """Build the row of an entry with its id, chained to the entry before it.

    Args:
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


def from_row(tape: str, row: tuple[Any, ...]) -> TapeEntry:
    """Build the entry of a row of `SELECT_ENTRIES`. Raise `TapeCorrupt` if its bytes are unreadable or altered."""
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


class RowDecoder:
    """Builds entries from rows, and keeps the newest ones: who rebuilds requests reads the same window again for each."""

    def __init__(self, most: int) -> None:
        """`most` is how many entries are kept."""
        self._most = most
        self._kept: OrderedDict[tuple[str, int], tuple[tuple[Any, ...], TapeEntry]] = OrderedDict()

    def decode(self, tape: str, row: tuple[Any, ...]) -> TapeEntry:
        """Build the entry of a row, as `from_row` does. A row that changed, such as an erased one, is read again."""
        key = tape, row[0]
        known = self._kept.pop(key, None)
        entry = known[1] if known is not None and known[0] == row else from_row(tape, row)
        self._kept[key] = row, entry
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return entry


def check_row(tape: str, row: tuple[Any, ...]) -> None:
    """Raise `TapeCorrupt` if the bytes of a row of `SELECT_ENTRIES` were altered. An erased row has no bytes."""
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


def shards_of(rows: Sequence[Sequence[Any]]) -> int:
    """Return the number of shards that `SELECT_SHARDS` found; without a row there is one. Raise `TapeCorrupt` for what is no such number."""
    value = str(rows[0][0]) if rows else "1"
    if not (
        value.isascii() and value.isdigit() and len(value) <= len(str(MAX_SHARDS)) and 1 <= int(value) <= MAX_SHARDS
    ):
        raise TapeCorrupt(
            f"the table deployment says tape_shards = {value[:40]!r}, and a number from 1 to {MAX_SHARDS} belongs there. {_WAY_OUT}"
        )
    return int(value)


COUNT_ENTRIES = "SELECT coalesce(sum((SELECT max(id) FROM entries INDEXED BY entries_id WHERE entries.tape = tapes.tape)), 0) FROM tapes"
"""Counts the entries of all tapes; the ids of a tape have no gaps."""
SELECT_SHARDS = "SELECT value FROM deployment WHERE key = 'tape_shards'"
"""The number of shards of system tapes, for `shards_of`."""
MAX_SHARDS = 1_024
NEWEST_POSITION = "SELECT coalesce(max(seq), 0) FROM entries"
SELECT_AFTER = (
    SELECT_ENTRIES.replace(
        " FROM entries", ", seq, (SELECT tapes.name FROM tapes WHERE tapes.tape = entries.tape) FROM entries"
    )
    + " WHERE seq > ? ORDER BY seq LIMIT ?"
)
"""Selects the entries of all tapes after a global position, in its order."""


def positioned_entry(row: tuple[Any, ...]) -> PositionedEntry:
    """Build the entry of a row of `SELECT_AFTER`."""
    return PositionedEntry(row[9], row[10], from_row(row[10], row[:9]))


class Statements(Protocol):
    """A connection that answers a statement with all of its rows."""

    async def execute_fetchall(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /
    ) -> Iterable[Sequence[Any]]: ...


class RowFinder(Struct, frozen=True):
    """A finder of anchors on one tape, through the indexes.

    Every query names its index, because the planner may choose a scan.

    Attributes:
        conn: the database.
        head: the newest id to look at; None: no limit.
    """

    conn: Statements
    tape: str
    head: int | None = None

    async def opening_anchor(self, fork: str = "") -> TapeEntry | None:
        """Find the newest anchor that opens the window of the tape, or that of a sub-task."""
        opening = await self._select_one("entries_window", "opens = 1 AND id < ? ORDER BY id DESC LIMIT 1", self._end)
        return await self._opening_of(fork, opening) or opening if fork else opening

    async def _opening_of(self, fork: str, opening: TapeEntry | None) -> TapeEntry | None:
        """Find the newest anchor after the tape's own that opens the window of a sub-task."""
        after = opening.id if opening else 0
        rows = await self._select(
            "entries_id", "id > ? AND id < ? AND kind = 'anchor' ORDER BY id DESC", after, self._end
        )
        anchors = (from_row(self.tape, row) for row in rows)
        return next((entry for entry in anchors if entry.opens_window_of(fork)), None)

    async def newest_anchor(self, name: str, before: int | None = None) -> TapeEntry | None:
        end = self._end if before is None else min(before, self._end)
        condition = "name = ? AND id < ? AND kind = 'anchor' ORDER BY id DESC LIMIT 1"
        return await self._select_one("entries_name", condition, name, end)

    async def first_anchor(self, name: str, after: int) -> TapeEntry | None:
        condition = "name = ? AND id > ? AND id < ? AND kind = 'anchor' ORDER BY id LIMIT 1"
        return await self._select_one("entries_name", condition, name, after, self._end)

    async def newest_anchor_ids(self, prefix: str, wanted: int | None = None) -> list[int]:
        """Find the newest anchor of each name that begins with `prefix`, or the `wanted` newest ones.

        The newest ones are usually among the newest anchors of the tape; otherwise each name takes a few steps in the
        index.
        """
        end = _after_prefix(prefix)
        is_before_end = "" if end is None else "AND name < :end"
        values = {"tape": self.tape, "prefix": prefix, "end": end, "above": self._end, "recent": _RECENT_ANCHORS}
        if wanted is not None:
            any_name = f"SELECT 1 FROM entries INDEXED BY entries_name WHERE tape = ({TAPE_NAMED}) AND name >= :prefix {is_before_end}"
            if not await self.conn.execute_fetchall(f"{any_name} LIMIT 1", values):
                return []
            recent = await self.conn.execute_fetchall(
                f"""
                SELECT max(id) FROM (
                    SELECT id, name FROM entries INDEXED BY entries_anchor
                    WHERE tape = ({TAPE_NAMED}) AND kind = 'anchor' AND id < :above ORDER BY id DESC LIMIT :recent
                ) AS newest WHERE name >= :prefix {is_before_end} GROUP BY name
                """,
                values,
            )
            found = [entry_id for (entry_id,) in recent]
            if len(found) >= wanted:
                return found
        rows = await self.conn.execute_fetchall(
            f"""
            WITH RECURSIVE names(name) AS (
                SELECT min(name) FROM entries INDEXED BY entries_name
                WHERE tape = ({TAPE_NAMED}) AND name >= :prefix {is_before_end}
                UNION ALL
                SELECT (
                    SELECT min(entries.name) FROM entries INDEXED BY entries_name
                    WHERE tape = ({TAPE_NAMED}) AND entries.name > names.name {is_before_end.replace("name", "entries.name")}
                ) FROM names WHERE names.name IS NOT NULL
            )
            SELECT (
                SELECT id FROM entries INDEXED BY entries_name
                WHERE tape = ({TAPE_NAMED}) AND entries.name = names.name AND id < :above AND kind = 'anchor'
                ORDER BY id DESC LIMIT 1
            ) FROM names WHERE names.name IS NOT NULL
            """,
            values,
        )
        return [entry_id for (entry_id,) in rows if entry_id is not None]

    @property
    def _end(self) -> int:
        """The id after the last one to look at."""
        return LARGEST if self.head is None else min(self.head + 1, LARGEST)

    async def _select(self, index: str, condition: str, *values: object) -> Iterable[tuple[Any, ...]]:
        sql = f"{SELECT_ENTRIES} INDEXED BY {index} WHERE tape = ({TAPE}) AND {condition}"
        return map(tuple, await self.conn.execute_fetchall(sql, (self.tape, *values)))

    async def _select_one(self, index: str, condition: str, *values: object) -> TapeEntry | None:
        rows = await self._select(index, condition, *values)
        return next((from_row(self.tape, row) for row in rows), None)


def _after_prefix(prefix: str) -> str | None:
    """Return the lowest text above all texts with this prefix, by code point; None if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[place]) + 1
        if following <= sys.maxunicode:
            return prefix[:place] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)  # no text has surrogates
    return None


def is_one_statement(query: TapeQuery) -> bool:
    """Return true if `find_entries` runs a single statement, so that the answer needs no snapshot."""
    part = query.part
    return not (query.similar_text or query.words_text) and (
        isinstance(part, WholeTape) or (isinstance(part, IdRanges) and len(part.spans) < 2)
    )


async def decode_in_steps(rows: Iterable[tuple[Any, ...]], decode: Callable[[tuple[Any, ...]], T]) -> list[T]:
    """Decode rows in steps, between which other tasks run."""
    decoded: list[T] = []
    for number, row in enumerate(rows, 1):
        decoded.append(decode(row))
        if number % DECODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return decoded


TextCondition: TypeAlias = Callable[[Matcher], tuple[str, list[str]]]
"""Builds a condition, with its values, that excludes most rows whose texts cannot match."""


def build_select(
    query: TapeQuery,
    span: Span,
    limit: int,
    matcher: Matcher,
    text_condition: TextCondition,
    *,
    is_narrowed: bool = False,
) -> tuple[str, list[Any]]:
    """Build the SQL for a range of ids with all filters except those on texts, which only Python can decide.

    `is_narrowed`: the condition on texts applies though no filter is on texts.
    """
    low, high = span
    conditions = [f"tape = ({TAPE})", "id BETWEEN ? AND ?"]
    values: list[Any] = [query.tape, min(low, LARGEST), LARGEST if high is None else min(high, LARGEST)]
    only_anchors = query.kinds == (Kind.ANCHOR,)
    if only_anchors:
        conditions.append("kind = 'anchor'")  # a literal: with a parameter SQLite does not use the partial index
    if matcher.reads_texts or is_narrowed:  # first, since most rows have the kinds but few have the text
        condition, patterns = text_condition(matcher)
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
    if not (matcher.reads_texts or is_narrowed):
        sql += " LIMIT ?"
        values.append(min(limit, LARGEST))
    return sql, values


def _index_name(query: TapeQuery) -> str:
    if query.keys:
        return "entries_key"
    if query.names and query.kinds and set(query.kinds) <= set(_NAMED):
        return "entries_name"
    return "entries_anchor" if query.kinds == (Kind.ANCHOR,) else "entries_id"


def _placeholders(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
