"""The pool of connections to a PostgreSQL server, for all that a running bot does with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from bubbot.errors import StoreUnavailable
from bubbot.stores.postgres.connections import (
    CONNECT_SECONDS,
    AsyncConnection,
    ServerAddress,
    ServerLost,
    translate_error,
)


class CancellablePool(AsyncConnectionPool[AsyncConnection]):
    """The library's pool, for callers that are cancelled while they wait.

    On Python 3.11 the library's own pool drops a cancellation that comes at the same moment as the connection
    (`asyncio.wait_for` does), and a task goes on that should have ended.
    """

    async def getconn(self, timeout: float | None = None) -> AsyncConnection:
        """See `AsyncConnectionPool.getconn`."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        conn = await super().getconn(timeout)
        if task is not None and task.cancelling() > before:
            await self.putconn(conn)
            raise asyncio.CancelledError
        return conn


class ConnectionPool:
    """Connections that begin their sessions the same way; the first use opens the pool.

    Args:
        address: of the server.
        begin_session: prepares a new connection.
        name: what the pool is called in the library's log.
        min_size: connections that stay open while nobody needs them.
        max_size: connections at once.
        is_checked: each connection is tried before it is lent, for callers that do not try again with another one.
    """

    def __init__(
        self,
        address: ServerAddress,
        begin_session: Callable[[AsyncConnection], Awaitable[None]],
        *,
        name: str,
        max_size: int,
        min_size: int = 0,
        is_checked: bool = True,
    ) -> None:
        self._address = address
        self._places = asyncio.Semaphore(max_size)
        """Callers queue here: in the library's own queue a long wait for other callers would look like a lost server."""
        self._pool = CancellablePool(
            kwargs={**address.parameters, "autocommit": True},
            connection_class=AsyncConnection,
            min_size=min_size,
            max_size=max_size,
            configure=begin_session,
            open=False,
            timeout=CONNECT_SECONDS,
            check=CancellablePool.check_connection if is_checked else None,
            name=name,
        )

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection, without a transaction, for the block. Raise `ServerLost` or another `StoreError`."""
        try:
            async with self._places:
                if self._pool.closed:
                    await self._pool.open()
                async with self._pool.connection() as conn:
                    yield conn
        except PoolClosed as error:
            raise StoreUnavailable("the store is closed") from error
        except PoolTimeout as error:
            raise ServerLost(
                f"the PostgreSQL server at {self._address} gives no connection within {CONNECT_SECONDS} s"
            ) from error
        except psycopg.Error as error:
            raise translate_error(error) from error

    async def aclose(self) -> None:
        """Close the connections, those that are lent included once they are back."""
        await self._pool.close()
