"""What waits behind a reset stays, whatever it is, and is answered by the process that comes after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bubbot.errors import DeliveryFailed
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Deletion, Edit, Inbound, Quote, Reaction, Sender
from bubbot.ports.model import ModelEvent, ModelRequest
from bubbot.runtime.queue import QueuePolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from bubbot.tape.store import TapeStore
from tests.gateways import Stage, failing, rules
from tests.turns import Bench, KeptMemory, Options, Played, calls, running, texts_of
from tests.unit.runtime.test_recovery import Gate
from tests.virtual import virtual

ANN = Sender("1", "Ann")
AT = "2026-11-21T20:21:00+00:00"

RESETS = {
    "erase": [",reset erase"],
    "archive": [",reset archive"],
    "erase twice": [",reset erase", ",reset erase"],
    "archive, erase": [",reset archive", ",reset erase"],
    "erase, archive": [",reset erase", ",reset archive"],
}


class HeldModel(ScriptedModel):
    """Answers what holds the word "held" only after `go_on` was released for it."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.asked = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        if "held" in str(request.messages[-1]["content"]):
            self.asked.release()
            await self.go_on.acquire()
        async for item in super().stream(request):
            yield item


async def next_life(store: TapeStore, options: Options | None = None) -> tuple[list[str], list[str]]:
    """What the next process says, and what people said on the tape after that; nothing is open any more."""
    async with running(store, ScriptedModel(), options, life="second") as bench:
        await bench.resume()
        await bench.quiet()
        work = await bench.find_open_work()
        assert (work.inbounds, work.changes, await bench.outbox.pending()) == ((), (), ())
        return bench.channel.texts, texts_of(await bench.entries(), "user")


@pytest.mark.law("T2", "T17")
@pytest.mark.parametrize("kind", RESETS)
async def test_messages_behind_every_kind_of_reset_are_answered_after_a_kill(store: TapeStore, kind: str) -> None:
    """The process ends while it answers the first message behind the last reset; a second one waits."""
    resets, model = RESETS[kind], HeldModel()
    async with running(store, model) as bench:
        results = [await bench.post(text) for text in ("held before", *resets, "held one", "two")]
        await model.asked.acquire()
        model.go_on.release()
        await model.asked.acquire()
        assert [result.done() for result in results] == [True] * (1 + len(resets)) + [False] * 2
    said, asked = await next_life(store)
    assert said == ["You said: held one", "You said: two"]
    assert asked == ["held one", "two"]


@pytest.mark.law("T2", "T17")
async def test_a_message_between_two_resets_is_answered_and_then_erased(store: TapeStore) -> None:
    model = HeldModel()
    async with running(store, model) as bench:
        for text in ("held before", ",reset erase", "held one", ",reset erase", "two"):
            await bench.post(text)
        await model.asked.acquire()
        model.go_on.release()
        await model.asked.acquire()
    said, asked = await next_life(store)
    assert [text.partition(".")[0] for text in said] == ["You said: held one", "The tape starts anew", "You said: two"]
    assert asked == ["two"]


async def wait_behind(bench: Bench) -> None:
    """Messages, and changes of them, that come while a turn runs and a reset waits."""
    for text in ("held before", ",reset erase", "held one", "two", "three", "four"):
        await bench.post(text, external_id=text)
    await bench.gate.receive(Edit("test", "e", "home", "two", ANN, "two, changed", AT))
    await bench.gate.receive(Deletion("test", "d", "home", "three", AT))
    await bench.gate.receive(Reaction("test", "r", "home", "four", ANN, ("👍",), AT))
    recorded = Inbound("test", "n", "home", ANN, "only noted", AT, message="n", addressed=False)
    change = await bench.inbox.record_change(recorded)
    assert change is not None
    bench.app.submit_change(change)


@pytest.mark.law("T2", "T17")
async def test_edits_deletions_reactions_and_notes_behind_a_reset_take_effect_after_a_kill(store: TapeStore) -> None:
    model = HeldModel()
    async with running(store, model) as bench:
        await wait_behind(bench)
        await model.asked.acquire()
        model.go_on.release()
        await model.asked.acquire()
    said, asked = await next_life(store)
    assert said == ["You said: held one", "You said: two, changed", "You said: four"]
    assert asked == ["held one", "two, changed", "four", "only noted"]
    async with running(store, ScriptedModel(), life="third") as bench:
        assert [data["emojis"] for data in await bench.events("reaction")] == [("👍",)]


@pytest.mark.law("T2", "T17")
async def test_an_answer_out_of_turn_that_came_after_the_reset_is_delivered_after_a_kill(store: TapeStore) -> None:
    """A status, and the notice of a message that is dropped: both belong to what was said after the reset."""
    options, model = Options(waiting=QueuePolicy(busy="drop")), HeldModel()
    async with running(store, model, options) as bench:
        await bench.post("held before")
        await model.asked.acquire()
        await bench.post(",reset erase")
        bench.channel.failures = [DeliveryFailed("offline")] * 4
        for text in (",status", "dropped"):
            await bench.gate.receive(bench.inbound(text))
        model.go_on.release()
        await bench.quiet()
    said, _ = await next_life(store, options)
    heads = [
        "I am answering",
        "I am still answering; what you wrote meanwhile was not taken up",
        "The tape starts anew",
    ]
    assert [text.startswith(head) for text, head in zip(said, heads, strict=True)] == [True] * 3, said


@pytest.mark.law("T17")
async def test_an_answer_that_did_not_arrive_before_an_erasure_ends_with_a_fact(store: TapeStore) -> None:
    async with running(store, ScriptedModel()) as bench:
        bench.channel.failures = [DeliveryFailed("offline")]
        await bench.say("my secret plan")
        (intent,) = await bench.outbox.pending()
        await bench.say(",reset erase")
        assert await bench.events("outbox/ended", bench.outbox.name) == [{"intent": intent.id, "reason": "erased"}]
    assert (await next_life(store))[0] == []


@pytest.mark.law("T17")
async def test_what_the_request_quotes_is_erased_with_it(store: TapeStore) -> None:
    async with running(store, ScriptedModel()) as bench:
        await bench.say("my secret plan")
        quote = Quote("p1", Sender("9", "Bot"), "You said: my secret plan", own=True)
        await bench.say(",reset erase", quote=quote, reply_to="p1")
        everything = [await bench.entries(tape.name) for tape in await store.tapes()]
        assert "my secret plan" not in str(everything)
        assert [e for entries in everything for e in entries if e.kind == Kind.EVENT and e.erased] != []


@pytest.mark.law("T2", "T14", "T17")
async def test_a_request_whose_turn_is_cut_off_after_its_reset_was_saved_stays_open(
    store: TapeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fails after the reset, the model calls a tool, and both this process and the next are killed."""
    gate = Gate()

    async def fail(*_: object) -> None:
        raise RuntimeError("broken")

    async with running(store, Played(calls("wait_here")), Options(tools=[gate.tool()])) as bench:
        with monkeypatch.context() as patched:
            patched.setattr(KeptMemory, "start_again", fail)
            await bench.post(",reset erase")
            await gate.entered.wait()
        (fork,) = await store.forks()
        assert fork.reset is not None
    async with running(store, ScriptedModel(), life="killed") as bench:
        await bench.recover()  # it merges the fork, and no more
    said, asked = await next_life(store)
    assert [text.partition(".")[0] for text in said] == ["The tape starts anew"]
    assert asked == []


@pytest.mark.law("T2", "T17")
async def test_an_answer_that_is_given_up_while_it_is_erased_ends_once(
    store: TapeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chat is gone: the delivery says so between the look of the reset at what is open and its merge."""
    async with running(store, ScriptedModel()) as bench:
        bench.channel.failures = [DeliveryFailed("offline")]
        await bench.say("my secret plan")
        (intent,) = await bench.outbox.pending()

        async def abandon(*_: object) -> None:
            await bench.outbox.abandon(intent, "the chat is gone")

        with monkeypatch.context() as patched:
            patched.setattr(KeptMemory, "start_again", abandon)
            await bench.say(",reset erase")
        assert await bench.events("outbox/ended", bench.outbox.name) == [
            {"intent": intent.id, "reason": "the chat is gone"}
        ]
        assert "my secret plan" not in str([await bench.entries(tape.name) for tape in await store.tapes()])
    assert (await next_life(store))[0] == []


@virtual
@pytest.mark.law("T17")
async def test_answers_that_wait_for_the_platform_are_not_sent_after_they_were_erased(
    memory_store: InMemoryStore,
) -> None:
    """One is tried again and again, the other waits behind it; the tape says that both ended."""
    stage = Stage()
    stage.fail = failing("send", *[DeliveryFailed("offline")] * 20)
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage) as bench:
        for text in ("my secret plan", "another secret", ",reset erase"):
            await bench.gate.receive(bench.inbound(text))
            await bench.app.wait_idle()
        await bench.quiet(1000)
        assert [part.text.partition(".")[0] for part in stage.sent] == ["The tape starts anew"]
        assert [data["reason"] for data in await bench.events("outbox/ended", bench.outbox.name)] == ["erased"] * 2
        assert await bench.outbox.pending() == ()
