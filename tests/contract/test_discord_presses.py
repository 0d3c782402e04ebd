"""Presses of buttons on Discord, against a server that gives them three seconds."""

from __future__ import annotations

import asyncio

import pytest

from bubbot.ports.channel import Button, ButtonPress, ButtonSet, ChannelEvent, MessagePart
from channels.discord.channel import DiscordChannel
from tests.fakes.discord_channel import Heard, opened, receiving
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import Message
from tests.fakes.platform.faults import Drop, Fault, Html

CALLBACK = "POST /interactions/{}/{}/callback"
BUTTONS = ButtonSet((Button("Yes", ",yes"), Button("No", ",no")), key="k")


async def offer(channel: DiscordChannel, room: Room, thread: Room | None = None) -> Message:
    """Sends a message with buttons."""
    place = str(thread.id) if thread else ""
    receipt = await channel.send(MessagePart(str(room.id), "Well?", place, buttons=BUTTONS, key="k"))
    [message] = [one for one in (thread or room).messages if str(one.id) == receipt.external_id]
    return message


def presses(heard: Heard) -> list[ButtonPress]:
    return [one for one in heard.events if isinstance(one, ButtonPress)]


async def test_a_press_names_its_button_message_person_and_thread_and_is_acknowledged_when_it_is_durable() -> None:
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        topic = room.thread("topic", by=ada)
        reached, durable, heard = asyncio.Event(), asyncio.Event(), Heard(server)

        async def hold(event: ChannelEvent) -> None:
            if isinstance(event, ButtonPress):
                reached.set()
                await durable.wait()

        heard.hold = hold
        async with receiving(server, heard=heard) as (channel, _):
            message = await offer(channel, room, topic)
            pressed = server.press(topic, ada, message, BUTTONS.button_id(1))
            await reached.wait()
            assert (pressed.state, server.calls(CALLBACK)) == ("waiting", [])
            durable.set()
            await server.until(lambda: pressed.acknowledged)
            [press] = presses(heard)
            assert (press.chat, press.thread, press.direct) == (str(room.id), str(topic.id), False)
            assert (press.message, press.button, press.sender.id) == (str(message.id), "k/1", str(ada.id))


@pytest.mark.parametrize("fault", [Html(), Drop(), Drop("after")])
async def test_an_outage_of_the_acknowledgement_stops_nothing(fault: Fault) -> None:
    async with Server(limits=None) as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        message = await offer(channel, room)
        server.fail(CALLBACK, fault, times=100)
        server.press(room, ada, message, BUTTONS.button_id(0))
        await server.until(lambda: server.calls(CALLBACK))
        room.say(ada, "and on")
        await heard.until("and on")
        assert len(presses(heard)) == 1
        server.faults.clear()
        again = server.press(room, ada, message, BUTTONS.button_id(1))
        await server.until(lambda: again.acknowledged)
        assert [one.button for one in presses(heard)] == ["k/0", "k/1"]


async def test_a_press_that_was_not_received_fails_and_the_next_one_counts() -> None:
    async with Server(limits=None, answer_within=1.0) as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        heard = Heard(server)

        async def break_down(event: ChannelEvent) -> None:
            if isinstance(event, ButtonPress):
                raise OSError("disk full")

        heard.hold = break_down
        async with opened(server) as channel:
            ending = asyncio.create_task(channel.run(heard))
            message = await offer(channel, room)
            await server.until(lambda: channel.health().is_ready)
            failed = server.press(room, ada, message, BUTTONS.button_id(0))
            with pytest.raises(OSError, match="disk full"):
                await asyncio.wait_for(ending, 10)
            await server.until(lambda: failed.state == "failed")
        assert server.calls(CALLBACK) == []
        async with receiving(server) as (_, heard):
            again = server.press(room, ada, message, BUTTONS.button_id(0))
            await server.until(lambda: again.acknowledged)
            assert len(presses(heard)) == 1
