"""The Bot API server for tests: tokens, parameters, updates, conflicts, webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from telegram import Update
from telegram.error import Conflict, InvalidToken

from tests.fakes.botapi import odd
from tests.fakes.botapi.client import library, raw
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.updates import LONGEST_POLL, TERMINATED, WHILE_WEBHOOK
from tests.fakes.botapi.webhooks import SECRET_HEADER
from tests.fakes.platform.faults import Wedge

UNAUTHORIZED = {"ok": False, "error_code": 401, "description": "Unauthorized"}


async def _ids(server: Server, **params: object) -> list[int]:
    async with raw(server) as client:
        answer = await client.post("getUpdates", json=params)
        return [update["update_id"] for update in answer.json()["result"]]


async def test_a_wrong_token_is_401_and_a_malformed_one_404() -> None:
    async with Server() as server:
        for token, status in ((server.bot.token[:-1] + "y", 401), ("123:short", 404), ("nonsense", 404)):
            async with raw(server, token) as client:
                answer = await client.get("getMe")
                assert answer.status_code == status == answer.json()["error_code"]
        async with raw(server, server.bot.token[:-1] + "y") as client:
            assert (await client.get("getMe")).json() == UNAUTHORIZED
            assert (await client.get(f"{server.base_file_url}{server.bot.token}/photos/file_1.jpg")).status_code == 404


async def test_the_library_takes_both_for_a_refused_token() -> None:
    async with Server() as server:
        server.bot.token = server.bot.token[:-1] + "y"  # the server knows the bot by the old one
        with pytest.raises(InvalidToken):
            async with library(server):
                pytest.fail("it should not have started")


async def test_unknown_methods_paths_and_verbs_are_refused() -> None:
    async with Server() as server, raw(server) as client:
        unknown = await client.post("sendTelepathy")
        assert (unknown.status_code, unknown.json()["description"]) == (404, "Not Found: method not found")
        assert (await client.delete("getMe")).status_code == 405
        assert (await client.get(f"http://127.0.0.1:{server.port}/")).status_code == 404


async def test_every_form_of_request_is_read_and_names_of_methods_have_no_case() -> None:
    async with Server() as server, raw(server) as client:
        chat = server.private(server.user("Ada"))
        given: dict[str, str | int | bool] = {
            "chat_id": chat.id,
            "text": "hi",
            "protect_content": True,
            "of_the_future": "ignored",
        }
        for answer in (
            await client.get("sendMessage", params=given),
            await client.post("SENDMESSAGE", data=given),
            await client.post("sendmessage", json=given),
        ):
            assert answer.json()["result"]["text"] == "hi"
        assert (await client.post("sendMessage", files={"text": (None, "x")})).json()["description"] == (
            "Bad Request: chat_id is empty"
        )
        cut = await client.post("sendMessage", content="{", headers={"Content-Type": "application/json"})
        assert cut.status_code == 400
        plain = await client.post("sendMessage", content="chat_id=1", headers={"Content-Type": "text/plain"})
        assert plain.json()["description"] == "Bad Request: chat_id is empty"


async def test_get_me_tells_of_the_privacy_mode() -> None:
    async with Server(privacy=False) as server, library(server) as bot:
        me = await bot.get_me()
        assert (me.id, me.username, me.is_bot) == (server.bot.user.id, "bubbot_bot", True)
        assert me.can_read_all_group_messages


async def test_updates_come_again_until_a_later_offset_confirms_them() -> None:
    async with Server() as server:
        chat = server.private(server.user("Ada"))
        for text in "abcd":
            chat.say(text)
        first, second, third, fourth = await _ids(server)
        assert await _ids(server, offset=0) == [first, second, third, fourth]
        assert await _ids(server, limit=2) == [first, second]
        assert await _ids(server, offset=second) == [second, third, fourth]
        assert server.bot.queue.confirmed == [first]
        assert await _ids(server, offset=-1) == [fourth]
        assert await _ids(server) == [fourth], "a negative offset forgets what is before it"
        assert await _ids(server, offset=fourth + 1) == []
        assert server.bot.queue.confirmed == [first, second, third, fourth]


async def test_an_offset_far_beyond_the_newest_update_confirms_nothing() -> None:
    async with Server() as server:
        server.private(server.user("Ada")).say("hi")
        (number,) = await _ids(server)
        assert await _ids(server, offset=number + 1_000) == [number]
        assert await _ids(server, offset=number + 5) == []


async def test_numbers_are_cut_to_their_range_and_nonsense_is_the_default() -> None:
    async with Server() as server:
        chat = server.private(server.user("Ada"))
        for place in range(101):
            chat.say(str(place))
        assert len(await _ids(server, limit=1000)) == 100
        assert len(await _ids(server, limit="many")) == 100
        assert len(await _ids(server, limit=-3)) == 1
        assert LONGEST_POLL == 50


async def test_a_long_poll_ends_with_the_first_update() -> None:
    async with Server() as server, library(server) as bot:
        poll = asyncio.create_task(bot.get_updates(timeout=20))
        await server.until(lambda: server.bot.queue.poll)
        server.private(server.user("Ada")).say("hi")
        (update,) = await poll
        assert update.effective_message is not None
        assert update.effective_message.text == "hi"


async def test_updates_are_kept_for_a_day() -> None:
    async with Server() as server:
        server.private(server.user("Ada")).say("hi")
        server.world.clock.advance(86_000)
        assert len(await _ids(server)) == 1
        server.world.clock.advance(401)
        assert await _ids(server) == []
        assert len(server.bot.queue.expired) == 1


async def test_allowed_updates_hold_from_then_on_and_are_remembered() -> None:
    async with Server() as server:
        chat = server.private(server.user("Ada"))
        message = chat.say("one")
        assert len(await _ids(server, offset=-1, allowed_updates=["message_reaction", "edited_message"])) == 1
        chat.say("not asked for")
        chat.react(message, "👍")
        assert [next(iter(set(one) - {"update_id"})) for one in server.bot.queue.pending()] == [
            "message",
            "message_reaction",
        ]
        await _ids(server, allowed_updates="not a list")
        assert server.bot.queue.allowed == {"message_reaction", "edited_message"}
        await _ids(server, allowed_updates=[])
        chat.react(message, None)
        assert len(server.bot.queue.pending()) == 2, "reactions have to be asked for"


async def test_a_second_poll_ends_the_first_with_409() -> None:
    async with Server() as server, library(server) as bot, library(server) as twin:
        first = asyncio.create_task(bot.get_updates(timeout=20))
        await server.until(lambda: server.bot.queue.poll)
        second = asyncio.create_task(twin.get_updates(timeout=20))
        with pytest.raises(Conflict, match=TERMINATED):
            await first
        server.private(server.user("Ada")).say("hi")
        assert len(await second) == 1


async def test_conflicts_in_a_row_are_answered_slowly() -> None:
    async with Server(conflict_pause=0.2) as server, library(server) as bot:
        await bot.set_webhook("https://bot.example/hook")
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(2):
            began = loop.time()
            with pytest.raises(Conflict, match=WHILE_WEBHOOK):
                await bot.get_updates()
            took.append(loop.time() - began)
        assert took[1] >= 0.2
        assert took[0] < took[1]


@asynccontextmanager
async def _hook(statuses: list[int], body: object = None) -> AsyncIterator[tuple[str, list[tuple[str | None, Update]]]]:
    """A bot's webhook: answers with the statuses one after the other, the last for good."""
    got: list[tuple[str | None, Update]] = []

    async def take(request: web.Request) -> web.Response:
        update = Update.de_json(await request.json(), None)
        got.append((request.headers.get(SECRET_HEADER), update))
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", got
    finally:
        await runner.cleanup()


async def test_a_webhook_gets_each_update_until_it_takes_it_with_the_secret() -> None:
    async with Server(webhook_retry=0.02) as server, library(server) as bot, _hook([500, 503, 200]) as (url, got):
        chat = server.private(server.user("Ada"))
        chat.say("before")
        await bot.set_webhook(url, secret_token="s3cret_-")
        await server.until(lambda: len(got) == 3)
        chat.say("after")
        await server.until(lambda: len(got) == 4)
        assert [update.effective_message and update.effective_message.text for _, update in got] == [
            "before", "before", "before", "after",
        ]  # fmt: skip
        assert {secret for secret, _ in got} == {"s3cret_-"}
        info = await bot.get_webhook_info()
        assert (info.url, info.last_error_message) == (url, "Wrong response from the webhook: 503 Service Unavailable")
        await bot.delete_webhook()
        assert (await bot.get_webhook_info()).url == ""
        assert server.bot.queue.pending() == []


async def test_a_webhook_may_answer_with_a_request() -> None:
    async with Server(webhook_retry=0.02) as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        async with _hook([200], {"method": "sendMessage", "chat_id": chat.id, "text": "from the hook"}) as (url, _):
            await bot.set_webhook(url)
            chat.say("hi")
            await server.until(lambda: "from the hook" in chat.texts())


async def test_setting_a_webhook_ends_the_poll_and_bad_ones_are_refused() -> None:
    async with Server() as server, library(server) as bot, raw(server) as client:
        poll = asyncio.create_task(bot.get_updates(timeout=20))
        await server.until(lambda: server.bot.queue.poll)
        for wrong in ("http://bot.example/hook", "https://bot.example:5000/x", "ftp://x", "nonsense"):
            assert (await client.post("setWebhook", json={"url": wrong})).status_code == 400
        spoilt = await client.post("setWebhook", json={"url": "https://bot.example/x", "secret_token": "with space"})
        assert "unallowed characters" in spoilt.json()["description"]
        server.private(server.user("Ada"))
        await bot.set_webhook("https://bot.example/hook", drop_pending_updates=True)
        with pytest.raises(Conflict, match="terminated by setWebhook request"):
            await poll


async def test_updates_that_the_library_cannot_parse_and_kinds_it_does_not_know() -> None:
    async with Server() as server, library(server) as bot:
        for payload, error in ((odd.poll_of_an_older_server(), TypeError), (odd.date_far_away(), ValueError)):
            number = server.odd(payload)
            with pytest.raises(error):
                await bot.get_updates()
            assert await _ids(server) == [number], "it comes again until it is confirmed"
            await bot.get_updates(offset=number + 1)
        number = server.odd(odd.new_kind())
        (update,) = await bot.get_updates()
        assert (update.update_id, update.effective_message) == (number, None)


async def test_a_server_with_waiting_clients_ends_at_once() -> None:
    async with asyncio.timeout(3):
        async with Server() as server, raw(server) as client:
            server.fail("getMe", Wedge())
            waiting = [client.get("getUpdates?timeout=50"), client.get("getMe")]
            tasks = [asyncio.create_task(one) for one in waiting]
            await server.until(lambda: len(server.log) == 2)
        await asyncio.gather(*tasks, return_exceptions=True)
