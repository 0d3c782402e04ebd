"""Fills the index: entries become tokens, and a batch is one transaction of the index file."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from bubbot.stores.sqlite.index.schema import IndexCoverage, matches_database, read_coverage, tables_of, tape_token
from bubbot.stores.sqlite.index.vocabulary import deletions, grams, tokenize
from bubbot.tape.entry import sender_name
from bubbot.tape.index import SYSTEM_TAPE_PREFIX
from bubbot.tape.query import fold_text

BATCH_ENTRIES = 400
"""Entries indexed at a time; a batch takes about 30 ms."""
UNTIDY = 20_000
"""Entries after which it pays to merge the parts that FTS5 has written: a query looks into each of them."""
_MERGE_PAGES = 500  # merged at a time
MAX_CACHED_TERMS = 50_000
"""How many terms are cached with their number."""
_SELECT_ROWS = (
    "SELECT seq, entries.tape, name_of.name, kind, payload, meta, chain FROM entries "
    "JOIN tapes AS name_of ON name_of.tape = entries.tape WHERE seq > ? ORDER BY seq LIMIT ?"
)


@dataclass
class IndexWriter:
    """Fills an index from a database; both connections belong to the calling thread.

    Attributes:
        index: the index file.
        database: the tapes.
    """

    index: sqlite3.Connection
    database: sqlite3.Connection
    _term_numbers: dict[str, int] = field(default_factory=dict)
    _unmerged: int = 0
    _merging: list[str] = field(default_factory=list)

    def step(self, limit: int = BATCH_ENTRIES) -> int | None:
        """Index the next entries and return how many; None if the index does not belong to the database."""
        coverage = read_coverage(self.index)
        if coverage is None:
            return None
        self.database.execute("BEGIN")
        try:
            if not matches_database(coverage, self.database):
                return None
            with closing(self.database.execute(_SELECT_ROWS, (coverage.position, limit))) as cursor:
                rows = cursor.fetchall()
        finally:
            self.database.execute("COMMIT")
        if rows:
            self._write(coverage, rows)
            self._unmerged += len(rows)
        return len(rows)

    def tidy(self) -> bool:
        """Merge some of the parts that FTS5 has written; return true if there is more to do."""
        if not self._merging:
            if self._unmerged < UNTIDY:
                return False
            self._unmerged, self._merging = 0, [*tables_of(()), "gram"]
            for table in self._merging:
                self._merge(table, -_MERGE_PAGES)  # a negative number starts merging all parts into one
            return True
        if self._merge(self._merging[0], _MERGE_PAGES) < 2:  # how FTS5 reports that nothing is left to do
            self._merging.pop(0)
        return bool(self._merging)

    def _merge(self, table: str, pages: int) -> int:
        before = self.index.total_changes
        self.index.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
        return self.index.total_changes - before

    def _write(self, coverage: IndexCoverage, rows: Sequence[tuple[Any, ...]]) -> None:
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
        self.index.execute("BEGIN IMMEDIATE")
        try:
            for table, table_bodies in bodies.items():
                self.index.executemany(f"INSERT INTO {table} (rowid, body) VALUES (?, ?)", table_bodies)
            self._add_terms(terms)
            self.index.executemany(
                "INSERT INTO share VALUES (?, ?) ON CONFLICT (tape) DO UPDATE SET entries = entries + excluded.entries",
                shares.items(),
            )
            self.index.execute("UPDATE state SET position = ?, chain = ?, texts = ?", (rows[-1][0], rows[-1][6], texts))
            self.index.execute("COMMIT")
        except BaseException:
            self._term_numbers.clear()
            if self.index.in_transaction:
                self.index.execute("ROLLBACK")
            raise

    def _add_terms(self, terms: Counter[str]) -> None:
        """Add to the vocabulary; a new term gets its deletions and trigrams."""
        numbers = self._term_numbers
        new_terms: list[tuple[int, str]] = []
        for term in terms:
            if term in numbers:
                continue
            row = self.index.execute("SELECT id FROM term WHERE term = ?", (term,)).fetchone()
            if row is None:
                row = self.index.execute("INSERT INTO term (term, df) VALUES (?, 0) RETURNING id", (term,)).fetchone()
                new_terms.append((row[0], term))
            numbers[term] = row[0]
        self.index.executemany("UPDATE term SET df = df + ? WHERE id = ?", [(n, numbers[t]) for t, n in terms.items()])
        self.index.executemany(
            "INSERT INTO gram (rowid, body) VALUES (?, ?)",
            [(number, " ".join(term_grams)) for number, term in new_terms if (term_grams := grams(term))],
        )
        self.index.executemany(
            "INSERT INTO tdel VALUES (?, ?)",
            sorted((deletion, number) for number, term in new_terms for deletion in deletions(term)),
        )
        if len(numbers) > MAX_CACHED_TERMS:
            numbers.clear()


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
