"""The room a database takes: what is in it, how the write-ahead log stays short, and how free pages go back."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SHORT_WAL_BYTES = 4 << 20
"""Bytes of the write-ahead log that are left alone."""
WAIT_MS = 1000
VACUUM_STEP_PAGES = 2000
"""Free pages given back in one step, between which others write."""
_CHUNK = 5000
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True)
class WalLimits:
    """Bytes of a write-ahead log: up to `short` it is left alone; from `long` on a writer waits for readers, so that it
    can begin anew, and where that was in vain again after each `step`."""

    short: int = SHORT_WAL_BYTES
    long: int = 64 << 20
    step: int = 16 << 20


class WalCheckpointer:
    """Shortens the write-ahead log after commits. A checkpoint copies it into the database; but it begins anew only in
    a moment in which no reader needs it, and without help it never finds one where readers overlap."""

    def __init__(self, database: Path, busy_ms: int, limits: WalLimits = WalLimits()) -> None:
        self._wal = database.with_name(f"{database.name}-wal")
        self._busy_ms = busy_ms
        self._limits = limits
        self._again = limits.long

    def after(self, conn: sqlite3.Connection, *, idle: bool) -> None:
        """In the writer's thread, after a commit; `idle`: nobody waits for the next one."""
        size = wal_size(self._wal)
        if size >= self._again:
            done = self._truncated(conn, WAIT_MS)
            self._again = self._limits.long if done else size + self._limits.step
        elif idle and size > self._limits.short:
            self._truncated(conn, 0)

    def _truncated(self, conn: sqlite3.Connection, wait_ms: int) -> bool:
        """Whether it is empty now. A failure is no loss: the entries are durable in the log itself."""
        with suppress(sqlite3.Error):
            conn.execute(f"PRAGMA busy_timeout = {wait_ms}")
            try:
                return not conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                conn.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        return False


def wal_size(wal: Path) -> int:
    """Bytes of a write-ahead log; asked of the folder, for nothing but SQLite opens it."""
    try:
        return wal.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class TapeSize:
    """What a tape takes, in bytes: its entries, and the blobs beside it."""

    name: str
    archived_from: str | None
    count: int
    entries: int
    blobs: int


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """What the whole database takes, in bytes: the file, the part of it that is free, the write-ahead log; and its tapes.

    `gives_back`: whether free pages can be given back to the disk one by one.
    """

    file: int
    free: int
    wal: int
    gives_back: bool
    tapes: tuple[TapeSize, ...]


def room(conn: sqlite3.Connection, database: Path) -> DatabaseSize:
    """What takes the room. Reads every entry's lengths."""
    columns = ("kind", "key", "name", "date", "payload", "meta", "salt", "digest", "chain")
    length = " + ".join(f"coalesce(length(CAST({one} AS BLOB)), 0)" for one in columns)
    entries = {tape: (count, size) for tape, count, size in conn.execute(
        f"SELECT tape, count(*), sum({length}) FROM entries GROUP BY tape"
    )}  # fmt: skip
    blobs = dict(conn.execute("SELECT tape, sum(length(data)) FROM blobs GROUP BY tape").fetchall())
    tapes = tuple(
        TapeSize(name, source, *entries.get(tape, (0, 0)), blobs.get(tape, 0))
        for tape, name, source in conn.execute("SELECT tape, name, archived_from FROM tapes ORDER BY name")
    )
    page = _pragma(conn, "page_size")
    wal = wal_size(database.with_name(f"{database.name}-wal"))
    return DatabaseSize(
        _pragma(conn, "page_count") * page, _pragma(conn, "freelist_count") * page, wal, _gives_back(conn), tapes
    )


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    return int(conn.execute(f"PRAGMA {name}").fetchone()[0])


def _gives_back(conn: sqlite3.Connection) -> bool:
    return _pragma(conn, "auto_vacuum") == 2


def give_back(conn: sqlite3.Connection) -> bool:
    """Gives a few free pages back to the disk; says whether there may be more."""
    if not _gives_back(conn) or not (before := _pragma(conn, "freelist_count")):
        return False
    conn.execute(f"PRAGMA incremental_vacuum({VACUUM_STEP_PAGES})").fetchall()
    return 0 < _pragma(conn, "freelist_count") < before


def rewrite(conn: sqlite3.Connection) -> None:
    """Writes a database of before anew, after which its free pages can be given back. Needs as much room again."""
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    conn.execute("VACUUM")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@dataclass(frozen=True, slots=True)
class UnreferencedBlobs:
    """Blobs that no entry up to a position names, by their tape: (digest, bytes) each."""

    position: int
    tapes: dict[str, tuple[tuple[str, int], ...]]


def loose_blobs(conn: sqlite3.Connection) -> UnreferencedBlobs:
    """Finds blobs that nothing names, but for facts that others of their digest went. In short reads, so that the write-ahead log is not held."""
    loose = {digest for (digest,) in conn.execute("SELECT DISTINCT digest FROM blobs")}
    position = 0
    while loose and (rows := _chunk(conn, position)):
        position = rows[-1][0]
        for _, payload, meta in rows:
            loose.difference_update(_DIGEST.findall(payload), _DIGEST.findall(meta))
    loose -= _in_forks(conn)
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, digest, size in conn.execute(
        "SELECT tapes.name, digest, length(data) FROM blobs JOIN tapes USING (tape) ORDER BY tapes.name, digest"
    ):
        if digest in loose:
            found[name] = (*found.get(name, ()), (digest, size))
    return UnreferencedBlobs(position, found)


def _chunk(conn: sqlite3.Connection, after: int) -> list[tuple[int, str, str]]:
    return conn.execute(
        "SELECT seq, coalesce(payload, ''), coalesce(meta, '') FROM entries "
        "WHERE seq > ? AND name IS NOT 'blob/removed' ORDER BY seq LIMIT ?",
        (after, _CHUNK),
    ).fetchall()


def _in_forks(conn: sqlite3.Connection) -> set[str]:
    return {one for (text,) in conn.execute("SELECT entries FROM fork_batches") for one in _DIGEST.findall(text)}


def still_loose(conn: sqlite3.Connection, tape: str, loose: UnreferencedBlobs) -> list[str]:
    """The loose blobs of a tape that are loose still. In the writer's transaction, where nobody names one meanwhile."""
    digests = {digest for digest, _ in loose.tapes.get(tape, ())} - _in_forks(conn)
    position = loose.position
    while digests and (rows := _chunk(conn, position)):
        position = rows[-1][0]
        for _, payload, meta in rows:
            digests.difference_update(_DIGEST.findall(payload), _DIGEST.findall(meta))
    return sorted(digests)
