"""A channel at run time: what a new policy changes, what it says after it was cancelled, and the turns of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings
from bubbot.gateway.channel_runtime import ChatLimits
from bubbot.gateway.limits import PersonLimits
from bubbot.gateway.migrations import ChatMigrations
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart, Role
from bubbot.stores.inmemory import InMemoryStore
from tests.turns import HOME, Bench, running


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(InMemoryStore(), ScriptedModel()) as made:
        yield made


async def test_another_policy_counts_from_now_on_for_chats_that_moved_as_well(bench: Bench) -> None:
    line = bench.line
    line.migrations = ChatMigrations(lambda: {"-1": "-1001"})
    admission = AdmissionPolicy(AdmissionSettings(groups=frozenset({"-1001"})), lambda *_: Role.STRANGER, lambda: 0.0)
    limits = PersonLimits(messages_per_minute=1)
    line.apply_policy(structs.replace(line.policy, admission=admission, person_limits=limits))
    inbounds = [bench.inbound("hello", chat=chat, sender="5", direct=False) for chat in ("-1", "-2")]
    assert [line.link.role(inbound) for inbound in inbounds] == [Role.MEMBER, Role.STRANGER]
    assert (line.policy.admission, line.limiter.limits) == (admission, limits)
    line.apply_policy(structs.replace(line.policy, admission=None))
    assert [line.link.role(inbound) for inbound in inbounds] == [Role.OWNER, Role.OWNER]


async def test_what_a_cancelled_channel_has_to_say_is_left_to_its_successor(bench: Bench) -> None:
    message = await bench.outbox.enqueue(HOME, "key", (MessagePart("home", "ding"),), {})
    bench.line.cancel()
    await bench.line.deliver(message)
    assert bench.channel.texts == []
    assert [one.id for one in await bench.outbox.pending()] == [message.id]


async def test_the_threads_of_a_chat_share_its_turns_and_leave_those_of_other_chats() -> None:
    limits = ChatLimits(2)
    active: list[str] = []
    most: dict[str, int] = {}

    async def run(chat: str, number: int) -> None:
        for _ in range(number):  # one comes after the other, while some wait
            await asyncio.sleep(0)
        async with limits.acquire(f"test:{chat}:{number}"):
            active.append(chat)
            most[chat] = max(most.get(chat, 0), active.count(chat))
            for _ in range(3):
                await asyncio.sleep(0)
            active.remove(chat)

    await asyncio.gather(*(run(chat, number) for chat in ("home", "other") for number in range(8)))
    assert most == {"home": 2, "other": 2}


async def test_who_stops_waiting_for_a_turn_of_a_chat_takes_none() -> None:
    limits = ChatLimits(1)
    async with limits.acquire("test:home"):
        waiting = asyncio.ensure_future(limits.acquire("test:home").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        later = asyncio.ensure_future(limits.acquire("test:home:7").__aenter__())
        await asyncio.sleep(0)
        assert not later.done()
    await later
