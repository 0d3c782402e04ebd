"""The adapter and its faithful server against the published Bot API: requests, answers, and whatever may come.

With `BUBBOT_BOT_API_SPEC`, the path of the description (see `tests/fakes/botapi/published.py`), every test of Telegram is
judged by it; without it, by the methods of python-telegram-bot.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import channels.telegram
from bubbot.ports.channel import (
    BotAdded,
    ButtonPress,
    ChannelEvent,
    ChatMigration,
    CommandInfo,
    Edit,
    Inbound,
    MessagePart,
    Outbound,
    OutboundFile,
    Reaction,
    UnparsedUpdate,
)
from channels.telegram.api import UPDATE_KINDS
from channels.telegram.content import FRAME_FIELDS, SERVICE_FIELDS
from channels.telegram.errors import TelegramApiError
from channels.telegram.inbound import read_update
from channels.telegram.inbound_text import TelegramBotUser
from tests.contract.test_telegram_channel import Talk, talking
from tests.contract.test_telegram_presses import BUTTONS, offer
from tests.fakes.botapi.published import SPEC, LibraryApi, PublishedApi
from tests.fakes.botapi.server import Server
from tests.unit.channels.telegram.test_message_fields import CONTENT, random_message

ME = TelegramBotUser(4242, "our_bot")
METHOD = re.compile(r'"((?:add|answer|delete|edit|get|leave|send|set)[A-Z][A-Za-z]+)"')
MESSAGE_KINDS = ("message", "channel_post", "edited_message", "edited_channel_post")
needs_description = pytest.mark.skipif(not SPEC, reason="BUBBOT_BOT_API_SPEC names no description of the Bot API")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(privacy=False, limits=None, conflict_pause=0.1) as found:
        yield found


@pytest.fixture
def published() -> PublishedApi:
    return PublishedApi.load(SPEC)


def methods_of_the_adapter() -> set[str]:
    folder = Path(str(channels.telegram.__file__)).parent
    return {found for file in folder.glob("*.py") for found in METHOD.findall(file.read_text(encoding="utf-8"))}


async def test_every_request_of_the_adapter_is_one_of_the_bot_api(server: Server) -> None:
    """Each method, in every form; the server fails at its end if it had something to complain of."""
    ada = server.user("Ada")
    alone, club = server.private(ada), server.supergroup("Club", [ada], forum=True)
    topic = club.topic("plans", ada)
    hooked = Talk(server, mode="webhook", webhook_url="https://localhost:8443/tg", webhook_secret="0123456789abcdef")
    task = asyncio.create_task(hooked.channel.run(hooked.receive))
    await server.until(lambda: server.bot.webhook)
    await hooked.channel.verify_token()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await hooked.channel.aclose()
    async with talking(
        server, commands=lambda: [CommandInfo("help", "Help.", in_menu=True)], link_previews=False
    ) as talk:
        said = alone.say("hello")
        text = "# Plan\n\n**Buy** [milk](https://example.org)\n\n```python\nprint(1)\n```\n\n> so"
        for chat, thread in ((str(alone.id), ""), (str(club.id), str(topic.id))):
            for part in talk.channel.parts(Outbound("tg", chat, text, thread, reply_to=str(said["message_id"]))):
                receipt = await talk.channel.send(part)
                await talk.channel.edit(receipt.external_id, MessagePart(chat, "short", markup=part.markup))
            for media_type in ("text/plain", "image/png"):
                file = OutboundFile("a.txt", media_type, "bytes")
                await talk.channel.send(MessagePart(chat, "see **this**", thread, file=file))
            await talk.channel.typing(chat, thread)
            alone.press(await offer(talk, alone), BUTTONS.button_id(1))
        alone.document(b"some text", "a.txt")
        await server.until(lambda: any(isinstance(event, Inbound) and event.attachments for event in talk.heard))
        document = next(event for event in talk.heard if isinstance(event, Inbound) and event.attachments)
        assert await talk.channel.fetch(document.attachments[0], 1000) == b"some text"
        await server.until(lambda: not server.world.callbacks)
        await talk.channel.leave(str(club.id))
    called = {call.method for call in server.log} - {"file"}
    assert called == methods_of_the_adapter()


async def ask_wrongly() -> None:
    async with Server() as server:
        talk = Talk(server)
        with suppress(TelegramApiError):
            await talk.channel.api.call("sendMessage", {"chat_id": 1, "foo": 1})
        await talk.channel.aclose()


async def test_a_server_that_was_asked_for_what_there_is_not_says_so() -> None:
    with pytest.raises(AssertionError, match=r"(?s)sendMessage: foo is no parameter.*sendMessage: text is missing"):
        await ask_wrongly()


@pytest.mark.parametrize(
    ("method", "values", "complaints"),
    [
        ("getMe", {}, []),
        ("getMee", {}, ["getMee: no such method"]),
        ("sendMessage", {"chat_id": "1", "text": "x"}, []),
        (
            "sendMessage",
            {"chat_id": "1", "txt": "x"},
            ["sendMessage: txt is no parameter", "sendMessage: text is missing"],
        ),
    ],
)
def test_the_library_knows_names_and_what_is_required(
    method: str, values: dict[str, str], complaints: list[str]
) -> None:
    assert LibraryApi().check_call(method, values, ()) == complaints


async def test_random_messages_come_through_the_channel(server: Server) -> None:
    chance = random.Random(3)
    sent = [(chance.choice(MESSAGE_KINDS), random_message(chance, number)) for number in range(100)]
    numbers = [server.odd(payload) for payload in sent]
    async with talking(server) as talk:
        await server.until(lambda: set(numbers) <= set(server.bot.queue.confirmed))
    me = TelegramBotUser(server.bot.user.id, server.bot.user.username)
    read = [
        read_update("tg", me, {"update_id": number, kind: content})
        for number, (kind, content) in zip(numbers, sent, strict=True)
    ]
    assert sorted(map(repr, talk.heard)) == sorted(repr(event) for event in read if event is not None)
    assert not [event for event in talk.heard if isinstance(event, UnparsedUpdate)]


def why_aside(update: dict[str, Any], kind: str) -> str:
    """Say why an update may be set aside; empty if it has to be an event."""
    content = update[kind]
    if kind not in UPDATE_KINDS:
        return "no kind that is asked for"
    if kind in MESSAGE_KINDS:
        if not SERVICE_FIELDS.keys().isdisjoint(content):
            return "a service notice"
        if kind.startswith("edited") and "live_period" in content.get("location", {}):
            return "a live location that moves"
        # A rich message may have no blocks, and a keyboard no buttons.
        if content.get("text") or content.get("caption") or content.keys() & (CONTENT.keys() - {"rich_message"}):
            return ""
        is_direct = content["chat"]["type"] == "private" and not kind.startswith("edited")
        return "" if is_direct else "nothing in it"
    return {
        "callback_query": "a press of no button of ours", "my_chat_member": "no group that the bot came into",
        "message_reaction": "a reaction of nobody",
    }[kind]  # fmt: skip


@needs_description
@pytest.mark.proof
class TestDescription:
    """What the published description adds to the library."""

    def test_each_field_of_a_message_is_classified(self, published: PublishedApi) -> None:
        fields = {field["name"] for field in published.types["Message"]["fields"]}
        assert fields <= FRAME_FIELDS | SERVICE_FIELDS.keys() | CONTENT.keys()
        replies = {field["name"] for field in published.types["ExternalReplyInfo"]["fields"]}
        assert replies - {"origin"} <= FRAME_FIELDS | CONTENT.keys()

    def test_each_kind_and_method_of_the_adapter_exists(self, published: PublishedApi) -> None:
        assert set(UPDATE_KINDS) <= {field["name"] for field in published.types["Update"]["fields"]}
        assert methods_of_the_adapter() <= published.methods.keys()

    def test_the_judge_finds_what_is_wrong(self, published: PublishedApi) -> None:
        right = {"chat_id": "1", "text": "x", "entities": '[{"type": "bold", "offset": 0, "length": 1}]'}
        assert published.check_call("sendMessage", right, ()) == []
        for wrong in ({"entities": '[{"type": "bold"}]'}, {"entities": "x"}, {"message_thread_id": "x"}, {"foo": "1"}):
            assert published.check_call("sendMessage", {**right, **wrong}, ())
        user = {"id": 1, "is_bot": True, "first_name": "x"}
        assert published.check_result("getMe", user) == []
        for odd in ({"id": "1"}, {"is_bot": 1}, {"foo": 1}):
            assert published.check_result("getMe", {**user, **odd})
        assert published.check_result("getUpdates", [{"update_id": 1, "message": {}}])

    def test_a_hundred_thousand_updates_are_read_or_set_aside(self, published: PublishedApi) -> None:
        chance, ends = random.Random(1), Counter[str]()
        kinds = [field["name"] for field in published.types["Update"]["fields"] if field["name"] != "update_id"]
        types = {field["name"]: field["types"][0] for field in published.types["Update"]["fields"]}
        fields = {field["name"]: field for field in published.types["Message"]["fields"]}
        shown = ("text", "caption", *CONTENT)
        for number in range(100_000):
            kind = chance.choice((*MESSAGE_KINDS, "message", "message", chance.choice(kinds)))
            content = published.make(types[kind], chance)
            if kind in MESSAGE_KINDS and chance.random() < 0.8:  # most fields are those of notices
                name = chance.choice(shown)
                content = {name: value for name, value in content.items() if name not in SERVICE_FIELDS}
                content[name] = published.make_field(fields[name], chance)
            update = {"update_id": number, kind: content}
            event = read_update("tg", ME, update, "2026-11-28T00:00:00+00:00")
            reason = "" if event else why_aside(update, kind)
            assert not isinstance(event, UnparsedUpdate), (event.reason, update)
            assert event is not None or reason, update
            assert isinstance(event, _EVENTS) or event is None
            ends[type(event).__name__ if event else f"set aside: {reason}"] += 1
        print("", *(f"{count:7,} {end}" for end, count in ends.most_common()), sep="\n")
        assert min(ends["Inbound"], ends["Edit"]) > 10_000


_EVENTS: tuple[type[ChannelEvent], ...] = (Inbound, Edit, Reaction, ButtonPress, BotAdded, ChatMigration)
