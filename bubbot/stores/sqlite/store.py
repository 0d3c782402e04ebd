"""The default store: one SQLite file, one writer, group commit."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bubbot.errors import EntryNotFound, StoreUnavailable, TapeCorrupt
from bubbot.ports.passages import PASSAGES_FILE
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseSize, DeploymentAudit, IndexState, PositionedEntry, UnreferencedBlobs
from bubbot.stores.sqlite import write
from bubbot.stores.sqlite.audit import audit_all, head_at
from bubbot.stores.sqlite.connections import BUSY_SECONDS, open_reader, prepare
from bubbot.stores.sqlite.index.reader import IndexReader, read_index_state
from bubbot.stores.sqlite.index.schema import delete_index, index_path
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.stores.sqlite.rows import count_entries, find_entries, newest_position, read_after, tape_number
from bubbot.stores.sqlite.schema import MIGRATIONS, check_version, migrate, refuse_unguarded
from bubbot.stores.sqlite.sizes import (
    SHORT_WAL_BYTES,
    OnNewest,
    WalCheckpointer,
    WalLimits,
    find_unreferenced_blobs,
    ignore_newest,
    measure_size,
    release_pages,
    still_unreferenced,
    vacuum_database,
)
from bubbot.stores.sqlite.text import SearchDeadline, looks_at_texts, search
from bubbot.stores.sqlite.writer import (
    CommitCounter,
    CommitHook,
    DatabaseThread,
    GroupCommitWriter,
    connect,
    no_hook,
)
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, TapeSummary

log = logging.getLogger(__name__)


class SqliteStore:
    """A tape store in one SQLite file; create it with `open_store` or `open_readonly`.

    Methods of `TapeStore` are documented there.

    Attributes:
        path: of the database.
        indexer: the owner of the search index; None if nothing fills it.
    """

    def __init__(
        self,
        reader: DatabaseThread,
        writer: DatabaseThread | None,
        scanner: DatabaseThread,
        salt: write.Salt,
        path: Path,
        *,
        room_retry: float | None = None,
        on_commit: CommitHook = no_hook,
    ) -> None:
        self._reader = reader
        self._scanner = scanner
        self._writing = writer
        self._writer = None if writer is None else GroupCommitWriter(writer, on_commit, room_retry, self._check_file)
        self._salt = salt
        self._open = True
        self.path = path
        self._file = str(path)
        self._inode = os.stat(path).st_ino  # noqa: PTH116 - as in `is_replaced`
        self._is_replacement_logged = False
        self._index = IndexReader(index_path(path))
        self.indexer: Indexer | None = None

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        return await self._require_writer().submit(self._append_job(batches))

    def append_deferred(self, batches: Sequence[Batch]) -> asyncio.Future[list[tuple[TapeEntry, ...]]]:
        """See `TapeStore.append_deferred`."""
        return self._require_writer().submit_deferred(self._append_job(batches))

    def _append_job(self, batches: Sequence[Batch]) -> Callable[[sqlite3.Connection], list[tuple[TapeEntry, ...]]]:
        contents = write.encode_batches(batches, self._salt)
        return partial(write.append, batches=batches, salt=self._salt, contents=contents)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`.

        Queries that look at texts have their own connection, so they delay only each other. Such a query ends if it
        takes too long or its caller is cancelled.
        """
        if not any(looks_at_texts(query) for query in queries):
            return await self._ensure_open(self._reader).run(partial(_run_queries, queries=queries))
        stop = SearchDeadline()
        try:
            return await self._ensure_open(self._scanner).run(
                partial(search, queries=queries, reader=self._index, stop=stop)
            )
        except asyncio.CancelledError:
            stop.cancel_requested.set()
            raise

    async def head(self, tape: str) -> int:
        """See `TapeStore.head`."""
        return await self._ensure_open(self._reader).run(partial(_read_head, tape=tape))

    async def tapes(self) -> list[TapeSummary]:
        """See `TapeStore.tapes`."""
        return await self._ensure_open(self._reader).run(_read_tapes)

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        """See `TapeStore.open_fork`."""
        texts = write.encode_staged(record.staged)
        job = partial(write.open_fork, record=record, texts=texts, expect_head=expect_head)
        await self._require_writer().submit(job)

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """See `TapeStore.extend_fork`."""
        texts = write.encode_staged(staged)
        job = partial(write.extend_fork, fork=fork, staged=staged, texts=texts, reset_batch=reset)
        await self._require_writer().submit(job)

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.merge_fork`."""
        # What is merged into another fork is encoded in another form.
        contents = write.encode_batches(() if "/" in fork else batches, self._salt)
        job = partial(
            write.merge_fork, fork=fork, batches=batches, tape_reset=reset, salt=self._salt, contents=contents
        )
        await self._begin_erasure(reset[1] if reset else None)
        stored = await self._require_writer().submit(job)
        await self._finish_erasure(reset[1] if reset else None)
        return stored

    async def drop_fork(self, fork: str) -> None:
        """See `TapeStore.drop_fork`."""
        await self._require_writer().submit(partial(write.close_fork, fork=fork))

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        """See `TapeStore.forks`."""
        return await self._ensure_open(self._reader).run(partial(write.forks, only=tape))

    async def forked_sessions(self) -> list[ForkedSession]:
        """See `TapeStore.forked_sessions`."""
        return await self._ensure_open(self._reader).run(write.forked_sessions)

    async def raise_epoch(self, tape: str) -> int:
        """See `TapeStore.raise_epoch`."""
        return await self._require_writer().submit(partial(write.raise_epoch, tape=tape))

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """See `TapeStore.reset`."""
        batches = [Batch(tape, tuple(first))]
        job = partial(write.reset, tape=tape, reset_batch=reset_batch, batches=batches, salt=self._salt)
        await self._begin_erasure(reset_batch)
        stored = await self._require_writer().submit(job)
        await self._finish_erasure(reset_batch)
        return stored[0]

    async def put_blob(self, tape: str, data: bytes) -> str:
        """See `BlobStore.put_blob`."""
        return await self._require_writer().submit(partial(write.put_blob, tape=tape, data=data))

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """See `BlobStore.get_blob`."""
        return await self._ensure_open(self._reader).run(partial(_read_blob, tape=tape, digest=digest))

    @property
    def is_full(self) -> bool:
        """True while writes wait for room on the disk."""
        return self._writer is not None and self._writer.is_full

    @property
    def is_replaced(self) -> bool:
        """True while the path no longer leads to the file that is open."""
        try:
            return os.stat(self._file).st_ino != self._inode  # noqa: PTH116 - asked at every commit: a path makes five calls
        except OSError:
            return True

    async def wait_for_room(self) -> None:
        """Wait until there is room on the disk, as far as is known."""
        if self._writer is not None:
            await self._writer.wait_for_room()

    def stop_waiting_for_room(self) -> None:
        """Let jobs that find the disk full fail with `StoreFull` from now on, queued ones included."""
        if self._writer is not None:
            self._writer.stop_waiting()

    @property
    def commit_count(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._writer.commits if self._writer else 0

    async def count_entries(self) -> int:
        """Count the entries of all tapes, erased ones included."""
        return await self._ensure_open(self._reader).run(count_entries)

    async def newest_position(self) -> int:
        """See `OrdersEntries.newest_position`."""
        return await self._ensure_open(self._reader).run(newest_position)

    async def read_after(self, position: int, limit: int) -> list[PositionedEntry]:
        """See `OrdersEntries.read_after`."""
        return await self._ensure_open(self._reader).run(partial(read_after, position=position, limit=limit))

    async def workspace(self, default: str) -> str:
        """Return the label in tape names.

        It is stored once and never computed again, because the path it came from may change.
        """

        def label(conn: sqlite3.Connection) -> str:
            if self._writer is not None:
                conn.execute("INSERT INTO deployment VALUES ('workspace', ?) ON CONFLICT DO NOTHING", (default,))
            row = conn.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
            return str(row[0]) if row else default

        return await (self._writer.submit(label) if self._writer else self._ensure_open(self._reader).run(label))

    async def audit(self, tape: str | None = None, *, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
        """Walk the hash chain of one tape or of all."""
        return await self._ensure_open(self._scanner).run(partial(audit_all, only=tape, on_progress=on_progress))

    async def deployment_head(self, position: int | None = None, *, older: bool = False) -> str:
        """Return the head over all tapes, now or as it was at a global position.

        `older`: in the form without names, as up to version 2.
        """
        return await self._ensure_open(self._scanner).run(partial(head_at, position=position, older=older))

    async def count_erasable(self, archive: str) -> int:
        """Count the entries of an archive that an erasure would blank."""
        return await self._ensure_open(self._scanner).run(partial(write.count_erasable, archive=archive))

    async def measure_size(self) -> DatabaseSize:
        """Measure what takes the room in the database."""
        return await self._ensure_open(self._scanner).run(partial(measure_size, database=self.path))

    async def erase_archive(self, archive: str, fact: Batch, also: write.Traces) -> None:
        """Erase an archive, and single entries of other tapes, by the fact `tape/erased` (see `write.py`)."""
        job = partial(write.erase_archive, archive=archive, fact=fact, also=also, salt=self._salt)
        await self._begin_erasure(ResetBatch(archive, erase=True))
        await self._require_writer().submit(job)
        await self._finish_erasure(ResetBatch(archive, erase=True))

    async def find_unreferenced_blobs(self) -> UnreferencedBlobs:
        """Find blobs that no entry names."""
        return await self._ensure_open(self._scanner).run(find_unreferenced_blobs)

    async def drop_blobs(self, tape: str, blobs: UnreferencedBlobs, date: str) -> int:
        """Remove the blobs of a tape that are still loose; return how many.

        The facts about it, on the home tape, have this date.
        """

        def drop(conn: sqlite3.Connection) -> int:
            digests = still_unreferenced(conn, tape, blobs)
            write.remove_blobs(conn, tape, digests, ("unnamed", date), self._salt)
            return len(digests)

        return await self._require_writer().submit(drop)

    async def release_pages(self, *, allow_rewrite: bool) -> None:
        """Release free pages to the disk, in steps.

        An older database has to be rewritten first, which blocks other writers: only done if `allow_rewrite`.
        """
        self._require_writer()
        self._check_file()
        if self._writing is None:
            return
        if allow_rewrite and not (await self.measure_size()).gives_back:
            await self._writing.run(vacuum_database)
        has_more = True
        while has_more:  # queued writes run between the steps
            has_more = await self._writing.run(release_pages)
        await self._writing.run(_truncate_wal)

    async def aclose(self) -> None:
        """See `TapeStore.aclose`."""
        if not self._open:
            return
        self._open = False
        if self._writer is not None:
            self._writer.stop_waiting()
        async with AsyncExitStack() as stack:  # cancelling the caller here must not leave a thread running
            for conn in (self._writing, self._scanner, self._reader):
                if conn is not None:
                    stack.push_async_callback(conn.aclose)
            stack.push_async_callback(self._scanner.run, self._close_index)

    @property
    def commit_counter(self) -> CommitCounter:
        """The counter of commits. Raises `StoreUnavailable` if the database is open for reading only."""
        return self._require_writer().commit_counter

    async def index_state(self) -> IndexState | None:
        """Report how far the search index goes; None if there is none."""
        return await self._ensure_open(self._scanner).run(partial(read_index_state, index_path(self.path)))

    async def forget_index(self) -> None:
        """Delete the search index; its owner, if there is one, starts filling again."""
        await self._ensure_open(self._scanner).run(self._close_index)
        if self.indexer is not None:
            await self.indexer.forget()
        else:
            await asyncio.to_thread(delete_index, index_path(self.path))

    @property
    def is_indexing(self) -> bool:
        """See `IndexesTexts.is_indexing`."""
        return self.indexer is not None

    def build_indexer(self) -> Indexer:
        """See `IndexesTexts.build_indexer`."""
        self.indexer = indexer = Indexer(self)
        return indexer

    def _close_index(self, _conn: sqlite3.Connection) -> None:
        self._index.close()

    async def _begin_erasure(self, how: ResetBatch | None) -> None:
        """Delete the index of meanings, which nothing marks as stale: a crash after the commit would leave it."""
        if how is not None and how.erase and self._writing is not None:
            await asyncio.to_thread(delete_index, self.path.with_name(PASSAGES_FILE))

    async def _finish_erasure(self, how: ResetBatch | None) -> None:
        """Remove erased bytes from the write-ahead log, and erased words from what is derived of them."""
        if how is not None and how.erase and self._writing is not None:
            await self._writing.run(_truncate_wal)
            await self.forget_index()
            await self._begin_erasure(how)  # it may have been built again meanwhile, of what was there

    def _require_writer(self) -> GroupCommitWriter:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:
            raise StoreUnavailable("the database is open for reading only")
        return self._writer

    def _ensure_open(self, conn: DatabaseThread) -> DatabaseThread:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:  # what a writer reads, it wrote
            self._check_file()
        return conn

    def _check_file(self) -> None:
        """Raise `StoreUnavailable` if the file was removed or replaced: what is written to it would be lost with this process.

        SQLite looks so before it commits with a rollback journal, and not with a write-ahead log. The writer's thread asks once for a
        group: in the event loop, which would let that thread in at each look, it cost a tenth of a message.
        """
        if not self.is_replaced:
            return
        if not self._is_replacement_logged:
            self._is_replacement_logged = True
            log.error("database removed or replaced", extra={"action": "store.replaced", "path": str(self.path)})
        raise StoreUnavailable(
            f"the database {self.path} was removed or replaced while this process has it open: put it back, or stop this "
            "process and start it again; nothing is read or written meanwhile"
        )


MigrationHook: TypeAlias = Callable[[Path, int, datetime], None]
"""Backs up the database at a path, with its version, before it is migrated. Raises `StoreError`."""


def _back_up_before_migration(database: Path, version: int, now: datetime) -> None:
    # Imported here: few starts migrate.
    from bubbot.stores.sqlite.backups import back_up_before_migration

    back_up_before_migration(database, version, now)


async def open_store(
    path: Path,
    *,
    salt: write.Salt,
    now: Clock,
    on_migration: MigrationHook = _back_up_before_migration,
    room_retry: float | None = None,
    on_newest: OnNewest = ignore_newest,
    limits: WalLimits = WalLimits(),  # noqa: B008 - frozen
) -> SqliteStore:
    """Open the database for writing; create or migrate it first. The caller holds the home's lock.

    Args:
        path: of the database.
        salt: the source of random bytes.
        now: the clock.
        on_migration: backs up a database before its migration; if it fails, nothing is migrated.
        room_retry: seconds between two attempts while the disk is full and all writes wait; None: a full disk is
            `StoreFull`.
        on_newest: notes the newest entry outside of the database, in another thread: soon after commits and at the end.
        limits: of the write-ahead log.
    """
    checkpointer = WalCheckpointer(path, int(BUSY_SECONDS * 1000), limits, on_newest)
    writer = await connect(partial(_writing, path, now(), on_migration), checkpointer)
    writer.post(checkpointer.on_open)
    return await _with_readers(path, writer, salt, room_retry, checkpointer.after_commit)


async def open_readonly(path: Path) -> SqliteStore:
    """Open the database for reading, also while the bot runs. Raises `StoreUnavailable` if there is none."""
    return await _with_readers(path, None, bytes)


async def _with_readers(
    path: Path,
    writer: DatabaseThread | None,
    salt: write.Salt,
    room_retry: float | None = None,
    on_commit: CommitHook = no_hook,
) -> SqliteStore:
    connections = [writer] if writer else []
    try:
        connections.append(await connect(partial(open_reader, path)))
        connections.append(await connect(partial(open_reader, path)))
    except BaseException:
        for conn in connections:
            await conn.aclose()
        raise
    return SqliteStore(connections[-2], writer, connections[-1], salt, path, room_retry=room_retry, on_commit=on_commit)


def _writing(path: Path, now: datetime, aside: MigrationHook) -> sqlite3.Connection:
    with suppress(OSError):  # for its owner alone; SQLite gives its other files the same mode, and reports errors
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    return prepare(conn, partial(_prepare_writing, path=path, now=now, aside=aside))


def _prepare_writing(conn: sqlite3.Connection, path: Path, now: datetime, aside: MigrationHook) -> None:
    version = check_version(conn)
    if version == 0:
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # on the empty file; later it takes a VACUUM
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")  # a power cut must not lose what was acknowledged
    conn.execute("PRAGMA secure_delete = ON")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute(f"PRAGMA journal_size_limit = {SHORT_WAL_BYTES}")
    if version:
        refuse_unguarded(conn, path)
    if 0 < version < len(MIGRATIONS):
        aside(path, version, now)
    migrate(conn, now=timestamp(now))


def _run_queries(conn: sqlite3.Connection, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
    conn.execute("BEGIN")
    try:
        return [find_entries(conn, query) for query in queries]
    finally:
        conn.execute("COMMIT")


def _read_head(conn: sqlite3.Connection, tape: str) -> int:
    row = conn.execute(
        "SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = (SELECT tape FROM tapes WHERE name = ?)",
        (tape,),
    ).fetchone()
    return row[0] or 0


def _read_tapes(conn: sqlite3.Connection) -> list[TapeSummary]:
    rows = conn.execute(
        "SELECT tapes.name, archived_from, coalesce(head.id, 0), coalesce(hex(head.chain), ''), "
        "(SELECT count(*) FROM erased WHERE erased.tape = tapes.tape) "
        "FROM tapes LEFT JOIN entries AS head ON head.tape = tapes.tape AND head.id = "
        "(SELECT max(id) FROM entries WHERE tape = tapes.tape) ORDER BY tapes.name"
    )
    return [TapeSummary(name, head, chain.lower(), source, erased) for name, source, head, chain, erased in rows]


def _read_blob(conn: sqlite3.Connection, tape: str, digest: str) -> bytes:
    row = conn.execute(
        "SELECT data FROM blobs WHERE tape = ? AND digest = ?", (tape_number(conn, tape), digest)
    ).fetchone()
    if row is None:
        raise EntryNotFound(f"{tape} has no blob {digest}")
    if blob_digest(row[0]) != digest:
        raise TapeCorrupt(f"the blob {digest} of the tape {tape} was altered")
    return bytes(row[0])


def _truncate_wal(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
