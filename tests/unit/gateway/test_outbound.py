"""Delivering in the background: in order within a chat, patient, and never stopped by one chat or a bad adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed, LeaseLost, StoreFull
from bubbot.feature import Around, Feature
from bubbot.middleware import PartDelivery
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart, Outbound, Receipt
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import Stage, failing, rules
from tests.turns import HOME, Bench, KeptChannel, Options, running
from tests.virtual import virtual

SEND_TIMEOUT_SECONDS = 120.0


OUTBOX = "bubbot/outbox/test"
OFFLINE = DeliveryFailed("offline")


def delivering(stage: KeptChannel, store: TapeStore | None = None, life: str = "first", **given: Any) -> Any:
    """A bot that delivers in the background."""
    options = Options(rules=rules(), **given)
    return running(store or InMemoryStore(), ScriptedModel(), options, channel=stage, life=life)


async def said(bench: Bench, *texts: str, chat: str = "home") -> None:
    for text in texts:
        await bench.gate.receive(bench.inbound(text, chat=chat))
        await bench.app.wait_idle()


def in_chat(stage: Stage, chat: str) -> list[str]:
    return [part.text.removeprefix("You said: ") for part in stage.sent if part.chat == chat]


@virtual
async def test_answers_of_one_chat_keep_their_order_while_one_is_tried_again() -> None:
    stage = Stage()
    stage.fail = failing("send", OFFLINE, OFFLINE, OFFLINE)
    async with delivering(stage) as bench:
        await said(bench, "one", "two", "three")
        await bench.quiet(1000)
        assert in_chat(stage, "home") == ["one", "two", "three"]
        assert stage.times("send")[0] == pytest.approx(1 + 2 + 2)  # the last wait goes on
        assert len(await bench.events("outbox/receipt", OUTBOX)) == 3


@virtual
async def test_what_replaces_a_message_is_not_sent_on_a_channel_that_cannot_edit() -> None:
    outcome = Outbound("test", "home", "Done.", edits="p-1")
    changing, unchanging = Stage(), KeptChannel()
    changing.seen["p-1"] = "Well?"
    for channel in (changing, unchanging):
        async with delivering(channel) as bench:
            intent = await bench.outbox.enqueue(HOME, "outcome", tuple(bench.line.link.split(outcome)), {})
            await bench.line.deliver(intent)
            await bench.quiet()
            assert channel.sent == []
            (receipt,) = await bench.events("outbox/receipt", OUTBOX)
            assert receipt["external_id"] == ("p-1" if channel is changing else "")
            assert await bench.outbox.pending() == ()
    assert changing.seen == {"p-1": "Done."}


@virtual
async def test_a_chat_that_cannot_be_reached_keeps_no_other_waiting() -> None:
    class Blocked(Stage):
        """Cannot reach one chat."""

        async def send(self, part: MessagePart) -> Receipt:
            """See `Channel.send`."""
            if part.chat == "a":
                raise DeliveryFailed("offline")
            return await super().send(part)

    stage = Blocked()
    async with delivering(stage) as bench:
        await said(bench, "never", chat="a")
        await said(bench, "at once", chat="b")
        await asyncio.sleep(1)
        assert in_chat(stage, "b") == ["at once"]
        assert bench.deliverer.has_pending("a")
        assert not bench.deliverer.has_pending("b")


@virtual
async def test_a_platform_that_asks_to_wait_is_waited_for() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("slowly", retry_after=40.0))
    async with delivering(stage) as bench:
        await said(bench, "one")
        await bench.quiet(1000)
        assert stage.times("send") == pytest.approx([40.0])


@virtual
async def test_after_its_age_an_intent_is_given_up_with_a_fact_and_the_next_goes_out() -> None:
    stage, clock = Stage(), SteppingClock()
    stage.fail = failing("send", *[OFFLINE] * 4)
    async with delivering(stage, clock=clock) as bench:
        await said(bench, "one", "two")
        await asyncio.sleep(4)
        clock.advance(timedelta(days=2))
        await bench.quiet(1000)
        assert [data["reason"] for data in await bench.events("outbox/ended", OUTBOX)] == ["offline"]
        assert in_chat(stage, "home") == ["two"]
        assert await bench.outbox.pending() == ()


@virtual
async def test_an_old_intent_is_tried_once_more_after_every_wait_before_it_is_given_up() -> None:
    stage, clock = Stage(), SteppingClock()
    tried: list[float] = []

    def fail(act: str) -> Exception | None:
        if act == "send":
            tried.append(asyncio.get_running_loop().time())
            return OFFLINE
        return None

    stage.fail = fail
    async with delivering(stage, clock=clock) as bench:
        await said(bench, "one")
        clock.advance(timedelta(days=2))
        await bench.quiet(1000)
        assert [at - tried[0] for at in tried] == pytest.approx([0, 1, 1 + 2])
        assert await bench.outbox.pending() == ()


@virtual
async def test_a_message_that_does_not_arrive_for_long_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.fail = failing("send", *[OFFLINE] * 9)
    async with delivering(stage) as bench:
        await said(bench, "one")
        await bench.quiet(1000)
        assert in_chat(stage, "home") == ["one"]
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert found == ["message not delivered yet, tried again every 2 s: offline"]


@virtual
async def test_a_refusal_for_good_ends_it_at_once() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("blocked", permanent=True))
    async with delivering(stage) as bench:
        await said(bench, "one", "two")
        await bench.quiet()
        assert in_chat(stage, "home") == ["two"]
        assert [data["reason"] for data in await bench.events("outbox/ended", OUTBOX)] == ["blocked"]


@virtual
async def test_a_later_process_goes_on_in_order_and_new_answers_come_after() -> None:
    store, stage = InMemoryStore(), Stage()
    stage.fail = lambda _: OFFLINE
    async with delivering(stage, store) as bench:
        await said(bench, "one", "two")
    stage.fail = lambda _: None
    async with delivering(stage, store, "second") as bench:
        assert await bench.resume() == []
        await said(bench, "three")
        await bench.quiet()
        assert in_chat(stage, "home") == ["one", "two", "three"]
        assert [data.get("resumed") for data in await bench.events("outbox/receipt", OUTBOX)] == [True, True, None]


@virtual
async def test_a_later_process_ends_what_cannot_be_read_and_delivers_the_rest() -> None:
    store, stage = InMemoryStore(), Stage()
    stage.fail = lambda _: OFFLINE
    async with delivering(stage, store) as bench:
        await TapeService(store, OUTBOX, now=SteppingClock(), new_id=CountingIds()).append(
            [event("outbox/intent", {"parts": 7})]
        )
        await said(bench, "one")
    stage.fail = lambda _: None
    for name in ("second", "third"):
        async with delivering(stage, store, name) as bench:
            await bench.resume()
            await bench.quiet()
            assert in_chat(stage, "home") == ["one"]
            assert [data["reason"] for data in await bench.events("outbox/ended", OUTBOX)] == ["unreadable"]


@virtual
async def test_a_message_that_showed_the_answer_takes_it_after_a_restart_too() -> None:
    store, stage = InMemoryStore(), Stage()
    stage.seen["p9"] = "half …"
    stage.fail = lambda _: OFFLINE
    async with delivering(stage, store) as bench:
        await said(bench, "one")
        await bench.outbox.record_live(1, "test:home", "p9")
    stage.fail = lambda _: None
    async with delivering(stage, store, "second") as bench:
        await bench.resume()
        await bench.quiet()
        assert (stage.seen, stage.sent) == ({"p9": "You said: one"}, [])


@virtual
async def test_a_message_that_cannot_be_changed_now_is_waited_for_and_one_that_is_gone_is_not() -> None:
    for error, sent in ((OFFLINE, []), (DeliveryFailed("gone", permanent=True), ["You said: one"])):
        stage = Stage()
        stage.seen["p9"] = "half …"
        stage.fail = failing("edit", error)
        async with delivering(stage) as bench:
            accepted = await bench.inbox.accept(bench.inbound("one"))
            assert accepted is not None
            await bench.outbox.record_live(accepted.id, "test:home", "p9")
            await bench.gate.resume(structs.replace(accepted, attempts=1))
            await bench.quiet(100)
            assert stage.texts == sent
            assert "You said: one" in stage.seen.values()


class TestPoison:
    @pytest.mark.parametrize("error", [RuntimeError("a defect"), asyncio.CancelledError(), TimeoutError(), KeyError()])
    def test_whatever_sending_raises_it_is_tried_again(self, error: Exception) -> None:
        @virtual
        async def test() -> None:
            stage = Stage()
            stage.fail = failing("send", error, error)
            async with delivering(stage) as bench:
                await said(bench, "one", "two")
                await bench.quiet(1000)
                assert in_chat(stage, "home") == ["one", "two"]

        test()

    @virtual
    async def test_a_sending_that_hangs_is_given_up_and_tried_again(self) -> None:
        stage = Stage()
        stage.hang = {"send"}
        async with delivering(stage) as bench:
            await said(bench, "one")
            await asyncio.sleep(SEND_TIMEOUT_SECONDS / 2)
            stage.hang = set()
            await bench.quiet(1000)
            assert stage.times("send") == pytest.approx([SEND_TIMEOUT_SECONDS + 1])

    @virtual
    async def test_a_receipt_that_is_none_is_one_without_an_id(self) -> None:
        class Wordless(Stage):
            """Returns nothing."""

            async def send(self, part: MessagePart) -> Receipt:
                """See `Channel.send`."""
                await super().send(part)
                return None  # type: ignore[return-value]

        stage = Wordless()
        async with delivering(stage) as bench:
            await said(bench, "one", "two")
            await bench.quiet()
            assert in_chat(stage, "home") == ["one", "two"]
            assert await bench.outbox.pending() == ()

    @pytest.mark.parametrize("fails", [True, False])
    def test_an_answer_that_cannot_be_cut_is_sent_whole(self, fails: bool) -> None:
        class Uncut(Stage):
            """Cuts everything into nothing, or not at all."""

            def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
                """See `Channel.parts`."""
                if fails:
                    raise ValueError("a defect")
                return []

        @virtual
        async def test() -> None:
            stage = Uncut()
            async with delivering(stage) as bench:
                await said(bench, "one", ",stop")
                await bench.quiet()
                assert stage.texts == ["You said: one", "Nothing is running here."]
                await bench.deliverer.notify(Outbound("test", "home", "a notice"))
                assert stage.texts[2:] == ["a notice"]

        test()


class Filling(InMemoryStore):
    """A disk that may be full."""

    full = False

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        if self.full:
            raise StoreFull("the disk is full")
        return await super().append(batches)


@virtual
async def test_a_full_disk_does_not_send_the_same_answer_at_every_start() -> None:
    store, stage = Filling(), Stage()
    stage.fail = lambda _: OFFLINE
    async with delivering(stage, store) as bench:
        await said(bench, "one")
    stage.fail = lambda _: None
    store.full = True

    async def start(life: str) -> None:
        async with delivering(stage, store, life) as bench:
            await bench.resume()
            await bench.quiet()

    for life in ("second", "third"):
        with pytest.raises(ExceptionGroup) as caught:
            await start(life)
        assert caught.group_contains(StoreFull)
    assert stage.sent == []
    store.full = False
    await start("last")
    assert in_chat(stage, "home") == ["one"]


@virtual
async def test_a_notice_waits_for_what_its_chat_gets_first_and_nobody_waits_for_it() -> None:
    stage = Stage()
    stage.fail = failing("send", OFFLINE, OFFLINE)
    async with delivering(stage) as bench:
        await said(bench, "one")
        await bench.line.notify(Outbound("test", "home", "a notice"))
        assert stage.sent == []
        await bench.quiet(1000)
        assert in_chat(stage, "home") == ["one", "a notice"]


@virtual
async def test_what_another_process_sends_stays_open_and_is_not_given_up() -> None:
    async def refuse(_delivery: PartDelivery, _call_next: Any) -> Receipt:
        raise LeaseLost("another process has it")

    stage = Stage()
    async with delivering(stage, features=[Feature(name="fence", around=Around(delivery=[refuse]))]) as bench:
        await said(bench, "one")
        await bench.quiet(1000)
        assert (stage.sent, await bench.events("outbox/ended", OUTBOX)) == ([], [])
        assert len(await bench.outbox.pending()) == 1
