"""What the engine of jobs costs, beside a table of our own with FOR UPDATE SKIP LOCKED: `python -m benchmarks.job_engines`.

Both take the jobs that appends make in their own transaction, in two processes' worth of workers on one event loop. Latency is from the
return of an append to the begin of its job, one after another; rate is how many chats per second are taken and finished if all
of them have work at once. Figures are medians of the rounds, in milliseconds; processor time is that of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import psycopg

from bubbot.app.tapes import now
from bubbot.ports.workers import ChatJob, WorkerOptions
from bubbot.stores.postgres.jobs import queue_name
from bubbot.stores.postgres.store import PostgresStore, open_store
from bubbot.tape.entry import event
from bubbot.tape.store import Batch
from tests.postgres_server import copied_database, make_template, own_server

Run: TypeAlias = Callable[[str], Awaitable[None]]
PLACES = 8
_OWN = """
CREATE TABLE own_jobs (chat text PRIMARY KEY, is_ready boolean NOT NULL, worker integer, heard timestamptz);
CREATE OR REPLACE FUNCTION bubbot.wake(chats text[], queues text[], again boolean) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = bubbot_jobs, public, pg_temp AS $$
BEGIN
    INSERT INTO public.own_jobs SELECT DISTINCT chat, true FROM unnest(chats) AS chat ORDER BY chat
        ON CONFLICT (chat) DO UPDATE SET is_ready = true;
    PERFORM pg_notify('own_jobs', '');
END $$;
"""


async def run_own(address: str, number: int, run: Run) -> None:
    """Take jobs from a table of our own until cancelled."""
    free, news = asyncio.Semaphore(PLACES), asyncio.Event()
    take = (
        "UPDATE own_jobs SET is_ready = false, worker = %s, heard = now() WHERE chat = (SELECT chat FROM own_jobs "
        "WHERE is_ready AND worker IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING chat"
    )
    finish = "UPDATE own_jobs SET worker = NULL WHERE chat = %s RETURNING is_ready"
    connect = psycopg.AsyncConnection.connect
    async with await connect(address, autocommit=True) as jobs, await connect(address, autocommit=True) as listener:
        await listener.execute("LISTEN own_jobs")

        async def listen() -> None:
            async for _ in listener.notifies():
                news.set()

        async def work(chat: str) -> None:
            try:
                await run(chat)
                row = await (await jobs.execute(finish, (chat,))).fetchone()
                if row and row[0]:
                    news.set()
            finally:
                free.release()

        async with asyncio.TaskGroup() as group:
            group.create_task(listen())
            while True:
                await free.acquire()
                row = await (await jobs.execute(take, (number,))).fetchone()
                if row is not None:
                    group.create_task(work(row[0]))
                    continue
                free.release()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await news.wait()
                news.clear()


async def run_engine(store: PostgresStore, number: int, run: Run) -> None:
    """Take jobs by the engine until cancelled."""

    async def work(job: ChatJob) -> None:
        await run(job.chat)

    async def end() -> None:
        raise AssertionError("nobody is silent here")

    jobs = store.open_jobs(
        WorkerOptions(work, lambda _: None, end, lambda: None, lambda: ("bench",), (), f"worker {number}", PLACES, 30.0)
    )
    store.queue_chats(queue_name)
    await jobs.run()


@asynccontextmanager
async def opened(address: str, engine: str, run: Run) -> AsyncIterator[PostgresStore]:
    """Open a store with two workers of an engine."""
    store = await open_store(address, salt=os.urandom, now=now)
    if engine == "own":
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as conn:
            await conn.execute(_OWN.encode())
        store.queue_chats(queue_name)
    workers = [
        asyncio.ensure_future(run_own(address, number, run) if engine == "own" else run_engine(store, number, run))
        for number in (1, 2)
    ]
    await asyncio.sleep(1.5)  # both listen
    try:
        yield store
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await store.aclose()


async def measure(address: str, engine: str, messages: int, chats: int) -> tuple[float, float, float]:
    """Return the latency of single jobs, the milliseconds per chat if all have work, and the processor time per chat."""
    begun: dict[str, asyncio.Future[float]] = {}

    async def run(chat: str) -> None:
        if (future := begun.get(chat)) is not None and not future.done():
            future.set_result(time.perf_counter())

    async def say(store: PostgresStore, chat: str, key: str) -> None:
        begun[chat] = asyncio.get_running_loop().create_future()
        await store.append([Batch("bubbot/inbox/bench", (event("inbound", {}, key=key),), wakes=chat)])

    async with opened(address, engine, run) as store:
        waits = []
        for number in range(messages):
            chat = f"bench:{number % 5}"
            await say(store, chat, f"single {number}")
            accepted = time.perf_counter()
            waits.append((await begun[chat] - accepted) * 1000)
            await asyncio.sleep(0.02)  # its job ends
        before, processor = time.perf_counter(), time.process_time()
        await asyncio.gather(*(say(store, f"bench:many {number}", f"many {number}") for number in range(chats)))
        await asyncio.gather(*(begun[f"bench:many {number}"] for number in range(chats)))
        rate = (time.perf_counter() - before) * 1000 / chats
        print(engine, [round(each) for each in sorted(waits)][:: max(len(waits) // 12, 1)])
        return statistics.median(waits), rate, (time.process_time() - processor) * 1000 / chats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--chats", type=int, default=200)
    wanted = parser.parse_args()
    figures: dict[str, list[tuple[float, float, float]]] = {"procrastinate": [], "own": []}
    with own_server() as server:
        make_template(server)
        for _ in range(wanted.rounds):
            for engine, rounds in figures.items():
                with copied_database(server) as address:
                    rounds.append(asyncio.run(measure(address, engine, wanted.messages, wanted.chats)))
    print(f"load {os.getloadavg()[0]:.0f}; engine: latency, per chat, processor per chat (ms)")
    for engine, rounds in figures.items():
        latency, rate, processor = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{engine}: {latency:.1f}, {rate:.2f}, {processor:.2f}")


if __name__ == "__main__":
    main()
