"""The default store: one SQLite file, one writer, group commit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from bubbot.errors import EntryNotFound, StoreUnavailable, TapeCorrupt
from bubbot.stores.sqlite import write
from bubbot.stores.sqlite.audit import DeploymentAudit, audit_all, head_at
from bubbot.stores.sqlite.index.reader import IndexReader, state
from bubbot.stores.sqlite.index.schema import index_path, throw_away
from bubbot.stores.sqlite.migration import Aside, keep_aside
from bubbot.stores.sqlite.rows import find, tape_number
from bubbot.stores.sqlite.schema import MIGRATIONS, check_version, migrate, refuse_unguarded
from bubbot.stores.sqlite.sizes import (
    SHORT_WAL_BYTES,
    DatabaseSize,
    UnreferencedBlobs,
    WalCheckpointer,
    give_back,
    loose_blobs,
    rewrite,
    room,
    still_loose,
)
from bubbot.stores.sqlite.text import SearchDeadline, looks_at_texts, search
from bubbot.stores.sqlite.writer import CommitCounter, GroupCommitWriter, ThreadedConnection, connect, read_only_disk
from bubbot.tape.blobs import digest_of
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.index import IndexState
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeSummary

BUSY_SECONDS = 10.0


class ManagesIndex(Protocol):
    """Who fills the search index, and has it open."""

    async def forget(self) -> None:
        """Deletes the file, and begins anew."""
        ...


DECODE_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
"""How stored text is read: bytes that are no UTF-8 any more have to reach the check of their digest."""


class SqliteStore:
    """See `TapeStore` for every method. Made by `open_store` or `open_readonly`."""

    def __init__(
        self,
        reader: ThreadedConnection,
        writer: ThreadedConnection | None,
        scanner: ThreadedConnection,
        salt: write.Salt,
        path: Path,
        *,
        room_retry: float | None = None,
    ) -> None:
        self._reader = reader
        self._scanner = scanner
        self._writing = writer
        keeper = WalCheckpointer(path, int(BUSY_SECONDS * 1000))
        self._writer = None if writer is None else GroupCommitWriter(writer, keeper.after, room_retry)
        self._salt = salt
        self._open = True
        self.path = path
        self._index = IndexReader(index_path(path))
        self.keeper: ManagesIndex | None = None

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        return await self._write().submit(partial(write.append, batches=batches, salt=self._salt))

    async def append_along(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append_along`."""
        return await self._write().submit_along(partial(write.append, batches=batches, salt=self._salt))

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`. What looks at texts has a connection of its own, and delays nobody but its like; it
        ends where it takes too long, or its caller is cancelled."""
        if not any(looks_at_texts(query) for query in queries):
            return await self._checked(self._reader).run(partial(_fetch, queries=queries))
        stop = SearchDeadline()
        try:
            return await self._checked(self._scanner).run(
                partial(search, queries=queries, reader=self._index, stop=stop)
            )
        except asyncio.CancelledError:
            stop.asked.set()
            raise

    async def head(self, tape: str) -> int:
        """See `TapeStore.head`."""
        return await self._checked(self._reader).run(partial(_head, tape=tape))

    async def tapes(self) -> list[TapeSummary]:
        """See `TapeStore.tapes`."""
        return await self._checked(self._reader).run(_tapes)

    async def open_fork(self, record: ForkRecord) -> None:
        """See `TapeStore.open_fork`."""
        await self._write().submit(partial(write.open_fork, record=record))

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """See `TapeStore.extend_fork`."""
        await self._write().submit(partial(write.extend_fork, fork=fork, staged=staged, how=reset))

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.merge_fork`."""
        job = partial(write.merge_fork, fork=fork, batches=batches, how=reset, salt=self._salt)
        stored = await self._write().submit(job)
        await self._wiped(reset[1] if reset else None)
        return stored

    async def drop_fork(self, fork: str) -> None:
        """See `TapeStore.drop_fork`."""
        await self._write().submit(partial(write.close_fork, fork=fork))

    async def forks(self) -> list[ForkRecord]:
        """See `TapeStore.forks`."""
        return await self._checked(self._reader).run(write.forks)

    async def reset(self, tape: str, how: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """See `TapeStore.reset`."""
        batches = [Batch(tape, tuple(first))]
        stored = await self._write().submit(partial(write.reset, tape=tape, how=how, batches=batches, salt=self._salt))
        await self._wiped(how)
        return stored[0]

    async def put_blob(self, tape: str, data: bytes) -> str:
        """See `BlobStore.put_blob`."""
        return await self._write().submit(partial(write.put_blob, tape=tape, data=data))

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """See `BlobStore.get_blob`."""
        return await self._checked(self._reader).run(partial(_blob, tape=tape, digest=digest))

    @property
    def is_full(self) -> bool:
        """Whether writing waits for room on the disk."""
        return self._writer is not None and self._writer.is_full

    async def has_room(self) -> None:
        """Wait until there is room on the disk, as far as is known."""
        if self._writer is not None:
            await self._writer.has_room()

    def stop_waiting_for_room(self) -> None:
        """Let whoever finds the disk full have `StoreFull` from now on, those who wait already included."""
        if self._writer is not None:
            self._writer.end()

    @property
    def commits(self) -> int:
        """Transactions committed since it was opened."""
        return self._writer.commits if self._writer else 0

    async def entries(self) -> int:
        """Entries over all tapes; erased ones count, too."""
        return await self._checked(self._reader).run(_entries)

    async def workspace(self, default: str) -> str:
        """The label that tape names are made with: stored once, never recomputed from a path that moved."""

        def label(conn: sqlite3.Connection) -> str:
            if self._writer is not None:
                conn.execute("INSERT INTO deployment VALUES ('workspace', ?) ON CONFLICT DO NOTHING", (default,))
            row = conn.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
            return str(row[0]) if row else default

        return await (self._writer.submit(label) if self._writer else self._checked(self._reader).run(label))

    async def audit(self, tape: str | None = None) -> DeploymentAudit:
        """Walks the hash chain of one tape or of all of them."""
        return await self._checked(self._scanner).run(partial(audit_all, only=tape))

    async def deployment_head(self, position: int | None = None, *, older: bool = False) -> str:
        """The head over all tapes, now or as it was at a global position; `older`: in the form without names."""
        return await self._checked(self._scanner).run(partial(head_at, position=position, older=older))

    async def erasable(self, archive: str) -> int:
        """How many entries of an archive an erasure would blank."""
        return await self._checked(self._scanner).run(partial(write.erasable, archive=archive))

    async def room(self) -> DatabaseSize:
        """What takes the room in the database."""
        return await self._checked(self._scanner).run(partial(room, database=self.path))

    async def erase_archive(self, archive: str, fact: Batch, also: write.Traces) -> None:
        """Erases an archive, and single entries of other tapes, by the fact `tape/erased` (see `sqlite_write`)."""
        job = partial(write.erase_archive, archive=archive, fact=fact, also=also, salt=self._salt)
        await self._write().submit(job)
        await self._wiped(ResetBatch(archive, erase=True))

    async def loose_blobs(self) -> UnreferencedBlobs:
        """Blobs that nothing names."""
        return await self._checked(self._scanner).run(loose_blobs)

    async def drop_blobs(self, tape: str, loose: UnreferencedBlobs, date: str) -> int:
        """Removes those of a tape that are loose still, by a fact of this date on the tape of the home."""

        def drop(conn: sqlite3.Connection) -> int:
            digests = still_loose(conn, tape, loose)
            write.remove_blobs(conn, tape, digests, ("unnamed", date), self._salt)
            return len(digests)

        return await self._write().submit(drop)

    async def give_back(self, *, whole: bool) -> None:
        """Gives free pages back to the disk, in steps. A database of before has to be written anew for that, which keeps
        others waiting: only where `whole`."""
        self._write()
        if self._writing is None:
            return
        if whole and not (await self.room()).gives_back:
            await self._writing.run(rewrite)
        more = True
        while more:  # what is to be written gets its turn in between
            more = await self._writing.run(give_back)
        await self._writing.run(_truncate_wal)

    async def aclose(self) -> None:
        """See `TapeStore.aclose`."""
        if not self._open:
            return
        self._open = False
        if self._writer is not None:
            self._writer.end()
        async with AsyncExitStack() as closing:  # a caller cancelled here must not leave a thread behind
            for conn in (self._writing, self._scanner, self._reader):
                if conn is not None:
                    closing.push_async_callback(conn.close)
            closing.push_async_callback(self._scanner.run, self._close_index)

    @property
    def written(self) -> CommitCounter:
        """What is told of every commit. Raises `StoreUnavailable` where the database is open for reading only."""
        return self._write().written

    async def index_state(self) -> IndexState | None:
        """How far the search index goes; None where there is none."""
        return await self._checked(self._scanner).run(partial(state, index_path(self.path)))

    async def forget_index(self) -> None:
        """Deletes the search index; whoever fills it begins anew."""
        await self._checked(self._scanner).run(self._close_index)
        if self.keeper is not None:
            await self.keeper.forget()
        else:
            await asyncio.to_thread(throw_away, index_path(self.path))

    def _close_index(self, _conn: sqlite3.Connection) -> None:
        self._index.close()

    async def _wiped(self, how: ResetBatch | None) -> None:
        """After an erasure the old bytes must not linger in the write-ahead log, nor the words in the index."""
        if how is not None and how.erase and self._writing is not None:
            await self._writing.run(_truncate_wal)
            await self.forget_index()

    def _write(self) -> GroupCommitWriter:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:
            raise StoreUnavailable("the database is open for reading only")
        return self._writer

    def _checked(self, conn: ThreadedConnection) -> ThreadedConnection:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        return conn


async def open_store(
    path: Path, *, salt: write.Salt, now: Clock, aside: Aside = keep_aside, room_retry: float | None = None
) -> SqliteStore:
    """Opens the database for writing, making or migrating it. The caller holds the home's lock.

    `aside` makes a backup of a database before it is migrated; where it fails, nothing is. `room_retry`: seconds between
    two tries where the disk is full, and everybody waits; None: a full disk is `StoreFull`.
    """
    writer = await connect(partial(_writing, path, now(), aside))
    return await _with_readers(path, writer, salt, room_retry)


async def open_readonly(path: Path) -> SqliteStore:
    """Opens the database for reading beside a running process. Raises `StoreUnavailable` where there is none."""
    return await _with_readers(path, None, bytes)


async def _with_readers(
    path: Path, writer: ThreadedConnection | None, salt: write.Salt, room_retry: float | None = None
) -> SqliteStore:
    opened = [writer] if writer else []
    try:
        opened.append(await connect(partial(reading, path)))
        opened.append(await connect(partial(reading, path)))
    except BaseException:
        for conn in opened:
            await conn.close()
        raise
    return SqliteStore(opened[-2], writer, opened[-1], salt, path, room_retry=room_retry)


def _writing(path: Path, now: datetime, aside: Aside) -> sqlite3.Connection:
    with suppress(OSError):  # for its owner alone; SQLite gives the files beside it the same mode, and names errors
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    return _prepared(conn, partial(_prepare_writing, path=path, now=now, aside=aside))


def _prepare_writing(conn: sqlite3.Connection, path: Path, now: datetime, aside: Aside) -> None:
    version = check_version(conn)
    if version == 0:
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is in the file, or it takes a VACUUM
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")  # a power cut must not eat what was acknowledged
    conn.execute("PRAGMA secure_delete = ON")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute(f"PRAGMA journal_size_limit = {SHORT_WAL_BYTES}")
    if version:
        refuse_unguarded(conn, path)
    if 0 < version < len(MIGRATIONS):
        aside(path, version, now)
    migrate(conn, now=timestamp(now))


def reading(path: Path) -> sqlite3.Connection:
    """A connection that reads. Raises `StoreUnavailable` if there is no database, or its disk is read-only."""
    if not path.exists():
        raise StoreUnavailable(f"there is no database at {path} yet: talk to the bot once with bubbot chat")
    # Never immutable: the database is alive. In WAL mode reading needs the -shm file beside it.
    conn = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        return _prepared(conn, _prepare_reading)
    except sqlite3.OperationalError as error:
        if read_only := read_only_disk(path):
            raise read_only from error
        raise


def _prepare_reading(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA query_only = ON")
    if check_version(conn) == 0:
        raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")


def _prepared(conn: sqlite3.Connection, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    conn.text_factory = DECODE_TEXT
    try:
        prepare(conn)
    except BaseException:
        conn.close()
        raise
    return conn


def _fetch(conn: sqlite3.Connection, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
    conn.execute("BEGIN")
    try:
        return [find(conn, query) for query in queries]
    finally:
        conn.execute("COMMIT")


def _head(conn: sqlite3.Connection, tape: str) -> int:
    row = conn.execute(
        "SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = (SELECT tape FROM tapes WHERE name = ?)",
        (tape,),
    ).fetchone()
    return row[0] or 0


def _entries(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0])


def _tapes(conn: sqlite3.Connection) -> list[TapeSummary]:
    rows = conn.execute(
        "SELECT tapes.name, archived_from, coalesce(head.id, 0), coalesce(hex(head.chain), ''), "
        "(SELECT count(*) FROM erased WHERE erased.tape = tapes.tape) "
        "FROM tapes LEFT JOIN entries AS head ON head.tape = tapes.tape AND head.id = "
        "(SELECT max(id) FROM entries WHERE tape = tapes.tape) ORDER BY tapes.name"
    )
    return [TapeSummary(name, head, chain.lower(), source, erased) for name, source, head, chain, erased in rows]


def _blob(conn: sqlite3.Connection, tape: str, digest: str) -> bytes:
    row = conn.execute(
        "SELECT data FROM blobs WHERE tape = ? AND digest = ?", (tape_number(conn, tape), digest)
    ).fetchone()
    if row is None:
        raise EntryNotFound(f"{tape} has no blob {digest}")
    if digest_of(row[0]) != digest:
        raise TapeCorrupt(f"the blob {digest} of the tape {tape} was altered")
    return bytes(row[0])


def _truncate_wal(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
