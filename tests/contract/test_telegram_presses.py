"""Presses of buttons on Telegram, against a faithful server: what is heard of them, and when they are answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from bubbot.ports.channel import Button, ButtonPress, ButtonSet, ChannelEvent, Inbound, MessagePart
from tests.contract.test_telegram_channel import Talk, talking
from tests.contract.test_telegram_channel import server as server  # noqa: PLC0414 - the fixture
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Drop, Fault, Html
from tests.fakes.telegram_channel import FULL, SECRET, Heard, opened, running
from tests.fakes.telegram_server import scripted_server

ANSWERED = "answerCallbackQuery"
BUTTONS = ButtonSet((Button("Yes", ",yes"), Button("No", ",no")), key="k")


async def offer(talk: Talk, chat: Gathering, thread: str = "") -> int:
    """Sends a message with buttons; returns its id."""
    receipt = await talk.channel.send(MessagePart(str(chat.id), "Well?", thread, buttons=BUTTONS))
    return int(receipt.external_id)


async def test_a_press_names_its_button_message_and_person_and_is_answered_when_it_is_durable(server: Server) -> None:
    kim = server.user("Kim")
    chat, durable = server.private(kim), asyncio.Event()
    talk = Talk(server)

    async def receive(event: ChannelEvent) -> str:
        await talk.receive(event)
        await durable.wait()
        return "Too late."

    task = asyncio.create_task(talk.channel.run(receive))
    message = await offer(talk, chat)
    query = chat.press(message, BUTTONS.button_id(1))
    press = await talk.next(ButtonPress)
    assert (press.chat, press.message, press.button, press.sender.id) == (str(kim.id), str(message), "k/1", str(kim.id))
    assert (press.direct, press.thread, press.external_id.endswith(query)) == (True, "", True)
    assert server.calls(ANSWERED) == []
    durable.set()
    await server.until(lambda: not server.world.callbacks)
    [call] = server.calls(ANSWERED)
    assert (call.params["callback_query_id"], call.params["text"]) == (query, "Too late.")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await talk.channel.aclose()


async def test_a_press_in_a_topic_names_its_topic(server: Server) -> None:
    ada = server.user("Ada")
    room = server.supergroup("Club", [ada], forum=True)
    topic = room.topic("plans", ada)
    async with talking(server) as talk:
        message = await offer(talk, room, str(topic.id))
        room.press(message, BUTTONS.button_id(0), ada)
        await server.until(lambda: any(isinstance(one, ButtonPress) for one in talk.heard))
        [press] = [one for one in talk.heard if isinstance(one, ButtonPress)]
        assert (press.chat, press.thread, press.direct) == (str(room.id), str(topic.id), False)


@pytest.mark.parametrize("fault", [Html(), Drop(), Drop("after")])
async def test_an_outage_of_the_answer_stops_nothing_and_repeats_no_press(server: Server, fault: Fault) -> None:
    chat = server.private(server.user("Kim"))
    async with talking(server) as talk:
        message = await offer(talk, chat)
        server.fail(ANSWERED, fault, times=100)
        chat.press(message, BUTTONS.button_id(0))
        chat.say("and on")
        await talk.next(ButtonPress)
        assert (await talk.next(Inbound)).text == "and on"
        await server.until(lambda: not server.bot.queue.pending())
        assert server.calls(ANSWERED)
        server.faults.clear()
        chat.press(message, BUTTONS.button_id(1))
        assert (await talk.next(ButtonPress)).button == "k/1"
        await server.until(lambda: server.calls(ANSWERED)[-1].status == 200)


async def test_a_press_that_was_not_received_is_not_answered_and_comes_again(server: Server) -> None:
    chat = server.private(server.user("Kim"))
    talk = Talk(server)
    message = await offer(talk, chat)
    chat.press(message, BUTTONS.button_id(0))

    async def broken(event: ChannelEvent) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await asyncio.wait_for(talk.channel.run(broken), 5)
    await talk.channel.aclose()
    assert server.calls(ANSWERED) == []
    async with talking(server) as talk:
        assert (await talk.next(ButtonPress)).message == str(message)
        await server.until(lambda: not server.world.callbacks)
    assert len(server.calls(ANSWERED)) == 1


async def test_a_press_that_a_webhook_brings_is_answered_once_it_was_received() -> None:
    person = {"id": 7, "is_bot": False, "first_name": "Kim"}
    message = {"message_id": 5, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "Well?"}
    query = {"id": "99", "from": person, "message": message, "chat_instance": "7", "data": "k/0"}
    update = json.dumps({"update_id": 1, "callback_query": query}).encode()
    failures = [OSError("disk full")]
    async with scripted_server() as scripted:
        heard = Heard(scripted)

        async def receive(event: ChannelEvent) -> str:
            if failures:
                raise failures.pop()
            await heard(event)
            return "Too late."

        scripted.usual["getWebhookInfo"] = {"url": FULL["webhook_url"]}
        async with opened(scripted, **FULL) as channel, running(channel, receive):
            await scripted.until(lambda: "setWebhook" in scripted.methods())
            with pytest.raises(OSError, match="disk full"):
                await channel.handle(SECRET, update)  # type: ignore[attr-defined]
            assert scripted.sent(ANSWERED) == []
            assert await channel.handle(SECRET, update) == 200  # type: ignore[attr-defined]
            [answer] = scripted.sent(ANSWERED)
        assert (answer["callback_query_id"], answer["text"]) == ("99", "Too late.")
        [press] = heard.events
        assert isinstance(press, ButtonPress)
        assert (press.button, press.message, press.chat) == ("k/0", "5", "7")
