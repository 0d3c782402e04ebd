"""Queries of the search index."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path

import aiosqlite
from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.ports.store import IndexState
from bubbot.stores.rows import COUNT_ENTRIES, LARGEST
from bubbot.stores.sqlite.connections import HeldConnection
from bubbot.stores.sqlite.index.schema import (
    IndexCoverage,
    index_size,
    matches_database,
    open_for_reading,
    position_of,
    read_coverage,
    row_number,
)
from bubbot.stores.sqlite.index.spellings import find_spellings
from bubbot.stores.sqlite.index.tokens import (
    any_expression,
    letters_expression,
    part_expression,
    phrase_expression,
    within,
    words_expression,
)
from bubbot.tape.ranking import PERSON_WEIGHT, is_frequent
from bubbot.tape.spelling import CLOSER_TURNS, MAX_MISTAKES
from bubbot.tape.words import is_run, tokens

log = logging.getLogger(__name__)

MAX_CANDIDATES = 2_000
"""Entries that are ranked for a question at most. The rarer words find them; the other words only order them."""
MAX_WORD_ENTRIES = 20_000
"""A word of more entries of all tapes does not even order them: FTS5 counts each of its entries."""
MAX_SPLIT_RUN = 12
"""Characters of a run up to which each may be the wrong one; of a longer one a third is looked for."""
MAX_SPELT_WORDS = 16
"""The longest words of a query for which other spellings are looked for."""
_FIRST_POSITIONS, _MOST_POSITIONS = 8, 256  # positions of an expression that are read at a time


class IndexUnreadable(Exception):
    """The index file cannot be read; a scan has to answer."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors of the index file: a damaged index is not a damaged database."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
            raise
        raise IndexUnreadable(str(error)) from error


class IndexPlace(Struct, frozen=True):
    """Where the index looks: a tape, the entries of some kinds or of all, of a sender or of all, and those up to a position.

    Attributes:
        entries: about how many there are.
    """

    tape: int
    kinds: Sequence[str]
    sender: str
    until: int
    entries: int

    @property
    def last_row(self) -> int:
        """The number of the last row to look at."""
        return row_number(self.until, is_person=True)

    @property
    def expression(self) -> str:
        """The expression, for the table `words`, of all these entries."""
        return within(self.tape, self.kinds, self.sender)


@dataclass
class SqliteIndex:
    """An open search index, valid for one read transaction of its database.

    It proposes entries by their global position; whether one matches is decided on its text. All answers but those of `rank`
    go backwards from the newest entry, and are read no further than they are used.

    Attributes:
        conn: the index file.
        coverage: the entries that it covers.
    """

    conn: aiosqlite.Connection
    coverage: IndexCoverage

    @property
    def position(self) -> int:
        """The last entry that is covered; the caller has to read the later ones."""
        return self.coverage.position

    def find_phrase(self, place: IndexPlace, text: str) -> AsyncIterator[int] | None:
        """Yield every entry with the folded text between spaces, and others, newest first; None if a scan has to."""
        return self._find_words(place, phrase_expression(text))

    def find_words(self, place: IndexPlace, text: str) -> AsyncIterator[int] | None:
        """Yield every entry with the words of the folded text, in any order, newest first; None if it has none."""
        return self._find_words(place, words_expression(text))

    def find_part(self, place: IndexPlace, text: str) -> AsyncIterator[int] | None:
        """Yield every entry that holds the folded text, and others, newest first; None if the text is too short."""
        expression = part_expression(place.tape, text)
        if not expression:
            return None
        sent = ("words", place.expression) if place.sender else None  # `parts` has no senders
        return _read_newest(self.conn, place, ("parts", expression), sent)

    async def find_similar(self, place: IndexPlace, text: str) -> AsyncIterator[int]:
        """Yield entries with the folded text's words in other spellings, newest first; some may be missing.

        Of five entries four have the closest spellings, if there are so many, and one has less close ones. Those that
        have them to the letter come before those that only have their stems, which of a rare word may be frequent.
        """
        words = sorted(tokens(text), key=len, reverse=True)[:MAX_SPELT_WORDS]
        seen: set[int] = set()
        with _translate_errors():
            spelt = [
                {word: 0.0} if is_run(word) else await find_spellings(self.conn, word, is_alone=len(words) == 1)
                for word in words
            ]
        if not words or not all(spelt):
            return
        levels = dict[str, str]()  # the expression of stems, and of letters
        for mistakes in range(MAX_MISTAKES + 1):
            closest = [_closest(terms, mistakes) for terms in spelt]
            stems = " AND ".join(
                f"({_run_level(word, mistakes) if is_run(word) else any_expression(near)})"
                for word, near in zip(words, closest, strict=True)
            )
            letters = [near for word, near in zip(words, closest, strict=True) if not is_run(word)]
            levels.setdefault(f"{place.expression} AND ({stems})", letters_expression(place.tape, letters))
        to_the_letter = [
            _read_newest(self.conn, place, ("words", stems), ("parts", letters))
            for stems, letters in levels.items()
            if letters
        ]
        by_stems = [_read_newest(self.conn, place, ("words", stems)) for stems in levels]
        for streams in (to_the_letter, by_stems):
            async for position in take_turns(streams):
                if position not in seen:
                    seen.add(position)
                    yield position

    async def count(self, terms: Sequence[str]) -> dict[str, int]:
        """Count the entries of all tapes with each word, and no further than it matters."""
        with _translate_errors():
            return {
                term: await self._count_rows(phrase_expression(term), LARGEST, MAX_WORD_ENTRIES + 1) for term in terms
            }

    async def rank(self, place: IndexPlace, everywhere: Mapping[str, int], limit: int) -> list[tuple[int, float]]:
        """Return the positions of the entries that bear on a question, best first, each with its score.

        Args:
            place: where to look.
            everywhere: the words of the question, with the number of entries of each (see `count`).
            limit: entries at most.
        """
        with _translate_errors():
            rare = [term for term, count in everywhere.items() if 0 < count <= MAX_WORD_ENTRIES]
            counts = {term: await self._count(place, term) for term in rare}
            orders = sorted((term for term in rare if counts[term]), key=counts.__getitem__)
            running = [*accumulate(counts[term] for term in orders)]
            finds = [
                term
                for term, total in zip(orders, running, strict=True)
                if total <= MAX_CANDIDATES and not is_frequent(counts[term], place.entries)
            ]
            if not finds:
                return []
            expression = f"{place.expression} AND ({any_expression(finds)})"
            if len(finds) < len(orders):
                expression += f" AND ({any_expression(orders)})"
            rows = await self.conn.execute_fetchall(
                f"SELECT rowid, -bm25(words, 1, 0, 0) * CASE rowid & 1 WHEN 1 THEN {PERSON_WEIGHT} ELSE 1 END AS score "
                "FROM words WHERE words MATCH ? AND rowid <= ? ORDER BY score DESC, rowid DESC LIMIT ?",
                (expression, place.last_row, limit),
            )
        return [(position_of(row), score) for row, score in rows]

    async def _count(self, place: IndexPlace, term: str) -> int:
        expression = f"{place.expression} AND ({phrase_expression(term)})"
        return await self._count_rows(expression, place.last_row, MAX_CANDIDATES + 1)

    async def _count_rows(self, expression: str, last: int, limit: int) -> int:
        ((count,),) = await self.conn.execute_fetchall(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid <= ? LIMIT ?)",
            (expression, last, limit),
        )
        return int(count)

    def _find_words(self, place: IndexPlace, expression: str) -> AsyncIterator[int] | None:
        if not expression:
            return None
        return _read_newest(self.conn, place, ("words", f"{place.expression} AND ({expression})"))


def _closest(spellings: Mapping[str, float], mistakes: int) -> list[str]:
    """Return the spellings with so many mistakes, or with the fewest that there are."""
    most = max(mistakes, min(spellings.values()))
    return [*takewhile(lambda word: spellings[word] <= most, sorted(spellings, key=spellings.__getitem__))]


def _run_level(run: str, mistakes: int) -> str:
    """Build the expression for a run in which one character may be wrong, then for two swapped, then for any third of it.

    Beside the mistake, the characters before and after it stand as they were typed. A single one is in too many texts.
    """
    size = len(run)
    if size < 4:
        return phrase_expression(run)
    if mistakes > 1 or size > MAX_SPLIT_RUN:
        third = -(-size // 3)
        return any_expression(run[at : at + third] for at in range(0, size, third))
    splits = [(run[:at], run[at + 1 + mistakes :]) for at in range(size - mistakes)]
    parts = [[phrase_expression(part) for part in split if len(part) > 1] for split in splits]
    return " OR ".join(f"({' AND '.join(each)})" for each in parts if each)


async def _read_newest(
    conn: aiosqlite.Connection, place: IndexPlace, match: tuple[str, str], other: tuple[str, str] | None = None
) -> AsyncIterator[int]:
    """Yield the positions of the rows that match, newest first; few are read at first, then more each time.

    `match`: a table and the expression for it; `other`: one of another table that has to match, too.
    """
    table, expression = match
    where, values = f"{table} MATCH ?", [expression]
    if other:  # the plus keeps SQLite from looking up row by row
        where += f" AND +rowid IN (SELECT rowid FROM {other[0]} WHERE {other[0]} MATCH ?)"
        values.append(other[1])
    sql = f"SELECT rowid FROM {table} WHERE {where} AND rowid <= ? ORDER BY rowid DESC LIMIT ?"
    last, limit = place.last_row, _FIRST_POSITIONS
    while True:
        with _translate_errors():
            rows = [row for (row,) in await conn.execute_fetchall(sql, (*values, last, limit))]
        for row in rows:
            yield position_of(row)
        if len(rows) < limit:
            return
        last, limit = rows[-1] - 1, min(4 * limit, _MOST_POSITIONS)


async def take_turns(levels: Sequence[AsyncIterator[int]]) -> AsyncIterator[int]:
    """Yield four of the first level, then one of those after it, which share their turns likewise, and so on."""
    if not levels:
        return
    closer, others = levels[0], take_turns(levels[1:])
    while part := [at for _ in range(CLOSER_TURNS) if (at := await anext(closer, None)) is not None]:
        for position in part:
            yield position
        if (other := await anext(others, None)) is not None:
            yield other
    async for position in others:
        yield position


class IndexReader:
    """Opens the index file if it exists and belongs to the database. One task at a time uses it.

    Attributes:
        broken: the file was found damaged; it is not opened again until another one replaces it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: HeldConnection | None = None
        self._inode = 0
        self.broken = False

    @asynccontextmanager
    async def transaction(self, database: aiosqlite.Connection) -> AsyncIterator[SqliteIndex | None]:
        """Give the index within a read transaction; None if it does not belong to the database.

        `database` is within its own transaction and was not read yet: it is at least as new as the index then.
        """
        held = await self._open()
        if held is None:
            yield None
            return
        try:
            async with held.snapshot() as conn:
                coverage = await read_coverage(conn)
                if coverage is None or not await matches_database(coverage, database):
                    yield None
                else:
                    yield SqliteIndex(conn, coverage)
        except IndexUnreadable as error:
            await self.aclose()
            self.broken = True
            log.warning("search index damaged: %s", error, extra={"action": "index.damaged"})
            raise

    async def read_state(self, database: aiosqlite.Connection) -> IndexState | None:
        """Report how far the index goes; None if there is none, or the file is not ours. `database`: see `transaction`."""
        held = await self._open()
        if held is None:
            return None
        async with held.snapshot() as conn:
            coverage = await read_coverage(conn)
        if coverage is None:
            return None
        ((behind, count),) = await database.execute_fetchall(
            f"SELECT (SELECT count(*) FROM entries WHERE seq > ?), ({COUNT_ENTRIES})", (coverage.position,)
        )
        is_fresh = await matches_database(coverage, database)
        size = index_size(self._path)
        return IndexState(coverage.position, count - behind, behind, size, coverage.texts, is_fresh)

    async def _open(self) -> HeldConnection | None:
        """Return the connection to the file; None if there is none, or it cannot be read."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            await self.aclose()
            return None
        if inode == self._inode and self.broken:
            return None
        try:
            if self._held is None or inode != self._inode:
                await self.aclose()
                self._inode, self.broken = inode, False
                self._held = await HeldConnection.open(partial(open_for_reading, self._path))
        except BubbotError:  # a scan answers, then
            return None
        return self._held

    async def aclose(self) -> None:
        """Close the file."""
        if self._held is not None:
            held, self._held = self._held, None
            await held.aclose()
