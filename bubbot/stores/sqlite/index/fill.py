"""Fills the index: entries become tokens, and a batch is one transaction of the index file."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.index.schema import (
    IndexCoverage,
    delete_index,
    index_path,
    matches_database,
    open_for_filling,
    read_coverage,
    read_generation,
    tables_of,
    tape_token,
)
from bubbot.stores.sqlite.index.vocabulary import grams, misspelt_forms, tokenize
from bubbot.tape.entry import sender_name
from bubbot.tape.query import fold_text
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

log = logging.getLogger(__name__)

BATCH_ENTRIES = 400
"""Entries indexed at a time; a batch takes about 30 ms."""
UNTIDY = 20_000
"""Entries after which it pays to merge the parts that FTS5 has written: a query looks into each of them."""
_MERGE_PAGES = 500  # merged at a time
MAX_CACHED_TERMS = 50_000
"""How many terms are cached with their number."""
MIN_FREE_BYTES = 200_000_000
"""Below this much free disk the index stops growing: the room is for the tapes."""
_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_SELECT_ROWS = (
    "SELECT seq, entries.tape, name_of.name, kind, payload, meta, chain FROM entries "
    "JOIN tapes AS name_of ON name_of.tape = entries.tape WHERE seq > ? ORDER BY seq LIMIT ?"
)


class IndexWriter:
    """Fills the index of a database; opens both when they are needed. All calls come from one thread."""

    def __init__(self, database: Path) -> None:
        self._path = database
        self._database: sqlite3.Connection | None = None
        self._index: sqlite3.Connection | None = None
        self._term_numbers: dict[str, int] = {}
        self._unmerged = 0
        self._merging: list[str] = []
        self._is_disk_full = False

    def step(self, limit: int = BATCH_ENTRIES) -> int:
        """Index the next entries, in a new file if the present one is unusable; return how many."""
        if not self._has_room():
            return 0
        try:
            indexed = self._index_next(limit)
            # Not a warning: each erasure and each restore leads here.
            level, reason = logging.INFO, "something was erased or restored"
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") not in _DAMAGED:
                self.close()
                raise
            indexed = None
            level, reason = logging.WARNING, f"it is damaged ({error})"
        if indexed is None:
            self.forget()
            log.log(level, "rebuilding search index: %s", reason, extra={"action": "index.anew"})
            indexed = self._index_next(limit)
        return indexed or 0

    def forget(self) -> None:
        """Close and delete the file."""
        self.close()
        delete_index(index_path(self._path))

    def close(self) -> None:
        """Close both files."""
        for conn in (self._index, self._database):
            if conn is not None:
                with suppress(sqlite3.Error):
                    conn.close()
        self._index = self._database = None
        self._term_numbers.clear()
        self._unmerged, self._merging = 0, []

    def _open(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        """Return both connections, of the index and of the database."""
        if self._index is None or self._database is None:
            self.close()
            self._database = open_reader(self._path)
            path = index_path(self._path)
            exists = path.exists()
            self._index = open_for_filling(path, read_generation(self._database))
            if not exists:
                log.info("creating search index", extra={"action": "index.new"})
        return self._index, self._database

    def _has_room(self) -> bool:
        is_full = shutil.disk_usage(self._path.parent).free < MIN_FREE_BYTES
        if is_full and not self._is_disk_full:
            log.warning("disk nearly full, search indexing paused", extra={"action": "index.no_room"})
        self._is_disk_full = is_full
        return not is_full

    def _index_next(self, limit: int) -> int | None:
        """Index the next entries and return how many; None if the index does not belong to the database."""
        index, database = self._open()
        coverage = read_coverage(index)
        if coverage is None:
            return None
        database.execute("BEGIN")
        try:
            if not matches_database(coverage, database):
                return None
            with closing(database.execute(_SELECT_ROWS, (coverage.position, limit))) as cursor:
                rows = cursor.fetchall()
        finally:
            database.execute("COMMIT")
        if rows:
            self._write(index, coverage, rows)
            self._unmerged += len(rows)
        return len(rows)

    def tidy(self) -> bool:
        """Merge some of the parts that FTS5 has written; return true if there is more to do."""
        if self._index is None:
            return False
        if not self._merging:
            if self._unmerged < UNTIDY:
                return False
            self._unmerged, self._merging = 0, [*tables_of(()), "gram"]
            for table in self._merging:
                _merge(self._index, table, -_MERGE_PAGES)  # a negative number starts merging all parts into one
            return True
        if _merge(self._index, self._merging[0], _MERGE_PAGES) < 2:  # how FTS5 reports that nothing is left to do
            self._merging.pop(0)
        return bool(self._merging)

    def _write(self, index: sqlite3.Connection, coverage: IndexCoverage, rows: Sequence[tuple[Any, ...]]) -> None:
        bodies: dict[str, list[tuple[int, str]]] = {table: [] for table in tables_of(())}
        terms: Counter[str] = Counter()
        shares: Counter[int] = Counter()
        texts = coverage.texts
        for seq, tape, name, kind, payload, meta, _ in rows:
            if payload is None or name.startswith(SYSTEM_TAPE_PREFIX):
                continue
            text = entry_text(payload, meta)
            tokens, words = tokenize(fold_text(text))
            bodies[tables_of((kind,))[0]].append((seq, " ".join((*tokens, tape_token(tape)))))
            terms.update(words)
            shares[tape] += 1
            texts += len(text.encode("utf-8", "surrogatepass"))
        index.execute("BEGIN IMMEDIATE")
        try:
            for table, table_bodies in bodies.items():
                index.executemany(f"INSERT INTO {table} (rowid, body) VALUES (?, ?)", table_bodies)
            self._add_terms(index, terms)
            index.executemany(
                "INSERT INTO share VALUES (?, ?) ON CONFLICT (tape) DO UPDATE SET entries = entries + excluded.entries",
                shares.items(),
            )
            index.execute("UPDATE state SET position = ?, chain = ?, texts = ?", (rows[-1][0], rows[-1][6], texts))
            index.execute("COMMIT")
        except BaseException:
            self._term_numbers.clear()
            if index.in_transaction:
                index.execute("ROLLBACK")
            raise

    def _add_terms(self, index: sqlite3.Connection, terms: Counter[str]) -> None:
        """Add to the vocabulary; a new term gets its forms and trigrams."""
        numbers = self._term_numbers
        new_terms: list[tuple[int, str]] = []
        for term in terms:
            if term in numbers:
                continue
            row = index.execute("SELECT id FROM term WHERE term = ?", (term,)).fetchone()
            if row is None:
                row = index.execute("INSERT INTO term (term, df) VALUES (?, 0) RETURNING id", (term,)).fetchone()
                new_terms.append((row[0], term))
            numbers[term] = row[0]
        index.executemany("UPDATE term SET df = df + ? WHERE id = ?", [(n, numbers[t]) for t, n in terms.items()])
        index.executemany(
            "INSERT INTO gram (rowid, body) VALUES (?, ?)",
            [(number, " ".join(term_grams)) for number, term in new_terms if (term_grams := grams(term))],
        )
        index.executemany(
            "INSERT INTO form VALUES (?, ?)",
            sorted((form, number) for number, term in new_terms for form in misspelt_forms(term)),
        )
        if len(numbers) > MAX_CACHED_TERMS:
            numbers.clear()


def _merge(index: sqlite3.Connection, table: str, pages: int) -> int:
    before = index.total_changes
    index.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
    return index.total_changes - before


def entry_text(payload: str, meta: str) -> str:
    """Return the text of a stored entry, a line for each string, as `TapeEntry.searchable_text` does."""
    try:
        sender = sender_name(json.loads(meta)) if '"sender"' in meta else []
        return "\n".join([*_strings(json.loads(payload)), *sender])
    except (ValueError, RecursionError, TypeError, AttributeError):
        return ""  # reading the damaged entry reports it


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]
