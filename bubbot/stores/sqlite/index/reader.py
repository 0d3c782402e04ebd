"""Queries of the search index, from the thread that scans."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from bubbot.stores.sqlite.index import exact, near
from bubbot.stores.sqlite.index.schema import (
    IndexCoverage,
    index_path,
    index_size,
    matches_database,
    open_for_reading,
    read_coverage,
)
from bubbot.stores.sqlite.index.tokens import KIND_TOKENS, kind_token, phrase, tape_token
from bubbot.stores.sqlite.rows import count_entries
from bubbot.stores.sqlite.writer import translate_error
from bubbot.tape.index import IndexState

log = logging.getLogger(__name__)

_PROPOSALS = 300
"""Entries that are proposed for all spellings together; there are at most 16."""
_MAX_TOKEN_SHARE = 0.5
"""A token with a greater share of the entries is not queried: reading the entries is cheaper."""


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


@dataclass
class SqliteIndex:
    """An open search index, valid for one read transaction of its database; see `TapeIndex`.

    Attributes:
        conn: the index file.
        coverage: the entries that it covers.
    """

    conn: sqlite3.Connection
    coverage: IndexCoverage

    @property
    def position(self) -> int:
        """See `TapeIndex.position`."""
        return self.coverage.position

    @cached_property
    def entries(self) -> int:
        """The number of entries in the index; each has one token of a kind."""
        return int(
            self.conn.execute(
                "SELECT coalesce(sum(entries), 0) FROM share WHERE token BETWEEN ? AND ?", KIND_TOKENS
            ).fetchone()[0]
        )

    def find_containing(self, tape: int, text: str, kinds: Sequence[str], *, newest: bool) -> Iterator[int] | None:
        """See `TapeIndex.find_containing`."""
        with _translate_errors():
            text_expression = exact.expression_for(self.conn, text, self.entries)
            expression = self._restrict(tape, kinds, text_expression)
        return self._matching(expression, newest=newest) if expression else None

    def find_similar(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int]:
        """See `TapeIndex.find_similar`. If a word may mean several terms, each proposes its newest entries."""
        with _translate_errors():
            expressions = [
                self._restrict(tape, kinds, expression) for expression in near.expressions_for(self.conn, text)
            ]
        seen: set[int] = set()
        for expression in expressions:
            for position in islice(self._matching(expression, newest=True), _PROPOSALS // len(expressions)):
                if position not in seen:
                    seen.add(position)
                    yield position

    def _restrict(self, tape: int, kinds: Sequence[str], text_expression: str | None) -> str:
        """Restrict an expression to a tape and kinds, if most entries have others.

        Return an empty text if nothing restricts the search.
        """
        marks = ([tape_token(tape)], [kind_token(kind) for kind in kinds])
        rare = [tokens for tokens in marks if tokens and self._share(tokens) <= _MAX_TOKEN_SHARE]
        conditions = [" OR ".join(phrase((token,)) for token in tokens) for tokens in rare]
        return " AND ".join(f"({part})" for part in (*conditions, text_expression) if part)

    def _share(self, tokens: list[str]) -> float:
        marks = ", ".join("?" * len(tokens))
        count = self.conn.execute(f"SELECT sum(entries) FROM share WHERE token IN ({marks})", tokens).fetchone()[0] or 0
        return float(count / max(1, self.entries))

    def _matching(self, expression: str, *, newest: bool) -> Iterator[int]:
        order = "DESC" if newest else "ASC"
        sql = f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid {order}"
        with _translate_errors(), closing(self.conn.execute(sql, (expression,))) as rows:
            yield from (row[0] for row in rows)


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


def inspect_index(database: Path) -> IndexState | None:
    """Report the state of the index of this database, from outside the store.

    Raises `StoreError` if the database cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)) as conn:
            return read_index_state(index_path(database), conn)
    except sqlite3.Error as error:
        raise translate_error(error) from error


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
