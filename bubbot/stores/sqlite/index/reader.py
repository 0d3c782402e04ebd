"""Queries of the search index."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import aiosqlite

from bubbot.errors import BubbotError
from bubbot.ports.store import IndexState
from bubbot.stores.sqlite.connections import HeldConnection
from bubbot.stores.sqlite.index.schema import (
    IndexCoverage,
    index_size,
    matches_database,
    open_for_reading,
    read_coverage,
    tables_of,
    tape_token,
)
from bubbot.stores.sqlite.index.vocabulary import (
    HUGE_WORD_MARK,
    LONG_WORD_MARK,
    MAX_PART_LETTERS,
    MAX_TERMS,
    MAX_TOKEN_LETTERS,
    Vocabulary,
    phrase,
    run_tokens,
)
from bubbot.stores.sqlite.rows import COUNT_ENTRIES, LARGEST
from bubbot.tape.spelling import CLOSER_TURNS
from bubbot.tape.words import is_run, is_symbol, split_pieces, tokens

log = logging.getLogger(__name__)

_MAX_TAPE_SHARE = 0.5
"""If a tape has a greater share of the entries, the query does not name it: leaving out the others is cheaper."""
_MAX_CONTAINING_TERMS = 5000  # the most terms that contain a given part
_ENTRIES_PER_CURSOR = 26  # entries read for a page of hits, times the cost of one, divided by the cost of a cursor
_MAX_COMBINATIONS = 64  # the most combinations of a first and a last word to look up as phrases
_MIN_PREFIX_LETTERS = 3  # fewer letters begin too many words
_LONG_RUN_LETTERS = 12
_MAX_SPELLINGS_OF_LEVEL = 48  # the most spellings of a single word, equally close, that take turns
_FEW_SPELLINGS, _MANY_SPELLINGS = 16, 96  # the most spellings of each of several words, first and then
_FIRST_POSITIONS, _MOST_POSITIONS = 8, 256  # positions of an expression that are read at a time
_NOWHERE = "\ue000n"  # a token that no entry has


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


@dataclass(frozen=True, slots=True)
class _TextPieces:
    """The pieces of a text.

    Attributes:
        inner: complete pieces.
        first: perhaps the end of a longer word; empty if there is none.
        last: perhaps the beginning of a longer word; empty if there is none.
        alone: perhaps any part of a longer word; then there is no other piece.
        goes_on: the last of `inner` is a character after which a run may go on.
    """

    inner: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    alone: str = ""
    goes_on: bool = False

    @classmethod
    def of(cls, text: str) -> _TextPieces:
        """Cut a folded text into its pieces and classify them."""
        inner: list[str] = []
        first = last = ""
        goes_on = False
        for piece, start in split_pieces(text):
            begins, ends = start == 0, start + len(piece) == len(text)
            if is_run(piece):
                goes_on = ends and len(piece) == 1
                inner += [*run_tokens(piece)][: -1 if ends and not goes_on else None]
            elif is_symbol(piece):
                inner.append(piece)
            elif begins and ends:
                return cls(alone=piece)
            elif begins:
                first = piece
            elif ends:
                last = piece
            else:
                inner.append(piece[:MAX_TOKEN_LETTERS])
        return cls(tuple(inner), first, last, goes_on=goes_on)


@dataclass
class SqliteIndex:
    """An open search index, valid for one read transaction of its database.

    It proposes entries by their global position; whether one matches is decided on its text. All answers go backwards
    from the newest entry, and are read no further than they are used.

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

    async def find_containing(self, tape: int, text: str, kinds: Sequence[str]) -> AsyncIterator[int] | None:
        """Yield every covered entry of the tape that holds the folded text, and others, newest first.

        None if a scan is faster.
        """
        with _translate_errors():
            expression = await self._containing(text)
            return self._in_turns(tape, kinds, [expression]) if expression else None

    async def find_similar(self, tape: int, text: str, kinds: Sequence[str]) -> AsyncIterator[int]:
        """Yield entries with the folded text's words in other spellings, the closest first; some may be missing."""
        words = sorted(tokens(text), key=len, reverse=True)
        seen: set[int] = set()
        with _translate_errors():
            if not words:
                return
            if len(words) == 1 and not is_run(words[0]):
                levels = _word_levels(await Vocabulary(self.conn).spellings(words[0], is_alone=True))
                positions = take_turns([self._in_turns(tape, kinds, level) for level in levels])
            else:
                positions = self._level_by_level(tape, kinds, words, seen)
            async for position in positions:
                if position not in seen:
                    seen.add(position)
                    yield position

    async def _level_by_level(
        self, tape: int, kinds: Sequence[str], words: Sequence[str], seen: Collection[int]
    ) -> AsyncIterator[int]:
        """Yield what each level of expressions finds, one level after the other."""
        if len(words) == 1:
            levels = _run_levels(words[0])
        else:
            runs = [
                " OR ".join(f"({part})" for level in _run_levels(run) for part in level) for run in words if is_run(run)
            ]
            spelt = [await Vocabulary(self.conn).spellings(word) for word in words if not is_run(word)]
            # The closest spelling of each word, those with one mistake, and those with two.
            closest = dict.fromkeys(_spelt_as(runs, spelt, most, _FEW_SPELLINGS) for most in (0.0, 1.0, 2.0))
            levels = [[expression] for expression in closest]
        for level in levels:
            async for position in self._in_turns(tape, kinds, level):
                yield position
        if not seen and len(words) > 1:  # nothing yet: more spellings
            async for position in self._in_turns(tape, kinds, [_spelt_as(runs, spelt, 2.0, _MANY_SPELLINGS)]):
                yield position

    async def _in_turns(self, tape: int, kinds: Sequence[str], expressions: Sequence[str]) -> AsyncIterator[int]:
        """Yield the newest entry of each expression, then the next of each; of a tape and of kinds as far as the index knows them."""
        with _translate_errors():
            within = "" if await self._share(tape) > _MAX_TAPE_SHARE else f"{phrase((tape_token(tape),))} AND "
            streams = [_Positions(self.conn, tables_of(kinds), f"{within}({part})") for part in expressions]
            await asyncio.gather(*(stream.read_on() for stream in streams))  # on one way to the thread and back
            while streams:
                for stream in tuple(streams):
                    position = await stream.next()
                    if position is None:
                        streams.remove(stream)
                    else:
                        yield position

    async def _share(self, tape: int) -> float:
        ((entries, all_entries),) = await self.conn.execute_fetchall(
            "SELECT coalesce(sum(entries) FILTER (WHERE tape = ?), 0), coalesce(sum(entries), 0) FROM share", (tape,)
        )
        return float(entries / max(1, all_entries))

    async def _containing(self, text: str) -> str | None:
        """Build the expression of every entry that holds a folded text, and of some that do not.

        None if it is too unspecific, so that a scan is faster.
        """
        pieces, vocabulary = _TextPieces.of(text), Vocabulary(self.conn)
        if pieces.alone:
            return await self._within(vocabulary, pieces.alone)
        firsts = await vocabulary.ending(pieces.first) if pieces.first else None
        lasts = await vocabulary.beginning(pieces.last) if pieces.last else None
        # If too many terms begin so, FTS5 joins their entries itself: for one phrase, since each would do it again.
        goes_on = pieces.goes_on or (lasts is None and len(pieces.last) >= _MIN_PREFIX_LETTERS)
        combinations = 1 if goes_on else _MAX_COMBINATIONS
        if lasts is None and goes_on and pieces.last:
            lasts = [pieces.last[:MAX_TOKEN_LETTERS]]
        core = phrase(pieces.inner, prefix=pieces.goes_on) if pieces.inner else ""
        end = "" if lasts is None else " OR ".join(phrase((term,), prefix=goes_on) for term in lasts or [_NOWHERE])
        if len(firsts or ("",)) * len(lasts or ("",)) <= combinations:
            expression = _phrases(pieces.inner, firsts, lasts, goes_on=goes_on)
        else:
            expression = _all([_any(firsts) if firsts is not None else "", core, end])
        if firsts is not None:  # the end of a long word is not adjacent to the next token
            first = _any(firsts) if len(pieces.first) <= MAX_TOKEN_LETTERS else ""
            expression = f"({expression}) OR ({_all([first, phrase([LONG_WORD_MARK]), core, end])})"
        return expression or None

    async def _within(self, vocabulary: Vocabulary, part: str) -> str | None:
        """Build the expression for a text within a single word; None if a scan is faster.

        A cursor for each term costs as much as reading some five entries: if the terms are many and frequent, reading
        the newest entries finds enough hits sooner.
        """
        # The windows of a long word overlap: of a long part its beginning lies within one of them.
        terms = await vocabulary.containing(part[:MAX_PART_LETTERS], _MAX_CONTAINING_TERMS)
        if terms is None:
            return None
        if len(terms) > MAX_TERMS:
            ((entries,),) = await self.conn.execute_fetchall("SELECT coalesce(sum(entries), 0) FROM share")
            if len(terms) * sum(terms.values()) > _ENTRIES_PER_CURSOR * entries:
                return None
        return _any([*terms, HUGE_WORD_MARK])


class _Positions:
    """The positions that match an expression in some tables, newest first, read no further than they are used."""

    def __init__(self, conn: aiosqlite.Connection, tables: Sequence[str], expression: str) -> None:
        self._conn = conn
        self._expression = expression
        self._sql = " UNION ALL ".join(
            f"SELECT rowid FROM (SELECT rowid FROM {table} WHERE {table} MATCH :expression AND rowid < :before "
            "ORDER BY rowid DESC LIMIT :limit)"
            for table in tables
        )
        self._before, self._limit = LARGEST, _FIRST_POSITIONS
        self._ready: deque[int] = deque()

    async def read_on(self) -> None:
        """Read the next positions, more each time."""
        values = {"expression": self._expression, "before": self._before, "limit": self._limit}
        rows = await self._conn.execute_fetchall(f"{self._sql} ORDER BY 1 DESC LIMIT :limit", values)
        self._ready.extend(position for (position,) in rows)
        self._before = self._ready[-1] if len(self._ready) == self._limit else 0
        self._limit = min(4 * self._limit, _MOST_POSITIONS)

    async def next(self) -> int | None:
        """Return the next position; None if there is none."""
        if not self._ready and self._before:
            await self.read_on()
        return self._ready.popleft() if self._ready else None


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


def _word_levels(spellings: Mapping[str, float]) -> list[list[str]]:
    """Group the phrases of spellings by their mistakes, fewest first."""
    groups = groupby(sorted(spellings, key=spellings.__getitem__), key=spellings.__getitem__)
    return [[phrase((term,)) for term in islice(terms, _MAX_SPELLINGS_OF_LEVEL)] for _, terms in groups]


def _spelt_as(runs: Sequence[str], spellings: Sequence[Mapping[str, float]], most: float, limit: int) -> str:
    """Build the expression for all words in spellings with so many mistakes, or the fewest that there are."""
    choices = [
        _any([term for term, mistakes in terms.items() if mistakes <= max(most, min(terms.values()))][:limit])
        for terms in spellings
    ]
    return _all([*runs, *choices])


def _run_levels(run: str) -> list[list[str]]:
    """Build expressions for a run, the most specific first.

    From four characters on, one of them may be wrong, or two swapped.
    """
    size = len(run)
    if size < 4:
        return [[phrase(_pairs(run), prefix=size == 1)]]
    if size > _LONG_RUN_LETTERS:
        third = -(-size // 3)
        return [[phrase(_pairs(run[at : at + third])) for at in range(0, size, third) if size - at > 1]]
    splits = sorted({(run[:at], run[at + wide :]) for at in range(size) for wide in (1, 2) if at + wide <= size})
    # A single character is in too many texts to search for it.
    long_parts = [tuple(part for part in parts if len(part) > 1) for parts in splits]
    by_size: dict[int, list[str]] = {}
    for parts in dict.fromkeys(parts for parts in long_parts if parts):
        by_size.setdefault(sum(map(len, parts)), []).append(_all(phrase(_pairs(part)) for part in parts))
    return [by_size[length] for length in sorted(by_size, reverse=True)]


def _pairs(run: str) -> list[str]:
    run_pairs = list(run_tokens(run))
    return run_pairs if len(run) == 1 else run_pairs[:-1]


def _phrases(inner: Sequence[str], firsts: list[str] | None, lasts: list[str] | None, *, goes_on: bool) -> str:
    """Combine every first word, the pieces between, and every last word, which may go on, into phrases."""
    combinations = [
        (*first, *inner, *last)
        for first in ([()] if firsts is None else [(term,) for term in firsts])
        for last in ([()] if lasts is None else [(term,) for term in lasts])
    ]
    if not combinations:
        return _any([])
    return " OR ".join(phrase(combination, prefix=goes_on) for combination in combinations if combination)


def _any(terms: Sequence[str]) -> str:
    return " OR ".join(phrase((term,)) for term in terms or [_NOWHERE])


def _all(parts: Iterable[str]) -> str:
    return " AND ".join(f"({part})" for part in parts if part)


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
