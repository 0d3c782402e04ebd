"""Messages that wait after a restart: Discord is asked once what arrived, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from bubbot.app.tapes import now
from bubbot.gateway.outbound import Deliverer, RetryPolicy, part_key
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.ports.channel import MessagePart
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from channels.discord.api import DiscordApiTiming
from channels.discord.channel import DiscordChannel
from channels.discord.settings import DiscordSettings
from tests.doubles import CountingIds
from tests.fakes.discord_channel import FAST as FAST_RECEIVING
from tests.fakes.discord_channel import options
from tests.fakes.discord_sending import CREATE, FAST, own
from tests.fakes.discordapi.asked import Sizes
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop

LIST = "GET /channels/{}/messages"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """One that has forgotten the keys of messages, so that only a search tells what arrived."""
    async with Server(limits=None, sizes=Sizes(nonce=0.0)) as made:
        yield made


@pytest.fixture
def room(server: Server) -> Room:
    return server.guild("Home", server.user("Ann")).text("general")


def open_outbox(store: SqliteStore) -> Outbox:
    """The outbox as a new process opens it."""
    return Outbox(TapeService(store, outbox_tape("dc"), now=now, new_id=CountingIds()))


@asynccontextmanager
async def opened(server: Server, timing: DiscordApiTiming = FAST) -> AsyncIterator[DiscordChannel]:
    """The channel as a new process opens it."""
    given = options(server)
    channel = DiscordChannel(given, DiscordSettings.read("dc", given.settings), timing, FAST_RECEIVING)
    try:
        yield channel
    finally:
        await channel.aclose()


async def intend(store: SqliteStore, room: Room, texts: Sequence[str], *, session: str = "") -> None:
    """Store what the bot means to say."""
    outbox, session = open_outbox(store), session or f"dc:{room.id}"
    for place, text in enumerate(texts):
        await outbox.enqueue(session, f"turn {session} {place}", (MessagePart(str(room.id), text),), {})


async def restart(store: SqliteStore, server: Server) -> list[str]:
    """Deliver what waits, as a start does; return what became of each part."""
    outbox = open_outbox(store)
    async with opened(server) as channel:
        deliverer = Deliverer(channel, outbox, RetryPolicy((0.0,), repeat_last=True), now=now)
        await deliverer.resume(queued=True)
        async with asyncio.timeout(60):
            await deliverer.wait_until_idle()
    receipts = (await store.fetch([TapeQuery(outbox.name, names=("outbox/receipt",))]))[0]
    ways = ("found", "missing", "resumed")
    return [next((way for way in ways if entry.data.get(way)), "") for entry in receipts]


async def send_without_receipt(store: SqliteStore, server: Server, number: int) -> None:
    """Send the first ones, as a process that is killed before it has stored their receipts."""
    async with opened(server) as channel:
        for message in (await open_outbox(store).pending())[:number]:
            part = message.parts[0]
            await channel.send(MessagePart(part.chat, part.text, key=part_key(message, 0)))


async def test_a_hundred_waiting_messages_cost_one_search(
    sqlite_store: SqliteStore, server: Server, room: Room
) -> None:
    texts = [f"answer {number}" for number in range(100)]
    await intend(sqlite_store, room, texts)
    await send_without_receipt(sqlite_store, server, 3)
    server.log.clear()
    ways = await restart(sqlite_store, server)
    assert own(server, room) == texts
    assert ways == ["found"] * 3 + ["missing"] * 97
    assert len(server.calls(LIST)) == 1
    assert len(server.calls(CREATE)) == 97


async def test_equal_texts_are_counted_and_each_is_there_once(
    sqlite_store: SqliteStore, server: Server, room: Room
) -> None:
    await intend(sqlite_store, room, ["same"] * 20)
    await send_without_receipt(sqlite_store, server, 5)
    ways = await restart(sqlite_store, server)
    assert own(server, room) == ["same"] * 20
    assert ways == ["found"] * 5 + ["missing"] * 15


async def test_each_chat_is_searched_for_itself(sqlite_store: SqliteStore, server: Server, room: Room) -> None:
    guild = room.channel.guild
    assert guild is not None
    other = server.guild("Other", server.user("Bob")).text("general")
    for place in (room, other):
        await intend(sqlite_store, place, ["one", "two", "three"])
    await send_without_receipt(sqlite_store, server, 4)
    server.log.clear()
    await restart(sqlite_store, server)
    assert (own(server, room), own(server, other)) == (["one", "two", "three"], ["one", "two", "three"])
    assert len(server.calls(LIST)) == 2


async def test_a_message_whose_response_is_lost_after_the_search_is_searched_for_again(
    sqlite_store: SqliteStore, server: Server, room: Room
) -> None:
    """It came after the list was read: the list alone would say that it is missing."""
    await intend(sqlite_store, room, ["one", "two", "three"])
    server.fail(CREATE, Drop("after"))
    server.log.clear()
    ways = await restart(sqlite_store, server)
    assert own(server, room) == ["one", "two", "three"]
    assert sorted(ways) == ["found", "missing", "missing"]
    assert len(server.calls(LIST)) == 2


async def test_in_a_busy_channel_each_page_is_read_once(sqlite_store: SqliteStore, server: Server, room: Room) -> None:
    guild = room.channel.guild
    assert guild is not None
    await intend(sqlite_store, room, [f"answer {number}" for number in range(30)])
    for number in range(350):
        room.say(guild.owner, f"{number}")
    await send_without_receipt(sqlite_store, server, 1)
    server.log.clear()
    ways = await restart(sqlite_store, server)
    assert own(server, room) == [f"answer {number}" for number in range(30)]
    assert ways == ["found"] + ["missing"] * 29
    assert len(server.calls(LIST)) == 4, "351 messages are four pages"


async def test_a_list_goes_once_many_parts_were_sent_after_it(
    server: Server, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bot that runs for years does not keep what it has sent."""
    monkeypatch.setattr("channels.discord.sender.MAX_NOTED_PARTS", 2)
    part = MessagePart(str(room.id), "never sent", key="k")
    long_ago, later = (now() - timedelta(minutes=minutes) for minutes in (20, 10))
    async with opened(server) as channel:
        assert await channel.find(part, long_ago.isoformat()) == []
        for number in range(3):
            await channel.send(MessagePart(str(room.id), f"answer {number}", key=f"sent {number}"))
        assert await channel.find(MessagePart(str(room.id), "answer 2", key="sent 2"), later.isoformat()) != []
    old_list, new_list = (int(call.query["after"]) for call in server.calls(LIST))
    assert new_list > old_list, "the list of long ago is still there"
