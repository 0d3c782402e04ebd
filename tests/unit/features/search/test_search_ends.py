"""A search ends: when its time is up, and when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Never

import pytest

from bubbot.errors import StoreUnavailable
from bubbot.features.search.view import SearchView
from bubbot.stores.sqlite import text as sqlite_text
from bubbot.stores.sqlite.index.reader import IndexUnreadable
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock


@pytest.fixture
def chat(sqlite_store: SqliteStore) -> TapeService:
    return TapeService(sqlite_store, "chat", now=SteppingClock(), new_id=CountingIds())


async def found(chat: TapeService, text: str) -> list[int]:
    return [hit.id for hit in (await chat.read(SearchView(text))).hits]


async def test_a_search_that_takes_too_long_is_ended_with_a_sentence(
    chat: TapeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", f"word{number}") for number in range(3000)])
    monkeypatch.setattr(sqlite_text, "_OPERATIONS", 100)
    monkeypatch.setattr(sqlite_text.SearchDeadline, "started", lambda _: lambda: True)
    with pytest.raises(StoreUnavailable, match="longer than 20 seconds"):
        await chat.read(SearchView("nowhere"))
    monkeypatch.undo()
    assert await found(chat, "word2999") == [3000]


def index_found_damaged(*_: object) -> Never:
    raise IndexUnreadable("malformed")


async def test_a_scan_in_place_of_a_damaged_index_is_ended_with_the_same_sentence(
    chat: TapeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", f"word{number}") for number in range(3000)])
    monkeypatch.setattr(sqlite_text, "_find", index_found_damaged)
    monkeypatch.setattr(sqlite_text, "_OPERATIONS", 100)
    monkeypatch.setattr(sqlite_text.SearchDeadline, "started", lambda _: lambda: True)
    with pytest.raises(StoreUnavailable, match="longer than 20 seconds"):
        await chat.read(SearchView("nowhere"))


async def test_a_scan_in_place_of_a_damaged_index_answers_all_queries_from_one_state(
    chat: TapeService, sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", "word")])
    loop = asyncio.get_running_loop()

    def scan_and_write(conn: sqlite3.Connection, query: TapeQuery) -> tuple[TapeEntry, ...]:
        found_entries = find_entries(conn, query)
        asyncio.run_coroutine_threadsafe(chat.append([message("user", "another word")]), loop).result(10)
        return found_entries

    monkeypatch.setattr(sqlite_text, "_find", index_found_damaged)
    monkeypatch.setattr(sqlite_text, "find_entries", scan_and_write)
    first, second = await sqlite_store.fetch([TapeQuery("chat", text="word")] * 2)
    assert len(first) == len(second) == 1


async def test_a_search_whose_caller_is_gone_is_ended(
    chat: TapeService, sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.append([message("user", f"word{number}") for number in range(3000)])
    made: list[sqlite_text.SearchDeadline] = []
    begun, loop, started = asyncio.Event(), asyncio.get_running_loop(), sqlite_text.SearchDeadline.started

    def beginning(stop: sqlite_text.SearchDeadline) -> Callable[[], bool]:
        made.append(stop)
        loop.call_soon_threadsafe(begun.set)
        return started(stop)

    monkeypatch.setattr(sqlite_text.SearchDeadline, "started", beginning)
    task = asyncio.create_task(sqlite_store.fetch([TapeQuery("chat", text="nowhere")] * 500))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made[0].cancel_requested.is_set()
    assert await asyncio.wait_for(found(chat, "word2999"), 10) == [3000]
