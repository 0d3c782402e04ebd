"""What every adapter promises, whatever its platform. A bench is a platform with one person who talks with the bot;
a test class with a fixture `bench` that inherits from `ChannelPromises` holds the adapter to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import pytest
from msgspec import structs

from bubbot.errors import BubbotError, StoreUnavailable
from bubbot.identity import is_id
from bubbot.ports.channel import Channel, ChannelEvent, Inbound, MessagePart, Outbound, OutboundFile, Receipt

WAIT = 60.0
KEY = "p0123456789abcdef0123"
LONG = "\n\n".join(f"Paragraph {number}: " + "words and words. " * 12 for number in range(60))


class Bench(Protocol):
    """A platform for a test."""

    takes_keys: bool
    """Whether the platform takes a part with the same key once."""

    @property
    def chat(self) -> str:
        """The person's chat, as the adapter names it."""

    def channel(self) -> AbstractAsyncContextManager[Channel]:
        """A new adapter, as a new process has it; its files come from `blob_of`."""

    def say(self, text: str) -> None:
        """The person says something."""

    def seen(self) -> list[str]:
        """What the bot has said, as the person sees it, texts alone."""


async def blob_of(digest: str) -> bytes:
    """The stored file with this digest."""
    return f"bytes of {digest}".encode()


@dataclass
class Ear:
    """Receives as the bot does. After `takes` events it goes deaf: what comes then is never durable."""

    takes: int = 1000
    events: list[Inbound] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    async def __call__(self, event: ChannelEvent) -> bool:
        assert isinstance(event, Inbound)
        if len(self.events) >= self.takes:
            self.cut.append(event.text)
            await asyncio.Event().wait()
        self.events.append(event)
        return True


@asynccontextmanager
async def running(channel: Channel, ear: Ear) -> AsyncIterator[asyncio.Task[None]]:
    """The channel, run for the block and then cancelled, as at the end of the bot."""
    task = asyncio.create_task(channel.run(ear))
    try:
        yield task
    finally:
        task.cancel()
        async with asyncio.timeout(WAIT):
            ended = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended


async def until(done: Callable[[], object]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(WAIT):
        while not done():  # noqa: ASYNC110 - platforms tell in ways of their own
            await asyncio.sleep(0.005)


async def life(bench: Bench, ear: Ear, done: Callable[[], object]) -> None:
    """A process that listens until something is so."""
    async with bench.channel() as channel, running(channel, ear):
        await until(done)


class ChannelPromises:
    """The promises."""

    async def test_a_message_has_all_that_the_gateway_needs(self, bench: Bench) -> None:
        ear = Ear()
        async with bench.channel() as channel, running(channel, ear):
            bench.say("hello \u6f22\U0001f44d")
            await until(lambda: ear.events)
            name = channel.name
        event = ear.events[0]
        assert (event.channel, event.chat, event.text) == (name, bench.chat, "hello \u6f22\U0001f44d")
        assert is_id(event.sender.id)
        assert event.external_id
        assert event.message
        assert event.direct
        offset = datetime.fromisoformat(event.time).utcoffset()
        assert offset is not None
        assert not offset

    async def test_what_was_not_durable_comes_again_and_nothing_under_another_id(self, bench: Bench) -> None:
        texts = [f"message {number}" for number in range(5)]
        for text in texts:
            bench.say(text)
        heard: list[Inbound] = []
        for takes in (0, 2, 1, 1000):
            ear, before = Ear(takes), {one.text for one in heard}
            await life(
                bench,
                ear,
                lambda: ear.cut or {one.text for one in ear.events} | before >= set(texts),  # noqa: B023
            )
            heard += ear.events
        assert {one.text for one in heard} == set(texts)
        assert len({(one.text, one.external_id) for one in heard}) == len({one.external_id for one in heard}) == 5

    async def test_messages_come_in_the_order_in_which_they_were_sent(self, bench: Bench) -> None:
        texts, ear = [f"message {number}" for number in (3, 1, 2)], Ear()
        for text in texts:
            bench.say(text)
        await life(bench, ear, lambda: len(ear.events) == 3)
        assert [one.text for one in ear.events] == texts

    async def test_a_store_that_fails_once_costs_nothing(self, bench: Bench) -> None:
        ear, failures = Ear(), [StoreUnavailable("the disk sleeps")]

        async def receive(event: ChannelEvent) -> bool:
            if failures:
                raise failures.pop()
            return await ear(event)

        async def supervised(channel: Channel) -> None:
            while True:
                try:
                    await channel.run(receive)
                except BubbotError:
                    await asyncio.sleep(0)

        bench.say("hello")
        async with bench.channel() as channel:
            task = asyncio.create_task(supervised(channel))
            try:
                await until(lambda: ear.events)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @pytest.mark.parametrize("text", ["short", "a\n\nb", "\u6f22" * 300, LONG])
    async def test_an_answer_arrives_whole_and_in_order(self, bench: Bench, text: str) -> None:
        bench.say("hello")
        ear = Ear()
        async with bench.channel() as channel, running(channel, ear):
            await until(lambda: ear.events)
            given = ear.events[0]
            for part in channel.parts(Outbound(channel.name, given.chat, text, given.thread, given.message)):
                assert isinstance(await channel.send(part), Receipt)
        assert "".join("".join(bench.seen()).split()) == "".join(text.split())

    async def test_it_sends_before_it_receives_and_after(self, bench: Bench) -> None:
        async with bench.channel() as channel:
            await channel.send(MessagePart(bench.chat, "before"))
            async with running(channel, Ear()):
                pass
            await channel.send(MessagePart(bench.chat, "after"))
        assert bench.seen() == ["before", "after"]

    async def test_parts_are_the_same_each_time_and_can_be_stored(self, bench: Bench) -> None:
        files = (OutboundFile("a.py", text="x = 1"), OutboundFile("b.bin", "application/octet-stream", digest="d" * 64))
        async with bench.channel() as channel:
            out = Outbound(channel.name, bench.chat, f"**Bold** and `code`.\n\n{LONG}", "", "", files)
            parts = list(channel.parts(out))
            assert parts == list(channel.parts(out))
        assert [part.file for part in parts if part.file] == list(files)
        assert {part.chat for part in parts} == {bench.chat}
        for part in parts:
            assert json.loads(json.dumps(dict(part.markup))) == dict(part.markup)

    async def test_a_part_that_is_sent_again_by_a_later_process_is_seen_once(self, bench: Bench) -> None:
        if not bench.takes_keys:
            pytest.skip("its platform takes no keys: a part may be seen twice")
        for _ in range(2):
            async with bench.channel() as channel:
                await channel.send(MessagePart(bench.chat, "same words", key=KEY))
                await channel.send(structs.replace(MessagePart(bench.chat, "same words"), key=f"{KEY}x"))
        assert bench.seen() == ["same words"] * 2
