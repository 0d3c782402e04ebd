"""The Telegram channel against a faithful server: what people do, as events; what it sends, as people see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from aiohttp import web

from bubbot.errors import ChannelRefused, DeliveryFailed, FetchFailed
from bubbot.ports.channel import (
    Attachment,
    BotAdded,
    ChannelEvent,
    ChannelOptions,
    ChatMigration,
    CommandInfo,
    Edit,
    Inbound,
    MessagePart,
    Outbound,
    OutboundFile,
    Reaction,
    UnparsedUpdate,
    no_commands,
)
from channels.telegram.api import TelegramApiTiming
from channels.telegram.channel import TelegramChannel, TelegramWebhookChannel
from channels.telegram.settings import TelegramSettings
from tests.fakes.botapi import odd
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Html, Wedge
from tests.fakes.telegram_channel import SHORT

FAST = TelegramApiTiming(
    call_timeout=5.0, poll_margin=1.0, refusals=SHORT, conflicts=SHORT, conflict_quiet=1.0, first_wait=0.02, max_wait=0.1,
    jitter=lambda: 0.0,
)  # fmt: skip
Event = TypeVar("Event")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(privacy=False, limits=None, conflict_pause=0.1, webhook_retry=0.05) as found:
        yield found


class Talk:
    """A channel that runs, and what it heard."""

    def __init__(self, server: Server, **settings: Any) -> None:
        table: dict[str, Any] = {**server.table(), "poll_timeout": 1, **settings}
        commands = table.pop("commands", no_commands)
        options = ChannelOptions("tg", Path(), lambda: "now", lambda: "id", table, list_commands=commands)
        read = TelegramSettings.read("tg", table)
        self.channel = (TelegramWebhookChannel if read.uses_webhook else TelegramChannel)(options, read, FAST)
        self.heard: list[ChannelEvent] = []
        self._server = server

    async def receive(self, event: ChannelEvent) -> None:
        self.heard.append(event)
        self._server.world.changed.set()

    async def next(self, kind: type[Event]) -> Event:
        """The next event, which has to be of this kind."""
        await self._server.until(lambda: self.heard)
        event = self.heard.pop(0)
        assert isinstance(event, kind), event
        return event


@asynccontextmanager
async def talking(server: Server, **settings: Any) -> AsyncIterator[Talk]:
    talk = Talk(server, **settings)
    task = asyncio.create_task(talk.channel.run(talk.receive))
    try:
        yield talk
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await talk.channel.aclose()


async def test_a_conversation_in_private(server: Server) -> None:
    kim = server.user("Kim", last_name="Lee")
    chat = server.private(kim)
    first = chat.say("👋 hello")
    async with talking(server) as talk:
        event = await talk.next(Inbound)
        assert (event.text, event.direct, event.addressed, event.sender.id) == ("👋 hello", True, True, str(kim.id))
        assert (event.chat, event.message, event.sender.name) == (str(kim.id), str(first["message_id"]), "Kim Lee")
        [part] = talk.channel.parts(Outbound("tg", event.chat, "Hi **Kim**", reply_to=event.message))
        receipt = await talk.channel.send(part)
        shown = chat.message(int(receipt.external_id))
        assert (shown["text"], shown["entities"]) == ("Hi Kim", [{"type": "bold", "offset": 3, "length": 3}])
        assert shown["reply_to_message"]["message_id"] == first["message_id"]
        await talk.channel.edit(receipt.external_id, MessagePart(event.chat, "Hello Kim"))
        await talk.channel.edit(receipt.external_id, MessagePart(event.chat, "Hello Kim"))
        assert chat.message(int(receipt.external_id))["text"] == "Hello Kim"
        await talk.channel.typing(event.chat, "")
        chat.say("/new window")
        assert (await talk.next(Inbound)).text == ",new window"
        edited = chat.edit(first, "hello!")
        change = await talk.next(Edit)
        assert (change.text, change.message) == ("hello!", str(edited["message_id"]))
        chat.react(first, "👍")
        assert (await talk.next(Reaction)).emojis == ("👍",)


async def test_in_a_group_commands_and_mentions_address_the_bot(server: Server) -> None:
    ada, kim = server.user("Ada"), server.user("Kim")
    room = server.group("Family", [ada, kim])
    async with talking(server, commands=lambda: [CommandInfo("status")]) as talk:
        added = await talk.next(BotAdded)
        assert (added.chat, added.sender.id, added.sender.name) == (str(room.id), str(ada.id), "Ada")
        room.say("good morning", ada)
        room.say("/status", kim)
        status = await talk.next(Inbound), await talk.next(Inbound)
        assert [(one.text, one.addressed) for one in status] == [("good morning", False), (",status", True)]
        room.say("good morning", ada)
        room.say("@bubbot_bot, what is 2+2?", kim)
        said, asked = await talk.next(Inbound), await talk.next(Inbound)
        assert [(one.text, one.addressed, one.direct) for one in (said, asked)] == [
            ("good morning", False, False), ("what is 2+2?", True, False)
        ]  # fmt: skip
        receipt = await talk.channel.send(MessagePart(asked.chat, "4"))
        room.say("why?", ada, reply_to=int(receipt.external_id))
        why = await talk.next(Inbound)
        assert why.quote is not None
        assert (why.addressed, why.quote.text, why.reply_to) == (True, "4", receipt.external_id)
        moved = server.migrate(room, ada)
        event = await talk.next(ChatMigration)
        assert (event.chat, event.to) == (str(room.id), str(moved.id))
        # Nobody told whoever sends: the channel follows.
        await talk.channel.send(MessagePart(str(room.id), "still here"))
        assert "still here" in server.transcript()


async def test_a_topic_is_a_session_and_answers_survive_it(server: Server) -> None:
    ada = server.user("Ada")
    room = server.supergroup("Cats", [ada], forum=True)
    topic = room.topic("Food", ada)
    async with talking(server) as talk:
        await talk.next(BotAdded)
        room.say("hello", ada, thread=topic.id)
        event = await talk.next(Inbound)
        assert (event.thread, event.reply_to, event.addressed) == (str(topic.id), "", False)
        receipt = await talk.channel.send(MessagePart(event.chat, "hi", event.thread))
        assert room.message(int(receipt.external_id))["message_thread_id"] == topic.id
        receipt = await talk.channel.send(MessagePart(event.chat, "lost topic", "99999"))
        assert "message_thread_id" not in room.message(int(receipt.external_id))


async def test_a_post_in_a_channel_comes_from_the_channel(server: Server) -> None:
    ada = server.user("Ada")
    room = server.channel("News", [ada])
    async with talking(server) as talk:
        room.say("@bubbot_bot sum up")
        event = await talk.next(Inbound)
    assert (event.text, event.addressed, event.sender.id) == ("sum up", True, str(room.id))


async def test_files_both_ways(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    async with talking(server) as talk:
        chat.document(b"some text", "a.txt", caption="read this")
        chat.album([b"\xff\xd8\xffone", b"\xff\xd8\xfftwo"], caption="the cats")
        chat.file("document", b"small", name="big.bin", size=30_000_000)
        document = await talk.next(Inbound)
        [file] = document.attachments
        assert (file.name, file.size, document.text) == ("a.txt", 9, "read this")
        assert await talk.channel.fetch(file, 1000) == b"some text"
        with pytest.raises(FetchFailed, match="at most 8 bytes"):
            await talk.channel.fetch(file, 8)
        one, two = await talk.next(Inbound), await talk.next(Inbound)
        assert one.group == two.group != ""
        assert await talk.channel.fetch(two.attachments[0], 1000) == b"\xff\xd8\xfftwo"
        [large] = (await talk.next(Inbound)).attachments
        with pytest.raises(FetchFailed, match="20 MB"):
            await talk.channel.fetch(large, 100_000_000)
        server.fail("file", Cut())
        with pytest.raises(FetchFailed, match="could not be fetched") as caught:
            await talk.channel.fetch(file, 1000)
        assert not caught.value.permanent
        await talk.channel.send(
            MessagePart(str(chat.id), "", file=OutboundFile("code.py", "text/x-python", "print('é')"))
        )
        assert "code.py" in server.transcript()
        with pytest.raises(FetchFailed):
            await talk.channel.fetch(Attachment("nothing"), 1000)


async def test_commands_that_change_are_shown_and_recognized_at_once(server: Server) -> None:
    commands = [CommandInfo("help", "Help.", in_menu=True)]
    kim = server.user("Kim")
    chat = server.group("Home", [kim])
    chat.say("/undo first", kim)
    async with talking(server, commands=lambda: commands) as talk:
        await talk.next(BotAdded)
        assert not (await talk.next(Inbound)).addressed
        commands.append(CommandInfo("undo", "Undo.", in_menu=True))
        for _ in range(2):
            await talk.channel.update_commands()
        chat.say("/undo second", kim)
        assert (await talk.next(Inbound)).text == ",undo second"
    menus = [json.loads(call.params["commands"]) for call in server.calls("setMyCommands")]
    assert [[item["command"] for item in menu] for menu in menus] == [["help"]] * 3 + [["help", "undo"]] * 3


async def test_the_menu_is_set_once(server: Server) -> None:
    commands = [
        CommandInfo("help", "Help.", in_menu=True, translations={"zh": "帮助"}),
        CommandInfo("model", "The model.", in_menu=True, is_shared=False),
        CommandInfo("memory.save", "Saves.", in_menu=True),
        CommandInfo("context", "For developers."),
    ]
    chat = server.private(server.user("Kim"))
    for _ in range(2):
        chat.say("hello")
        async with talking(server, commands=lambda: commands) as talk:
            await talk.next(Inbound)
    assert len(server.calls("setMyCommands")) == 6  # three kinds of chats in two languages, once
    menus: dict[tuple[str, str], Any] = {
        (json.loads(call.params["scope"])["type"], call.params.get("language_code", "")): call.result
        for call in server.calls("getMyCommands")
    }
    assert [one["command"] for one in menus["all_private_chats", ""]] == ["help", "model", "memory_save"]
    assert [one["command"] for one in menus["all_group_chats", "zh"]] == ["help", "memory_save"]
    assert [one["description"] for one in menus["all_group_chats", "zh"]] == ["帮助", "Saves."]
    assert menus["all_chat_administrators", ""] == menus["all_private_chats", ""]


async def test_nothing_is_lost_or_doubled_by_a_bad_line(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    chat = server.private(server.user("Kim"))
    for fault in (Drop(), Drop("after"), Html(), Cut()):
        server.fail("getUpdates", fault)
    server.fail("getUpdates", Wedge("after"), skip=1)
    async with talking(server) as talk:
        heard = []
        for number in range(5):
            chat.say(str(number))
            heard.append((await talk.next(Inbound)).text)
        await server.until(lambda: not server.bot.queue.pending())
        assert talk.heard == []
    assert heard == ["0", "1", "2", "3", "4"]
    assert "the connection failed (" in caplog.text


async def test_odd_updates_are_kept_and_stop_nothing(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    first, second = server.odd(odd.date_far_away()), server.odd(("message", {"text": "from nowhere"}))
    server.odd(odd.new_kind())
    chat.say("and on")
    async with talking(server) as talk:
        kept = [await talk.next(UnparsedUpdate), await talk.next(UnparsedUpdate)]
        assert (await talk.next(Inbound)).text == "and on"
    bot = server.bot.user.id
    assert [one.external_id for one in kept] == [f"{bot}:u{first}", f"{bot}:u{second}"]


async def test_what_the_library_cannot_read_is_read_if_what_we_need_is_there(server: Server) -> None:
    server.odd(odd.poll_of_an_older_server())
    async with talking(server) as talk:
        assert (await talk.next(Inbound)).text == "[poll Tea?]\n- tea\n- coffee"


async def test_what_was_not_received_comes_again(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    chat.say("one")
    talk = Talk(server)

    async def broken(event: ChannelEvent) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await asyncio.wait_for(talk.channel.run(broken), 5)
    await talk.channel.aclose()
    async with talking(server) as talk:
        assert (await talk.next(Inbound)).text == "one"


async def test_of_two_pollers_both_show_it_and_the_one_that_stays_hears_everything(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    first, second = Talk(server), Talk(server)
    tasks = [asyncio.create_task(talk.channel.run(talk.receive)) for talk in (first, second)]
    await server.until(lambda: "second program" in first.channel.health().note + second.channel.health().note)
    assert not any(task.done() for task in tasks)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    await second.channel.aclose()
    chat.say("who answers?")
    assert (await first.next(Inbound)).text == "who answers?"
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await first.channel.aclose()


async def test_a_webhook_that_was_left_is_taken_away(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    talk = Talk(server)
    await talk.channel.api.call("setWebhook", {"url": "https://localhost:8443/x"})
    await talk.channel.aclose()
    chat.say("waiting")
    async with talking(server) as talk:
        assert (await talk.next(Inbound)).text == "waiting"
    assert server.bot.webhook is None


async def test_people_who_blocked_the_bot_and_wrong_tokens(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    chat.say("hello")
    chat.block()
    talk = Talk(server)
    with pytest.raises(DeliveryFailed) as caught:
        await talk.channel.send(MessagePart(str(chat.id), "hi"))
    assert caught.value.permanent
    with pytest.raises(DeliveryFailed) as caught:
        await talk.channel.send(MessagePart("123", "hi"))
    assert caught.value.permanent
    await talk.channel.aclose()
    wrong = Talk(server, token="4242:" + "A" * 35)
    with pytest.raises(ChannelRefused, match="token was refused"):
        await asyncio.wait_for(wrong.channel.run(wrong.receive), 5)
    await wrong.channel.aclose()


async def test_a_webhook_is_called_until_the_message_is_received(server: Server) -> None:
    """The HTTP server here is the least that a gateway is."""
    channels: list[TelegramWebhookChannel] = []

    async def answer(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            return web.Response(status=await channels[0].handle(headers, await request.read()))
        except OSError:
            return web.Response(status=500)

    app = web.Application()
    app.router.add_post("/telegram", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/telegram"
    talk = Talk(server, mode="webhook", webhook_url=url, webhook_secret="0123456789abcdef")
    assert isinstance(talk.channel, TelegramWebhookChannel)
    channels.append(talk.channel)
    failures = [OSError("disk full")]

    async def receive(event: ChannelEvent) -> None:
        if failures:
            raise failures.pop()
        await talk.receive(event)

    task = asyncio.create_task(talk.channel.run(receive))
    chat = server.private(server.user("Kim"))
    chat.say("one")
    chat.say("two")
    assert [(await talk.next(Inbound)).text for _ in range(2)] == ["one", "two"]
    async with httpx.AsyncClient() as stranger:
        assert (await stranger.post(url, json={"update_id": 1})).status_code == 401
    await server.until(lambda: not server.bot.queue.pending())
    assert (failures, talk.heard) == ([], [])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await talk.channel.aclose()
    await runner.cleanup()
