"""The gateway: durable before it is acknowledged, delivered in order with a receipt for every part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed, StoreFull
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart, Outbound, Receipt, UnparsedUpdate
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingIds
from tests.turns import WAIT, KeptChannel, Options, Played, running, says

QUEUE_LIMIT = 64


OUTBOX = "bubbot/outbox/test"


class TestReceiving:
    async def test_a_message_is_durable_when_receive_returns(self, store: TapeStore) -> None:
        async with running(store, Played({"text": "late", "delay": 60})) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            (received,) = await bench.events("inbox/received", bench.inbox.name)
            assert (received["text"], bench.channel.sent) == ("hello", [])

    async def test_what_the_store_refused_is_not_acknowledged_and_can_come_again(self) -> None:
        class Full(InMemoryStore):
            """Has no room for the first append."""

            full = True

            async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
                """See `TapeStore.append`."""
                if self.full:
                    self.full = False
                    raise StoreFull("the disk is full")
                return await super().append(batches)

        async with running(Full(), ScriptedModel()) as bench:
            with pytest.raises(StoreFull):
                await bench.gate.receive(bench.inbound("hello", external_id="1"))
            assert (await bench.say("hello", external_id="1")).text == "You said: hello"

    async def test_a_receiver_that_is_cancelled_once_the_message_is_durable_leaves_it_queued(self) -> None:
        committed = asyncio.Event()

        class Slow(InMemoryStore):
            """Is slow to say that it has committed."""

            async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
                """See `TapeStore.append`."""
                stored = await super().append(batches)
                committed.set()
                await asyncio.sleep(0)
                return stored

        async with running(Slow(), ScriptedModel()) as bench, asyncio.timeout(WAIT):
            receiving = asyncio.create_task(bench.gate.receive(bench.inbound("hello", external_id="1")))
            await committed.wait()
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            assert await bench.gate.accept(bench.inbound("hello", external_id="1")) is None  # the platform's repeat
            await bench.app.wait_idle()
            assert bench.channel.texts == ["You said: hello"]

    async def test_what_cannot_be_read_is_set_aside_and_the_chat_is_told(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.gate.receive(
                UnparsedUpdate("test", "u1", "home", b"\xff", "line 3 is not valid UTF-8 (byte 1)")
            )
            assert bench.channel.texts == [
                "I could not read that: line 3 is not valid UTF-8 (byte 1). It was kept as it came."
            ]
            assert len(await bench.events("inbox/unparsed", bench.inbox.name)) == 1

    async def test_a_chat_that_cannot_be_told_does_not_stop_the_channel(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            bench.channel.failures = [DeliveryFailed("gone")]
            await bench.gate.receive(UnparsedUpdate("test", "u1", "home", b"\xff", "not UTF-8"))
            assert (await bench.say("hello")).status == "answered"

    async def test_a_channel_that_is_faster_than_its_turns_is_made_to_wait(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"text": "late", "delay": 60})) as bench:
            for _ in range(QUEUE_LIMIT):
                await bench.gate.receive(bench.inbound("x"))
            one_more = asyncio.create_task(bench.gate.receive(bench.inbound("one more")))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not one_more.done()
            assert len(await bench.events("inbox/received", bench.inbox.name)) == QUEUE_LIMIT
            one_more.cancel()

    async def test_repeats_take_no_room(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"text": "late", "delay": 60})) as bench:
            async with asyncio.timeout(WAIT):
                for _ in range(3 * QUEUE_LIMIT):
                    await bench.gate.receive(bench.inbound("x", external_id="the same"))

    async def test_hundreds_of_messages_leave_marks_behind(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            for number in range(120):
                await bench.say(",tape.info", chat=str(number % 7))
            for tape in (bench.inbox.name, OUTBOX):
                names = [entry.name for entry in await bench.entries(tape)]
                assert [name for name in names if name and name.endswith("/checkpoint")] != []


class TestDelivering:
    async def test_every_part_has_a_receipt_in_order(self, memory_store: InMemoryStore) -> None:
        channel = KeptChannel()
        channel.limit = 4
        async with running(memory_store, Played(says("abcdefghij")), channel=channel) as bench:
            await bench.say("hello")
            assert channel.texts == ["abcd", "efgh", "ij"]
            receipts = await bench.events("outbox/receipt", OUTBOX)
            assert [(data["part"], data["external_id"]) for data in receipts] == [(0, "p1"), (1, "p2"), (2, "p3")]

    async def test_the_answer_goes_to_the_chat_and_quotes_the_message(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello", chat="a", external_id="m7")
            (sent,) = bench.channel.sent
            assert structs.replace(sent, key="") == MessagePart("a", "You said: hello", "", "m7")

    async def test_a_part_that_fails_is_tried_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(waits=(0, 0))) as bench:
            bench.channel.failures = [DeliveryFailed("busy"), DeliveryFailed("busy")]
            await bench.say("hello")
            assert bench.channel.texts == ["You said: hello"]

    async def test_what_cannot_be_sent_now_stays_open_and_the_next_answer_goes_out(
        self, memory_store: InMemoryStore
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            bench.channel.failures = [DeliveryFailed("offline")]
            await bench.say("one")
            await bench.say("two")
            assert bench.channel.texts == ["You said: two"]
            (left,) = await bench.outbox.pending()
            assert left.parts[0].text == "You said: one"

    async def test_a_refusal_for_good_ends_the_intent_with_its_reason(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(waits=(0, 0))) as bench:
            bench.channel.failures = [DeliveryFailed("the chat was deleted", permanent=True)]
            await bench.say("hello")
            assert bench.channel.texts == []
            assert [data["reason"] for data in await bench.events("outbox/ended", OUTBOX)] == ["the chat was deleted"]
            assert await bench.outbox.pending() == ()

    async def test_a_later_process_sends_only_the_parts_without_a_receipt(self, store: TapeStore) -> None:
        channel = KeptChannel()
        channel.limit = 4
        async with running(store, Played(says("abcdefgh")), channel=channel) as bench:
            send, left = channel.send, [2]

            async def once(part: MessagePart) -> Receipt:
                left[0] -= 1
                if not left[0]:
                    raise DeliveryFailed("offline")
                return await send(part)

            channel.send = once  # type: ignore[method-assign]
            await bench.say("hello")
            assert channel.texts == ["abcd"]
        async with running(store, ScriptedModel(), life="second") as bench:
            await bench.resume()
            assert bench.channel.texts == ["efgh"]
            assert [data.get("resumed") for data in await bench.events("outbox/receipt", OUTBOX)] == [None, True]

    async def test_resuming_can_be_for_one_session_only(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            bench.channel.failures = [DeliveryFailed("offline"), DeliveryFailed("offline")]
            for chat in ("a", "b"):
                await bench.say(f"for {chat}", chat=chat)
            assert await bench.deliverer.resume("test:b") == 1
            assert bench.channel.texts == ["You said: for b"]
            assert await bench.deliverer.resume() == 1

    async def test_what_is_told_at_once_owes_nothing(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.deliverer.notify(Outbound("test", "home", "I was away."))
            assert bench.channel.texts == ["I was away."]
            assert await bench.entries(OUTBOX) == ()

    async def test_answers_of_one_channel_do_not_mix_their_parts(self, memory_store: InMemoryStore) -> None:
        class Slow(KeptChannel):
            """Takes its time with each part."""

            async def send(self, part: MessagePart) -> Receipt:
                await asyncio.sleep(0)
                return await super().send(part)

        channel = Slow()
        channel.limit = 3
        ids = CountingIds("m")
        async with running(memory_store, Played(says("abcdef")), channel=channel) as bench:
            waiting = [await bench.post("x", chat=chat, external_id=ids()) for chat in "abc"]
            async with asyncio.timeout(WAIT):
                await asyncio.gather(*waiting)
            assert channel.texts == ["abc", "def"] * 3
