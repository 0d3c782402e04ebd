"""The index file: its schema, its match with the database, and its deletion."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import aiosqlite
from msgspec import Struct

from bubbot.stores.sqlite.connections import BUSY_SECONDS

INDEX_APPLICATION_ID = 0x62756273
"""Marks the file as a search index of bubbot: "bubs" in ASCII."""
INDEX_VERSION = 7
"""A file of another version is deleted and filled again; there are no migrations."""
GENERATION = "index_generation"
"""The row of the table `deployment` that every erasure increments: an older index holds words that were erased."""
INDEX_FILE = "search.db"

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE state (
    position INTEGER NOT NULL, chain BLOB NOT NULL, generation TEXT NOT NULL, texts INTEGER NOT NULL, entries INTEGER NOT NULL
);
CREATE TABLE term (
    id INTEGER PRIMARY KEY, letters INTEGER NOT NULL, word TEXT NOT NULL, entries INTEGER NOT NULL, UNIQUE (letters, word)
);
CREATE VIRTUAL TABLE words USING fts5(body, sender, place, content = '', tokenize = 'porter ascii');
CREATE VIRTUAL TABLE parts USING fts5(body, place, content = '', columnsize = 0, detail = none, tokenize = 'trigram');
PRAGMA application_id = {INDEX_APPLICATION_ID};
PRAGMA user_version = {INDEX_VERSION};
COMMIT;
"""

TABLES = ("words", "parts")
"""`words` has the tokens of `tokenize`, under Porter's stems; `parts` has the trigrams of the folded texts. A row's number is
`row_number` of the entry's position. `term` counts the entries of the words that people may misspell, for which another
spelling is looked for."""


def row_number(position: int, *, is_person: bool = False) -> int:
    """Return the number of the row of an entry in both tables, in the order of the positions."""
    return 2 * position + is_person


def position_of(row: int) -> int:
    """Return the position of the entry of a row."""
    return row // 2


class IndexCoverage(Struct, frozen=True):
    """How far an index goes.

    Attributes:
        position: the last global position that is indexed.
        chain: the chain value of the entry there.
        generation: how often something was erased before.
        texts: bytes of text indexed.
        entries: entries with texts that are indexed.
    """

    position: int
    chain: bytes
    generation: str
    texts: int
    entries: int


def index_path(database: Path) -> Path:
    """Return the path of the index of a database."""
    return database.with_name(INDEX_FILE)


def open_for_filling(path: Path, generation: str) -> sqlite3.Connection:
    """Open the index for writing; create an empty one, for its owner alone, if there is none."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        conn.execute("PRAGMA journal_mode = WAL")
        # Not OFF: a power cut could leave a file that lacks words and looks complete. It costs nearly nothing here.
        conn.execute("PRAGMA synchronous = NORMAL")
        conn.execute("PRAGMA cache_size = -16000")
        conn.execute("PRAGMA temp_store = MEMORY")
        if not conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            conn.executescript(_SCHEMA)
            conn.execute("INSERT INTO state VALUES (0, x'', ?, 0, 0)", (generation,))
    except BaseException:
        conn.close()
        raise
    return conn


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing index for reading, also while another thread fills it."""
    conn = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=1.0, isolation_level=None)
    try:
        conn.execute("PRAGMA query_only = ON")
        conn.execute("PRAGMA cache_size = -16000")
    except BaseException:
        conn.close()
        raise
    return conn


async def read_coverage(conn: aiosqlite.Connection) -> IndexCoverage | None:
    """Read how far the index goes; None for a file that is not ours, or has another version."""
    try:
        ((application, version),) = await conn.execute_fetchall(
            "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
        )
        if (application, version) != (INDEX_APPLICATION_ID, INDEX_VERSION):
            return None
        rows = await conn.execute_fetchall("SELECT position, chain, generation, texts, entries FROM state")
    except sqlite3.DatabaseError:
        return None
    return next((IndexCoverage(row[0], bytes(row[1]), row[2], row[3], row[4]) for row in rows), None)


async def matches_database(coverage: IndexCoverage, database: aiosqlite.Connection) -> bool:
    """Return true if the index was filled from this database, and nothing was erased since.

    The chain value at its position proves it: after a restore from a backup the same position has another, or none.
    """
    if coverage.generation != await read_generation(database):
        return False
    rows = await database.execute_fetchall("SELECT chain FROM entries WHERE seq = ?", (coverage.position,))
    return coverage.position == 0 or any(bytes(chain) == coverage.chain for (chain,) in rows)


async def read_generation(database: aiosqlite.Connection) -> str:
    """Read how often something was erased."""
    rows = await database.execute_fetchall("SELECT value FROM deployment WHERE key = ?", (GENERATION,))
    return next((str(value) for (value,) in rows), "0")


ADVANCE_GENERATION = (
    f"INSERT INTO deployment (key, value) VALUES ('{GENERATION}', '1') "
    "ON CONFLICT (key) DO UPDATE SET value = value + 1"
)
"""Run within the erasing transaction: no existing index is used again."""


def delete_index(path: Path) -> bool:
    """Delete the index and the other files SQLite keeps for it; return true if there was one.

    No connection may have it open for writing. This does not go through SQLite and opens no descriptor of the files.
    """
    exists = path.exists()
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").unlink()
    return exists


def index_size(path: Path) -> int:
    """Return the bytes of the index on disk."""
    total = 0
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            total += Path(f"{path}{suffix}").stat().st_size
    return total
