"""Queries that look at texts: the search index answers for the entries it covers, a scan for all others."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import islice
from threading import Event
from typing import Any

from bubbot.errors import StoreUnavailable
from bubbot.records import dataclass
from bubbot.stores.sqlite.index.reader import IndexReader, IndexUnreadable, SqliteIndex
from bubbot.stores.sqlite.rows import SELECT_ENTRIES, find_entries, from_row, microseconds, tape_number
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, IndexProposals, NotIndexed, TapeQuery, WholeTape, build_matcher, fold_text
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

SEARCH_TIMEOUT_SECONDS = 20.0
"""The time limit of a search."""
_OPERATIONS = 50_000  # of SQLite's virtual machine between two looks at the clock
NEWEST_ENTRIES = 256
"""Entries of a tape that are read before the index is asked about all others."""
_CHUNKS = (32, 256)  # positions read at a time, first and later


@dataclass
class SearchDeadline:
    """The end of a search: on request, or after a time limit.

    Attributes:
        seconds: the time limit.
        cancel_requested: set it to end the search.
        clock: monotonic seconds.
    """

    seconds: float = SEARCH_TIMEOUT_SECONDS
    cancel_requested: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.monotonic

    def started(self) -> Callable[[], bool]:
        """Start the clock; return a function that returns true when the search has to end."""
        until = self.clock() + self.seconds
        return lambda: self.cancel_requested.is_set() or self.clock() > until


def looks_at_texts(query: TapeQuery) -> bool:
    """Return true if the query looks at texts, so that `search` answers it."""
    return bool(query.text or query.searchable_text or query.similar_text) or isinstance(
        query.part, IndexProposals | NotIndexed
    )


def search(
    conn: sqlite3.Connection, queries: Sequence[TapeQuery], reader: IndexReader, stop: SearchDeadline
) -> list[tuple[TapeEntry, ...]]:
    """Find the entries of each query, all from one state of the database.

    Args:
        conn: the database.
        queries: with or without filters on texts.
        reader: of the search index.
        stop: when to end.

    Raises:
        StoreUnavailable: it took too long.
    """
    is_over = stop.started()
    try:
        try:
            with (
                reader.transaction() as index_of,
                _interrupt_when(is_over, [conn, *reader.connections()]),
                _read_transaction(conn),
            ):
                return [_find(conn, query, index_of(conn)) for query in queries]
        except IndexUnreadable:
            with _interrupt_when(is_over, [conn]), _read_transaction(conn):
                return [find_entries(conn, query) for query in queries]
    except sqlite3.OperationalError as error:
        if is_over():
            raise StoreUnavailable(
                f"the search took longer than {stop.seconds:.0f} seconds and was ended: narrow it with kinds or dates"
            ) from error
        raise


@contextmanager
def _interrupt_when(is_over: Callable[[], bool], conns: Sequence[sqlite3.Connection]) -> Iterator[None]:
    for conn in conns:
        conn.set_progress_handler(is_over, _OPERATIONS)
    try:
        yield
    finally:
        for conn in conns:
            conn.set_progress_handler(None, 0)


@contextmanager
def _read_transaction(conn: sqlite3.Connection) -> Iterator[None]:
    conn.execute("BEGIN")
    try:
        yield
    finally:
        conn.execute("COMMIT")


def _find(conn: sqlite3.Connection, query: TapeQuery, index: SqliteIndex | None) -> tuple[TapeEntry, ...]:
    number = tape_number(conn, query.tape)
    if index is None or number is None or query.tape.startswith(SYSTEM_TAPE_PREFIX) or not looks_at_texts(query):
        return find_entries(conn, query)
    if isinstance(query.part, NotIndexed):
        return find_entries(conn, replace(query, part=_unindexed_range(conn, number, index)))
    if query.limit is not None and query.limit <= 0:
        return ()
    if isinstance(query.part, IndexProposals):
        rows = _read_rows(conn, query, number, index.find_similar(number, fold_text(query.part.text), query.kinds))
        return tuple(_filter_rows(query, rows, query.limit))
    # The index goes backwards, and of meta it has only the sender's name.
    if not (isinstance(query.part, WholeTape) and query.searchable_text and query.newest):
        return find_entries(conn, query)
    first = _first_of_newest(conn, number)
    newest = find_entries(conn, replace(query, part=IdRanges(((first, None),))))
    if first == 1 or len(newest) == query.limit:
        return newest
    as_of = first - 1 if query.as_of is None else min(first - 1, query.as_of)
    older = replace(query, as_of=as_of, limit=None if query.limit is None else query.limit - len(newest))
    return (*newest, *_find_older(conn, older, number, index))


def _find_older(conn: sqlite3.Connection, query: TapeQuery, number: int, index: SqliteIndex) -> Iterable[TapeEntry]:
    """Find the entries through the index, and those that it does not cover yet by a scan, newest first."""
    positions = index.find_containing(number, fold_text(query.searchable_text), query.kinds)
    if positions is None:
        return find_entries(conn, query)
    tail = find_entries(conn, replace(query, part=_unindexed_range(conn, number, index)))
    limit = None if query.limit is None else query.limit - len(tail)
    return (*tail, *_filter_rows(query, _read_rows(conn, query, number, positions), limit))


def _first_of_newest(conn: sqlite3.Connection, tape: int) -> int:
    """Return the id that the newest entries of a tape begin with, where frequent words are found sooner than in the index."""
    row = conn.execute("SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = ?", (tape,)).fetchone()
    return max(1, (row[0] or 0) - NEWEST_ENTRIES + 1)


def _unindexed_range(conn: sqlite3.Connection, tape: int, index: SqliteIndex) -> IdRanges:
    """Return the range of entries of a tape after the last indexed position."""
    row = conn.execute(
        "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND seq <= ? ORDER BY id DESC LIMIT 1",
        (tape, index.position),
    ).fetchone()
    return IdRanges(((row[0] + 1 if row else 1, None),))


def _filter_rows(query: TapeQuery, rows: Iterable[tuple[Any, ...]], limit: int | None) -> Iterator[TapeEntry]:
    matcher = build_matcher(query)
    entries = (from_row(query.tape, row) for row in rows)
    return islice(filter(matcher.matches, entries), limit)


def _read_rows(
    conn: sqlite3.Connection, query: TapeQuery, tape: int, positions: Iterator[int]
) -> Iterator[tuple[Any, ...]]:
    """Read the rows at these positions that have the tape, kinds and dates of the query, newest first."""
    conditions, values = ["tape = ?"], [tape, *query.kinds]
    if query.kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(query.kinds))})")
    for comparison, instant in (("at >= ?", query.since), ("at <= ?", query.until)):
        if instant is not None:
            conditions.append(comparison)
            values.append(microseconds(instant))
    if query.as_of is not None:
        conditions.append("id <= ?")
        values.append(query.as_of)
    # The closest proposals come first; within what is read at a time their order is lost.
    size = query.limit if query.limit and isinstance(query.part, IndexProposals) else _CHUNKS[0]
    while chunk := list(islice(positions, size)):
        marks = ", ".join("?" * len(chunk))
        sql = f"{SELECT_ENTRIES} NOT INDEXED WHERE seq IN ({marks}) AND {' AND '.join(conditions)} ORDER BY seq DESC"
        yield from conn.execute(sql, (*chunk, *values)).fetchall()
        size = _CHUNKS[1]
