"""Queries on SQLite, whose filters on texts Python decides."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import aiosqlite

from bubbot.stores.rows import (
    LARGEST,
    TAPE,
    TAPE_NAMED,
    DecodeRow,
    RowFinder,
    build_select,
    decode_in_steps,
    from_row,
)
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import Matcher, Span, TapeQuery, build_matcher, resolve

_LONGEST_LIKE = 1000  # letters
_BLOCK_ROWS = 64  # rows whose words are compared at once


@asynccontextmanager
async def _open_cursor(
    conn: aiosqlite.Connection, sql: str, values: Sequence[Any] | Mapping[str, Any]
) -> AsyncIterator[aiosqlite.Cursor]:
    """Run a statement whose rows are read one by one; end it with the block.

    If the block is cancelled, interrupt the statement first: closing alone would wait for the remaining rows. Close it
    in any case: while it is open, SQLite stays interrupted and the connection sees an old state.
    """
    cursor = await conn.cursor()
    try:
        await cursor.execute(sql, values)
        yield cursor
    except (asyncio.CancelledError, TimeoutError):
        with suppress(ValueError):  # closed, at the end of the event loop
            await conn.interrupt()
        raise
    finally:
        with suppress(ValueError, sqlite3.ProgrammingError):
            await cursor.close()


async def find_entries(
    conn: aiosqlite.Connection, query: TapeQuery, decode: DecodeRow = from_row
) -> tuple[TapeEntry, ...]:
    """Find the entries of a query; equal to `evaluate` over the whole tape. `decode` builds them from rows."""
    spans = await resolve(query, RowFinder(conn, query.tape, query.as_of))
    matcher = build_matcher(query)
    if matcher.reads_texts:
        # SQLite calls it, so that only rows that may match are read whole.
        await conn.create_function("may_match", 2, matcher.build_precheck(), deterministic=True)
    entries: list[TapeEntry] = []
    # One statement per range: with several ranges in one, SQLite scans the whole tape.
    for span in spans[::-1] if query.newest else spans:
        async with aclosing(_parts(conn, query, span, matcher)) as parts:
            async for part in parts:
                limit = LARGEST if query.limit is None else query.limit - len(entries)
                if limit <= 0:
                    return tuple(entries)
                entries += await _read(
                    conn, query, build_select(query, part, limit, matcher, _text_condition), limit, matcher, decode
                )
    return tuple(entries)


async def _read(  # noqa: PLR0917 - the parts of one statement
    conn: aiosqlite.Connection,
    query: TapeQuery,
    statement: tuple[str, list[Any]],
    limit: int,
    matcher: Matcher,
    decode: DecodeRow,
) -> list[TapeEntry]:
    """Read the entries that a statement selects and the filters accept."""
    if not matcher.reads_texts:  # SQLite has applied all filters and the limit
        found = await conn.execute_fetchall(*statement)
        return await decode_in_steps(map(tuple, found), partial(decode, query.tape))
    entries: list[TapeEntry] = []
    async with _open_cursor(conn, *statement) as rows:
        async for row in rows:
            entry = from_row(query.tape, tuple(row))
            if matcher.matches(entry):
                entries.append(entry)
                if len(entries) == limit:
                    break
    return entries


async def _parts(
    conn: aiosqlite.Connection, query: TapeQuery, span: Span, matcher: Matcher
) -> AsyncGenerator[Span, None]:
    """Yield a range, or its blocks that may contain other spellings, in the query's order.

    Checking blocks costs half as much as checking each row.
    """
    if not matcher.words or matcher.raw_needles:
        yield span
        return
    low, high = span
    newest = await conn.execute_fetchall(
        f"SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = ({TAPE})", (query.tape,)
    )
    ((head,),) = newest
    high = (head or 0) if high is None else min(high, head or 0)
    starts = range(low, high + 1, _BLOCK_ROWS)
    if not starts:
        return
    first, step, is_inside = (
        (starts[-1], -_BLOCK_ROWS, "start >= :low") if query.newest else (low, _BLOCK_ROWS, "start <= :high")
    )
    sql = f"""
        WITH RECURSIVE block(start) AS (SELECT :first UNION ALL SELECT start + :step FROM block WHERE {is_inside})
        SELECT start FROM block WHERE {is_inside} AND may_match((
            SELECT CAST(group_concat(payload || ' ' || meta, char(10)) AS BLOB) FROM entries INDEXED BY entries_id
            WHERE tape = ({TAPE_NAMED}) AND id BETWEEN start AND min(start + {_BLOCK_ROWS - 1}, :high)
        ), x'')
    """
    values = {"first": first, "step": step, "low": low, "high": high, "tape": query.tape}
    async with _open_cursor(conn, sql, values) as blocks:
        while (block := await blocks.fetchone()) is not None:
            yield block[0], min(block[0] + _BLOCK_ROWS - 1, high)


def _text_condition(matcher: Matcher) -> tuple[str, list[str]]:
    """Build a condition, with its values, that excludes most rows whose texts cannot match.

    SQLite decides rows of ASCII itself and passes the others to Python as bytes, since they may no longer be UTF-8.
    """
    ask = "may_match(CAST(payload AS BLOB), CAST(meta AS BLOB))"
    needle = next((needle for needle in matcher.raw_needles if len(needle) <= _LONGEST_LIKE), "")
    if not needle:
        return ask, []
    is_ascii = " AND ".join(
        # GLOB: instr takes three times as long for rare characters.
        f"length({column}) = length(CAST({column} AS BLOB)) AND {column} NOT GLOB '*\\u*'"
        for column in ("payload", "meta")
    )
    if not needle.isascii():
        return f"CASE WHEN {is_ascii} THEN 0 ELSE {ask} END", []
    pattern = "%" + re.sub("[%_^]", r"^\g<0>", needle) + "%"
    may_hold = " OR ".join(f"{column} LIKE ? ESCAPE '^'" for column in ("payload", "meta"))
    return f"CASE WHEN {may_hold} THEN {ask} WHEN {is_ascii} THEN 0 ELSE {ask} END", [pattern, pattern]
