"""A generated query means the same to `evaluate`, to SQLite, to PostgreSQL and to the store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import AnchorNotFound
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery, evaluate
from bubbot.tape.store import Batch, ResetBatch
from tests.postgres_server import PostgresServer, copied_database
from tests.property.bench import Answer, Bench, ServerBench, answer, answers, server_bench
from tests.property.bench import bench as open_bench
from tests.property.strategies import exactly, keyed_apart, queries, thorough, unkeyed
from tests.tapes import whole


@pytest.fixture(scope="module")
def sqlite_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path: Path = tmp_path_factory.mktemp("queries") / "bubbot.db"
    with open_bench(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def postgres_bench(postgres_server: PostgresServer) -> Iterator[ServerBench]:
    with copied_database(postgres_server) as address, server_bench(address) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest) -> Bench | ServerBench:
    found: Bench | ServerBench = request.getfixturevalue(f"{request.param}_bench")
    return found


def meant(entries: tuple[TapeEntry, ...], query: TapeQuery) -> Answer:
    try:
        return exactly(evaluate(entries, query))
    except AnchorNotFound as error:
        return type(error)


@pytest.mark.law("T9")
@settings(max_examples=settings().max_examples * 3)
@given(
    written=unkeyed(14).map(keyed_apart),
    erased=st.sets(st.integers(1, 14), max_size=4),
    asked=st.lists(queries(""), min_size=1, max_size=3),
)
def test_every_store_answers_a_query_as_evaluate_does(
    bench: Bench | ServerBench, written: list[TapeEntry], erased: set[int], asked: list[TapeQuery]
) -> None:
    async def check(tape: str, eraser: str) -> None:
        memory = InMemoryStore()
        for store in (bench.store, memory):
            await store.append([Batch(tape, tuple(written))])
            if erased:
                how = ResetBatch(f"{eraser}@old", erase=True, erase_also=((tape, tuple(erased)),))
                await store.reset(eraser, how, [event("tape/erased")])
        entries = await whole(bench.store, tape)
        assert exactly(entries) == exactly(await whole(memory, tape))
        queried = [replace(query, tape=tape) for query in asked]
        for query in queried:
            wanted = meant(entries, query)
            assert await answer(bench.store, query) == wanted
            assert await answer(memory, query) == wanted
        everything = thorough(queried)
        for query, found in zip(everything, await answers(bench, everything), strict=True):
            assert found == meant(entries, query), query

    bench.run(check(bench.fresh(), bench.fresh()))


@pytest.mark.law("T15", "T18")
@given(written=unkeyed(14))
def test_every_entry_comes_back_as_it_was_given(bench: Bench | ServerBench, written: list[TapeEntry]) -> None:
    async def check(tape: str) -> None:
        await bench.store.append([Batch(tape, tuple(written))])
        given_ids = [entry.with_id(place) for place, entry in enumerate(written, 1)]
        assert exactly(await whole(bench.store, tape)) == exactly(given_ids)
        assert (await bench.store.audit(tape)).findings == ()

    bench.run(check(bench.fresh()))
