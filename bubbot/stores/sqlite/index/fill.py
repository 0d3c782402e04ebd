"""Fills the index: entries become tokens, and a batch is one transaction of the index file."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
from msgspec import Struct, structs

from bubbot.errors import TapeCorrupt
from bubbot.stores.sqlite.connections import HeldConnection, open_reader
from bubbot.stores.sqlite.index.schema import (
    TABLES,
    delete_index,
    index_path,
    matches_database,
    open_for_filling,
    read_coverage,
    read_generation,
    row_number,
)
from bubbot.stores.sqlite.index.tokens import clean_text, place_of, sender_tokens, tape_key, tokenize
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, is_said_by_person, list_searchable, sender_id, sender_name
from bubbot.tape.store import SYSTEM_TAPE_PREFIX
from bubbot.tape.words import fold_text, is_spelt

log = logging.getLogger(__name__)

BATCH_ENTRIES = 400
"""Entries indexed at a time; a batch takes about 30 ms."""
UNTIDY = 20_000
"""Entries after which it pays to merge the parts that FTS5 has written: a query looks into each of them."""
_MERGE_PAGES = 500  # merged at a time
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
                await self._write(conn, await asyncio.to_thread(_tokenize_rows, rows))
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
                self._unmerged, self._merging = 0, [*TABLES]
                for table in self._merging:
                    await _merge(conn, table, -_MERGE_PAGES)  # a negative number starts merging all parts into one
                return True
            if await _merge(conn, self._merging[0], _MERGE_PAGES) < 2:  # how FTS5 reports that nothing is left to do
                self._merging.pop(0)
            return bool(self._merging)

    async def _write(self, index: aiosqlite.Connection, batch: _TokenizedRows) -> None:
        try:
            await index.execute("BEGIN IMMEDIATE")
            await index.executemany("INSERT INTO words (rowid, body, sender, place) VALUES (?, ?, ?, ?)", batch.words)
            await index.executemany("INSERT INTO parts (rowid, body, place) VALUES (?, ?, ?)", batch.parts)
            await index.executemany(
                "INSERT INTO term (letters, word, entries) VALUES (?, ?, ?) "
                "ON CONFLICT (letters, word) DO UPDATE SET entries = entries + excluded.entries",
                [(len(term), term, count) for term, count in batch.terms.items()],
            )
            await index.execute(
                "UPDATE state SET position = ?, chain = ?, texts = texts + ?, entries = entries + ?",
                (*batch.end, batch.text_bytes, len(batch.words)),
            )
            await index.execute("COMMIT")
        except BaseException:
            with suppress(ValueError):  # closed, at the end of the event loop
                await index.rollback()
            raise


async def _merge(index: aiosqlite.Connection, table: str, pages: int) -> int:
    before = index.total_changes
    await index.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
    return index.total_changes - before


class _TokenizedRows(Struct, frozen=True):
    """What a batch of entries adds to the index.

    Attributes:
        words: the rows of the table `words`.
        parts: the rows of the table `parts`.
        terms: the entries of each term.
        text_bytes: of all texts.
        end: position and chain value of the last entry.
    """

    words: list[tuple[int, str, str, str]]
    parts: list[tuple[int, str, str]]
    terms: Counter[str]
    text_bytes: int
    end: tuple[int, bytes]


def _tokenize_rows(rows: Sequence[Sequence[Any]]) -> _TokenizedRows:
    batch = _TokenizedRows([], [], Counter(), 0, (rows[-1][0], rows[-1][6]))
    text_bytes = 0
    for seq, tape, name, kind, payload, meta, _ in rows:
        if payload is None or name.startswith(SYSTEM_TAPE_PREFIX):
            continue
        content, about = _decode(payload), _decode(meta)
        text = fold_text("\n".join([*_list_texts(kind, content, about), *sender_name(about)]))
        if not text:
            continue
        words = tokenize(text)
        row = row_number(seq, is_person=is_said_by_person(kind, content))
        person = sender_tokens("".join(sender_name(about)), sender_id(about))
        batch.words.append((row, " ".join(words), " ".join(person), place_of(tape, kind)))
        batch.parts.append((row, clean_text(text), tape_key(tape)))
        # Pairs of characters are too short, and digests have digits.
        batch.terms.update(word for word in {*words} if is_spelt(word))
        text_bytes += len(text.encode("utf-8", "surrogatepass"))
    return structs.replace(batch, text_bytes=text_bytes)


def _list_texts(kind: str, content: JsonObject, about: JsonObject) -> list[str]:
    """Return the texts that `TapeEntry.searchable_text` has; none of an entry that is nested too deeply to be read."""
    try:
        return list_searchable(kind, content, about)
    except RecursionError:
        return []


def _decode(stored: str) -> JsonObject:
    """Read a stored object; an empty one if it is damaged, which reading the entry reports."""
    try:
        value = json.loads(stored)
    except (ValueError, RecursionError, TypeError):
        return EMPTY_OBJECT
    return value if isinstance(value, dict) else EMPTY_OBJECT
