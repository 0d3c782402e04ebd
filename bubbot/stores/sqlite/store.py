"""The default store: one SQLite file, one writer, group commit."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bubbot.errors import EntryNotFound, StoreUnavailable, TapeCorrupt
from bubbot.ports.passages import PASSAGES_FILE
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseSize, DeploymentAudit, IndexState, PositionedEntry, UnreferencedBlobs
from bubbot.stores.copying import CopyCounts, TapesToCopy, copy_tapes
from bubbot.stores.erasing import (
    BlobTraces,
    Traces,
    count_erasable,
    erase_archive,
    erase_entries,
    merge_fork,
    put_aside,
    remove_blobs,
)
from bubbot.stores.group import CommitCounter, Job
from bubbot.stores.rows import (
    COUNT_ENTRIES,
    LARGEST,
    NEWEST_POSITION,
    SELECT_AFTER,
    SELECT_SHARDS,
    DecodeRow,
    RowDecoder,
    decode_in_steps,
    from_row,
    is_one_statement,
    positioned_entry,
    shards_of,
)
from bubbot.stores.sqlite.audit import audit_all, head_at
from bubbot.stores.sqlite.connections import BUSY_SECONDS, HeldConnection, open_reader, prepare, translated_errors
from bubbot.stores.sqlite.index.reader import IndexReader
from bubbot.stores.sqlite.index.schema import delete_index, index_path
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.schema import LEASED_SINCE, MIGRATIONS, check_version, migrate, refuse_unguarded
from bubbot.stores.sqlite.sizes import (
    SHORT_WAL_BYTES,
    OnNewest,
    WalCheckpointer,
    WalLimits,
    ignore_newest,
    measure_size,
    release_pages,
    truncate_wal,
    vacuum_database,
)
from bubbot.stores.sqlite.text import looks_at_texts, search
from bubbot.stores.sqlite.writer import GroupCommitWriter
from bubbot.stores.transaction import (
    Needs,
    Salt,
    Transaction,
    decode_reset,
    decode_staged,
    encode_batches,
    encode_staged,
)
from bubbot.stores.unreferenced import find_unreferenced_blobs, still_unreferenced
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, TapeSummary

T = TypeVar("T")
log = logging.getLogger(__name__)


class SqliteStore:
    """A tape store in one SQLite file; create it with `open_store` or `open_readonly`.

    See `TapeStore`. Queries on texts have their own connection, so they delay only each other. Work that reads the
    whole database, such as an audit, opens another one.

    Attributes:
        path: of the database.
        tape_shards: see `bubbot.tape.shards`.
        indexer: fills the search index; None if nothing does.
    """

    def __init__(self, path: Path, salt: Salt, decode: DecodeRow = from_row) -> None:
        self._salt, self._decode = salt, decode
        self._open = True
        self._reader: HeldConnection
        self._scanner: HeldConnection
        self._writer: GroupCommitWriter | None = None
        self.path = path
        self.tape_shards = 1  # until `start`
        self._file = str(path)
        self._inode = 0
        self._is_replacement_logged = False
        self._index = IndexReader(index_path(path))
        self.indexer: Indexer | None = None

    async def start(self, writer: GroupCommitWriter | None) -> None:
        """Open the connections. Raise `StoreError` or `TapeCorrupt` and leave none open."""
        connector = partial(open_reader, self.path)
        async with AsyncExitStack() as stack:
            if writer is not None:
                await writer.open()
                stack.push_async_callback(writer.aclose)
            self._reader = await HeldConnection.open(connector)
            stack.push_async_callback(self._reader.aclose)
            self._scanner = await HeldConnection.open(connector)
            self.tape_shards = shards_of(await self._reader.fetch(SELECT_SHARDS))
            stack.pop_all()
        self._writer = writer
        self._inode = os.stat(self._file).st_ino  # noqa: PTH116 - as in `is_replaced`

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        return await self._require_writer().submit(self._append_job(batches), Needs(batches))

    def append_deferred(self, batches: Sequence[Batch]) -> asyncio.Future[list[tuple[TapeEntry, ...]]]:
        return self._require_writer().submit_deferred(self._append_job(batches), Needs(batches))

    def _append_job(self, batches: Sequence[Batch]) -> Job[list[tuple[TapeEntry, ...]]]:
        contents = encode_batches(batches, self._salt)
        return lambda transaction: transaction.append(batches, contents)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`. A query on texts ends if it takes too long or its caller is cancelled."""
        if any(looks_at_texts(query) for query in queries):
            return await search(self._ensure_open(self._scanner), queries, self._index)
        reader = self._ensure_open(self._reader)
        is_short = len(queries) == 1 and is_one_statement(queries[0])
        async with reader.exclusive() if is_short else reader.snapshot() as conn:
            return [await find_entries(conn, query, self._decode) for query in queries]

    async def head(self, tape: str) -> int:
        sql = "SELECT max(id) FROM entries INDEXED BY entries_id WHERE tape = (SELECT tape FROM tapes WHERE name = ?)"
        return (await self._ensure_open(self._reader).fetch(sql, (tape,)))[0][0] or 0

    async def tapes(self) -> list[TapeSummary]:
        rows = await self._ensure_open(self._reader).fetch(_SELECT_TAPES)
        return [TapeSummary(name, head, chain.lower(), source, erased) for name, source, head, chain, erased in rows]

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        texts = encode_staged(record.staged)
        await self._require_writer().submit(
            lambda transaction: transaction.open_fork(record, texts, expect_head=expect_head),
            Needs([Batch(record.tape, ())], forks=[record.id]),
        )

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        texts = encode_staged(staged)
        await self._require_writer().submit(
            lambda transaction: transaction.extend_fork(fork, staged, texts, reset), Needs(forks=[fork])
        )

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        # Entries for another fork are encoded differently.
        contents = encode_batches(() if "/" in fork else batches, self._salt)

        async with self._erasing(required=reset is not None and reset[1].erase):
            return await self._require_writer().submit(
                lambda transaction: merge_fork(transaction, fork, batches, contents, reset),
                Needs(() if "/" in fork else batches, forks=[fork]),
            )

    async def drop_fork(self, fork: str) -> None:
        await self._require_writer().submit(lambda transaction: transaction.drop_fork(fork), Needs(forks=[fork]))

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        lease = (
            "session, epoch" if await self._has_leases() else "'', 0"
        )  # a database that is only read may be of an older version
        rows = await self._ensure_open(self._reader).fetch(
            f"SELECT fork, forks.tape, base, reset, {lease}, batch.tape, keep_first, batch.entries FROM forks "
            "LEFT JOIN fork_batches AS batch USING (fork) WHERE ?1 IS NULL OR forks.tape = ?1 ORDER BY forks.rowid, place",
            (tape,),
        )
        records = []
        for fork, batches in groupby(rows, key=itemgetter(slice(6))):
            staged = [
                decode_staged(name, entries, if_absent=bool(kept))
                for *_, name, kept, entries in batches
                if entries is not None
            ]
            name, on_tape, base, reset, session, epoch = fork
            records.append(ForkRecord(name, on_tape, base, tuple(staged), decode_reset(reset), session, epoch))
        return records

    async def forked_sessions(self) -> list[ForkedSession]:
        session = "session" if await self._has_leases() else "''"
        sql = f"SELECT DISTINCT tape, {session} FROM forks ORDER BY 1, 2"
        return [ForkedSession(*row) for row in await self._ensure_open(self._reader).fetch(sql)]

    async def _has_leases(self) -> bool:
        if self._writer is not None:
            return True
        return bool((await self._ensure_open(self._reader).fetch("PRAGMA user_version"))[0][0] >= LEASED_SINCE)

    async def raise_epoch(self, tape: str) -> int:
        return await self._require_writer().submit(lambda transaction: transaction.raise_epoch(tape))

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        batches = [Batch(tape, tuple(first))]
        async with self._erasing(required=reset_batch.erase):
            stored = await self._require_writer().submit(
                lambda transaction: put_aside(transaction, tape, reset_batch, batches)
            )
        return stored[0]

    async def erase(
        self, batches: Sequence[Batch], entries: Traces, blobs: BlobTraces = ()
    ) -> list[tuple[TapeEntry, ...]]:
        async with self._erasing():
            return await self._require_writer().submit(
                lambda transaction: erase_entries(transaction, batches, entries, blobs)
            )

    async def put_blob(self, tape: str, data: bytes) -> str:
        digest = blob_digest(data)
        await self._require_writer().submit(lambda transaction: transaction.put_blob(tape, digest, data))
        return digest

    async def get_blob(self, tape: str, digest: str) -> bytes:
        sql = "SELECT data FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND digest = ?"
        rows = await self._ensure_open(self._reader).fetch(sql, (tape, digest))
        if not rows:
            raise EntryNotFound(f"{tape} has no blob {digest}")
        data = rows[0][0]
        if await asyncio.to_thread(blob_digest, data) != digest:
            raise TapeCorrupt(f"the blob {digest} of the tape {tape} was altered")
        return bytes(data)

    @property
    def is_full(self) -> bool:
        return self._writer is not None and self._writer.is_full

    @property
    def is_replaced(self) -> bool:
        try:
            return os.stat(self._file).st_ino != self._inode  # noqa: PTH116 - asked at every commit: a path makes five calls
        except OSError:
            return True

    async def wait_for_room(self) -> None:
        if self._writer is not None:
            await self._writer.wait_for_room()

    def stop_waiting_for_room(self) -> None:
        """From now on, let jobs without room raise `StoreFull`, queued ones included."""
        if self._writer is not None:
            self._writer.stop_waiting()

    @property
    def commit_count(self) -> int:
        return self._writer.commits if self._writer else 0

    async def count_entries(self) -> int:
        return int((await self._ensure_open(self._reader).fetch(COUNT_ENTRIES))[0][0])

    async def newest_position(self) -> int:
        return int((await self._ensure_open(self._reader).fetch(NEWEST_POSITION))[0][0])

    async def read_after(self, position: int, limit: int) -> list[PositionedEntry]:
        limits = (min(position, LARGEST), min(limit, LARGEST))
        rows = await self._ensure_open(self._reader).fetch(SELECT_AFTER, limits)
        return await decode_in_steps(rows, positioned_entry)

    async def workspace(self, default: str) -> str:
        """Return the label in tape names.

        It is stored once, because the path it came from may change.
        """
        if self._writer is not None:
            return await self._writer.submit(lambda transaction: transaction.keep_label(default))
        rows = await self._ensure_open(self._reader).fetch("SELECT value FROM deployment WHERE key = 'workspace'")
        return rows[0][0] if rows else default

    async def adopt(self, source: TapesToCopy, on_progress: OnProgress = ignore_progress) -> CopyCounts:
        """Take over all tapes of another store, in one transaction. Raise `StoreError`, with nothing written."""
        return await self._require_writer().submit(lambda transaction: copy_tapes(transaction, source, on_progress))

    async def audit(self, tape: str | None = None, *, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
        return await self._read_through(partial(audit_all, only=tape, on_progress=on_progress))

    async def deployment_head(self, position: int | None = None, *, older: bool = False) -> str:
        return await self._read_through(partial(head_at, position=position, older=older))

    async def measure_size(self) -> DatabaseSize:
        return await self._read_through(partial(measure_size, database=self.path))

    async def find_unreferenced_blobs(self) -> UnreferencedBlobs:
        return await self._read_through(find_unreferenced_blobs)

    async def _read_through(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work that reads the whole database, in a thread with its own connection."""
        self._ensure_open(self._scanner)

        def read() -> T:
            with translated_errors(), closing(open_reader(self.path)) as conn:
                return work(conn)

        return await asyncio.to_thread(read)

    async def count_erasable(self, archive: str) -> int:
        async with self._ensure_open(self._scanner).snapshot() as conn:

            async def fetch(sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
                return list(map(tuple, await conn.execute_fetchall(sql, values)))

            return await count_erasable(fetch, archive)

    async def erase_archive(self, archive: str, fact: Batch, also: Traces) -> None:
        async with self._erasing():
            await self._require_writer().submit(lambda transaction: erase_archive(transaction, archive, fact, also))

    async def drop_blobs(self, tape: str, blobs: UnreferencedBlobs, date: str) -> int:
        """See `CollectsGarbage.drop_blobs`.

        The facts about the removal, on the home tape, have this date.
        """

        async def drop(transaction: Transaction) -> int:
            digests = await still_unreferenced(transaction.fetch, tape, blobs)
            await remove_blobs(transaction, tape, digests, ("unnamed", date))
            return len(digests)

        return await self._require_writer().submit(drop)

    async def release_pages(self, *, allow_rewrite: bool) -> None:
        """Release free pages to the disk, in steps.

        An older database must be rewritten first, which blocks other writers: do so only if `allow_rewrite`.
        """
        writer = self._require_writer()
        self.check_file()
        if allow_rewrite and not (await self.measure_size()).gives_back:
            await writer.run_alone(vacuum_database)
        while await writer.run_alone(release_pages):  # queued writes run between the steps
            pass
        await writer.run_alone(truncate_wal)

    async def aclose(self) -> None:
        if not self._open:
            return
        self._open = False
        async with AsyncExitStack() as stack:  # close all, even if the caller is cancelled
            for conn in (self._index, self._writer, self._scanner, self._reader):
                if conn is not None:
                    stack.push_async_callback(conn.aclose)

    @property
    def commit_counter(self) -> CommitCounter:
        """The counter of commits. Raise `StoreUnavailable` if the database is open for reading only."""
        return self._require_writer().commit_counter

    async def index_state(self) -> IndexState | None:
        async with self._ensure_open(self._scanner).snapshot() as conn:
            return await self._index.read_state(conn)

    async def forget_index(self) -> None:
        async with self._ensure_open(self._scanner).exclusive():  # nobody searches
            await self._index.aclose()
        if self.indexer is not None:
            await self.indexer.forget()
        else:
            await asyncio.to_thread(delete_index, index_path(self.path))

    @property
    def is_indexing(self) -> bool:
        return self.indexer is not None

    def build_indexer(self) -> Indexer:
        self.indexer = indexer = Indexer(self)
        return indexer

    @asynccontextmanager
    async def _erasing(self, *, required: bool = True) -> AsyncIterator[None]:
        """If the block erases (`required`), remove the erased bytes from the write-ahead log and the erased words from derived
        files.

        The index of passages has no mark for staleness, so it is deleted first: a crash after the commit would leave
        it.
        """
        if not required:
            yield
            return
        writer, passages = self._require_writer(), self.path.with_name(PASSAGES_FILE)
        await asyncio.to_thread(delete_index, passages)
        yield
        await writer.run_alone(truncate_wal)
        await self.forget_index()
        await asyncio.to_thread(delete_index, passages)  # it may have been rebuilt meanwhile, from the old entries

    def _require_writer(self) -> GroupCommitWriter:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:
            raise StoreUnavailable("the database is open for reading only")
        return self._writer

    def _ensure_open(self, reader: HeldConnection) -> HeldConnection:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._writer is None:  # a writer reads its own version
            self.check_file()
        return reader

    def check_file(self) -> None:
        """Raise `StoreUnavailable` if the file was removed or replaced: writes would be lost with this process.

        SQLite checks this before a commit with a rollback journal, but not with a write-ahead log.
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


_SELECT_TAPES = (
    "SELECT tapes.name, archived_from, coalesce(head.id, 0), coalesce(hex(head.chain), ''), "
    "(SELECT count(*) FROM erased WHERE erased.tape = tapes.tape) "
    "FROM tapes LEFT JOIN entries AS head ON head.tape = tapes.tape AND head.id = "
    "(SELECT max(id) FROM entries WHERE tape = tapes.tape) ORDER BY tapes.name"
)
MigrationHook: TypeAlias = Callable[[Path, int, datetime], None]
"""Backs up the database at a path, with this version, before its migration. Raises `StoreError`."""


def _back_up_before_migration(database: Path, version: int, now: datetime) -> None:
    # Imported here: few starts migrate.
    from bubbot.stores.sqlite.backups import back_up_before_migration

    back_up_before_migration(database, version, now)


async def open_store(
    path: Path,
    *,
    salt: Salt,
    now: Clock,
    on_migration: MigrationHook = _back_up_before_migration,
    room_retry: float | None = None,
    on_newest: OnNewest = ignore_newest,
    limits: WalLimits = WalLimits(),
) -> SqliteStore:
    """Open the database for writing; create or migrate it first. The caller must hold the home's lock.

    Args:
        path: of the database.
        salt: the source of random bytes.
        on_migration: backs up a database before its migration; if it fails, nothing is migrated.
        room_retry: seconds between two attempts while the disk is full and all writes wait; None: raise `StoreFull`.
        on_newest: notes the newest entry outside of the database, in another thread, soon after commits and at the end.
        limits: of the write-ahead log.
    """
    store = SqliteStore(path, salt)
    checkpointer = WalCheckpointer(path, int(BUSY_SECONDS * 1000), limits, on_newest)
    connector = partial(open_writer, path, now(), on_migration)
    await store.start(GroupCommitWriter(connector, salt, checkpointer, store.check_file, room_retry))
    return store


async def open_readonly(path: Path, keep: int = 0) -> SqliteStore:
    """Open the database for reading, also while the bot runs; keep some entries that were read. Raise `StoreUnavailable` if there is none."""
    store = SqliteStore(path, bytes, RowDecoder(keep).decode if keep else from_row)
    await store.start(None)
    return store


def open_writer(path: Path, now: datetime, on_migration: MigrationHook) -> sqlite3.Connection:
    """Open a writing connection; create or migrate the database first. See `open_store`."""
    with suppress(OSError):  # for its owner alone; SQLite gives its other files the same mode, and reports errors
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    return prepare(conn, partial(_prepare_writing, path=path, now=now, on_migration=on_migration))


def _prepare_writing(conn: sqlite3.Connection, path: Path, now: datetime, on_migration: MigrationHook) -> None:
    version = check_version(conn)
    if version == 0:
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # on the empty file; later that would need a VACUUM
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")  # a power cut must not lose acknowledged messages
    conn.execute("PRAGMA secure_delete = ON")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute(f"PRAGMA journal_size_limit = {SHORT_WAL_BYTES}")
    if version:
        refuse_unguarded(conn, path)
    if 0 < version < len(MIGRATIONS):
        on_migration(path, version, now)
    migrate(conn, now=timestamp(now))
