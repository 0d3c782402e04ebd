"""Jobs of chats on PostgreSQL: made in the transaction of their work, one waiting, taken over from the silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from bubbot.errors import BubbotError, LeaseLost, StoreError
from bubbot.ports.workers import ChatJob, WorkerOptions
from bubbot.stores.postgres.jobs import PostgresJobs, queue_name
from bubbot.stores.postgres.schema import SCHEMA
from bubbot.stores.postgres.store import PostgresStore
from bubbot.tape.entry import event
from bubbot.tape.store import Batch
from tests.postgres_server import wake_statement, without_savepoint

CHAT = "telegram:42"
OWN = "own/0123456789ab"
LEASE = 1.0


@pytest.fixture
def conn(postgres_address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_address, autocommit=True) as found:
        yield found


@pytest.fixture
def second(postgres_address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_address, autocommit=True) as found:
        yield found


def jobs(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Return chat, queue, status and arguments of all jobs."""
    return conn.execute(
        "SELECT lock, queue_name, status, args FROM bubbot_jobs.procrastinate_jobs ORDER BY id"
    ).fetchall()


def wake(conn: psycopg.Connection[Any], *chats: str, queue: str = "telegram", again: bool = False) -> None:
    conn.execute(f"SELECT {SCHEMA}.wake(%s, %s, %s)", ([*chats], [queue] * len(chats), again))


def worker(conn: psycopg.Connection[Any], home: str = "0123456789ab") -> int:
    """Begin a worker; return its number."""
    conn.execute("SET search_path = bubbot, bubbot_jobs")
    row = conn.execute("SELECT worker_id FROM procrastinate_register_worker_v1()").fetchone()
    assert row is not None
    conn.execute(f"SELECT {SCHEMA}.begin_worker(%s, %s, 'host', 1, '0', 2)", (row[0], home))
    return int(row[0])


def fetch(conn: psycopg.Connection[Any], number: int, *queues: str) -> Any:
    """Let a worker take a job; return its chat."""
    conn.execute("SET search_path = bubbot, bubbot_jobs")
    row = conn.execute(
        "SELECT lock FROM procrastinate_fetch_job_v2(%s, %s)", ([*queues] or ["telegram"], number)
    ).fetchone()
    return row and row[0]


def silence(conn: psycopg.Connection[Any], number: int) -> None:
    """Let a worker have been silent for longer than its lease, on a server that runs for long."""
    conn.execute(
        "UPDATE bubbot_jobs.procrastinate_workers SET last_heartbeat = now() - interval '1 hour' WHERE id = %s",
        (number,),
    )


def take_over(conn: psycopg.Connection[Any]) -> Any:
    """Look for silent workers, with a lease that is over since the start of the server."""
    row = conn.execute(f"SELECT {SCHEMA}.take_over(0.001, %s)", (OWN,)).fetchone()
    return row and row[0]


async def accept(store: PostgresStore, number: int) -> None:
    await store.append(
        [Batch("bubbot/inbox/telegram", (event("inbound", {"n": number}, key=str(number)),), wakes=CHAT)]
    )


async def nothing(*_: ChatJob) -> None: ...


def open_jobs(store: PostgresStore, on_lost: Callable[[], Awaitable[None]] = nothing) -> PostgresJobs:
    """The jobs of a process that runs Telegram and does nothing for its chats."""
    found = store.open_jobs(
        WorkerOptions(nothing, lambda _: None, on_lost, lambda: None, lambda: ["telegram"], ["stdin"], "home", 1, LEASE)
    )
    assert isinstance(found, PostgresJobs)
    return found


async def test_an_entry_and_its_job_are_one_transaction_and_one_job_waits(
    postgres_store: PostgresStore, conn: psycopg.Connection[Any]
) -> None:
    await accept(postgres_store, 1)
    assert jobs(conn) == []  # no process shares the turns
    postgres_store.queue_chats(queue_name)
    await accept(postgres_store, 2)
    await accept(postgres_store, 3)
    assert jobs(conn) == [(CHAT, "telegram", "todo", {"chat": CHAT, "again": False})]
    assert await postgres_store.head("bubbot/inbox/telegram") == 3


async def test_without_the_savepoint_around_a_job_the_second_message_is_refused(
    postgres_store: PostgresStore, conn: psycopg.Connection[Any]
) -> None:
    whole = wake_statement()
    conn.execute(f"SET search_path = {SCHEMA}, bubbot_jobs, pg_temp")
    conn.execute(without_savepoint(whole).encode())
    postgres_store.queue_chats(queue_name)
    await accept(postgres_store, 1)
    with pytest.raises(BubbotError, match="procrastinate_jobs_queueing_lock"):
        await accept(postgres_store, 2)
    assert await postgres_store.head("bubbot/inbox/telegram") == 1
    conn.execute(whole.encode())
    await accept(postgres_store, 2)
    assert await postgres_store.head("bubbot/inbox/telegram") == 2


def test_a_waiting_job_is_not_taken_before_the_work_that_counts_on_it_is_there(
    conn: psycopg.Connection[Any], second: psycopg.Connection[Any]
) -> None:
    number = worker(second)
    wake(conn, CHAT)
    with conn.transaction():
        wake(conn, CHAT)  # a message that is not committed yet
        assert fetch(second, number) is None
    assert fetch(second, number) == CHAT
    wake(conn, CHAT)  # one that comes while the job runs makes another
    assert fetch(second, number) is None  # for the same chat nobody else begins
    assert [status for _, _, status, _ in jobs(conn)] == ["doing", "todo"]


def test_a_silent_worker_loses_its_chats_and_learns_it_at_its_next_sign(
    conn: psycopg.Connection[Any], second: psycopg.Connection[Any]
) -> None:
    silent, healthy = worker(conn, "a"), worker(conn, "b")
    wake(conn, CHAT, "telegram:7")
    assert (fetch(conn, silent), fetch(conn, healthy)) == (CHAT, "telegram:7")
    wake(conn, CHAT)
    silence(conn, silent)
    conn.execute(f"SELECT {SCHEMA}.beat(%s)", (healthy,))
    row = conn.execute(f"SELECT {SCHEMA}.take_over(60, %s)", (OWN,)).fetchone()
    if row == (0,):  # the server has not run for a minute: it has heard nobody yet
        conn.execute("SELECT pg_sleep(0.1)")
        conn.execute(f"SELECT {SCHEMA}.beat(%s)", (healthy,))
        row = conn.execute(f"SELECT {SCHEMA}.take_over(0.09, %s)", (OWN,)).fetchone()
    assert row == (1,)
    assert sorted(jobs(conn)) == [
        (CHAT, "telegram", "todo", {"chat": CHAT, "again": True}),
        ("telegram:7", "telegram", "doing", {"chat": "telegram:7", "again": False}),
    ]
    assert conn.execute(f"SELECT {SCHEMA}.beat(%s), {SCHEMA}.beat(%s)", (silent, healthy)).fetchone() == (
        "gone",
        "alive",
    )
    assert fetch(second, healthy) == CHAT


def test_a_sign_of_life_in_time_keeps_the_chats(conn: psycopg.Connection[Any], second: psycopg.Connection[Any]) -> None:
    number = worker(conn)
    wake(conn, CHAT)
    fetch(conn, number)
    silence(conn, number)
    with conn.transaction():
        conn.execute(f"SELECT {SCHEMA}.beat(%s)", (number,))
        assert take_over(second) == 0  # it does not wait for the one who is just speaking
    assert [status for _, _, status, _ in jobs(conn)] == ["doing"]


def test_who_starts_again_at_a_home_takes_over_at_once_what_was_begun_there(conn: psycopg.Connection[Any]) -> None:
    first = worker(conn)
    wake(conn, CHAT)
    wake(conn, "stdin:default", queue=OWN)
    assert {fetch(conn, first, "telegram", OWN), fetch(conn, first, "telegram", OWN)} == {CHAT, "stdin:default"}
    worker(conn)
    conn.execute(f"SELECT {SCHEMA}.take_over(3600, %s)", (OWN,))
    assert sorted(jobs(conn)) == [
        ("stdin:default", OWN, "todo", {"chat": "stdin:default", "again": True}),
        (CHAT, "telegram", "todo", {"chat": CHAT, "again": True}),
    ]


def test_chats_of_a_home_that_is_gone_go_to_who_looks(conn: psycopg.Connection[Any]) -> None:
    wake(conn, "stdin:default", queue="own/gone")
    conn.execute(f"SELECT {SCHEMA}.take_over(3600, %s)", (OWN,))
    assert jobs(conn) == [("stdin:default", OWN, "todo", {"chat": "stdin:default", "again": True})]


def test_queues_have_names_that_fit_into_a_notification() -> None:
    assert queue_name("telegram:42") == "telegram"
    assert len(queue_name("x" * 80)) == 32


async def test_a_server_that_refuses_is_told_as_the_store_tells_it(
    postgres_store: PostgresStore, conn: psycopg.Connection[Any]
) -> None:
    """Who wakes a chat or looks for idle ones goes on after a `StoreError`, and knows no error of the library."""
    found = open_jobs(postgres_store)
    running = asyncio.create_task(found.run())
    await found.wait_ready()
    conn.execute("ALTER TABLE bubbot_jobs.procrastinate_jobs RENAME TO away")
    with pytest.raises(StoreError):
        await found.wake([CHAT])
    with pytest.raises(StoreError):
        await found.list_idle([CHAT])
    with pytest.raises(StoreError):
        async with found.hold(CHAT):
            pass
    conn.execute("ALTER TABLE bubbot_jobs.away RENAME TO procrastinate_jobs")
    assert await found.list_idle([CHAT]) == [CHAT]
    found.stop()
    await running


async def test_whoever_waits_for_a_sign_of_life_can_be_cancelled_also_in_the_moment_that_it_comes(
    postgres_store: PostgresStore, conn: psycopg.Connection[Any]
) -> None:
    lost, number = asyncio.Event(), "SELECT worker FROM bubbot.workers"

    waiting: list[asyncio.Task[None]] = []

    async def note_lost() -> None:
        for task in waiting:
            task.cancel()
        lost.set()

    found = open_jobs(postgres_store, note_lost)
    running = asyncio.create_task(found.run())
    await found.wait_ready()
    first = conn.execute(number).fetchone()
    with psycopg.connect(conn.info.dsn) as locking:  # so that the sign has to wait
        locking.execute("UPDATE bubbot_jobs.procrastinate_workers SET last_heartbeat = last_heartbeat")
        time.sleep(1.5 * LEASE)  # noqa: ASYNC251 - the whole process is frozen
        waiting += [asyncio.create_task(found.confirm()) for _ in range(8)]
        await asyncio.sleep(0.2)
        waiting[0].cancel()
        assert (await asyncio.wait(waiting[:1], timeout=0.2))[0], "it waits for nothing"
        locking.execute("DELETE FROM bubbot_jobs.procrastinate_workers")
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    with pytest.raises(LeaseLost):
        await found.confirm()
    with pytest.raises(LeaseLost):  # it takes no session back from who has it now
        await postgres_store.raise_epoch("tape")
    async with asyncio.timeout(60):
        await lost.wait()
        while conn.execute(number).fetchone() in (None, first):  # it begins again under another number  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await found.confirm()
        assert await postgres_store.raise_epoch("tape") == 1
        found.stop()
        await running
