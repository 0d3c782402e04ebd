"""A store on a PostgreSQL server: several processes may write to it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import PoolTimeout

from bubbot.errors import EntryNotFound, LeaseLost, StoreError, StoreUnavailable, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseSize, DeploymentAudit, PositionedEntry, UnreferencedBlobs
from bubbot.ports.workers import ChatJobs, Worker, WorkerOptions
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
from bubbot.stores.group import Job
from bubbot.stores.postgres.audit import audit_all, head_at
from bubbot.stores.postgres.connections import (
    AsyncConnection,
    ServerAddress,
    ServerLost,
    ThreadReader,
    adapt,
    check_server,
    connect,
    refuse_pooler,
    session_statements,
    to_postgres,
    translated_errors,
    unreachable,
    working_role,
)
from bubbot.stores.postgres.locks import SILENCE_SECONDS, ServerLocks
from bubbot.stores.postgres.policies import AUDIT_SUFFIX
from bubbot.stores.postgres.pool import ConnectionPool
from bubbot.stores.postgres.reading import find_entries
from bubbot.stores.postgres.requests import ServerRequests
from bubbot.stores.postgres.schema import (
    MAX_PLACES,
    Connection,
    check_version,
    find_schema,
    migrate,
    refuse_unguarded,
)
from bubbot.stores.postgres.sizes import measure_size
from bubbot.stores.postgres.writer import PostgresWriter
from bubbot.stores.rows import (
    LARGEST,
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
from bubbot.tape.query import IndexProposals, NotIndexed, Ranked, TapeQuery
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, StoreHeads, TapeSummary

if TYPE_CHECKING:
    from bubbot.stores.postgres.jobs import PostgresJobs

T = TypeVar("T")
READERS = 4
"""Connections that read at once, at most."""
TAPE_SHARDS = 8
"""Shards of system tapes in a new database."""
SEARCH_TIMEOUT_SECONDS = 20.0
"""The time limit of a query on texts."""
OWN_COMMIT_SECONDS = 5.0
"""Seconds to wait, at most, until what this process committed is readable by its position."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.002, 0.25
_NEWEST_READABLE = "SELECT coalesce(max(seq), 0) FROM entries WHERE seq < (SELECT unreadable_position())"
_SELECT_READABLE_AFTER = SELECT_AFTER.replace(" ORDER BY", " AND seq < (SELECT unreadable_position()) ORDER BY")
_SELECT_TAPES = (
    "SELECT name, head, encode(chain, 'hex'), archived_from, "
    "(SELECT count(*) FROM erased WHERE erased.tape = tapes.tape) FROM tapes "
    "WHERE head > 0 OR is_begun ORDER BY name"
)
_SELECT_HEADS = (
    "SELECT name, head FROM tapes WHERE name = ANY (%s) AND head > 0 "
    "UNION ALL SELECT NULL, coalesce(max(fact), 0) FROM erased"
)
_SELECT_FORKS = (
    "SELECT fork, forks.tape, base, reset, session, epoch, batch.tape, keep_first, batch.entries FROM forks "
    "LEFT JOIN fork_batches AS batch USING (fork) WHERE %(tape)s::text IS NULL OR forks.tape = %(tape)s "
    "ORDER BY forks.opened, place"
)
_END_IF_SILENT = f"SET idle_in_transaction_session_timeout = '{SILENCE_SECONDS}s'"
"""What a frozen process has begun to write, and keeps from others, is rolled back."""
_SELECT_WORKER = "SELECT 1 FROM procrastinate_workers WHERE id = ? FOR SHARE"
_SELECT_WORKERS = """
SELECT worker, host, process, version, to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'),
    round(extract(epoch FROM now() - last_heartbeat), 1)::double precision,
    (SELECT count(*) FROM procrastinate_jobs WHERE worker_id = worker AND status = 'doing'), places, is_ending
FROM workers JOIN procrastinate_workers ON id = worker ORDER BY worker
"""
_SELECT_BLOB = (
    "SELECT data FROM blob_pieces WHERE tape = (SELECT tape FROM tapes WHERE name = %s) AND digest = %s ORDER BY piece"
)


class PostgresStore:
    """A tape store on a PostgreSQL server; create it with `open_store` or `open_readonly`. See `TapeStore`.

    Attributes:
        address: of the database.
        tape_shards: see `bubbot.tape.shards`.
        requests: asks other processes.
    """

    def __init__(
        self,
        address: ServerAddress,
        role: str,
        salt: Salt,
        *,
        readonly: bool,
        room_retry: float | None,
        decode: DecodeRow,
    ) -> None:
        self.address = address
        self.tape_shards = 1  # until `start`
        self._role, self._salt, self._readonly, self._decode = role, salt, readonly, decode
        self._open = True
        self._readable_below = self._waited_for = 0
        self._pool = ConnectionPool(
            address, self._prepare_reader, name="bubbot readers", min_size=1, max_size=READERS, is_checked=False
        )
        self._writer = None if readonly else PostgresWriter(self._connect_writer, salt, room_retry)
        self._locks = ServerLocks(address)
        self._jobs: PostgresJobs | None = None
        self.requests = ServerRequests(address, role)

    async def start(self) -> None:
        """Open the connections. Raise `StoreError` and leave none open."""
        try:
            if self._writer is not None:
                await self._writer.open()
                await self._writer.submit(lambda transaction: transaction.keep_shards(TAPE_SHARDS))
            self.tape_shards = shards_of(await self._ask(SELECT_SHARDS))
        except BaseException:
            if self._writer is not None:
                await self._writer.aclose()
            await self._pool.aclose()
            raise

    async def _connect_writer(self) -> AsyncConnection:
        try:
            conn: AsyncConnection = await psycopg.AsyncConnection.connect(autocommit=True, **self.address.parameters)
        except psycopg.Error as error:
            raise unreachable(self.address, error) from error
        await self._begin_session(conn, readonly=False)
        await conn.execute(_END_IF_SILENT)
        return conn

    async def _prepare_reader(self, conn: AsyncConnection) -> None:
        await self._begin_session(conn, readonly=True)
        await conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await conn.set_read_only(True)

    async def _begin_session(self, conn: AsyncConnection, *, readonly: bool) -> None:
        adapt(conn)
        async with conn.pipeline():
            for statement in session_statements(readonly=readonly, role=self._role, auditor=self.address.auditor):
                await conn.execute(statement)

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        return await self._require_writer().submit(self._append_job(batches), Needs(batches))

    def append_deferred(self, batches: Sequence[Batch]) -> asyncio.Future[list[tuple[TapeEntry, ...]]]:
        return self._require_writer().submit_deferred(self._append_job(batches), Needs(batches))

    def _append_job(self, batches: Sequence[Batch]) -> Job[list[tuple[TapeEntry, ...]]]:
        contents = encode_batches(batches, self._salt)
        return lambda transaction: transaction.append(batches, contents)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`. A query on texts ends if it takes too long or its caller is cancelled."""

        async def find(conn: AsyncConnection) -> list[tuple[TapeEntry, ...]]:
            return [await find_entries(conn, query, self._decode) for query in queries]

        if any(_looks_at_texts(query) for query in queries):
            try:
                async with asyncio.timeout(SEARCH_TIMEOUT_SECONDS):
                    return await self._read(find, is_snapshot=True)
            except TimeoutError as error:
                raise StoreUnavailable(
                    f"the search took longer than {SEARCH_TIMEOUT_SECONDS:.0f} seconds and was ended: narrow it with kinds or dates"
                ) from error
        is_short = len(queries) == 1 and is_one_statement(queries[0])
        return await self._read(find, is_snapshot=not is_short)

    async def head(self, tape: str) -> int:
        rows = await self._ask("SELECT head FROM tapes WHERE name = %s", (tape,))
        return int(rows[0][0]) if rows else 0

    async def heads(self, tapes: Collection[str]) -> StoreHeads:
        rows = await self._ask(_SELECT_HEADS, ([*tapes],))
        return StoreHeads({name: head for name, head in rows if name}, *(head for name, head in rows if not name))

    def exclusive(self, name: str) -> AbstractAsyncContextManager[None]:
        self._check_open()
        return self._locks.exclusive(name)

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._check_open()
        await self._locks.keep(name, work)

    async def tapes(self) -> list[TapeSummary]:
        rows = await self._ask(_SELECT_TAPES)
        return [TapeSummary(*row) for row in rows]

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        texts = encode_staged(record.staged)
        await self._require_writer().submit(
            lambda transaction: transaction.open_fork(record, texts, expect_head=expect_head),
            Needs(names=[record.tape, *_leased(record.staged)], forks=[record.id]),
        )

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        texts = encode_staged(staged)
        await self._require_writer().submit(
            lambda transaction: transaction.extend_fork(fork, staged, texts, reset),
            Needs(names=_leased(staged), forks=[fork]),
        )

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        # Entries for another fork are encoded differently.
        is_nested = "/" in fork
        contents = encode_batches(() if is_nested else batches, self._salt)
        needs = Needs(
            () if is_nested else batches,
            _leased(batches),
            forks=[fork],
            is_exclusive=reset is not None and not is_nested,
        )
        return await self._require_writer().submit(
            lambda transaction: merge_fork(transaction, fork, batches, contents, reset), needs
        )

    async def drop_fork(self, fork: str) -> None:
        await self._require_writer().submit(lambda transaction: transaction.drop_fork(fork), Needs(forks=[fork]))

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        rows = await self._ask(_SELECT_FORKS, {"tape": tape})
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
        rows = await self._ask('SELECT DISTINCT tape, session COLLATE "C" FROM forks ORDER BY 1, 2')
        return [ForkedSession(*row) for row in rows]

    async def raise_epoch(self, tape: str) -> int:
        """See `TapeStore.raise_epoch`. Raise `LeaseLost` if others have taken over the chats of this process."""
        worker = self._jobs.number if self._jobs is not None else 0

        async def raise_it(transaction: Transaction) -> int:
            # Otherwise a removed worker could take a chat back before it knows. The row lock makes a takeover wait.
            if worker and not await transaction.fetch(_SELECT_WORKER, (worker,)):
                raise LeaseLost("this process was silent for too long, and others took its chats over")
            return await transaction.raise_epoch(tape)

        return await self._require_writer().submit(raise_it, Needs(names=[tape]))

    async def newest_epoch(self, tape: str) -> int:
        """See `SharesTurns.newest_epoch`."""
        rows = await self._ask("SELECT epoch FROM leases WHERE tape = %s", (tape,))
        return int(rows[0][0]) if rows else 0

    async def list_workers(self) -> tuple[list[Worker], int]:
        """See `SharesTurns.list_workers`."""
        rows = await self._ask(_SELECT_WORKERS)
        waiting = await self._ask("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")
        return [Worker(*row) for row in rows], int(waiting[0][0])

    async def drain_worker(self, number: int) -> bool:
        """See `SharesTurns.drain_worker`."""

        async def ask(transaction: Transaction) -> bool:
            return bool(
                await transaction.fetch("UPDATE workers SET is_ending = true WHERE worker = ? RETURNING 1", (number,))
            )

        return await self._require_writer().submit(ask)

    def open_jobs(self, options: WorkerOptions) -> ChatJobs:
        """See `SharesTurns.open_jobs`. From now on what is accepted makes jobs."""
        from bubbot.stores.postgres.jobs import (
            PostgresJobs,
        )  # loads procrastinate: most processes run no turns of others

        self._jobs = PostgresJobs(self.address.parameters, self._role, options)
        self.queue_chats(self._jobs.queue_of)
        return self._jobs

    def queue_chats(self, queue_of: Callable[[str], str]) -> None:
        """Make jobs for the chats that have work from now on, in these queues."""
        self._require_writer().queue_of = queue_of

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        batches = [Batch(tape, tuple(first))]
        stored = await self._submit_exclusive(lambda transaction: put_aside(transaction, tape, reset_batch, batches))
        return stored[0]

    async def erase(
        self, batches: Sequence[Batch], entries: Traces, blobs: BlobTraces = ()
    ) -> list[tuple[TapeEntry, ...]]:
        return await self._submit_exclusive(lambda transaction: erase_entries(transaction, batches, entries, blobs))

    async def _submit_exclusive(self, job: Job[T]) -> T:
        """Run a job that chooses its tapes only as it runs, while nobody else writes."""
        return await self._require_writer().submit(job, Needs(is_exclusive=True))

    async def put_blob(self, tape: str, data: bytes) -> str:
        digest = blob_digest(data)
        await self._require_writer().submit(
            lambda transaction: transaction.put_blob(tape, digest, data), Needs(names=[tape])
        )
        return digest

    async def get_blob(self, tape: str, digest: str) -> bytes:
        rows = await self._ask(_SELECT_BLOB, (tape, digest), binary=True)
        if not rows:
            raise EntryNotFound(f"{tape} has no blob {digest}")
        data = b"".join(piece for (piece,) in rows)
        if await asyncio.to_thread(blob_digest, data) != digest:
            raise TapeCorrupt(f"the blob {digest} of the tape {tape} was altered")
        return data

    @property
    def is_full(self) -> bool:
        return self._writer is not None and self._writer.is_full

    async def wait_for_room(self) -> None:
        """Wait until there seems to be room, and the server answers."""
        if self._writer is not None:
            await self._writer.wait_for_room()

    def stop_waiting_for_room(self) -> None:
        """From now on, let jobs that cannot be written raise `StoreError`, queued ones included."""
        if self._writer is not None:
            self._writer.stop_waiting()

    @property
    def commit_count(self) -> int:
        return self._writer.commits if self._writer else 0

    async def count_entries(self) -> int:
        return int((await self._ask("SELECT coalesce(sum(head), 0)::bigint FROM tapes"))[0][0])

    async def newest_position(self) -> int:
        """See `OrdersEntries.newest_position`. What this process committed is waited for, up to some seconds."""
        await self._wait_for_own_commits()
        return int((await self._ask(_NEWEST_READABLE))[0][0])

    async def read_after(self, position: int, limit: int) -> list[PositionedEntry]:
        """See `OrdersEntries.read_after`, and `newest_position`."""
        await self._wait_for_own_commits()
        statement = to_postgres(_SELECT_READABLE_AFTER)
        rows = await self._ask(statement, (min(position, LARGEST), min(limit, LARGEST)))
        return await decode_in_steps(map(tuple, rows), positioned_entry)

    async def _wait_for_own_commits(self) -> None:
        """Wait until this process's commits are readable by position: an open transaction may still commit at a smaller one.

        Wait at most `OWN_COMMIT_SECONDS`, and only once for the same transaction: that of another program may last for hours.
        """
        own = self._writer.newest_position if self._writer else 0
        if self._readable_below > own:
            return
        loop, wait = asyncio.get_running_loop(), _FIRST_WAIT_SECONDS
        latest, waited_for = loop.time() + OWN_COMMIT_SECONDS, self._waited_for
        while True:
            self._readable_below = (await self._ask("SELECT unreadable_position()"))[0][0]
            if self._readable_below > own or self._readable_below == waited_for:
                break
            if loop.time() > latest:
                self._waited_for = self._readable_below
                break
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    async def workspace(self, default: str) -> str:
        """Return the label in tape names. It is stored once, because the path it came from may change."""
        if self._writer is not None:
            return await self._writer.submit(lambda transaction: transaction.keep_label(default))
        rows = await self._ask("SELECT value FROM deployment WHERE key = 'workspace'")
        return rows[0][0] if rows else default

    async def adopt(self, source: TapesToCopy, on_progress: OnProgress = ignore_progress) -> CopyCounts:
        """Take over all tapes of another store, in one transaction. Raise `StoreError`, with nothing written."""
        if (entries := source.count_entries()) >= MAX_PLACES:
            raise StoreError(
                f"a server takes over {MAX_PLACES - 1} entries at most, as one transaction, and there are {entries}"
            )

        async def copy(transaction: Transaction) -> CopyCounts:
            # The source may be slow, and is no sign of a frozen process.
            await transaction.fetch("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
            return await copy_tapes(transaction, source, on_progress)

        return await self._submit_exclusive(copy)

    async def audit(self, tape: str | None = None, *, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
        return await self._read_through(partial(audit_all, only=tape, on_progress=on_progress))

    async def deployment_head(self, position: int | None = None, *, older: bool = False) -> str:
        if position is None:
            await self._wait_for_own_commits()
        return await self._read_through(partial(head_at, position=position, older=older))

    async def measure_size(self) -> DatabaseSize:
        return await self._read_through(measure_size)

    async def find_unreferenced_blobs(self) -> UnreferencedBlobs:
        return await self._read_through(
            lambda conn: find_unreferenced_blobs(ThreadReader(conn, is_snapshot=False), "size")
        )

    async def _read_through(self, work: Callable[[Connection], T]) -> T:
        """Run work that reads the whole database, in a thread with its own connection."""
        self._check_open()

        def read() -> T:
            with translated_errors(), closing(connect(self.address, readonly=True)) as conn:
                return work(conn)

        return await asyncio.to_thread(read)

    async def count_erasable(self, archive: str) -> int:
        async with self.snapshot() as conn:

            async def fetch(sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
                cursor = await conn.execute(to_postgres(sql), values)
                return await cursor.fetchall()

            return await count_erasable(fetch, archive)

    async def erase_archive(self, archive: str, fact: Batch, also: Traces) -> None:
        await self._submit_exclusive(lambda transaction: erase_archive(transaction, archive, fact, also))

    async def drop_blobs(self, tape: str, blobs: UnreferencedBlobs, date: str) -> int:
        """See `CollectsGarbage.drop_blobs`. The facts about the removal, on the home tape, have this date."""

        async def drop(transaction: Transaction) -> int:
            digests = await still_unreferenced(transaction.fetch, tape, blobs)
            await remove_blobs(transaction, tape, digests, ("unnamed", date))
            return len(digests)

        return await self._submit_exclusive(drop)

    async def release_pages(self, *, allow_rewrite: bool) -> None:  # noqa: ARG002 - the server sweeps by itself
        """Do nothing: the server sweeps its files by itself (autovacuum)."""
        self._require_writer()

    async def aclose(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            if self._writer is not None:
                await self._writer.aclose()
        finally:
            await self._locks.aclose()
            await self.requests.aclose()
            await self._pool.aclose()

    def _require_writer(self) -> PostgresWriter:
        self._check_open()
        if self._writer is None:
            raise StoreUnavailable("the database is open for reading only")
        return self._writer

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")

    async def _ask(self, statement: str, values: Any = None, *, binary: bool = False) -> list[TupleRow]:
        async def ask(conn: AsyncConnection) -> list[TupleRow]:
            return await (await conn.execute(statement, values, binary=binary)).fetchall()

        return await self._read(ask)

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]], *, is_snapshot: bool = False) -> T:
        """Read with a connection of the pool; with another one if that was lost since it was last used."""
        for _ in range(READERS):
            try:
                async with self.snapshot() if is_snapshot else self._reader() as conn:
                    return await work(conn)
            except ServerLost as error:
                if isinstance(error.__cause__, PoolTimeout):  # there is no other one
                    raise
        async with self.snapshot() if is_snapshot else self._reader() as conn:
            return await work(conn)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[AsyncConnection]:
        """A reading connection, without a transaction. Raise `StoreError`."""
        self._check_open()
        async with self._pool.lend() as conn:
            yield conn

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A reading connection within one state of the database."""
        async with self._reader() as conn, conn.transaction():
            yield conn


def _looks_at_texts(query: TapeQuery) -> bool:
    return query.reads_texts or isinstance(query.part, IndexProposals | NotIndexed | Ranked)


def _leased(batches: Sequence[Batch]) -> list[str]:
    """Return the tapes of the leases of batches."""
    return [batch.lease.tape for batch in batches if batch.lease is not None]


async def open_store(url: str, *, salt: Salt, now: Clock, room_retry: float | None = None) -> PostgresStore:
    """Open the database for writing; create or migrate its schema first.

    Args:
        salt: the source of random bytes.
        room_retry: seconds between two attempts while the disk is full or the server is lost, and all writes wait;
            None: raise `StoreFull` or `StoreUnavailable`.
    """
    address = ServerAddress(url)
    role = await asyncio.to_thread(_prepare, address, now=timestamp(now()))
    store = PostgresStore(address, role, salt, readonly=False, room_retry=room_retry, decode=from_row)
    await store.start()
    return store


async def open_readonly(url: str, keep: int = 0, *, auditor: str = "") -> PostgresStore:
    """Open the database for reading. Raise `StoreUnavailable` if it holds nothing.

    Args:
        keep: entries that were read and stay in memory.
        auditor: shows the tapes that this auditor was granted, through the views of auditors; empty for all tapes.
    """
    address = ServerAddress(url, auditor)
    role = await asyncio.to_thread(_check_readable, address)
    decode = RowDecoder(keep).decode if keep else from_row
    store = PostgresStore(address, role, bytes, readonly=True, room_retry=None, decode=decode)
    await store.start()
    return store


def _prepare(address: ServerAddress, now: str) -> str:
    """Check the server, migrate the schema; return the role to go on as."""
    with translated_errors(), closing(connect(address, readonly=False)) as conn:
        check_server(conn, readonly=False)
        refuse_pooler(conn, address)
        migrate(conn, now=now)
        role = working_role(conn, readonly=False)
        refuse_unguarded(conn)
        conn.execute("SELECT lift_positions()")
        return role


def _check_readable(address: ServerAddress) -> str:
    with translated_errors(), closing(connect(address, readonly=True)) as conn:
        check_server(conn, readonly=True)
        if address.auditor and not find_schema(conn).endswith(AUDIT_SUFFIX):
            raise StoreUnavailable(
                f"the role {conn.info.user} is not that of auditors: `bubbot store add-auditor` makes one and says its address"
            )
        if check_version(conn) == 0:
            raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")
        return working_role(conn, readonly=True)
