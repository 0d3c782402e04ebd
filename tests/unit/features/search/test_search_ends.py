"""A search ends: when its time is up, and when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Never

import aiosqlite
import pytest

from bubbot.errors import StoreUnavailable
from bubbot.features.search.view import SearchView
from bubbot.stores.sqlite.index.reader import IndexPlace, IndexUnreadable, SqliteIndex
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.query import Matcher, TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import notes


@pytest.fixture
def chat(sqlite_store: SqliteStore) -> TapeService:
    return TapeService(sqlite_store, "chat", now=SteppingClock(), new_id=CountingIds())


async def found(chat: TapeService, text: str) -> list[int]:
    return [hit.id for hit in (await chat.read(SearchView(text))).hits]


async def test_a_search_that_takes_too_long_is_ended_with_a_sentence(
    chat: TapeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", f"word{number}") for number in range(3000)])
    monkeypatch.setattr("bubbot.stores.sqlite.text.SEARCH_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(StoreUnavailable, match="longer than 0 seconds"):
        await chat.read(SearchView("nowhere"))
    monkeypatch.undo()
    assert await found(chat, "word2999") == [3000]


async def test_a_scan_in_place_of_a_damaged_index_answers_all_queries_from_one_state(
    chat: TapeService, sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", "word")])
    indexer = sqlite_store.build_indexer()
    await indexer.fill()
    await indexer.aclose()

    async def scan_and_write(conn: aiosqlite.Connection, query: TapeQuery) -> tuple[TapeEntry, ...]:
        found_entries = await find_entries(conn, query)
        await chat.append([message("user", "another word")])
        return found_entries

    damages: list[str] = []

    def find_damage(_self: SqliteIndex, _place: IndexPlace, part: str) -> Never:
        damages.append(part)
        raise IndexUnreadable("malformed")

    monkeypatch.setattr(SqliteIndex, "find_part", find_damage)
    monkeypatch.setattr("bubbot.stores.sqlite.text.find_entries", scan_and_write)
    first, second = await sqlite_store.fetch([TapeQuery("chat", searchable_text="word", newest=True)] * 2)
    assert len(first) == len(second) == 1
    assert damages == ["word"]


ENDLESS = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_the_statement_of_a_search_that_nobody_waits_for_is_interrupted(
    chat: TapeService, sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    """It would run for ever, and keep all others from searching."""
    await chat.append([message("user", "word")])
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell() -> int:
        loop.call_soon_threadsafe(begun.set)
        return 0

    async def search_without_end(conn: aiosqlite.Connection, *_: object) -> Never:
        await conn.set_progress_handler(tell, 1000)
        await conn.execute_fetchall(ENDLESS)
        raise AssertionError("it ended")

    with monkeypatch.context() as inside:
        inside.setattr("bubbot.stores.sqlite.text.find_entries", search_without_end)
        if not is_cancelled:
            inside.setattr("bubbot.stores.sqlite.text.SEARCH_TIMEOUT_SECONDS", 0.2)
        task = asyncio.create_task(sqlite_store.fetch([TapeQuery("chat", text="word")]))
        await begun.wait()
        if is_cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else StoreUnavailable):
            await task
    assert await asyncio.wait_for(found(chat, "word"), 10) == [1]


@pytest.mark.parametrize("rounds", range(2, 14, 2))
async def test_a_search_that_is_cancelled_at_any_time_leaves_later_ones_alone(
    sqlite_store: SqliteStore, rounds: int
) -> None:
    """A statement that stays open keeps the connection interrupted."""
    await sqlite_store.append([notes(*(f"needle {number}" for number in range(200)), tape="long")])
    query = TapeQuery("long", text="needle")
    task = asyncio.create_task(sqlite_store.fetch([query]))
    for _ in range(rounds):
        time.sleep(0.003)  # noqa: ASYNC251 - the loop is busy, and the thread of the connection goes on
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    assert [len(entries) for entries in await sqlite_store.fetch([query])] == [200]


async def test_a_scan_that_has_found_something_ends_at_once_if_nobody_waits_for_it(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 2_000
    await sqlite_store.append([notes("nädel", *["ä" * 50] * total, tape="long")])
    looked_at, is_on, loop = 0, asyncio.Event(), asyncio.get_running_loop()
    build = Matcher.build_precheck

    def build_counting(matcher: Matcher) -> Callable[[bytes | None, bytes | None], bool]:
        may_match = build(matcher)

        def count(payload: bytes | None, meta: bytes | None) -> bool:
            nonlocal looked_at
            looked_at += 1
            if looked_at == 200:
                loop.call_soon_threadsafe(is_on.set)
            time.sleep(0.0005)  # so that the loop comes to cancel it long before the end
            return may_match(payload, meta)

        return count

    monkeypatch.setattr(Matcher, "build_precheck", build_counting)
    task = asyncio.create_task(sqlite_store.fetch([TapeQuery("long", text="näd")]))
    await is_on.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert looked_at < total
