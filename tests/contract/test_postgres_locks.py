"""Locks over all processes of a deployment: one block at a time, and work that one process does until it ends or is frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from bubbot.errors import StoreUnavailable
from bubbot.stores.postgres import locks
from bubbot.stores.postgres.store import PostgresStore, open_store
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import SUPERUSER

ROOT = Path(__file__).parents[2]
WAIT = 60.0
TAKEN_OVER = 10.0
"""Seconds after which another process has the work of one that died or froze: a promise, so it is measured."""


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
    try:
        yield store
    finally:
        await store.aclose()


class Keeper:
    """A process that keeps a work, or waits for it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def expect(self, line: str, seconds: float = WAIT) -> None:
        """Wait for the next line that it writes."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            assert (await self.process.stdout.readline()).decode().strip() == line

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


@asynccontextmanager
async def keeper(address: str, name: str = "timer") -> AsyncIterator[Keeper]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.keeper_child", address, name, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    try:
        yield Keeper(process)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()


async def test_blocks_of_one_name_run_one_after_the_other_and_others_beside_them(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        inside, most, other = 0, 0, asyncio.Event()

        async def enter(store: PostgresStore) -> None:
            nonlocal inside, most
            async with store.exclusive("a"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                await store.head("t")
                inside -= 1

        async with asyncio.timeout(WAIT), one.exclusive("b"):
            await asyncio.gather(*(enter(store) for store in (one, two) * 6))
            async with two.exclusive("c"):
                other.set()
        assert (most, other.is_set()) == (1, True)


async def test_who_waits_too_long_is_told_and_who_fails_gives_the_lock_back(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "BLOCK_SECONDS", 1)
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        async with one.exclusive("a"):
            with pytest.raises(StoreUnavailable, match="a: other processes of this bot have been at it for 1 seconds"):
                await two.exclusive("a").__aenter__()
        with pytest.raises(RuntimeError, match="broken"):
            await _fail_within(one)
        async with asyncio.timeout(WAIT), two.exclusive("a"):
            pass


async def test_work_is_done_by_one_and_taken_over_if_its_connection_is_cut(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        log, begun = list[str](), asyncio.Queue[str]()

        async def work(name: str) -> None:
            begun.put_nowait(name)
            try:
                await asyncio.Event().wait()
            finally:
                log.append(f"{name} over")

        async with asyncio.timeout(WAIT):
            first = asyncio.create_task(one.keep("timer", lambda: work("one")))
            assert await begun.get() == "one"
            second = asyncio.create_task(two.keep("timer", lambda: work("two")))
            beside = asyncio.create_task(two.keep("another", lambda: work("beside")))
            assert await begun.get() == "beside"
            plain = postgres_address.replace("//owner@", f"//{SUPERUSER}@")
            async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as conn:
                await conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid IN "
                    "(SELECT blocker FROM pg_stat_activity, unnest(pg_blocking_pids(pid)) AS blocker "
                    "WHERE datname = current_database())"
                )
            assert await begun.get() == "two"
            while "one over" not in log:  # it notices at its next sign of life  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert log == ["one over"]
        for task in (first, second, beside):
            task.cancel()
        await asyncio.gather(first, second, beside, return_exceptions=True)


async def test_work_that_returns_is_not_begun_again_and_a_failure_is_the_callers(postgres_address: str) -> None:
    async with opened(postgres_address) as store:
        async with asyncio.timeout(WAIT):
            await store.keep("once", _nothing)
            with pytest.raises(RuntimeError, match="broken"):
                await store.keep("once", _fail)


async def _nothing() -> None:
    """Return at once."""


async def _fail_within(store: PostgresStore) -> None:
    async with store.exclusive("a"):
        await _fail()


async def _fail() -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_another_process_takes_the_work_over_within_ten_seconds(postgres_address: str, end: int) -> None:
    async with keeper(postgres_address) as first:
        await first.expect("begun")
        async with keeper(postgres_address) as second:
            async with opened(postgres_address) as store:
                waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                async with asyncio.timeout(WAIT), store.snapshot() as conn:
                    while not (await (await conn.execute(waiting)).fetchone() or [0])[0]:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            first.signal(end)
            await second.expect("begun", TAKEN_OVER)
            if end == signal.SIGSTOP:
                first.signal(signal.SIGCONT)
                await first.expect("over")
