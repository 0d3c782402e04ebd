"""Requests among processes: who has the session answers, quickly if it is woken, and surely if it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from bubbot.errors import StoreUnavailable
from bubbot.ports.requests import EVERYBODY, AnswerRequest
from bubbot.stores.postgres import requests
from bubbot.stores.postgres.store import PostgresStore, open_store
from bubbot.tape.entry import JsonObject
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import SUPERUSER

WAIT = 60.0


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def serving(store: PostgresStore, *sessions: str, heard: list[Any] | None = None) -> AsyncIterator[list[Any]]:
    """Let a process serve that has these sessions; yield what it was asked."""
    asked = [] if heard is None else heard

    async def answer(session: str, kind: str, data: JsonObject) -> Mapping[str, Any] | None:
        if session not in (*sessions, EVERYBODY):
            return None
        asked.append((session, kind, dict(data)))
        return {"kind": kind, **data}

    async with served(store, answer):
        yield asked


@asynccontextmanager
async def served(store: PostgresStore, answer: AnswerRequest) -> AsyncIterator[None]:
    task = asyncio.create_task(store.requests.serve(answer))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def count_rows(store: PostgresStore) -> int:
    async with store.snapshot() as conn:
        row = await (await conn.execute("SELECT count(*) FROM requests")).fetchone()
    assert row is not None
    return int(row[0])


async def test_the_process_that_has_the_session_answers_and_nobody_else_does(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two, opened(postgres_address) as three:
        async with asyncio.timeout(WAIT), serving(two, "tg:2") as second, serving(three, "tg:3") as third:
            answer = await one.requests.post("tg:3", "stop", {"text": "nul \x00, snow ☃"}, seconds=WAIT)
            assert answer == {"kind": "stop", "text": "nul \x00, snow ☃"}
            assert (second, third) == ([], [("tg:3", "stop", {"text": "nul \x00, snow ☃"})])
            assert await two.requests.post("tg:2", "status", {}, seconds=WAIT) == {"kind": "status"}  # its own
        assert await count_rows(one) == 0


async def test_without_a_process_that_has_the_session_there_is_no_answer_and_nothing_stays(
    postgres_address: str,
) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two, serving(two, "tg:2") as heard:
        async with asyncio.timeout(WAIT):
            assert await one.requests.post("tg:9", "stop", {}, seconds=0.5) is None
        assert heard == []
        assert await count_rows(one) == 0


async def test_a_session_that_comes_to_a_process_later_is_answered_there(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        has_it = asyncio.Event()

        async def answer(_session: str, _kind: str, _data: JsonObject) -> JsonObject | None:
            if not has_it.is_set():
                has_it.set()
                return None
            return {"is": "here"}

        async with asyncio.timeout(WAIT), served(two, answer):
            assert await one.requests.post("tg:2", "stop", {}, seconds=WAIT) == {"is": "here"}


async def test_everybody_carries_out_what_is_for_everybody_once(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two:
        first, second = list[Any](), list[Any]()
        async with asyncio.timeout(WAIT), serving(one, "tg:1", heard=first), serving(two, "tg:2", heard=second):
            assert await one.requests.post(EVERYBODY, "reload", {}) is None
            for number in range(2):  # rounds in which it could be carried out again
                assert await one.requests.post("tg:1", "a", {"n": number}, seconds=WAIT) is not None
                assert await one.requests.post("tg:2", "a", {"n": number}, seconds=WAIT) is not None
        for heard in (first, second):
            assert [each for each in heard if each[0] == EVERYBODY] == [(EVERYBODY, "reload", {})]


async def test_who_listens_again_after_a_cut_answers_what_came_meanwhile(postgres_address: str) -> None:
    async with opened(postgres_address) as one, opened(postgres_address) as two, serving(two, "tg:2"):
        plain = postgres_address.replace("//owner@", f"//{SUPERUSER}@")
        async with asyncio.timeout(WAIT), await psycopg.AsyncConnection.connect(plain, autocommit=True) as conn:
            assert await one.requests.post("tg:2", "a", {}, seconds=WAIT) == {"kind": "a"}
            await conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
            assert await one.requests.post("tg:2", "b", {}, seconds=WAIT) == {"kind": "b"}


async def test_a_poll_finds_what_no_notification_announced(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_NOTIFY", "SELECT 1")
    async with opened(postgres_address) as one, opened(postgres_address) as two, serving(two, "tg:2"):
        async with asyncio.timeout(WAIT):
            assert await one.requests.post("tg:2", "a", {}, seconds=WAIT) == {"kind": "a"}


async def test_a_request_that_fails_is_answered_by_nobody_and_the_next_one_is(
    postgres_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_session: str, kind: str, _data: JsonObject) -> JsonObject | None:
        if kind == "bad":
            raise StoreUnavailable("broken")
        return {}

    async with opened(postgres_address) as one, opened(postgres_address) as two, served(two, answer):
        async with asyncio.timeout(WAIT):
            asking = asyncio.create_task(one.requests.post("tg:2", "bad", {}, seconds=WAIT))
            while "request not carried out: bad: broken" not in caplog.text:  # noqa: ASYNC110 - the log has no event
                await asyncio.sleep(0.01)
            assert await one.requests.post("tg:2", "good", {}, seconds=WAIT) == {}
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
