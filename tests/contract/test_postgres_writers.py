"""Several writers of one database on a server: their order, their fence, and what a lost server costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from bubbot.errors import LeaseLost, StoreUnavailable
from bubbot.ports.store import PositionedEntry
from bubbot.stores.postgres import store as stores
from bubbot.stores.postgres.store import PostgresStore, open_readonly, open_store
from bubbot.stores.postgres.transaction import PostgresTransaction
from bubbot.stores.transaction import Needs
from bubbot.tape.store import Batch, ForkRecord, Lease
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import (
    OWNER,
    SUPERUSER,
    TEMPLATE,
    OwnServer,
    make_template,
    own_server,
)
from tests.tapes import batch, note, notes, texts, whole

pytestmark = pytest.mark.law("T2", "T3")


@asynccontextmanager
async def opened(address: str, room_retry: float | None = None) -> AsyncIterator[PostgresStore]:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock(), room_retry=room_retry)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def superuser(address: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    plain = address.replace("//owner@", f"//{SUPERUSER}@")
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as conn:
        yield conn


async def cut_writers(conn: psycopg.AsyncConnection[Any]) -> None:
    """End every connection to the database but this one."""
    await conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def read_all(store: PostgresStore, entries: int) -> list[PositionedEntry]:
    """Read as many entries by their positions. Transactions of other tests on the server may hold back what others committed."""
    async with asyncio.timeout(30):
        while len(found := await store.read_after(0, 10_000)) < entries:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return found


async def sound(store: PostgresStore) -> None:
    assert [found for found in (await store.audit()).findings if found.problem != "erased"] == []


async def test_writers_of_the_same_tapes_in_any_order_wait_in_no_circle(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two, opened(postgres_address) as three:
        tapes = [f"t{number}" for number in range(6)]

        async def write(store: PostgresStore, start: int) -> None:
            for turn in range(12):
                order = [tapes[(start * turn + place * (start + 1)) % len(tapes)] for place in range(4)]
                await store.append([notes(f"{start}.{turn}", tape=tape) for tape in dict.fromkeys(order)])

        await asyncio.gather(*(write(store, start) for store in (one, two, three) for start in (1, 2, 4)))
        await sound(one)
        seen: dict[str, int] = {}
        position = 0
        for found in await read_all(two, await three.count_entries()):
            assert found.position > position
            assert found.entry.id == seen.get(found.tape, 0) + 1, "positions rise with the ids of each tape"
            position, seen[found.tape] = found.position, found.entry.id
        assert sum(seen.values()) == await three.count_entries()


async def test_a_reader_of_positions_misses_nothing_that_is_committed_later(postgres_address: str) -> None:
    """A transaction with a lower number that ends later: nothing above it is read before."""
    async with (
        opened(postgres_address) as store,
        superuser(postgres_address) as slow,
        opened(postgres_address) as reader,
    ):
        await slow.execute("BEGIN")
        await slow.execute("SELECT pg_current_xact_id()")
        await store.append([notes("quick")])
        assert await reader.read_after(0, 10) == []
        assert await reader.newest_position() == 0
        await slow.execute("COMMIT")
        assert [found.entry.id for found in await read_all(reader, 1)] == [1]


@pytest.mark.law("T4")
async def test_a_conflict_between_processes_is_one(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        ends = await asyncio.gather(
            *(store.append([batch(note(name), expect_head=0)]) for store, name in ((one, "a"), (two, "b"))),
            *(store.append([batch(note(name, key="k"), tape="keys")]) for store, name in ((one, "a"), (two, "b"))),
            *(store.append([notes(name, tape=name)]) for store, name in ((one, "x"), (two, "y"))),
            return_exceptions=True,
        )
        assert sorted(type(end).__name__ for end in ends[:2]) == ["TapeConflict", "list"]
        assert sorted(type(end).__name__ for end in ends[2:4]) == ["TapeConflict", "list"]
        assert [type(end) for end in ends[4:]] == [list, list]
        assert (await one.head("tape"), await two.head("keys")) == (1, 1)


async def test_a_holder_that_lost_its_lease_writes_nothing(postgres_address: str) -> None:
    async with opened(postgres_address) as frozen, opened(postgres_address) as taker:
        old = Lease("tape", await frozen.raise_epoch("tape"))
        await frozen.append([Batch("tape", (note("before"),), lease=old)])
        await frozen.open_fork(ForkRecord("f", "tape", 1, ()))
        new = Lease("tape", await taker.raise_epoch("tape"))
        assert (old.epoch, new.epoch) == (1, 2)
        for job in (
            frozen.append([Batch("tape", (note("late"),), lease=old)]),
            frozen.append([notes("x", tape="free"), Batch("other", (note("late"),), lease=old)]),
            frozen.extend_fork("f", [Batch("tape", (note("late"),), lease=old)]),
            frozen.merge_fork("f", [Batch("tape", (note("late"),), lease=old)]),
        ):
            with pytest.raises(LeaseLost):
                await job
        await taker.append([Batch("tape", (note("after"),), lease=new)])
        assert (await texts(taker), await taker.head("other"), await taker.head("free")) == (["before", "after"], 0, 0)
        assert [fork.id for fork in await taker.forks()] == ["f"]


async def test_epochs_of_many_who_take_up_at_once_are_all_different(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        epochs = await asyncio.gather(*(store.raise_epoch("tape") for store in (one, two) for _ in range(10)))
        assert sorted(epochs) == list(range(1, 21))


async def test_many_processes_that_make_the_schema_at_once_make_it_once(postgres_address: str) -> None:
    async with superuser(postgres_address) as conn:
        await conn.execute("DROP SCHEMA bubbot CASCADE")
    stores = await asyncio.gather(
        *(open_store(postgres_address, salt=CountingSalt(), now=SteppingClock()) for _ in range(4))
    )
    try:
        await asyncio.gather(*(store.append([notes("x")]) for store in stores))
        assert await stores[0].head("tape") == 4
    finally:
        await asyncio.gather(*(store.aclose() for store in stores))


async def test_a_lost_connection_costs_no_acknowledged_entry_and_doubles_none(postgres_address: str) -> None:
    async with opened(postgres_address, room_retry=0.05) as store, superuser(postgres_address) as conn:
        acknowledged: list[str] = []

        async def write(name: str) -> None:
            for turn in range(15):
                text = f"{name}{turn}"
                await store.append([batch(note(text), tape=name), notes(text, tape="shared")])
                acknowledged.append(text)

        async def cut() -> None:
            for _ in range(12):
                await asyncio.sleep(0.03)
                await cut_writers(conn)

        await asyncio.gather(*(write(name) for name in "abcd"), cut())
        shared = await texts(store, "shared")
        assert sorted(shared) == sorted(acknowledged), "each once"
        for name in "abcd":
            assert await texts(store, name) == [f"{name}{turn}" for turn in range(15)]
        await sound(store)


async def test_without_waiting_a_lost_server_is_an_error_and_later_writes_go_on(postgres_address: str) -> None:
    async with opened(postgres_address) as store, superuser(postgres_address) as conn:
        await store.append([notes("a")])
        await cut_writers(conn)
        with pytest.raises(StoreUnavailable, match="the PostgreSQL server went away"):
            await store.append([notes("b")])
        await store.append([notes("c")])
        assert await texts(store) == ["a", "c"]


async def test_a_commit_without_an_answer_is_asked_for(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server committed, and the connection was gone before it could say so."""
    from bubbot.stores.postgres import transaction as module

    async with opened(postgres_address) as store:
        await store.append([notes("a")])
        commit = module.PostgresTransaction.commit

        async def lose_the_answer(self: module.PostgresTransaction) -> None:
            await commit(self)
            await self._conn.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        async def lose_the_question(self: module.PostgresTransaction) -> None:
            self.is_committing = True
            await self._conn.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(module.PostgresTransaction, "commit", lose_the_answer)
        assert (await store.append([notes("b")]))[0][0].id == 2
        monkeypatch.setattr(module.PostgresTransaction, "commit", lose_the_question)
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            await store.append([notes("lost")])
        monkeypatch.undo()
        await store.append([notes("c")])
        assert await texts(store) == ["a", "b", "c"]
        assert [entry.id for entry in await whole(store)] == [1, 2, 3]


async def test_a_reader_writes_nothing(postgres_address: str) -> None:
    async with opened(postgres_address) as writer:
        await writer.append([notes("a")])
        reader = await open_readonly(postgres_address)
        try:
            assert await texts(reader) == ["a"]
            with pytest.raises(StoreUnavailable, match="reading only"):
                await reader.append([notes("b")])
            async with reader.snapshot() as conn:
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    await conn.execute("DELETE FROM forks")
        finally:
            await reader.aclose()


async def test_a_restored_database_goes_on_above_its_positions(postgres_address: str) -> None:
    """A dump comes to a server whose transactions have lower numbers."""
    async with opened(postgres_address) as store:
        await store.append([notes("a")])
        before = await store.newest_position()
    async with superuser(postgres_address) as conn:
        await conn.execute("SET search_path = bubbot")
        await conn.execute("ALTER TABLE entries DISABLE TRIGGER USER")
        await conn.execute("ALTER TABLE tapes DISABLE TRIGGER USER")
        await conn.execute("UPDATE entries SET seq = seq + (1000000::bigint << 22)")
        await conn.execute("UPDATE tapes SET position = position + (1000000::bigint << 22)")
        for trigger in ("entries_insert", "entries_update", "entries_delete", "entries_truncate"):
            await conn.execute(f"ALTER TABLE entries ENABLE ALWAYS TRIGGER {trigger}")
        for trigger in ("tapes_insert", "tapes_update", "tapes_delete", "tapes_truncate"):
            await conn.execute(f"ALTER TABLE tapes ENABLE ALWAYS TRIGGER {trigger}")
    async with opened(postgres_address) as store:
        (found,) = await read_all(store, 1)
        restored = found.position
        assert restored > before
        await store.append([notes("b")])
        assert await store.newest_position() > restored
        assert [found.entry.id for found in await read_all(store, 2)] == [1, 2]
        await sound(store)


async def test_blobs_of_several_pieces_come_back_whole(postgres_address: str) -> None:
    data = bytes(range(256)) * 10_000
    async with opened(postgres_address) as store, superuser(postgres_address) as conn:
        digest = await store.put_blob("tape", data)
        assert await store.put_blob("tape", data) == digest
        assert await store.get_blob("tape", digest) == data
        cursor = await conn.execute("SELECT count(*), max(length(data)) FROM bubbot.blob_pieces")
        assert await cursor.fetchone() == (3, 1 << 20)
        await sound(store)


async def test_a_group_takes_two_ways_to_the_server_whatever_its_size(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bubbot.stores.postgres.transaction import PostgresTransaction

    ways = 0
    send = PostgresTransaction._send

    async def counted(self: PostgresTransaction, statements: Any) -> Any:
        nonlocal ways
        ways += 1
        return await send(self, statements)

    async with opened(postgres_address) as store:
        monkeypatch.setattr(PostgresTransaction, "_send", counted)
        forks = [ForkRecord(f"f{number}", f"t{number}", 0, (notes("x", tape=f"t{number}"),)) for number in range(40)]
        await asyncio.gather(*map(store.open_fork, forks))
        assert ways == 2
        merges = [
            store.merge_fork(fork.id, [batch(note("x", key="k"), tape=fork.tape), notes("y", tape="out")])
            for fork in forks
        ]
        await asyncio.gather(*merges, store.put_blob("t1", b"blob"), store.raise_epoch("t2"))
        assert (ways, await store.head("out")) == (4, 40)


@pytest.fixture
def lone_server() -> Iterator[OwnServer]:
    """A server for one test alone, which may crash it."""
    with own_server() as server:
        make_template(server)
        yield server


async def test_a_server_that_crashes_and_comes_back_loses_and_doubles_nothing(lone_server: OwnServer) -> None:
    address = lone_server.address(TEMPLATE, OWNER)
    async with opened(address, room_retry=0.05) as store:
        acknowledged: list[str] = []
        is_over = asyncio.Event()

        async def write(name: str) -> None:
            turn = 0
            while not is_over.is_set():
                await store.append([batch(note(f"{name}{turn}"), tape=name), notes(f"{name}{turn}", tape="shared")])
                acknowledged.append(f"{name}{turn}")
                turn += 1

        async def more(seen: int) -> None:
            while len(acknowledged) < seen + 20:  # noqa: ASYNC110 - the writers do not know who waits
                await asyncio.sleep(0.01)

        async def crash() -> None:
            for _ in range(3):
                seen = len(acknowledged)
                await more(seen)
                await asyncio.to_thread(lone_server.restart)
            seen = len(acknowledged)
            await more(seen)
            is_over.set()

        await asyncio.gather(*(write(name) for name in "abcd"), crash())
        assert sorted(await texts(store, "shared")) == sorted(acknowledged)
        for name in "abcd":
            mine = [text for text in acknowledged if text.startswith(name)]
            assert await texts(store, name) == mine, "in order, each once"
        await sound(store)


async def test_a_commit_that_arrives_after_it_was_asked_about_is_rolled_back(postgres_address: str) -> None:
    async with opened(postgres_address) as store, superuser(postgres_address) as late:
        await store.append([notes("a")])
        assert store._writer is not None
        name = store._writer._name
        newest = store._writer._group
        assert await store._writer._was_committed(newest)
        assert not await store._writer._was_committed(newest + 1), "under the new name nothing was committed yet"
        await late.execute("SET search_path = bubbot")
        with pytest.raises(psycopg.errors.SerializationFailure, match="is over"):
            await late.execute("SELECT count_group(%s, %s)", (name, newest + 1))
        await store.append([notes("b")])
        assert await texts(store) == ["a", "b"]


async def test_what_a_silent_writer_began_is_rolled_back_and_others_go_on(postgres_address: str) -> None:
    async with opened(postgres_address) as frozen, opened(postgres_address) as other:
        for number in range(4):  # psycopg ends a pipeline in one of two ways
            conn = await frozen._connect_writer()
            try:
                timeout = await (await conn.execute("SHOW idle_in_transaction_session_timeout")).fetchone()
                assert timeout == ("6s",)
                await conn.execute("SET idle_in_transaction_session_timeout = '500ms'")
                await PostgresTransaction(conn, CountingSalt(), f"frozen {number}", 1).begin(Needs(names=["tape"]))
                async with asyncio.timeout(5):
                    await other.append([notes("after it")])
                with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                    await conn.execute("SELECT 1")
            finally:
                await conn.close()
        assert len(await texts(other)) == 4


async def test_a_long_transaction_of_another_program_is_waited_for_once(
    lone_server: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server of its own: transactions of other tests would be other ones to wait for."""
    address = lone_server.address(TEMPLATE, OWNER)
    monkeypatch.setattr(stores, "OWN_COMMIT_SECONDS", 0.2)
    async with opened(address) as store:
        before = await store.newest_position()
        with psycopg.connect(address) as conn:
            conn.execute("SELECT pg_current_xact_id()")
            await store.append([notes("one")])
            assert await store.newest_position() == before
            monkeypatch.setattr(stores, "OWN_COMMIT_SECONDS", 10_000.0)
            async with asyncio.timeout(30):
                assert await store.read_after(0, 10) == []
        assert await store.newest_position() > before
        assert [found.entry.payload["content"] for found in await store.read_after(0, 10)] == ["one"]
