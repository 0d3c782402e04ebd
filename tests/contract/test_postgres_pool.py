"""Who waits for a connection to the server can be cancelled at any moment, and takes no connection along."""

from __future__ import annotations

import asyncio
import sys

import pytest
from psycopg_pool import AsyncConnectionPool

from bubbot.stores.postgres.connections import AsyncConnection, ServerAddress
from bubbot.stores.postgres.pool import CancellablePool

STEPS = 30
"""Steps of the event loop, more than a connection needs from one borrower to the next."""


async def count_going_on(pool: AsyncConnectionPool[AsyncConnection]) -> int:
    """Return how many waiting tasks went on though they were cancelled before they had the connection."""
    going_on = 0
    for steps in range(STEPS):
        borrowed: list[bool] = []

        async def borrow(borrowed: list[bool] = borrowed) -> None:
            async with pool.connection():
                borrowed.append(True)
                await asyncio.Event().wait()

        async with pool.connection():
            waiting = asyncio.create_task(borrow())
            await asyncio.sleep(0.01)
        for _ in range(steps):
            await asyncio.sleep(0)
        had_it = bool(borrowed)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=0.2)
        going_on += bool(borrowed) and not had_it
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with pool.connection(timeout=5):
            pass  # nobody took it along
    return going_on


async def count_with(kind: type[AsyncConnectionPool[AsyncConnection]], address: str) -> int:
    async with kind(kwargs=dict(ServerAddress(address).parameters), min_size=1, max_size=1) as pool:
        return await count_going_on(pool)


async def test_a_cancellation_at_any_step_ends_who_waits(postgres_address: str) -> None:
    assert await count_with(CancellablePool, postgres_address) == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio.wait_for of Python 3.11 drops cancellations")
async def test_the_pool_of_the_library_lets_some_go_on(postgres_address: str) -> None:
    """Once this fails, ours can go."""
    assert await count_with(AsyncConnectionPool, postgres_address) > 0
