"""Filling the index: entries as tokens, a batch in one transaction of the index file."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from bubbot.stores.sqlite.index.schema import IndexCoverage, belongs, covered
from bubbot.stores.sqlite.index.tokens import deletions, document, grams, kind_token, tape_token
from bubbot.tape.entry import sender_name
from bubbot.tape.index import SYSTEM_TAPE_PREFIX
from bubbot.tape.query import fold_text

BATCH = 400
"""Entries indexed at a time: some 30 ms."""
UNTIDY = 20_000
"""Entries after which the parts that FTS5 has written are worth merging: a query looks into each of them."""
_PAGES = 500  # merged at a time
KNOWN = 50_000
"""Terms whose number is kept in memory."""
_ROWS = (
    "SELECT seq, entries.tape, name_of.name, kind, payload, meta, chain FROM entries "
    "JOIN tapes AS name_of ON name_of.tape = entries.tape WHERE seq > ? ORDER BY seq LIMIT ?"
)


@dataclass
class IndexWriter:
    """Fills an index from a database; both connections belong to the thread that calls it."""

    index: sqlite3.Connection
    database: sqlite3.Connection
    _known: dict[str, int] = field(default_factory=dict)
    _untidy: int = 0
    _merging: list[str] = field(default_factory=list)

    def step(self, most: int = BATCH) -> int | None:
        """Indexes the next entries and says how many; None where the index does not belong to the database."""
        found = covered(self.index)
        if found is None:
            return None
        self.database.execute("BEGIN")
        try:
            if not belongs(found, self.database):
                return None
            with closing(self.database.execute(_ROWS, (found.position, most))) as cursor:
                rows = cursor.fetchall()
        finally:
            self.database.execute("COMMIT")
        if rows:
            self._write(found, rows)
            self._untidy += len(rows)
        return len(rows)

    def tidy(self) -> bool:
        """Merges some of the parts that FTS5 has written; says whether there is more to do."""
        if not self._merging:
            if self._untidy < UNTIDY:
                return False
            self._untidy, self._merging = 0, ["words", "gram"]
            for table in self._merging:
                self._merge(table, -_PAGES)  # a number below zero begins to make one part of all
            return True
        if self._merge(self._merging[0], _PAGES) < 2:  # as FTS5 says that it has nothing left to do
            self._merging.pop(0)
        return bool(self._merging)

    def _merge(self, table: str, pages: int) -> int:
        before = self.index.total_changes
        self.index.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
        return self.index.total_changes - before

    def _write(self, found: IndexCoverage, rows: Sequence[tuple[Any, ...]]) -> None:
        bodies: list[tuple[int, str]] = []
        terms: Counter[str] = Counter()
        shares: Counter[str] = Counter()
        texts = found.texts
        for seq, tape, name, kind, payload, meta, _ in rows:
            if payload is None or name.startswith(SYSTEM_TAPE_PREFIX):
                continue
            text = text_of(payload, meta)
            tokens, words = document(fold_text(text))
            marks = (tape_token(tape), kind_token(kind))
            bodies.append((seq, " ".join((*tokens, *marks))))
            terms.update(words)
            shares.update(marks)
            texts += len(text.encode("utf-8", "surrogatepass"))
        self.index.execute("BEGIN IMMEDIATE")
        try:
            self.index.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", bodies)
            self._count(terms)
            self.index.executemany(
                "INSERT INTO share VALUES (?, ?) ON CONFLICT (token) DO UPDATE SET entries = entries + excluded.entries",
                shares.items(),
            )
            self.index.execute("UPDATE state SET position = ?, chain = ?, texts = ?", (rows[-1][0], rows[-1][6], texts))
            self.index.execute("COMMIT")
        except BaseException:
            self._known.clear()
            if self.index.in_transaction:
                self.index.execute("ROLLBACK")
            raise

    def _count(self, terms: Counter[str]) -> None:
        """Adds to the vocabulary; a new term with its deletions and trigrams."""
        known = self._known
        fresh: list[tuple[int, str]] = []
        for term in terms:
            if term in known:
                continue
            row = self.index.execute("SELECT id FROM term WHERE term = ?", (term,)).fetchone()
            if row is None:
                row = self.index.execute("INSERT INTO term (term, df) VALUES (?, 0) RETURNING id", (term,)).fetchone()
                fresh.append((row[0], term))
            known[term] = row[0]
        self.index.executemany("UPDATE term SET df = df + ? WHERE id = ?", [(n, known[t]) for t, n in terms.items()])
        self.index.executemany(
            "INSERT INTO gram (rowid, body) VALUES (?, ?)",
            [(number, " ".join(made)) for number, term in fresh if (made := grams(term))],
        )
        self.index.executemany(
            "INSERT INTO tdel VALUES (?, ?)",
            sorted((one, number) for number, term in fresh for one in deletions(term)),
        )
        if len(known) > KNOWN:
            known.clear()


def text_of(payload: str, meta: str) -> str:
    """What a stored entry says, a line each, as `TapeEntry.said` has it."""
    try:
        named = sender_name(json.loads(meta)) if '"sender"' in meta else []
        return "\n".join([*_strings(json.loads(payload)), *named])
    except (ValueError, RecursionError, TypeError, AttributeError):
        return ""  # whoever reads the damaged entry is told


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]
