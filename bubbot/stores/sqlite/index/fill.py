"""Fills the index: entries become tokens, and a batch is one transaction of the index file."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite

from bubbot.errors import TapeCorrupt
from bubbot.stores.sqlite.connections import HeldConnection, open_reader
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
from bubbot.stores.sqlite.index.vocabulary import VALUES_PER_STATEMENT, grams, misspelt_forms, tokenize
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
_SELECT_ROWS = (
    "SELECT seq, entries.tape, name_of.name, kind, payload, meta, chain FROM entries "
    "JOIN tapes AS name_of ON name_of.tape = entries.tape WHERE seq > ? ORDER BY seq LIMIT ?"
)


class IndexWriter:
    """Fills the index of a database; opens both when they are needed. One task at a time calls it."""

    def __init__(self, database: Path) -> None:
        self._path = database
        self._database: HeldConnection | None = None
        self._index: HeldConnection | None = None
        self._term_numbers: dict[str, int] = {}
        self._unmerged = 0
        self._merging: list[str] = []
        self._is_disk_full = False

    async def step(self, limit: int = BATCH_ENTRIES) -> int:
        """Index the next entries, in a new file if the present one is unusable; return how many."""
        if not self._has_room():
            return 0
        try:
            indexed = await self._index_next(limit)
            # Not a warning: each erasure and each restore leads here.
            level, reason = logging.INFO, "something was erased or restored"
        except TapeCorrupt as error:
            indexed = None
            level, reason = logging.WARNING, f"it is damaged ({error.__cause__ or error})"
        except BaseException:
            await self.aclose()
            raise
        if indexed is None:
            await self.forget()
            log.log(level, "rebuilding search index: %s", reason, extra={"action": "index.anew"})
            indexed = await self._index_next(limit)
        return indexed or 0

    async def forget(self) -> None:
        """Close and delete the file."""
        await self.aclose()
        await asyncio.to_thread(delete_index, index_path(self._path))

    async def aclose(self) -> None:
        """Close both files."""
        for held in (self._index, self._database):
            if held is not None:
                await held.aclose()
        self._index = self._database = None
        self._term_numbers.clear()
        self._unmerged, self._merging = 0, []

    async def _open(self) -> tuple[HeldConnection, HeldConnection]:
        """Return both connections, of the index and of the database."""
        if self._index is None or self._database is None:
            await self.aclose()
            self._database = await HeldConnection.open(partial(open_reader, self._path))
            async with self._database.exclusive() as database:
                generation = await read_generation(database)
            path = index_path(self._path)
            exists = path.exists()
            self._index = await HeldConnection.open(partial(open_for_filling, path, generation))
            if not exists:
                log.info("creating search index", extra={"action": "index.new"})
        return self._index, self._database

    def _has_room(self) -> bool:
        is_full = shutil.disk_usage(self._path.parent).free < MIN_FREE_BYTES
        if is_full and not self._is_disk_full:
            log.warning("disk nearly full, search indexing paused", extra={"action": "index.no_room"})
        self._is_disk_full = is_full
        return not is_full

    async def _index_next(self, limit: int) -> int | None:
        """Index the next entries and return how many; None if the index does not belong to the database."""
        index, database = await self._open()
        async with index.exclusive() as conn:
            coverage = await read_coverage(conn)
            if coverage is None:
                return None
            async with database.snapshot() as reading:
                if not await matches_database(coverage, reading):
                    return None
                rows = [*await reading.execute_fetchall(_SELECT_ROWS, (coverage.position, limit))]
            if rows:
                await self._write(conn, coverage, await asyncio.to_thread(_tokenize_rows, rows))
                self._unmerged += len(rows)
        return len(rows)

    async def tidy(self) -> bool:
        """Merge some of the parts that FTS5 has written; return true if there is more to do."""
        if self._index is None:
            return False
        async with self._index.exclusive() as conn:
            if not self._merging:
                if self._unmerged < UNTIDY:
                    return False
                self._unmerged, self._merging = 0, [*tables_of(()), "gram"]
                for table in self._merging:
                    await _merge(conn, table, -_MERGE_PAGES)  # a negative number starts merging all parts into one
                return True
            if await _merge(conn, self._merging[0], _MERGE_PAGES) < 2:  # how FTS5 reports that nothing is left to do
                self._merging.pop(0)
            return bool(self._merging)

    async def _write(self, index: aiosqlite.Connection, coverage: IndexCoverage, batch: _TokenizedRows) -> None:
        try:
            await index.execute("BEGIN IMMEDIATE")
            for table, table_bodies in batch.bodies.items():
                await index.executemany(f"INSERT INTO {table} (rowid, body) VALUES (?, ?)", table_bodies)
            await self._add_terms(index, batch.terms)
            await index.executemany(
                "INSERT INTO share VALUES (?, ?) ON CONFLICT (tape) DO UPDATE SET entries = entries + excluded.entries",
                batch.shares.items(),
            )
            texts = coverage.texts + batch.text_bytes
            await index.execute("UPDATE state SET position = ?, chain = ?, texts = ?", (*batch.end, texts))
            await index.execute("COMMIT")
        except BaseException:
            self._term_numbers.clear()
            with suppress(ValueError):  # closed, at the end of the event loop
                await index.rollback()
            raise

    async def _add_terms(self, index: aiosqlite.Connection, terms: Counter[str]) -> None:
        """Add to the vocabulary; a new term gets its forms and trigrams."""
        numbers = self._term_numbers
        await self._find_numbers(index, [term for term in terms if term not in numbers])
        new_terms = [term for term in terms if term not in numbers]
        await index.executemany("INSERT INTO term (term, df) VALUES (?, 0)", [(term,) for term in new_terms])
        await self._find_numbers(index, new_terms)
        new_grams, forms = await asyncio.to_thread(_list_grams_and_forms, {numbers[term]: term for term in new_terms})
        await index.executemany("UPDATE term SET df = df + ? WHERE id = ?", [(n, numbers[t]) for t, n in terms.items()])
        await index.executemany("INSERT INTO gram (rowid, body) VALUES (?, ?)", new_grams)
        await index.executemany("INSERT INTO form VALUES (?, ?)", forms)
        if len(numbers) > MAX_CACHED_TERMS:
            numbers.clear()

    async def _find_numbers(self, index: aiosqlite.Connection, terms: Sequence[str]) -> None:
        for start in range(0, len(terms), VALUES_PER_STATEMENT):
            part = terms[start : start + VALUES_PER_STATEMENT]
            marks = ", ".join("?" * len(part))
            rows = await index.execute_fetchall(f"SELECT term, id FROM term WHERE term IN ({marks})", part)
            self._term_numbers.update(map(tuple, rows))


async def _merge(index: aiosqlite.Connection, table: str, pages: int) -> int:
    before = index.total_changes
    await index.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
    return index.total_changes - before


@dataclass(frozen=True, slots=True)
class _TokenizedRows:
    """What a batch of entries adds to the index.

    Attributes:
        bodies: by table, the position and the tokens of each entry.
        terms: the entries of each term.
        shares: the entries of each tape.
        text_bytes: of all texts.
        end: position and chain value of the last entry.
    """

    bodies: dict[str, list[tuple[int, str]]]
    terms: Counter[str]
    shares: Counter[int]
    text_bytes: int
    end: tuple[int, bytes]


def _tokenize_rows(rows: Sequence[Sequence[Any]]) -> _TokenizedRows:
    bodies: dict[str, list[tuple[int, str]]] = {table: [] for table in tables_of(())}
    terms: Counter[str] = Counter()
    shares: Counter[int] = Counter()
    text_bytes = 0
    for seq, tape, name, kind, payload, meta, _ in rows:
        if payload is None or name.startswith(SYSTEM_TAPE_PREFIX):
            continue
        text = entry_text(payload, meta)
        tokens, words = tokenize(fold_text(text))
        bodies[tables_of((kind,))[0]].append((seq, " ".join((*tokens, tape_token(tape)))))
        terms.update(words)
        shares[tape] += 1
        text_bytes += len(text.encode("utf-8", "surrogatepass"))
    return _TokenizedRows(bodies, terms, shares, text_bytes, (rows[-1][0], rows[-1][6]))


def _list_grams_and_forms(terms: Mapping[int, str]) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
    new_grams = [(number, " ".join(term_grams)) for number, term in terms.items() if (term_grams := grams(term))]
    return new_grams, sorted((form, number) for number, term in terms.items() for form in misspelt_forms(term))


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
