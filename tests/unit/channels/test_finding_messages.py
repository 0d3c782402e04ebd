"""What may have been sent already: it carries the same key, is looked for, and is not said twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bubbot.errors import DeliveryFailed
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.stores.inmemory import InMemoryStore
from tests.gateways import Stage, failing, rules
from tests.turns import Bench, Options, running
from tests.virtual import virtual

OUTBOX = "bubbot/outbox/test"
LOST = DeliveryFailed("the connection was cut", maybe=True)


class Finding(Stage):
    """A platform that can be asked, and one that takes keys; `lose`: sendings that arrive and are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.looked: list[tuple[str, str]] = []
        self.lose = 0
        self.blind: DeliveryFailed | None = None

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        self.keys.append(part.key)
        receipt = await super().send(part)
        if self.lose:
            self.lose -= 1
            raise LOST
        return receipt

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """See `FindsMessages`."""
        self.looked.append((part.text, since))
        if self.blind:
            raise self.blind
        return [message for message, text in self.seen.items() if text == part.text]


def delivering(stage: Stage, store: InMemoryStore, life: str = "first") -> Any:
    return running(store, ScriptedModel(), Options(rules=rules()), channel=stage, life=life)


async def receipts(bench: Bench) -> list[dict[str, Any]]:
    return [dict(data) for data in await bench.events("outbox/receipt", OUTBOX)]


async def said(bench: Bench, text: str) -> None:
    await bench.gate.receive(bench.inbound(text))
    await bench.quiet(200)


@virtual
async def test_a_sending_that_was_not_answered_is_found_and_not_repeated() -> None:
    stage = Finding()
    stage.lose = 1
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        assert stage.texts == ["You said: hello"]
        [receipt] = await receipts(bench)
        assert receipt["external_id"] in stage.seen
        assert receipt["found"] is True


@virtual
async def test_what_was_refused_for_now_is_not_looked_for() -> None:
    stage = Finding()
    stage.fail = failing("send", DeliveryFailed("slowly", retry_after=1.0), DeliveryFailed("offline"))
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        assert (stage.texts, stage.looked) == (["You said: hello"], [])
        assert await kinds(bench) == [""]


async def kinds(bench: Bench) -> list[str]:
    found = await receipts(bench)
    return [next((how for how in ("resumed", "found", "missing") if how in one), "") for one in found]


@virtual
async def test_the_same_words_said_before_are_not_taken_for_this_answer() -> None:
    stage = Finding()
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        stage.fail = failing("send", LOST)  # this one never arrives
        await said(bench, "hello")
        assert stage.texts == ["You said: hello"] * 2
        assert await kinds(bench) == ["", "missing"]


@virtual
async def test_a_later_process_finds_what_an_earlier_one_sent() -> None:
    stage, store = Finding(), InMemoryStore()
    async with delivering(stage, store) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        stage.lose = 1_000
        await asyncio.sleep(3)
        assert stage.sent
        await bench.kill()
    stage.lose = 0
    async with delivering(stage, store, "second") as bench:
        await bench.resume()
        await bench.quiet()
        assert stage.texts == ["You said: hello"]
        assert await kinds(bench) == ["found"]
        [intent] = [entry for entry in await bench.entries(OUTBOX) if entry.name == "outbox/intent"]
        assert stage.looked[-1] == ("You said: hello", intent.date)


@virtual
async def test_every_try_of_a_part_carries_one_key_and_every_part_another() -> None:
    stage, store = Finding(), InMemoryStore()
    stage.limit = 10
    stage.fail = failing("send", DeliveryFailed("offline"), DeliveryFailed("offline"))
    async with delivering(stage, store) as bench:
        await said(bench, "hello you")
        await said(bench, "hello you")
    first, *rest = stage.keys
    assert rest[:2] == [first, first]
    assert len(set(stage.keys)) == len(stage.texts) == 4
    assert all(0 < len(key) <= 25 for key in stage.keys)


@virtual
async def test_where_looking_is_useless_it_is_sent_and_the_receipt_says_that_it_may_repeat() -> None:
    stage = Finding()
    stage.lose, stage.blind = 1, DeliveryFailed("no permission to read", permanent=True)
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        assert stage.texts == ["You said: hello"] * 2
        assert await kinds(bench) == ["resumed"]


@virtual
async def test_where_looking_fails_for_now_nothing_is_sent_until_it_was_looked() -> None:
    stage = Finding()
    stage.lose, stage.blind = 1, DeliveryFailed("offline")
    async with delivering(stage, InMemoryStore()) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(20)
        assert len(stage.looked) > 3
        stage.blind = None
        await bench.quiet(200)
        assert stage.texts == ["You said: hello"]


@virtual
async def test_a_platform_that_cannot_be_asked_is_sent_it_again_and_the_receipt_says_so() -> None:
    stage = Stage()
    stage.fail = failing("send", LOST)
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        assert await kinds(bench) == ["resumed"]


@pytest.mark.parametrize("failure", [TimeoutError(), RuntimeError("a defect")])
@virtual
async def test_an_adapter_that_fails_in_an_unforeseen_way_may_have_sent_it(failure: Exception) -> None:
    stage = Finding()
    stage.fail = failing("send", failure)
    async with delivering(stage, InMemoryStore()) as bench:
        await said(bench, "hello")
        assert len(stage.looked) == 1
        assert stage.texts == ["You said: hello"]
