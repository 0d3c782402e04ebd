"""Queries on PostgreSQL. Python decides filters on texts, for the entries that the server cannot rule out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from bubbot.stores.postgres.connections import StatementReader, to_postgres
from bubbot.stores.postgres.words import TAPE_QUERY, all_words, any_word, term_expressions
from bubbot.stores.rows import (
    LARGEST,
    TAPE,
    DecodeRow,
    RowFinder,
    build_select,
    decode_in_steps,
    from_row,
)
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, Matcher, Ranked, TapeQuery, build_matcher, resolve
from bubbot.tape.ranking import is_frequent, order_scores, score_entries
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

PORTION = 64
"""Rows that are read at once if Python decides which of them match."""
MAX_RANKED = 2_000
"""The newest entries that share words with a text and are ranked."""
_LONGEST_LIKE = 1000  # letters
_INDEXED = f"SELECT entry_words.id FROM entry_words WHERE entry_words.tape = ({TAPE})"
_COUNT_INDEXED = f"SELECT count(*) FROM entry_words WHERE entry_words.tape = ({TAPE})"
_COUNT_TERMS = (
    f"WITH place AS (SELECT {TAPE_QUERY} AS tape) SELECT (SELECT count(*) FROM entry_words "
    "WHERE words @@ (expression::tsquery && place.tape)) "
    "FROM place, unnest(?::text[]) WITH ORDINALITY AS terms (expression, number) ORDER BY number"
)
_WITH_WORDS = f"id IN ({_INDEXED} AND words @@ (?::tsquery && {TAPE_QUERY}))"


async def find_entries(
    conn: psycopg.AsyncConnection[TupleRow], query: TapeQuery, decode: DecodeRow = from_row
) -> tuple[TapeEntry, ...]:
    """Find the entries of a query; equal to `evaluate` over the whole tape. `decode` builds them from rows.

    A query of several statements, or on texts, needs a transaction.
    """
    if isinstance(query.part, Ranked):
        return await _rank(conn, query, query.part.text)
    reader = StatementReader(conn)
    spans = await resolve(query, RowFinder(reader, query.tape, query.as_of))
    matcher = build_matcher(query)
    entries: list[TapeEntry] = []
    for span in spans[::-1] if query.newest else spans:
        limit = LARGEST if query.limit is None else query.limit - len(entries)
        if limit <= 0:
            break
        statement = build_select(query, span, limit, matcher, partial(_text_condition, query.tape))
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


async def _rank(conn: psycopg.AsyncConnection[TupleRow], query: TapeQuery, text: str) -> tuple[TapeEntry, ...]:
    """Rank entries by the words that they share with a text.

    A word is weighed by its count on the whole tape. Only the newest entries with a word that is not frequent there are ranked.
    """
    expressions = term_expressions(text)
    if not expressions or query.limit == 0:
        return ()
    whole = replace(query, part=IdRanges(((1, None),)), newest=True, limit=MAX_RANKED)
    if query.tape.startswith(SYSTEM_TAPE_PREFIX):
        entries = await find_entries(conn, whole)
        scores = score_entries(text, entries)
    else:
        reader = StatementReader(conn)
        ((size,),) = await reader.execute_fetchall(_COUNT_INDEXED, (query.tape,))
        rows = await reader.execute_fetchall(_COUNT_TERMS, (query.tape, [*expressions.values()]))
        counts = {term: count for term, (count,) in zip(expressions, rows, strict=True)}
        rare = [term for term, count in counts.items() if count and not is_frequent(count, size)]
        if not rare:
            return ()
        entries = await _find_sharing(conn, whole, any_word(expressions[term] for term in rare))
        others = {term: 0 if term in rare else max(count - len(entries), 0) for term, count in counts.items()}
        scores = score_entries(text, entries, others, max(size - len(entries), 0), size)
    by_id = {entry.id: entry for entry in entries}
    return tuple(by_id[entry_id] for entry_id in order_scores(scores)[: query.limit])


async def _find_sharing(
    conn: psycopg.AsyncConnection[TupleRow], query: TapeQuery, expression: str
) -> tuple[TapeEntry, ...]:
    """Find the newest entries with words of an expression that the other filters accept."""
    matcher = build_matcher(query)
    limit = query.limit or LARGEST
    span = (1, query.as_of)

    def condition(_: Matcher) -> tuple[str, list[str]]:
        return _WITH_WORDS, [query.tape, expression, query.tape]

    statement, values = build_select(query, span, limit, matcher, condition, is_narrowed=True)
    found = [entry async for entry in read_matching(conn, query, (statement, values), matcher, limit)]
    return tuple(found)


def _text_condition(tape: str, matcher: Matcher) -> tuple[str, list[str]]:
    """Build a condition, with its values, that excludes most rows whose texts cannot match."""
    query = matcher.query
    if not tape.startswith(SYSTEM_TAPE_PREFIX):  # those are not indexed
        if expression := all_words(matcher):
            return _WITH_WORDS, [tape, any_word([expression]), tape]
        if matcher.part:
            part = matcher.part[:_LONGEST_LIKE]
            return f"id IN ({_INDEXED} AND folded LIKE ?)", [tape, _contains(part)]
    return _condition_on_json(matcher) if not query.similar_text else ("true", [])


def _contains(part: str) -> str:
    return "%" + re.sub(r"[%_\\]", r"\\\g<0>", part) + "%"


def _condition_on_json(matcher: Matcher) -> tuple[str, list[str]]:
    """Build the condition for texts that are not indexed.

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
    pattern = _contains(needle)
    return f"(lower(payload) LIKE ? OR lower(meta) LIKE ? OR {others} OR payload IS NULL)", [pattern, pattern]
