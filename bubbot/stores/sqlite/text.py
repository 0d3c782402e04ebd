"""Queries on texts: the search index answers for the entries that it covers, a scan for all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import aiosqlite

from bubbot.errors import StoreUnavailable
from bubbot.stores.rows import LARGEST, SELECT_ENTRIES, from_row, microseconds
from bubbot.stores.sqlite.connections import HeldConnection
from bubbot.stores.sqlite.index.reader import IndexPlace, IndexReader, IndexUnreadable, SqliteIndex
from bubbot.stores.sqlite.rows import find_entries
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import (
    IdRanges,
    IndexProposals,
    NotIndexed,
    Ranked,
    Span,
    TapeQuery,
    WholeTape,
    build_matcher,
    intersect_spans,
    union,
)
from bubbot.tape.ranking import list_terms, order_scores, score_entries
from bubbot.tape.store import SYSTEM_TAPE_PREFIX
from bubbot.tape.words import fold_text

SEARCH_TIMEOUT_SECONDS = 20.0
"""The time limit of a search."""
MAX_UNINDEXED = 2_000
"""The newest entries that the index does not cover yet and that are ranked."""
_SELECT_POSITIONS = SELECT_ENTRIES.replace("SELECT id", "SELECT seq, id", 1)
_CHUNKS = (32, 256)  # positions read at a time, first and later


def looks_at_texts(query: TapeQuery) -> bool:
    """Return true for a query on texts, which `search` answers."""
    return query.reads_texts or isinstance(query.part, IndexProposals | NotIndexed | Ranked)


async def search(
    scanner: HeldConnection, queries: Sequence[TapeQuery], reader: IndexReader
) -> list[tuple[TapeEntry, ...]]:
    """Find the entries of each query, with or without filters on texts, all from one state of the database.

    Raises:
        StoreUnavailable: it took too long.
    """
    try:
        async with scanner.snapshot() as conn, asyncio.timeout(SEARCH_TIMEOUT_SECONDS):
            try:
                async with reader.transaction(conn) as index:
                    return [await _find(conn, query, index) for query in queries]
            except IndexUnreadable:
                return [await _find(conn, query, None) for query in queries]
    except TimeoutError as error:
        raise StoreUnavailable(
            f"the search took longer than {SEARCH_TIMEOUT_SECONDS:.0f} seconds and was ended: narrow it with kinds or dates"
        ) from error


async def _find(conn: aiosqlite.Connection, query: TapeQuery, index: SqliteIndex | None) -> tuple[TapeEntry, ...]:
    number = await _find_tape(conn, query) if looks_at_texts(query) else None
    if isinstance(query.part, Ranked):
        return await _rank(conn, query, query.part.text, number, index)
    if index is None or number is None:
        return await find_entries(conn, query)
    if isinstance(query.part, NotIndexed):
        return await find_entries(conn, replace(query, part=IdRanges(await _unindexed_range(conn, number, index))))
    if query.limit is not None and query.limit <= 0:
        return ()
    if isinstance(query.part, IndexProposals):
        similar = index.find_similar(await _place(conn, query, number), fold_text(query.part.text))
        return tuple(await _read_matching(conn, query, number, similar))
    # The index goes backwards and has only the sender's name of meta.
    if not (isinstance(query.part, WholeTape | IdRanges) and query.newest and _indexed_text(query)):
        return await find_entries(conn, query)
    return await _find_newest(conn, query, number, index)


def _indexed_text(query: TapeQuery) -> str:
    return query.phrase_text or query.words_text or query.searchable_text


async def _find_tape(conn: aiosqlite.Connection, query: TapeQuery) -> int | None:
    """Return the number of the tape; None if there is none, or if it is not indexed."""
    if query.tape.startswith(SYSTEM_TAPE_PREFIX):
        return None
    rows = await conn.execute_fetchall("SELECT tape FROM tapes WHERE name = ?", (query.tape,))
    return next((tape for (tape,) in rows), None)


async def _place(conn: aiosqlite.Connection, query: TapeQuery, tape: int) -> IndexPlace:
    """Return where the index has to look for a query."""
    rows = await conn.execute_fetchall(
        "SELECT seq, id FROM entries INDEXED BY entries_id WHERE tape = ? AND id <= ? ORDER BY id DESC LIMIT 1",
        (tape, LARGEST if query.as_of is None else query.as_of),
    )
    position, entries = next(((seq, entry_id) for seq, entry_id in rows), (0, 0))
    return IndexPlace(tape, query.kinds, query.sender, position, entries)


async def _find_newest(
    conn: aiosqlite.Connection, query: TapeQuery, number: int, index: SqliteIndex
) -> tuple[TapeEntry, ...]:
    """Find entries through the index, and uncovered ones by a scan, newest first."""
    place = await _place(conn, query, number)
    if query.phrase_text:
        positions = index.find_phrase(place, fold_text(query.phrase_text))
    elif query.words_text:
        positions = index.find_words(place, fold_text(query.words_text))
    else:
        positions = index.find_part(place, fold_text(query.searchable_text))
    if positions is None:
        return await find_entries(conn, query)
    spans = query.part.spans if isinstance(query.part, IdRanges) else ((1, None),)
    tail: tuple[TapeEntry, ...] = ()
    for unindexed in await _unindexed_range(conn, number, index):
        tail = await find_entries(conn, replace(query, part=IdRanges(intersect_spans(union(spans), unindexed))))
    rest = replace(query, limit=None if query.limit is None else query.limit - len(tail))
    return (*tail, *await _read_matching(conn, rest, number, positions))


async def _rank(
    conn: aiosqlite.Connection, query: TapeQuery, text: str, number: int | None, index: SqliteIndex | None
) -> tuple[TapeEntry, ...]:
    """Rank the entries that the index proposes, and the newest of those that it does not cover."""
    terms = list_terms(text)
    if not terms or query.limit == 0:
        return ()
    scores: dict[int, float] = {}
    entries: dict[int, TapeEntry] = {}
    counts: Mapping[str, int] = {}
    unindexed: tuple[Span, ...] = ((1, None),)
    if index is not None and number is not None:
        unindexed, counts = await _unindexed_range(conn, number, index), await index.count(terms)
        ranked = dict(await index.rank(await _place(conn, query, number), counts, query.limit or MAX_UNINDEXED))
        for position, entry in (await _read_positions(conn, query, number, [*ranked])).items():
            scores[entry.id], entries[entry.id] = ranked[position], entry
    for span in unindexed:
        newest = await find_entries(conn, replace(query, part=IdRanges((span,)), newest=True, limit=MAX_UNINDEXED))
        scores |= score_entries(text, newest, counts, index.coverage.entries if index else 0)
        entries |= {entry.id: entry for entry in newest}
    return tuple(entries[entry_id] for entry_id in order_scores(scores)[: query.limit])


async def _unindexed_range(conn: aiosqlite.Connection, tape: int, index: SqliteIndex) -> tuple[Span, ...]:
    """Return the range of entries of a tape after the last indexed position; none if the index has all of them."""
    rows = await conn.execute_fetchall(
        "SELECT id, (SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = :tape) FROM entries INDEXED BY entries_id "
        "WHERE tape = :tape AND seq <= :position ORDER BY id DESC LIMIT 1",
        {"tape": tape, "position": index.position},
    )
    last, head = next(((last, head) for last, head in rows), (0, 1))
    return ((last + 1, None),) if last < head else ()


async def _read_matching(
    conn: aiosqlite.Connection, query: TapeQuery, tape: int, positions: AsyncIterator[int]
) -> list[TapeEntry]:
    """Read the matching entries at these positions, in order, up to the query's limit."""
    entries = list[TapeEntry]()
    # The closest proposals come first; within one read their order is lost.
    size = query.limit if query.limit and isinstance(query.part, IndexProposals) else _CHUNKS[0]
    while query.limit is None or len(entries) < query.limit:
        chunk = [at for _ in range(size) if (at := await anext(positions, None)) is not None]
        if not chunk:
            break
        found = (await _read_positions(conn, query, tape, chunk)).values()
        entries += islice(found, None if query.limit is None else query.limit - len(entries))
        size = _CHUNKS[1]
    return entries


async def _read_positions(
    conn: aiosqlite.Connection, query: TapeQuery, tape: int, positions: Sequence[int]
) -> dict[int, TapeEntry]:
    """Read the entries at some positions that match all filters of a query, newest first."""
    matcher = build_matcher(query)
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
    if isinstance(query.part, IdRanges):
        spans = union(query.part.spans)
        within = " OR ".join("id >= ?" if high is None else "id BETWEEN ? AND ?" for _, high in spans)
        conditions.append(f"({within or '0'})")
        values += [end for span in spans for end in span if end is not None]
    marks = ", ".join("?" * len(positions))
    sql = f"{_SELECT_POSITIONS} NOT INDEXED WHERE seq IN ({marks}) AND {' AND '.join(conditions)}"
    rows = await conn.execute_fetchall(sql, (*positions, *values))
    found = {row[0]: from_row(query.tape, tuple(row)[1:]) for row in rows}
    return {position: found[position] for position in sorted(found, reverse=True) if matcher.matches(found[position])}
