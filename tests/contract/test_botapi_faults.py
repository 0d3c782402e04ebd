"""The Bot API server for tests: scripted faults, the log, and waiting."""

from __future__ import annotations

import asyncio

import pytest
from telegram.error import NetworkError, TimedOut

from tests.fakes.botapi.client import library, raw
from tests.fakes.botapi.errors import Refuse
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Html, Slow, Wedge


@pytest.mark.parametrize(
    ("fault", "there"),
    [
        (Html(502), 0),
        (Html(500, effect="after"), 1),
        (Drop("before"), 0),
        (Drop("after"), 1),
        (Cut(), 1),
        (Refuse(500, "Internal Server Error: restart"), 0),
    ],
)
async def test_a_failed_send_may_or_may_not_have_happened(fault: Html | Drop | Cut | Refuse, there: int) -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        server.fail("sendMessage", fault)
        with pytest.raises(NetworkError):
            await bot.send_message(chat.id, "hi")
        assert len(chat.texts()) == there
        await bot.send_message(chat.id, "again")
        assert chat.texts()[there:] == ["again"]
        assert [call.fault for call in server.calls("sendMessage")] == [fault, None]


@pytest.mark.parametrize(("fault", "there"), [(Wedge("before"), 0), (Wedge("after"), 1), (Slow(30), 1)])
async def test_an_answer_that_does_not_come_is_the_clients_time_limit(fault: Wedge | Slow, there: int) -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        server.fail("sendMessage", fault)
        with pytest.raises(TimedOut):
            await bot.send_message(chat.id, "hi", read_timeout=0.2)
        await server.until(lambda: len(server.calls("sendMessage")) == 1 and len(chat.texts()) == there)
        assert server.calls("sendMessage")[0].status == 0


async def test_a_slow_answer_comes_in_the_end() -> None:
    async with Server() as server, library(server) as bot:
        server.fail("getMe", Slow(0.2))
        began = asyncio.get_running_loop().time()
        await bot.get_me()
        assert asyncio.get_running_loop().time() - began >= 0.2


async def test_faults_by_occurrence_method_and_number() -> None:
    async with Server() as server, raw(server) as client:
        server.fail("getMe", Refuse(429, "Too Many Requests: retry after 7", 7), times=2, skip=1)
        answers = [(await client.get("getMe")).status_code for _ in range(4)]
        assert answers == [200, 429, 429, 200]
        server.fail("*", Html())
        broken = await client.get("getMyCommands")
        assert (broken.status_code, broken.headers["content-type"].partition(";")[0]) == (502, "text/html")
        assert "<html>" in broken.text


async def test_a_poll_that_fails_confirms_nothing_before_and_everything_after() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        chat.say("one")
        (update,) = await bot.get_updates()
        server.fail("getUpdates", Drop("before"))
        with pytest.raises(NetworkError):
            await bot.get_updates(offset=update.update_id + 1)
        assert server.bot.queue.confirmed == []
        server.fail("getUpdates", Cut())
        with pytest.raises(NetworkError):
            await bot.get_updates(offset=update.update_id + 1)
        assert server.bot.queue.confirmed == [update.update_id]


async def test_downloads_fail_as_scripted() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        file = await bot.get_file(chat.document(b"x" * 10_000, "a.txt")["document"]["file_id"])
        for fault in (Cut(), Drop(), Html()):
            server.fail("file", fault)
            with pytest.raises(NetworkError):
                await file.download_as_bytearray()
        assert len(await file.download_as_bytearray()) == 10_000


async def test_the_log_has_every_request_in_order() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        await bot.get_me()
        await bot.send_document(chat.id, b"12345", caption="c")
        first, second = server.log
        assert (first.method, first.status, second.method, second.bot) == ("getMe", 200, "sendDocument", "bubbot_bot")
        assert second.params["caption"] == "c"
        assert list(second.files.values()) == [5]
        assert first.time <= second.time


async def test_waiting_ends_with_a_sentence() -> None:
    async with Server() as server:
        server.private(server.user("Ada")).say("are you there?")
        with pytest.raises(AssertionError, match=r"not within 0.1 s\n== Ada \(private\)"):
            await server.until(lambda: False, 0.1)


async def test_a_client_that_goes_away_in_mid_poll_loses_nothing() -> None:
    async with Server() as server, library(server) as bot:
        async with raw(server) as client:
            poll = asyncio.create_task(client.get("getUpdates?timeout=50"))
            await server.until(lambda: server.bot.queue.poll)
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        server.private(server.user("Ada")).say("hi")
        assert len(await bot.get_updates(timeout=5)) == 1


async def test_two_bots_have_their_own_chats_and_updates() -> None:
    async with Server() as server:
        second = server.add_bot("second_bot", "Second")
        ada = server.user("Ada")
        server.private(ada).say("to the first")
        server.private(ada, bot=second).say("to the second")
        async with library(server) as one, library(server, bot=second) as two:
            for bot, text in ((one, "to the first"), (two, "to the second")):
                (update,) = await bot.get_updates()
                assert update.effective_message is not None
                assert update.effective_message.text == text
                await bot.send_message(ada.id, f"answer {text}")
        assert server.private(ada, bot=second).texts() == ["to the second", "answer to the second"]
