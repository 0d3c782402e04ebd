"""Queries of the search index, from the thread that scans."""

from __future__ import annotations

import heapq
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path

from bubbot.ports.store import IndexState
from bubbot.records import dataclass
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
from bubbot.stores.sqlite.rows import count_entries
from bubbot.tape.spelling import take_turns
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

    It proposes entries by their global position; whether one matches is decided on its text. All answers are FTS5
    cursors that go backwards from the newest entry, and are read no further than they are used.

    Attributes:
        conn: the index file.
        coverage: the entries that it covers.
    """

    conn: sqlite3.Connection
    coverage: IndexCoverage

    @property
    def position(self) -> int:
        """The last entry that is covered; the caller has to read the later ones."""
        return self.coverage.position

    @cached_property
    def entries(self) -> int:
        """The number of entries in the index. Positions may have gaps."""
        return int(self.conn.execute("SELECT coalesce(sum(entries), 0) FROM share").fetchone()[0])

    def find_containing(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int] | None:
        """Yield every covered entry of the tape that holds the folded text, and others, newest first.

        None if a scan is faster.
        """
        with _translate_errors():
            expression = self._containing(text)
            return self._matching(tape, kinds, expression) if expression else None

    def find_similar(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int]:
        """Yield entries with the folded text's words in other spellings, the closest first; some may be missing."""
        words = sorted(tokens(text), key=len, reverse=True)
        seen: set[int] = set()
        with _translate_errors():
            if not words:
                return
            if len(words) == 1 and not is_run(words[0]):
                levels = _word_levels(Vocabulary(self.conn).spellings(words[0], is_alone=True))
                positions = take_turns([self._in_turns(tape, kinds, level) for level in levels])
            else:
                several = _run_levels(words[0]) if len(words) == 1 else self._words_levels(words, seen)
                positions = chain.from_iterable(self._in_turns(tape, kinds, level) for level in several)
            for position in positions:
                if position not in seen:
                    seen.add(position)
                    yield position

    def _in_turns(self, tape: int, kinds: Sequence[str], expressions: Sequence[str]) -> Iterator[int]:
        """Yield the newest entry of each expression, then the next of each."""
        turns = zip_longest(*(self._matching(tape, kinds, expression) for expression in expressions))
        yield from (position for position in chain.from_iterable(turns) if position is not None)

    def _matching(self, tape: int, kinds: Sequence[str], expression: str) -> Iterator[int]:
        """Yield the positions that match, of a tape and of kinds as far as the index knows them."""
        if self._share(tape) <= _MAX_TAPE_SHARE:
            expression = f"{phrase((tape_token(tape),))} AND ({expression})"
        return heapq.merge(*(self._rows(table, expression) for table in tables_of(kinds)), reverse=True)

    def _rows(self, table: str, expression: str) -> Iterator[int]:
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC"
        with _translate_errors(), closing(self.conn.execute(sql, (expression,))) as rows:
            yield from (row[0] for row in rows)

    def _share(self, tape: int) -> float:
        row = self.conn.execute("SELECT entries FROM share WHERE tape = ?", (tape,)).fetchone()
        return float(row[0] / max(1, self.entries)) if row else 0.0

    def _containing(self, text: str) -> str | None:
        """Build the expression of every entry that holds a folded text, and of some that do not.

        None if it is too unspecific, so that a scan is faster.
        """
        pieces, vocabulary = _TextPieces.of(text), Vocabulary(self.conn)
        if pieces.alone:
            return self._within(vocabulary, pieces.alone)
        firsts = vocabulary.ending(pieces.first) if pieces.first else None
        lasts = vocabulary.beginning(pieces.last) if pieces.last else None
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

    def _within(self, vocabulary: Vocabulary, part: str) -> str | None:
        """Build the expression for a text within a single word; None if a scan is faster.

        A cursor for each term costs as much as reading some five entries: if the terms are many and frequent, reading
        the newest entries finds enough hits sooner.
        """
        # The windows of a long word overlap: of a long part its beginning lies within one of them.
        terms = vocabulary.containing(part[:MAX_PART_LETTERS], _MAX_CONTAINING_TERMS)
        if terms is None:
            return None
        if len(terms) > MAX_TERMS and len(terms) * sum(terms.values()) > _ENTRIES_PER_CURSOR * self.entries:
            return None
        return _any([*terms, HUGE_WORD_MARK])

    def _words_levels(self, words: Sequence[str], seen: Collection[int]) -> Iterator[list[str]]:
        """Yield an expression for the closest spelling of each word, for those with one mistake, and for two.

        If there is nothing yet (`seen`), more spellings are tried.
        """
        runs = [
            " OR ".join(f"({part})" for level in _run_levels(run) for part in level) for run in words if is_run(run)
        ]
        spelt = [Vocabulary(self.conn).spellings(word) for word in words if not is_run(word)]
        for expression in dict.fromkeys(_spelt_as(runs, spelt, most, _FEW_SPELLINGS) for most in (0.0, 1.0, 2.0)):
            yield [expression]
        if not seen:
            yield [_spelt_as(runs, spelt, 2.0, _MANY_SPELLINGS)]


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
    """Opens the index file if it exists and belongs to the database. All calls come from one thread.

    Attributes:
        broken: the file was found damaged; it is not opened again until another one replaces it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: sqlite3.Connection | None = None
        self._inode = 0
        self.broken = False

    @contextmanager
    def transaction(self) -> Iterator[Callable[[sqlite3.Connection], SqliteIndex | None]]:
        """Open a read transaction on the index, before that of the database, which then is at least as new.

        Yield a function that returns the index within both; None if it does not belong to the database.
        """
        self._begin()
        try:
            yield self._index
        except IndexUnreadable as error:
            self.close()
            self.broken = True
            log.warning("search index damaged: %s", error, extra={"action": "index.damaged"})
            raise
        finally:
            if self._conn is not None and self._conn.in_transaction:
                self._conn.execute("COMMIT")

    def connections(self) -> list[sqlite3.Connection]:
        """List the open connection, if there is one."""
        return [] if self._conn is None else [self._conn]

    def _begin(self) -> None:
        try:
            inode = self._path.stat().st_ino
        except OSError:
            self.close()
            return
        if inode == self._inode and self.broken:
            return
        try:
            if self._conn is None or inode != self._inode:
                self.close()
                self._inode, self.broken = inode, False
                self._conn = open_for_reading(self._path)
            self._conn.execute("BEGIN")
            self._conn.execute("SELECT count(*) FROM state").fetchone()
        except sqlite3.Error:  # a scan answers, then
            self.close()

    def _index(self, database: sqlite3.Connection) -> SqliteIndex | None:
        if self._conn is None:
            return None
        coverage = read_coverage(self._conn)
        return SqliteIndex(self._conn, coverage) if coverage and matches_database(coverage, database) else None

    def close(self) -> None:
        """Close the file."""
        if self._conn is not None:
            with suppress(sqlite3.Error):
                self._conn.close()
            self._conn = None


def read_index_state(path: Path, database: sqlite3.Connection) -> IndexState | None:
    """Report how far the index at `path` goes; None if there is none, or the file is not ours."""
    reader = IndexReader(path)
    try:
        with reader.transaction() as index_of:
            coverage = read_coverage(reader.connections()[0]) if reader.connections() else None
            if coverage is None:
                return None
            behind = database.execute("SELECT count(*) FROM entries WHERE seq > ?", (coverage.position,)).fetchone()[0]
            fresh, covered = index_of(database) is not None, count_entries(database) - behind
            return IndexState(coverage.position, covered, behind, index_size(path), coverage.texts, fresh)
    finally:
        reader.close()
