"""Queries on texts: the search index answers for the entries that it covers, a scan for all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from itertools import islice

import aiosqlite

from bubbot.errors import StoreUnavailable
from bubbot.stores.sqlite.connections import HeldConnection
from bubbot.stores.sqlite.index.reader import IndexReader, IndexUnreadable, SqliteIndex
from bubbot.stores.sqlite.rows import SELECT_ENTRIES, find_entries, from_row, microseconds
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, IndexProposals, NotIndexed, TapeQuery, WholeTape, build_matcher, fold_text
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

SEARCH_TIMEOUT_SECONDS = 20.0
"""The time limit of a search."""
NEWEST_ENTRIES = 256
"""Newest entries of a tape that are scanned before the index is used for the others."""
_CHUNKS = (32, 256)  # positions read at a time, first and later


def looks_at_texts(query: TapeQuery) -> bool:
    """Return true for a query on texts, which `search` answers."""
    return bool(query.text or query.searchable_text or query.similar_text) or isinstance(
        query.part, IndexProposals | NotIndexed
    )


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
                return [await find_entries(conn, query) for query in queries]
    except TimeoutError as error:
        raise StoreUnavailable(
            f"the search took longer than {SEARCH_TIMEOUT_SECONDS:.0f} seconds and was ended: narrow it with kinds or dates"
        ) from error


async def _find(conn: aiosqlite.Connection, query: TapeQuery, index: SqliteIndex | None) -> tuple[TapeEntry, ...]:
    if index is None or query.tape.startswith(SYSTEM_TAPE_PREFIX) or not looks_at_texts(query):
        return await find_entries(conn, query)
    rows = await conn.execute_fetchall("SELECT tape FROM tapes WHERE name = ?", (query.tape,))
    number = next((tape for (tape,) in rows), None)
    if number is None:
        return await find_entries(conn, query)
    if isinstance(query.part, NotIndexed):
        return await find_entries(conn, replace(query, part=await _unindexed_range(conn, number, index)))
    if query.limit is not None and query.limit <= 0:
        return ()
    if isinstance(query.part, IndexProposals):
        similar = index.find_similar(number, fold_text(query.part.text), query.kinds)
        return tuple(await _read_matching(conn, query, number, similar, query.limit))
    # The index goes backwards and has only the sender's name of meta.
    if not (isinstance(query.part, WholeTape) and query.searchable_text and query.newest):
        return await find_entries(conn, query)
    first = await _first_of_newest(conn, number)
    newest = await find_entries(conn, replace(query, part=IdRanges(((first, None),))))
    if first == 1 or len(newest) == query.limit:
        return newest
    as_of = first - 1 if query.as_of is None else min(first - 1, query.as_of)
    older = replace(query, as_of=as_of, limit=None if query.limit is None else query.limit - len(newest))
    return (*newest, *await _find_older(conn, older, number, index))


async def _find_older(
    conn: aiosqlite.Connection, query: TapeQuery, number: int, index: SqliteIndex
) -> Iterable[TapeEntry]:
    """Find entries through the index, and uncovered ones by a scan, newest first."""
    positions = await index.find_containing(number, fold_text(query.searchable_text), query.kinds)
    if positions is None:
        return await find_entries(conn, query)
    tail = await find_entries(conn, replace(query, part=await _unindexed_range(conn, number, index)))
    limit = None if query.limit is None else query.limit - len(tail)
    return (*tail, *await _read_matching(conn, query, number, positions, limit))


async def _first_of_newest(conn: aiosqlite.Connection, tape: int) -> int:
    """Return the first id of a tape's newest entries, in which a scan finds frequent words sooner than the index."""
    sql = "SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = ?"
    ((head,),) = await conn.execute_fetchall(sql, (tape,))
    return max(1, (head or 0) - NEWEST_ENTRIES + 1)


async def _unindexed_range(conn: aiosqlite.Connection, tape: int, index: SqliteIndex) -> IdRanges:
    """Return the range of entries of a tape after the last indexed position."""
    rows = await conn.execute_fetchall(
        "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND seq <= ? ORDER BY id DESC LIMIT 1",
        (tape, index.position),
    )
    return IdRanges(((next((entry_id + 1 for (entry_id,) in rows), 1), None),))


async def _read_matching(
    conn: aiosqlite.Connection, query: TapeQuery, tape: int, positions: AsyncIterator[int], limit: int | None
) -> list[TapeEntry]:
    """Read the matching entries at these positions, in order, up to the limit."""
    matcher, entries = build_matcher(query), list[TapeEntry]()
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
    # The closest proposals come first; within one read their order is lost.
    size = query.limit if query.limit and isinstance(query.part, IndexProposals) else _CHUNKS[0]
    while limit is None or len(entries) < limit:
        chunk = [at for _ in range(size) if (at := await anext(positions, None)) is not None]
        if not chunk:
            break
        marks = ", ".join("?" * len(chunk))
        sql = f"{SELECT_ENTRIES} NOT INDEXED WHERE seq IN ({marks}) AND {' AND '.join(conditions)} ORDER BY seq DESC"
        found = (from_row(query.tape, tuple(row)) for row in await conn.execute_fetchall(sql, (*chunk, *values)))
        entries += islice(filter(matcher.matches, found), None if limit is None else limit - len(entries))
        size = _CHUNKS[1]
    return entries
