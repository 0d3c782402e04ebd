"""The search index in use: asked by the thread that scans."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bubbot.stores import sqlite_index_exact, sqlite_index_near
from bubbot.stores.sqlite_index_schema import Covered, belongs, covered, index_path, open_for_asking, size_of
from bubbot.stores.sqlite_index_tokens import kind_token, phrase, tape_token
from bubbot.stores.sqlite_writer import translated
from bubbot.tape.index import IndexState

log = logging.getLogger(__name__)

_PROPOSED = 300
"""Entries that are proposed of all spellings together; there are at most 16."""
_MOST = 0.5
"""A token that more than this part of the entries has is not asked for: looking at the entries is cheaper."""


class IndexBroken(Exception):
    """The index file cannot be read; the answer is found by reading everything."""


@contextmanager
def _translated() -> Iterator[None]:
    """A damaged index file is no damaged database."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
            raise
        raise IndexBroken(str(error)) from error


@dataclass
class SqliteIndex:
    """See `TapeIndex`. Good for one read transaction of the database it was opened beside."""

    conn: sqlite3.Connection
    found: Covered

    @property
    def position(self) -> int:
        """See `TapeIndex.position`."""
        return self.found.position

    def holding(self, tape: int, text: str, kinds: Sequence[str], *, newest: bool) -> Iterator[int] | None:
        """See `TapeIndex.holding`."""
        with _translated():
            asked = sqlite_index_exact.plan(self.conn, text, self.found.position)
            within = self._on(tape, kinds, asked)
        return self._matching(within, newest=newest) if within else None

    def alike(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int]:
        """See `TapeIndex.alike`. Of several words that may be meant by one, each has its newest entries."""
        with _translated():
            asked = sqlite_index_near.plan(self.conn, text)
            within = [self._on(tape, kinds, one) for one in asked]
        seen: set[int] = set()
        for one in within:
            for position in islice(self._matching(one, newest=True), _PROPOSED // len(within)):
                if position not in seen:
                    seen.add(position)
                    yield position

    def _on(self, tape: int, kinds: Sequence[str], asked: str | None) -> str:
        """The expression, for a tape and kinds alone where most entries are others'; empty where nothing bounds it."""
        marks = ([tape_token(tape)], [kind_token(kind) for kind in kinds])
        rare = [tokens for tokens in marks if tokens and self._share(tokens) <= _MOST]
        within = [" OR ".join(phrase((one,)) for one in tokens) for tokens in rare]
        return " AND ".join(f"({part})" for part in (*within, asked) if part)

    def _share(self, tokens: list[str]) -> float:
        marks = ", ".join("?" * len(tokens))
        some = self.conn.execute(f"SELECT sum(entries) FROM share WHERE token IN ({marks})", tokens).fetchone()[0] or 0
        return float(some / max(1, self.found.position))

    def _matching(self, asked: str, *, newest: bool) -> Iterator[int]:
        order = "DESC" if newest else "ASC"
        sql = f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid {order}"
        with _translated(), closing(self.conn.execute(sql, (asked,))) as rows:
            yield from (row[0] for row in rows)


class IndexReader:
    """Opens the index file where it is there and belongs to the database. All calls come from one thread.

    `broken`: the file was found damaged; it is not opened again until another one stands in its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: sqlite3.Connection | None = None
        self._inode = 0
        self.broken = False

    @contextmanager
    def opened(self) -> Iterator[Callable[[sqlite3.Connection], SqliteIndex | None]]:
        """A read transaction on the index, begun before that of the database, which then is as new.

        What is yielded gives the index within both; None where it does not belong to the database.
        """
        self._begin()
        try:
            yield self._index
        except IndexBroken as error:
            self.close()
            self.broken = True
            log.warning("the search index is damaged: %s", error, extra={"action": "index.damaged"})
            raise
        finally:
            if self._conn is not None and self._conn.in_transaction:
                self._conn.execute("COMMIT")

    def connections(self) -> list[sqlite3.Connection]:
        """The open one, where there is one."""
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
                self._conn = open_for_asking(self._path)
            self._conn.execute("BEGIN")
            self._conn.execute("SELECT count(*) FROM state").fetchone()
        except sqlite3.Error:  # everything is read, then
            self.close()

    def _index(self, database: sqlite3.Connection) -> SqliteIndex | None:
        if self._conn is None:
            return None
        found = covered(self._conn)
        return SqliteIndex(self._conn, found) if found and belongs(found, database) else None

    def close(self) -> None:
        """Closes the file."""
        if self._conn is not None:
            with suppress(sqlite3.Error):
                self._conn.close()
            self._conn = None


def look_over_index(database: Path) -> IndexState | None:
    """As `state`, of the database at this path, from outside. Raises `StoreError` where that cannot be read."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)) as conn:
            return state(index_path(database), conn)
    except sqlite3.Error as error:
        raise translated(error) from error


def state(path: Path, database: sqlite3.Connection) -> IndexState | None:
    """How far the index at `path` goes; None where there is none, or none of ours."""
    reader = IndexReader(path)
    try:
        with reader.opened() as index_of:
            found = covered(reader.connections()[0]) if reader.connections() else None
            if found is None:
                return None
            newest = database.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
            fresh = index_of(database) is not None
            return IndexState(found.position, newest - found.position, size_of(path), found.texts, fresh)
    finally:
        reader.close()
