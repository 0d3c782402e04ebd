"""Disk usage of a database: its content, a short write-ahead log, and the release of free pages."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from bubbot.ports.store import DatabaseSize, TapeSize, UnreferencedBlobs
from bubbot.records import dataclass

SHORT_WAL_BYTES = 4 << 20
"""A write-ahead log of up to this size is never truncated."""
CHECKPOINT_WAIT_MS = 1000
VACUUM_STEP_PAGES = 2000
"""Free pages released in one step; other writes run between steps."""
_CHUNK = 5000
_DIGEST = r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"


@dataclass(frozen=True, slots=True)
class WalLimits:
    """Sizes of a write-ahead log, in bytes.

    Attributes:
        short: up to this size it is left alone.
        long: from this size on a writer waits for readers so that the log can start again.
        step: after a failed attempt, try again when the log has grown by this much.
        note_seconds: the newest entry is noted outside of the database at most this long after its commit.
        idle_seconds: without a commit for this long, the log is truncated whatever its size.
    """

    short: int = SHORT_WAL_BYTES
    long: int = 64 << 20
    step: int = 16 << 20
    note_seconds: float = 5.0
    idle_seconds: float = 60.0


OnNewest: TypeAlias = Callable[[str], None]
"""Notes the newest entry of a database, `POSITION:HASH`, outside of it. Raises nothing."""


def ignore_newest(_newest: str) -> None:
    """Note nothing."""


class WalCheckpointer:
    """Truncates the write-ahead log after commits and in idle times, and notes the newest entry outside of the database.

    A checkpoint copies the log into the database, but the log starts again only at a moment when no reader needs it. If
    readers overlap, that moment never comes without help.

    A database that lost its log is shorter, and nothing in it tells. The note tells; it is never ahead of the disk,
    because a commit and a whole checkpoint have synced the log when they end. All methods run in the writer's thread.
    """

    def __init__(
        self,
        database: Path,
        busy_ms: int,
        limits: WalLimits = WalLimits(),  # noqa: B008 - frozen
        on_newest: OnNewest = ignore_newest,
    ) -> None:
        self._wal = database.with_name(f"{database.name}-wal")
        self._busy_ms = busy_ms
        self._limits = limits
        self._next_attempt = limits.long
        self._on_newest = on_newest
        self._noted = ""
        self._noted_at = -limits.note_seconds  # the first commit of a new home is noted at once
        self._has_news = self._has_log = False

    def on_open(self, conn: sqlite3.Connection) -> None:
        """Note what is there. Another process may have been killed before it synced the log, so this waits for nobody's reader."""
        if self._truncate(conn, 0):
            self._note(conn)

    def after_commit(self, conn: sqlite3.Connection, *, idle: bool) -> None:
        """Shorten the log if it is long; `idle`: no job is queued."""
        self._has_news = self._has_log = True
        if monotonic() - self._noted_at >= self._limits.note_seconds:
            self._note(conn)
        size = wal_size(self._wal)
        if size >= self._next_attempt:
            is_empty = self._truncate(conn, CHECKPOINT_WAIT_MS)
            self._next_attempt = self._limits.long if is_empty else size + self._limits.step
        elif idle and size > self._limits.short:
            self._truncate(conn, 0)

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without a job after which there is something to do; None if there is nothing."""
        if self._has_news:
            return self._limits.note_seconds
        return self._limits.idle_seconds if self._has_log else None

    def on_idle(self, conn: sqlite3.Connection) -> None:
        """Note the newest entry; later, truncate the log, so that a copy of the database alone is whole."""
        if self._has_news:
            self._note(conn)
        else:
            self._has_log = False
            self._truncate(conn, 0)

    def on_close(self, conn: sqlite3.Connection) -> None:
        """Note the newest entry."""
        if self._has_news:
            self._note(conn)

    def _note(self, conn: sqlite3.Connection) -> None:
        self._has_news = False
        with suppress(sqlite3.Error):
            row = conn.execute("SELECT seq, hex(chain) FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
            newest = f"{row[0]}:{row[1].lower()}" if row else ""
            if newest != self._noted:
                self._on_newest(newest)
                self._noted, self._noted_at = newest, monotonic()

    def _truncate(self, conn: sqlite3.Connection, wait_ms: int) -> bool:
        """Truncate the log; return true if it is empty now.

        A failure loses nothing: the entries are durable in the log itself.
        """
        with suppress(sqlite3.Error):
            conn.execute(f"PRAGMA busy_timeout = {wait_ms}")
            try:
                return not conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                conn.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        return False


def wal_size(wal: Path) -> int:
    """Return the bytes of a write-ahead log; ask the folder, because only SQLite may open the file."""
    try:
        return wal.stat().st_size
    except OSError:
        return 0


def measure_size(conn: sqlite3.Connection, database: Path) -> DatabaseSize:
    """Measure what takes the room. Reads the lengths of every entry."""
    columns = ("kind", "key", "name", "date", "payload", "meta", "salt", "digest", "chain")
    length = " + ".join(f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns)
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
        _pragma(conn, "page_count") * page, _pragma(conn, "freelist_count") * page, wal, _can_release(conn), tapes
    )


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    return int(conn.execute(f"PRAGMA {name}").fetchone()[0])


def _can_release(conn: sqlite3.Connection) -> bool:
    return _pragma(conn, "auto_vacuum") == 2


def release_pages(conn: sqlite3.Connection) -> bool:
    """Give a few free pages back to the disk; return true if there may be more."""
    if not _can_release(conn) or not (before := _pragma(conn, "freelist_count")):
        return False
    conn.execute(f"PRAGMA incremental_vacuum({VACUUM_STEP_PAGES})").fetchall()
    return 0 < _pragma(conn, "freelist_count") < before


def vacuum_database(conn: sqlite3.Connection) -> None:
    """Rewrite a database that cannot release free pages yet; afterwards it can.

    Needs as much room again.
    """
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    conn.execute("VACUUM")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def find_unreferenced_blobs(conn: sqlite3.Connection) -> UnreferencedBlobs:
    """Find blobs that no entry names; facts about the removal of other blobs with their digest do not count.

    Short reads, so that the write-ahead log is not held.
    """
    loose = {digest for (digest,) in conn.execute("SELECT DISTINCT digest FROM blobs")}
    position = 0
    while loose and (rows := _read_chunk(conn, position)):
        position = rows[-1][0]
        for _, payload, meta in rows:
            loose.difference_update(re.findall(_DIGEST, payload), re.findall(_DIGEST, meta))
    loose -= _digests_in_forks(conn)
    by_tape: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, digest, size in conn.execute(
        "SELECT tapes.name, digest, length(data) FROM blobs JOIN tapes USING (tape) ORDER BY tapes.name, digest"
    ):
        if digest in loose:
            by_tape[name] = (*by_tape.get(name, ()), (digest, size))
    return UnreferencedBlobs(position, by_tape)


def _read_chunk(conn: sqlite3.Connection, after: int) -> list[tuple[int, str, str]]:
    return conn.execute(
        "SELECT seq, coalesce(payload, ''), coalesce(meta, '') FROM entries "
        "WHERE seq > ? AND name IS NOT 'blob/removed' ORDER BY seq LIMIT ?",
        (after, _CHUNK),
    ).fetchall()


def _digests_in_forks(conn: sqlite3.Connection) -> set[str]:
    return {
        digest for (text,) in conn.execute("SELECT entries FROM fork_batches") for digest in re.findall(_DIGEST, text)
    }


def still_unreferenced(conn: sqlite3.Connection, tape: str, blobs: UnreferencedBlobs) -> list[str]:
    """Check which loose blobs of a tape still are.

    Runs in the writer's transaction: no entry can name one meanwhile.
    """
    digests = {digest for digest, _ in blobs.tapes.get(tape, ())} - _digests_in_forks(conn)
    position = blobs.position
    while digests and (rows := _read_chunk(conn, position)):
        position = rows[-1][0]
        for _, payload, meta in rows:
            digests.difference_update(re.findall(_DIGEST, payload), re.findall(_DIGEST, meta))
    return sorted(digests)
