"""Queries on PostgreSQL. Python decides filters on texts, for the entries that the server cannot rule out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from bubbot.stores.postgres.connections import StatementReader, to_postgres
from bubbot.stores.rows import (
    LARGEST,
    DecodeRow,
    RowFinder,
    build_select,
    decode_in_steps,
    from_row,
)
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import Matcher, TapeQuery, build_matcher, resolve

PORTION = 64
"""Rows that are read at once if Python decides which of them match."""
_LONGEST_LIKE = 1000  # letters


async def find_entries(
    conn: psycopg.AsyncConnection[TupleRow], query: TapeQuery, decode: DecodeRow = from_row
) -> tuple[TapeEntry, ...]:
    """Find the entries of a query; equal to `evaluate` over the whole tape. `decode` builds them from rows.

    A query of several statements, or on texts, needs a transaction.
    """
    reader = StatementReader(conn)
    spans = await resolve(query, RowFinder(reader, query.tape, query.as_of))
    matcher = build_matcher(query)
    entries: list[TapeEntry] = []
    for span in spans[::-1] if query.newest else spans:
        limit = LARGEST if query.limit is None else query.limit - len(entries)
        if limit <= 0:
            break
        statement = build_select(query, span, limit, matcher, _text_condition)
        if matcher.reads_texts:
            entries += [entry async for entry in read_matching(conn, query, statement, matcher, limit)]
        else:
            rows = await reader.execute_fetchall(*statement)
            entries += await decode_in_steps(map(tuple, rows), partial(decode, query.tape))
    return tuple(entries)


async def read_matching(
    conn: psycopg.AsyncConnection[TupleRow],
    query: TapeQuery,
    statement: tuple[str, Sequence[Any]],
    matcher: Matcher,
    limit: int,
) -> AsyncIterator[TapeEntry]:
    """Yield the entries that a statement selects and the filters accept, up to a number of them."""
    found = 0
    async with open_cursor(conn, *statement) as cursor:
        async for row in cursor:
            entry = from_row(query.tape, tuple(row))
            if matcher.matches(entry):
                yield entry
                found += 1
                if found == limit:
                    break


@asynccontextmanager
async def open_cursor(
    conn: psycopg.AsyncConnection[TupleRow], statement: str, values: Sequence[Any]
) -> AsyncIterator[psycopg.AsyncServerCursor[TupleRow]]:
    """Run a statement whose rows are read in portions."""
    async with conn.cursor("found") as cursor:
        cursor.itersize = PORTION
        await cursor.execute(to_postgres(statement), values)
        yield cursor


def _text_condition(matcher: Matcher) -> tuple[str, list[str]]:
    """Build a condition, with its values, that excludes most rows whose texts cannot match.

    The server decides rows of ASCII, whose letters it folds as Python does. All others have to be read.
    """
    needle = next((needle for needle in matcher.raw_needles if len(needle) <= _LONGEST_LIKE), "")
    if not needle:
        return "true", []
    others = " OR ".join(
        f"length({column}) <> octet_length({column}) OR strpos({column}, '\\u') > 0" for column in ("payload", "meta")
    )
    if not needle.isascii():
        return f"({others} OR payload IS NULL)", []
    pattern = "%" + re.sub(r"[%_\\]", r"\\\g<0>", needle) + "%"
    return f"(lower(payload) LIKE ? OR lower(meta) LIKE ? OR {others} OR payload IS NULL)", [pattern, pattern]
