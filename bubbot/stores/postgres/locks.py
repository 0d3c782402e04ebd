"""Locks that all processes of a deployment share: for a block, and for work that one of them does at a time.

Each is an advisory lock within a transaction of a connection of its own, which reads and writes nothing, so it has no number
and holds no reader back. The lock ends with the transaction, and the server ends that if its process is silent for too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import psycopg
from psycopg import sql

from bubbot.errors import StoreUnavailable
from bubbot.stores.postgres.connections import (
    AsyncConnection,
    ServerAddress,
    adapt,
    is_lost,
    session_statements,
    translate_error,
)
from bubbot.stores.postgres.pool import ConnectionPool

log = logging.getLogger(__name__)

MAX_BLOCKS = 4
"""Blocks that this process may hold, or wait for, at once."""
BLOCK_SECONDS = 20
"""Seconds to wait for others, at most."""
MAX_HELD_SECONDS = 20
"""A block that takes longer loses its lock: its process may be frozen."""
SILENCE_SECONDS = 6
"""Seconds of silence after which the server takes work away from a process: it is frozen, or cannot be reached."""
BEAT_SECONDS = 1.5
"""Seconds between two signs of life."""
_SPACE = 0x6275_6262
"""The first half of the number of each lock: others that use this database may have locks, too."""

_LOCK = "SELECT pg_advisory_xact_lock(%s, ('x' || left(md5(current_schema() || '/' || %s::text), 8))::bit(32)::integer)"
"""Names that share a number wait for each other needlessly, and do no harm."""


class ServerLocks:
    """The locks of one process. Its first use opens a connection."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._pool = ConnectionPool(address, _begin_session, name="bubbot locks", max_size=MAX_BLOCKS)

    @asynccontextmanager
    async def exclusive(self, name: str) -> AsyncIterator[None]:
        """See `SharesWriting.exclusive`."""
        async with self._pool.lend() as conn:
            try:
                await self._lock(conn, name, wait=BLOCK_SECONDS, silence=MAX_HELD_SECONDS)
            except psycopg.errors.LockNotAvailable as error:
                raise StoreUnavailable(
                    f"{name}: other processes of this bot have been at it for {BLOCK_SECONDS} seconds"
                ) from error
            try:
                yield
            finally:
                with suppress(psycopg.Error):  # it is over in any case
                    await conn.rollback()

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """See `SharesWriting.keep`. Return once the work returns; raise what it raises."""
        while True:
            try:
                conn: AsyncConnection = await psycopg.AsyncConnection.connect(
                    autocommit=True, **self._address.parameters
                )
            except psycopg.Error as error:
                await _wait_for_server(error)
                continue
            try:
                try:
                    await _begin_session(conn)
                    await self._lock(conn, name, wait=0, silence=SILENCE_SECONDS)
                except psycopg.Error as error:
                    await _wait_for_server(error)
                    continue
                if await _run_while_held(conn, name, work):
                    return
            finally:
                with suppress(psycopg.Error):
                    await conn.close()

    async def _lock(self, conn: AsyncConnection, name: str, *, wait: int, silence: int) -> None:
        """Begin a transaction with the lock of a name. `wait`: for how many seconds at most; 0: for ever."""
        async with conn.pipeline():
            await conn.execute("BEGIN READ ONLY")
            for setting, value in (
                ("lock_timeout", f"{wait}s"),
                ("idle_in_transaction_session_timeout", f"{silence}s"),
                ("client_connection_check_interval", "2s"),  # or the server hands the lock to who is gone
            ):
                await conn.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(setting), sql.Literal(value)))
        await conn.execute(_LOCK, (_SPACE, name))  # not in the pipeline, see `WATCH_SILENCE`

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _wait_for_server(error: psycopg.Error) -> None:
    """Wait a moment if the server went away: whoever writes says so. Raise another error."""
    if not is_lost(error):
        raise translate_error(error) from error
    await asyncio.sleep(BEAT_SECONDS)


async def _begin_session(conn: AsyncConnection) -> None:
    adapt(conn)
    async with conn.pipeline():
        for statement in session_statements(readonly=True):
            await conn.execute(statement)


async def _run_while_held(conn: AsyncConnection, name: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Run work and give signs of life meanwhile. Return false if the lock was lost, once the work has ended."""
    log.info("work begun here: %s", name, extra={"action": "work.begun", "work": name})
    running = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait([running], timeout=BEAT_SECONDS))[0]:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await conn.execute("SELECT 1")
            except (psycopg.Error, TimeoutError) as error:
                log.warning(
                    "work given up, since another process may have taken it over: %s: %s",
                    name,
                    " ".join(str(error).split()),
                    extra={"action": "work.lost", "work": name},
                )
                return False
        running.result()
        return True
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
