"""Running coroutines inside of generated examples: one event loop and one database for all examples of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from bubbot.errors import BubbotError
from bubbot.stores.postgres.reading import find_entries as find_on_server
from bubbot.stores.postgres.store import PostgresStore
from bubbot.stores.postgres.store import open_store as open_on_server
from bubbot.stores.sqlite.connections import connected, open_reader
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from tests.doubles import CountingSalt, SteppingClock
from tests.property.strategies import exactly

T = TypeVar("T")

Answer: TypeAlias = "list[tuple[object, ...]] | type[BubbotError]"


class Fetches(Protocol):
    """A store, a tape or a fork."""

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]: ...


class Bench:
    """A loop, a database, and names that no example has used before."""

    def __init__(self, runner: asyncio.Runner, store: SqliteStore, path: Path) -> None:
        self._runner = runner
        self._numbers = count(1)
        self.store = store
        self.path = path

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(job)

    def fresh(self) -> str:
        return f"t{next(self._numbers)}"


class ServerBench:
    """The same with a database on a server."""

    def __init__(self, runner: asyncio.Runner, store: PostgresStore) -> None:
        self._runner = runner
        self._numbers = count(1)
        self.store = store

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(job)

    def fresh(self) -> str:
        return f"t{next(self._numbers)}"


@contextmanager
def server_bench(address: str) -> Iterator[ServerBench]:
    with asyncio.Runner() as runner:
        store = runner.run(open_on_server(address, salt=CountingSalt(), now=SteppingClock()))
        try:
            yield ServerBench(runner, store)
        finally:
            runner.run(store.aclose())


@contextmanager
def bench(path: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        store = runner.run(open_store(path, salt=CountingSalt(), now=SteppingClock()))
        try:
            yield Bench(runner, store, path)
        finally:
            runner.run(store.aclose())


async def answer(source: Fetches, query: TapeQuery) -> Answer:
    """What the query finds there, or the class of the error."""
    try:
        return exactly((await source.fetch([query]))[0])
    except BubbotError as error:
        return type(error)


async def answers(bench: Bench | ServerBench, asked: Sequence[TapeQuery]) -> list[Answer]:
    """The same for many queries, without those who look at texts going another way."""

    async def attempt(find: Awaitable[tuple[TapeEntry, ...]]) -> Answer:
        try:
            return exactly(await find)
        except BubbotError as error:
            return type(error)

    if isinstance(bench, ServerBench):
        async with bench.store.snapshot() as server:
            return [await attempt(find_on_server(server, query)) for query in asked]
    async with connected(partial(open_reader, bench.path)) as conn:
        return [await attempt(find_entries(conn, query)) for query in asked]
