"""The Telegram channel's polling over real HTTP, with a server that fails as a test asks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import (
    ChannelEvent,
    Inbound,
    MessagePart,
    UnparsedUpdate,
)
from channels.telegram.api import UPDATE_KINDS, TelegramApi
from channels.telegram.channel import TelegramChannel, create
from channels.telegram.errors import TelegramUnavailable
from channels.telegram.settings import TelegramSettings
from tests.fakes.connections import accepting
from tests.fakes.telegram_channel import (
    CONFLICT,
    FAST,
    FULL,
    HOOKED,
    SHORT,
    Heard,
    actions,
    opened,
    options,
    running,
    update,
)
from tests.fakes.telegram_server import DROP, HANG, ME, TOKEN, No, Page, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found


async def test_only_the_webhook_channel_supports_a_webhook(server: ScriptedServer) -> None:
    async with opened(server) as channel:
        assert all(hasattr(channel, power) for power in ("aclose", "typing", "edit", "fetch"))
        assert not hasattr(channel, "path")
        assert channel.edit_interval == 1.5
    async with opened(server, **FULL) as channel:
        assert getattr(channel, "path") == "/tg"  # noqa: B009 - only a channel with a webhook has it
    other = create(options(server))
    assert type(other) is TelegramChannel
    await other.aclose()


class TestPolling:
    async def test_an_update_is_acknowledged_when_it_was_received(self, server: ScriptedServer) -> None:
        server.updates = [update(10, "one"), update(11, "two")]
        heard, stored = Heard(server), asyncio.Event()

        async def receive(event: ChannelEvent) -> None:
            await heard(event)
            if len(heard.events) == 2:
                await stored.wait()

        async with opened(server) as channel, running(channel, receive):
            await server.until(lambda: len(heard.events) == 2)
            await asyncio.sleep(0.1)
            assert server.sent("getUpdates") == [{"timeout": 0, "allowed_updates": json.dumps(UPDATE_KINDS)}]
            stored.set()
            await server.until(lambda: len(server.sent("getUpdates")) >= 3)
        assert heard.texts() == ["one", "two"]
        # Past the batch once; after an empty answer without an offset, wherever the numbers go on.
        assert [one.get("offset") for one in server.sent("getUpdates")[1:3]] == [12, None]

    async def test_numbers_that_start_again_are_heard(self, server: ScriptedServer) -> None:
        server.updates = [update(1000, "before")]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(server.sent("getUpdates")) >= 3)
            server.updates = [update(3, "after")]
            await server.until(lambda: len(heard.events) == 2)
        assert heard.texts() == ["before", "after"]

    async def test_what_was_not_received_comes_again(self, server: ScriptedServer) -> None:
        server.updates = [update(10, "one"), update(11, "two")]

        async def broken(event: ChannelEvent) -> None:
            if isinstance(event, Inbound) and event.text == "two":
                raise OSError("disk full")

        heard = Heard(server)
        async with opened(server) as channel:
            with pytest.raises(OSError, match="disk full"):
                await channel.run(broken)
            async with running(channel, heard):
                await server.until(lambda: len(heard.events) == 2)
        assert heard.texts() == ["one", "two"]
        assert "offset" not in server.sent("getUpdates")[1]

    async def test_an_update_that_cannot_be_read_stops_no_other(self, server: ScriptedServer) -> None:
        odd = update(11)
        odd["message"]["date"] = 10**14
        server.say(
            "getUpdates", [update(10, "one"), odd, "no update", {"update_id": 12, "hologram": {}}, update(13, "two")]
        )
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(server.sent("getUpdates")) == 2)
        first, second, third, fourth = heard.events
        assert isinstance(first, Inbound)
        assert isinstance(second, UnparsedUpdate)
        assert isinstance(third, UnparsedUpdate)
        assert isinstance(fourth, Inbound)
        assert (second.external_id, second.chat, third.raw) == ("4242:u11", "77", b'"no update"')
        assert server.sent("getUpdates")[1]["offset"] == 14

    async def test_presses_are_answered_together_however_slow_telegram_is(self, server: ScriptedServer) -> None:
        message = update(1)["message"]
        query = {"from": message["from"], "message": message, "chat_instance": "1", "data": "made-up/0"}
        server.updates = [
            {"update_id": 10 + number, "callback_query": query | {"id": str(number)}} for number in range(5)
        ]
        server.say("answerCallbackQuery", *[HANG] * 5)
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(server.sent("answerCallbackQuery")) == 5)
        assert len(heard.events) == 5

    async def test_a_batch_without_numbers_is_not_asked_for_without_a_pause(self, server: ScriptedServer) -> None:
        server.say("getUpdates", [{}], ["x"])
        server.updates = [update(1, "one")]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
        assert heard.texts() == ["one"]

    @pytest.mark.parametrize(
        "failure",
        [
            DROP, No(500, "Internal Server Error"), Page(502, b"<html>"), Page(200, b"{no json"), Page(200, b"[]"),
            Page(200, b'{"ok": true}'), Page(200, b'{"ok": true, "result": 5}'), Page(404, b"<html>"),
        ],
    )  # fmt: skip
    async def test_an_outage_is_outlived_and_said_once(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture, failure: Any
    ) -> None:
        caplog.set_level(logging.INFO)
        server.say("getMe", failure)
        server.say("getUpdates", failure, failure, failure)
        server.updates = [update(1, "one")]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
        assert heard.texts() == ["one"]
        polls = actions(caplog)[actions(caplog).index("telegram.ready") + 1 :]
        assert polls == ["telegram.offline", "telegram.online"]

    async def test_it_is_ready_once_it_was_polled_which_takes_no_time_after_a_failure(
        self, server: ScriptedServer
    ) -> None:
        server.say("getUpdates", HANG)
        async with opened(server, structs.replace(FAST, poll_margin=2.0)) as channel, running(channel, Heard(server)):
            await server.until(lambda: len(server.sent("getUpdates")) > 0)
            assert not channel.health().is_ready
            assert channel.health().last_seen_at
            await server.until(lambda: len(server.sent("getUpdates")) >= 3)
            assert channel.health().is_ready
        assert [one["timeout"] for one in server.sent("getUpdates")[:3]] == [0, 0, 1]

    @pytest.mark.parametrize("proxied", [False, True])
    async def test_a_wedged_poll_is_given_up_and_its_connection_with_it(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture, *, proxied: bool
    ) -> None:
        server.say("getUpdates", HANG)
        server.updates = [update(1, "one")]
        heard = Heard(server)
        proxy = {"proxy": server.url} if proxied else {}
        async with opened(server, structs.replace(FAST, poll_margin=0.2), **proxy) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
            wedged, following, *_ = server.connections("getUpdates")
            assert following is not wedged
            assert wedged.is_closing()
        assert heard.texts() == ["one"]
        assert "neither came back nor failed within 0.2 s" in caplog.text

    @pytest.mark.parametrize("proxied", [False, True])
    async def test_after_an_unreadable_answer_the_next_poll_has_a_new_connection(
        self, server: ScriptedServer, *, proxied: bool
    ) -> None:
        server.say("getUpdates", [], [], Page(200, b"no JSON"))
        proxy = {"proxy": server.url} if proxied else {}
        async with opened(server, FAST, **proxy) as channel, running(channel, Heard(server)):
            await server.until(lambda: len(server.sent("getUpdates")) >= 4)
        _, before, failed, following, *_ = server.connections("getUpdates")
        assert failed is before
        assert following is not failed

    async def test_a_poll_that_trickles_is_given_up_too(self, server: ScriptedServer) -> None:
        """Each byte is news for the HTTP library: only a limit on the whole poll ends it."""
        ended = asyncio.Event()

        async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            with suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(b"1\r\n \r\n")
                    await asyncio.sleep(0.02)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(65536), 0.01)
            ended.set()

        async with accepting(trickle) as port:
            address = f"http://127.0.0.1:{port}"
            given = TelegramSettings.read("tg", {"token": TOKEN, "base_url": address, "poll_timeout": 1})
            api = TelegramApi(given, structs.replace(FAST, poll_margin=-0.7))
            with pytest.raises(TelegramUnavailable, match=r"getUpdates neither came back nor failed within 0\.3 s"):
                await api.poll(None, hold=True)
            await asyncio.wait_for(ended.wait(), 5)
            await api.aclose()

    async def test_telegram_says_how_long_to_wait(self, server: ScriptedServer) -> None:
        server.say("getUpdates", No(429, "Too Many Requests: retry after 1", {"retry_after": 1}))
        server.updates = [update(1)]
        heard = Heard(server)
        began = asyncio.get_running_loop().time()
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
        assert asyncio.get_running_loop().time() - began >= 1

    @pytest.mark.parametrize("refusal", [No(401, "Unauthorized"), No(404, "Not Found")])
    async def test_a_token_refused_at_the_start_is_for_the_operator(self, server: ScriptedServer, refusal: No) -> None:
        server.say("getMe", refusal)
        async with opened(server) as channel:
            with pytest.raises(
                ChannelRefused, match=r"^\[channels\.tg\] token was refused by Telegram \(40[14]\): copy"
            ):
                await asyncio.wait_for(channel.run(Heard(server)), 5)

    @pytest.mark.parametrize("refusal", [No(401, "Unauthorized"), No(404, "Not Found")])
    @pytest.mark.parametrize("good", [0, 3])
    async def test_a_token_refused_later_is_tried_again_until_it_is_taken(
        self, server: ScriptedServer, refusal: No, good: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        server.say("getUpdates", *[[]] * good, refusal)
        server.updates = []
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard) as task:
            await server.until(lambda: len(server.sent("getUpdates")) > good + 1)
            server.updates = [update(1, "still there?")]
            await server.until(lambda: len(heard.events) == 1)
            assert not task.done()
            assert channel.health().is_ready
        assert [one for one in actions(caplog) if one.startswith("channel.")] == ["channel.doubted", "channel.up"]

    async def test_a_refusal_that_lasts_makes_it_visibly_down_and_it_recovers(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        seconds = 0.0
        timing = structs.replace(
            FAST, refusals=structs.replace(SHORT, confirmed_after=120.0), monotonic=lambda: seconds
        )
        server.say("getUpdates", [], *[No(401, "Unauthorized")] * 8)
        heard = Heard(server)
        async with opened(server, timing) as channel, running(channel, heard):
            await server.until(lambda: len(server.sent("getUpdates")) == 5)
            assert not channel.health().is_ready
            assert "token was refused by Telegram (401)" in channel.health().note
            assert "channel.down" not in actions(caplog), "believed before it lasted for minutes"
            seconds = 150.0
            await server.until(lambda: len(server.sent("getUpdates")) == 9)
            assert "channel.down" in actions(caplog)
            server.updates = [update(1, "back")]
            await server.until(lambda: len(heard.events) == 1)
            assert channel.health().is_ready
        assert [one for one in actions(caplog) if one.startswith("channel.")] == [
            "channel.doubted", "channel.down", "channel.up",
        ]  # fmt: skip

    async def test_a_second_run_after_a_failure_of_ours_knows_that_the_token_was_good(
        self, server: ScriptedServer
    ) -> None:
        server.updates = [update(1, "one")]

        async def broken(_: ChannelEvent) -> None:
            raise OSError("disk full")

        heard = Heard(server)
        async with opened(server) as channel:
            with pytest.raises(OSError, match="disk full"):
                await channel.run(broken)
            server.say("getMe", No(401, "Unauthorized"))
            async with running(channel, heard):
                await server.until(lambda: len(heard.events) == 1)

    async def test_membership_tells_the_operator_the_id_of_a_chat(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        change = {
            "chat": {"id": -100, "type": "supergroup", "title": "Family"}, "from": {"id": 77}, "date": 1,
            "new_chat_member": {"status": "administrator"},
        }  # fmt: skip
        server.say("getUpdates", [{"update_id": 1, "my_chat_member": {}}, {"update_id": 2, "my_chat_member": change}])
        async with opened(server) as channel, running(channel, Heard(server)):
            await server.until(lambda: len(server.sent("getUpdates")) == 2)
        assert "status='administrator' chat=-100 user=77" in caplog.text


class TestConflicts:
    async def test_a_soft_restart_makes_its_own_and_it_is_borne(self, server: ScriptedServer) -> None:
        server.say("getUpdates", CONFLICT, CONFLICT, CONFLICT)
        server.updates = [update(1)]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)

    async def test_a_second_poller_is_shown_and_outlived(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        seconds = 0.0
        conflicts = structs.replace(SHORT, confirmed_after=120.0)
        timing = structs.replace(FAST, conflicts=conflicts, conflict_quiet=90.0, monotonic=lambda: seconds)
        # It wins every other time, as two programs that both try again do.
        server.say("getUpdates", *[CONFLICT, []] * 4)
        heard = Heard(server)
        async with opened(server, timing) as channel, running(channel, heard) as task:
            await server.until(lambda: len(server.sent("getUpdates")) == 6)
            assert "second program" in channel.health().note
            seconds = 80.0
            server.say("getUpdates", CONFLICT, CONFLICT)
            await server.until(lambda: len(server.sent("getUpdates")) == 9)
            seconds = 150.0
            await server.until(lambda: "channel.down" in actions(caplog) or task.done())
            server.updates = [update(1, "the other one has ended")]
            await server.until(lambda: len(heard.events) == 1)
            assert channel.health().is_ready
            assert "second program" in channel.health().note
            seconds = 300.0
            await server.until(lambda: not channel.health().note)
        assert [one for one in actions(caplog) if one.startswith("channel.")] == [
            "channel.doubted", "channel.down", "channel.up",
        ]  # fmt: skip

    async def test_a_conflict_now_and_then_is_none(self, server: ScriptedServer) -> None:
        now = 0.0

        def monotonic() -> float:
            nonlocal now
            now += 1000.0
            return now

        server.say("getUpdates", *[CONFLICT, []] * 5)
        server.updates = [update(1)]
        heard = Heard(server)
        async with opened(server, structs.replace(FAST, monotonic=monotonic)) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)

    async def test_a_webhook_is_removed_once_and_what_waits_is_kept(self, server: ScriptedServer) -> None:
        server.say("getUpdates", HOOKED)
        server.updates = [update(1)]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
        assert server.sent("deleteWebhook") == [{"drop_pending_updates": False}]

    async def test_a_webhook_that_comes_back_is_shown_and_removed_again(self, server: ScriptedServer) -> None:
        server.say("getUpdates", HOOKED, HOOKED, HOOKED)
        server.updates = [update(1)]
        heard = Heard(server)
        async with opened(server) as channel, running(channel, heard):
            await server.until(lambda: len(heard.events) == 1)
            assert "sets a webhook" in channel.health().note
        assert len(server.sent("deleteWebhook")) == 3


async def test_two_bots_share_nothing(server: ScriptedServer) -> None:
    server.updates = [update(1, "hello")]
    heard = Heard(server)
    async with opened(server) as one, opened(server, link_previews=True) as other, running(one, heard):
        await server.until(lambda: len(heard.events) == 1)
        await one.send(MessagePart("77", "a"))
        await one.aclose()
        await other.send(MessagePart("77", "b"))
    assert ["link_preview_options" in sent for sent in server.sent("sendMessage")] == [True, False]
    assert ME["username"] == "our_bot"
