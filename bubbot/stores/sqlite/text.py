"""Queries that look at texts: through the search index where it covers the tape, by reading everything else."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event
from typing import Any

from bubbot.errors import StoreUnavailable
from bubbot.stores.sqlite.index.reader import IndexReader, IndexUnreadable
from bubbot.stores.sqlite.rows import SELECT_ENTRIES, find, from_row, microseconds, tape_number
from bubbot.tape.entry import TapeEntry
from bubbot.tape.index import SYSTEM_TAPE_PREFIX, TapeIndex
from bubbot.tape.query import IdRanges, IndexProposals, NotIndexed, TapeQuery, WholeTape, fold_text, matcher

SECONDS = 20.0
"""How long one look-up may take."""
_OPERATIONS = 50_000  # of SQLite's machine between two looks at the clock
_CHUNKS = (32, 256)  # positions read at a time, first and later


@dataclass
class SearchDeadline:
    """Ends a look-up from outside, or when its time is up."""

    seconds: float = SECONDS
    asked: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.monotonic

    def started(self) -> Callable[[], bool]:
        """What says whether to end, from now on."""
        until = self.clock() + self.seconds
        return lambda: self.asked.is_set() or self.clock() > until


def looks_at_texts(query: TapeQuery) -> bool:
    """Whether the query is one for this file."""
    return bool(query.text or query.said) or isinstance(query.part, IndexProposals | NotIndexed)


def search(
    conn: sqlite3.Connection, queries: Sequence[TapeQuery], reader: IndexReader, stop: SearchDeadline
) -> list[tuple[TapeEntry, ...]]:
    """What each query finds, all from one state. Raises `StoreUnavailable` where it took too long."""
    over = stop.started()
    try:
        with reader.opened() as index_of, _until(over, [conn, *reader.connections()]):
            conn.execute("BEGIN")
            try:
                return [_find(conn, query, index_of(conn)) for query in queries]
            finally:
                conn.execute("COMMIT")
    except IndexUnreadable:
        with _until(over, [conn]):
            return [find(conn, query) for query in queries]
    except sqlite3.OperationalError as error:
        if over():
            raise StoreUnavailable(
                f"the search took longer than {stop.seconds:.0f} seconds and was ended: narrow it with kinds or dates"
            ) from error
        raise


@contextmanager
def _until(over: Callable[[], bool], conns: Sequence[sqlite3.Connection]) -> Iterator[None]:
    for conn in conns:
        conn.set_progress_handler(over, _OPERATIONS)
    try:
        yield
    finally:
        for conn in conns:
            conn.set_progress_handler(None, 0)


def _find(conn: sqlite3.Connection, query: TapeQuery, index: TapeIndex | None) -> tuple[TapeEntry, ...]:
    number = tape_number(conn, query.tape)
    if index is None or number is None or query.tape.startswith(SYSTEM_TAPE_PREFIX) or not looks_at_texts(query):
        return find(conn, query)
    if isinstance(query.part, NotIndexed):
        return find(conn, replace(query, part=_tail(conn, number, index)))
    if query.limit is not None and query.limit <= 0:
        return ()
    if isinstance(query.part, IndexProposals):
        rows = _rows(conn, query, number, index.alike(number, fold_text(query.part.text), query.kinds))
        return tuple(_passing(query, rows, query.limit))
    if not isinstance(query.part, WholeTape) or not query.said:  # of meta the index knows the sender's name alone
        return find(conn, query)
    return _holding(conn, query, number, index)


def _holding(conn: sqlite3.Connection, query: TapeQuery, number: int, index: TapeIndex) -> tuple[TapeEntry, ...]:
    positions = index.holding(number, fold_text(query.said), query.kinds, newest=query.newest)
    if positions is None:
        return find(conn, query)
    tail = replace(query, part=_tail(conn, number, index))
    rows = _rows(conn, query, number, positions)
    if query.newest:
        found = find(conn, tail)
        left = None if query.limit is None else query.limit - len(found)
        return (*found, *_passing(query, rows, left))
    found = tuple(_passing(query, rows, query.limit))
    return found if len(found) == query.limit else (*found, *find(conn, _less(tail, len(found))))


def _less(query: TapeQuery, found: int) -> TapeQuery:
    return query if query.limit is None else replace(query, limit=query.limit - found)


def _tail(conn: sqlite3.Connection, tape: int, index: TapeIndex) -> IdRanges:
    """The entries of a tape after the last position that is indexed."""
    row = conn.execute(
        "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND seq <= ? ORDER BY id DESC LIMIT 1",
        (tape, index.position),
    ).fetchone()
    return IdRanges(((row[0] + 1 if row else 1, None),))


def _passing(query: TapeQuery, rows: Iterable[tuple[Any, ...]], limit: int | None) -> Iterator[TapeEntry]:
    passes = matcher(query)
    found = (
        entry for row in rows if passes.may_hold(row[4], row[5]) and passes.passes(entry := from_row(query.tape, row))
    )
    return islice(found, limit)


def _rows(conn: sqlite3.Connection, query: TapeQuery, tape: int, positions: Iterator[int]) -> Iterator[tuple[Any, ...]]:
    """The rows at these positions that are on the tape, of these kinds and of these dates, in the order asked for."""
    where, values = ["tape = ?"], [tape, *query.kinds]
    if query.kinds:
        where.append(f"kind IN ({', '.join('?' * len(query.kinds))})")
    for comparison, instant in (("at >= ?", query.since), ("at <= ?", query.until)):
        if instant is not None:
            where.append(comparison)
            values.append(microseconds(instant))
    wide = _CHUNKS[0]
    while chunk := list(islice(positions, wide)):
        marks = ", ".join("?" * len(chunk))
        order = "DESC" if query.newest else "ASC"
        sql = f"{SELECT_ENTRIES} NOT INDEXED WHERE seq IN ({marks}) AND {' AND '.join(where)} ORDER BY seq {order}"
        yield from conn.execute(sql, (*chunk, *values)).fetchall()
        wide = _CHUNKS[1]
