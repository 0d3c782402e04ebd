"""Everything that can break, at random, while people talk: nothing is lost, nothing changes its place in its chat."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from bubbot.ports.channel import BackfillCursor, ChannelEvent, Inbound
from tests.fakes.discord_channel import opened, with_pace
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User
from tests.fakes.platform.faults import Drop, Html, Slow

HISTORY = "GET /channels/{}/messages"
FAULTS = (Drop(), Html(503), Refuse(503), TooMany(0.05), Slow(0.02))


class Durable:
    """What is kept over restarts, as the inbox keeps it: each event once. Taking one may fail, and takes its time."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._seen: set[str] = set()
        self.inbounds: list[Inbound] = []

    async def __call__(self, event: ChannelEvent) -> bool:
        await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.01)))
        if self._chance.random() < 0.002:
            raise RuntimeError("the disk is full")
        if isinstance(event, Inbound) and event.external_id not in self._seen:
            self._seen.add(event.external_id)
            self.inbounds.append(event)
            self._server.world.changed.set()
        return True

    def known(self, people: list[User]) -> BackfillCursor:
        newest: dict[tuple[str, str], str] = {}
        for one in self.inbounds:
            newest[one.chat, one.thread] = one.message
        heard = max((one.time for one in self.inbounds), default="")
        return BackfillCursor(newest, heard, tuple(str(one.id) for one in people))


async def _live(
    server: Server, durable: Durable, people: list[User], chance: random.Random, stop: asyncio.Event
) -> None:
    """Runs the channel, and runs it again: it is killed now and then, and sometimes fails by itself."""
    while not stop.is_set():
        pace = with_pace(max_queued_events=15, max_backoff=0.05, silence_timeout=0.4, silence_margin=0.1)
        async with opened(server, durable.known(people), pace) as channel:
            task = asyncio.create_task(channel.run(durable))
            ending = asyncio.create_task(stop.wait())
            await asyncio.wait({task, ending}, timeout=chance.uniform(0.3, 1.5), return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            task.cancel()
            await asyncio.gather(task, ending, return_exceptions=True)


def _break(server: Server, chance: random.Random) -> None:
    gateway = server.gateway
    what = chance.randrange(8)
    if what == 0:
        gateway.drop()
    elif what == 1:
        gateway.invalidate(resumable=chance.random() < 0.5)
    elif what == 2:
        gateway.reconnect()
    elif what == 3:
        gateway.close(chance.choice((4000, 4007, 4009)))
    elif what == 4:
        gateway.deaf()
    elif what == 5:
        gateway.raw(b"\x00garbage\x00\x00\xff\xff")
    else:
        server.fail(HISTORY, chance.choice(FAULTS), times=chance.randint(1, 3))


async def _storm(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    async with Server(heartbeat=0.1, limits=None) as server:
        people = [server.user(name) for name in ("Ada", "Bob", "Eve")]
        place = server.guild("Guild", people[0], people)
        text = place.text("general")
        rooms: list[Room] = [text, place.text("other"), text.thread("topic", by=people[0])]
        rooms += [server.dm(one) for one in people]
        durable, stop = Durable(server, chance), asyncio.Event()
        said: defaultdict[int, list[str]] = defaultdict(list)
        # The first words make the bot one that is not new.
        living = asyncio.create_task(_live(server, durable, people, chance, stop))
        await server.until(lambda: server.gateway.connected)
        text.say(people[0], "begin")
        said[text.id].append("begin")
        await server.until(lambda: durable.inbounds)
        for number in range(rounds):
            for _ in range(chance.randint(0, 12)):
                room = chance.choice(rooms)
                who = people[rooms.index(room) - 3] if rooms.index(room) >= 3 else chance.choice(people)
                words = f"{number}.{len(said[room.id])}"
                room.say(who, words)
                said[room.id].append(words)
            if chance.random() < 0.4:
                _break(server, chance)
            await asyncio.sleep(chance.uniform(0, 0.05))
        server.faults.clear()
        total = sum(len(words) for words in said.values())
        try:
            await server.until(lambda: len(durable.inbounds) >= total, 60)
        finally:
            stop.set()
            await living
        found: defaultdict[int, list[str]] = defaultdict(list)
        for one in durable.inbounds:
            found[int(one.thread or one.chat)].append(one.text)
        assert dict(found) == dict(said), f"seed {seed}"


async def test_nothing_is_lost_or_moved_whatever_breaks() -> None:
    await _storm(seed=1, rounds=40)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2, 32))
async def test_nothing_is_lost_or_moved_in_many_storms(seed: int) -> None:
    await _storm(seed, rounds=120)
