"""Live answers: typing and a growing message, never more than the platform takes, and the final text in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from bubbot.channel import File, Outbound, Part, Receipt
from bubbot.errors import DeliveryFailed
from bubbot.gateway.live import CALLED, FIRST_AFTER, GOES_ON, NOTHING_MORE, TYPING_AFTER, TYPING_EVERY, LiveAnswers
from bubbot.model import ModelEvent, ModelReply, ModelRequest, TextDelta, Usage
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.gateways import Stage, failing, rules
from tests.turns import HOME, Bench, Options, Played, Replying, calls, running, says
from tests.virtual import virtual

OUTBOX = "bubbot/outbox/test"


def writing(*pieces: str, every: float = 1.0) -> Replying:
    """A model that writes a piece every so many seconds."""

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for piece in pieces:
            await asyncio.sleep(every)
            yield TextDelta(piece)
        yield ModelReply("".join(pieces), (), "stop", Usage(), "writing")

    return Replying(stream)


def live(model: Any, stage: Stage, **given: Any) -> Any:
    """A bot on a stage."""
    return running(InMemoryStore(), model, Options(rules=replace(rules(), **given)), channel=stage)


def shown(bench: Bench) -> LiveAnswers:
    """What shows the bot's turns."""
    assert isinstance(bench.line.previews, LiveAnswers)
    return bench.line.previews


async def answered(bench: Bench, text: str = "hello") -> None:
    await bench.gate.receive(bench.inbound(text))
    await bench.quiet(1000)


@virtual
async def test_it_types_as_long_as_the_turn_runs_and_no_longer() -> None:
    stage = Stage()
    async with live(Played({"text": "done", "delay": 10}), stage) as bench:
        await answered(bench)
        assert stage.times("typing") == pytest.approx([TYPING_AFTER + times * TYPING_EVERY for times in range(3)])
        await asyncio.sleep(60)
        assert len(stage.times("typing")) == 3
        assert list(stage.seen.values()) == ["done"]


@virtual
async def test_what_is_answered_at_once_needs_no_typing() -> None:
    stage = Stage()
    async with live(Played({"text": "done", "delay": TYPING_AFTER / 2}), stage) as bench:
        await answered(bench)
        await answered(bench, ",help")
        assert (stage.times("typing"), stage.texts[0]) == ([], "done")


@virtual
async def test_a_message_grows_at_the_pace_of_the_platform_and_ends_as_the_answer() -> None:
    stage = Stage()
    pieces = [f"word{number} " for number in range(10)]
    async with live(writing(*pieces), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["".join(pieces).strip()]
        assert len(stage.acts("send")) == 1
        assert stage.acts("send")[0].endswith(GOES_ON)
        times = stage.times("edit")[:-1]  # the last one is the delivery
        assert stage.times("send")[0] == pytest.approx(1 + FIRST_AFTER)
        assert all(later - earlier >= stage.edit_interval - 1e-6 for earlier, later in pairwise(times))
        assert len(times) >= 3
        (receipt,) = await bench.events("outbox/receipt", OUTBOX)
        assert receipt["external_id"] in stage.seen


@virtual
async def test_a_quick_answer_is_simply_sent() -> None:
    stage = Stage()
    async with live(writing("quick", every=0.5), stage) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["quick"], [])


@virtual
async def test_without_live_there_is_typing_only() -> None:
    stage = Stage()
    async with live(writing(*"abcdefgh"), stage, live=False) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["abcdefgh"], [])
        assert stage.acts("typing")


@virtual
async def test_a_platform_that_asks_to_wait_is_not_asked_before() -> None:
    stage = Stage()
    stage.fail = failing("edit", DeliveryFailed("slowly", retry_after=20.0))
    async with live(writing(*(f"{number} " for number in range(40))), stage) as bench:
        await answered(bench)
        assert stage.times("edit")[0] >= stage.times("send")[0] + stage.edit_interval + 20.0
        assert list(stage.seen.values()) == [" ".join(map(str, range(40)))]


@virtual
async def test_a_message_that_is_gone_is_not_changed_any_more_and_the_answer_is_sent() -> None:
    stage = Stage()
    refusal = DeliveryFailed("deleted", permanent=True)
    stage.fail = failing("edit", refusal, refusal)
    async with live(writing(*(f"{number} " for number in range(10))), stage) as bench:
        await answered(bench)
        assert stage.acts("edit") == []
        assert stage.acts("send")[1:] == ["0 1 2 3 4 5 6 7 8 9"]


@virtual
async def test_a_first_message_that_fails_is_not_tried_again() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("offline"))
    async with live(writing(*(f"{number} " for number in range(9))), stage) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["0 1 2 3 4 5 6 7 8"], [])


@virtual
async def test_several_turns_in_a_row_have_a_message_each() -> None:
    stage = Stage()
    async with live(writing("one ", "two ", "three ", "four "), stage) as bench:
        for _ in range(3):
            await bench.gate.receive(bench.inbound("hello"))
        await bench.quiet(1000)
        assert list(stage.seen.values()) == ["one two three four"] * 3
        assert shown(bench)._running == {}


@virtual
async def test_silence_after_a_message_was_begun_leaves_no_half_of_a_text() -> None:
    stage = Stage()
    looking = {"text": "let me look", "delay": 1, **calls("tape_info")}
    async with live(Played(looking, {"delay": 9, **says("[SILENT]")}), stage) as bench:
        await answered(bench)
        assert len(stage.acts("send")) == 1
        assert list(stage.seen.values()) == ["let me look"]
        assert await bench.outbox.open() == ()


async def begun(store: TapeStore, stage: Stage) -> None:
    """A process that dies when it has begun to show its answer."""
    async with running(store, writing(*(["half "] * 1000), every=0.5), Options(rules=rules()), channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(10)
        assert await bench.events("outbox/preview", OUTBOX)


@virtual
async def test_a_run_again_goes_on_with_the_message_that_was_begun() -> None:
    store, stage = InMemoryStore(), Stage()
    await begun(store, stage)
    async with running(
        store, writing("a ", "b ", "c ", "d "), Options(rules=rules()), channel=stage, life="2"
    ) as bench:
        await bench.resume()
        await bench.quiet(1000)
    assert list(stage.seen.values()) == ["a b c d"]


@virtual
async def test_a_run_again_that_is_silent_closes_the_message_that_was_begun() -> None:
    store, stage = InMemoryStore(), Stage()
    await begun(store, stage)
    async with running(store, Played(says("[SILENT]")), Options(rules=rules()), channel=stage, life="2") as bench:
        await bench.resume()
        await bench.quiet(1000)
        await shown(bench).settled(HOME)
    assert list(stage.seen.values()) == [NOTHING_MORE]


@virtual
async def test_no_message_is_begun_before_an_earlier_answer_is_out() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("offline", retry_after=30.0))
    async with live(writing("one ", "two ", "three ", "four ", every=2.0), stage) as bench:
        bench.deliverer.queue(await bench.outbox.say(HOME, "earlier", (Part("home", "earlier"),), {}))
        for _ in range(2):
            await bench.gate.receive(bench.inbound("hello"))
        await bench.app.idle()
        await bench.quiet(1000)
        assert stage.acts("send")[0] == "earlier"
        assert stage.times("send")[0] >= 30
        assert stage.acts("send")[1] == "one two three four"


@virtual
async def test_a_text_longer_than_one_part_shows_its_first_and_is_delivered_whole() -> None:
    stage = Stage()
    stage.limit = 10
    async with live(writing(*(["abcde"] * 6)), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["abcdeabcde"] * 3
        edits = stage.acts("edit")
        assert len(edits) == len(set(edits)), "the same text was shown twice"


@virtual
async def test_an_answer_that_begins_with_a_file_names_it_in_the_message_that_was_begun() -> None:
    class Filing(Stage):
        """Sends long answers as files."""

        def parts(self, outbound: Outbound) -> Sequence[Part]:
            """See `Channel.parts`."""
            if outbound.text.endswith(GOES_ON):
                return super().parts(outbound)
            return [Part(outbound.chat, "", file=File("answer.md", text=outbound.text))]

    stage = Filing()
    async with live(writing(*"abcdef"), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["answer.md", ""]


class FarAway(Stage):
    """One that takes a while to show that the bot types."""

    async def typing(self, chat: str, thread: str) -> None:
        await asyncio.sleep(0.2)
        await super().typing(chat, thread)


@virtual
async def test_a_turn_that_ends_while_typing_is_asked_for_waits_for_nothing_more() -> None:
    stage, loop = FarAway(), asyncio.get_running_loop()
    delay = TYPING_AFTER + 0.1
    async with live(Played({"text": "done", "delay": delay}), stage) as bench:
        await answered(bench)
        assert stage.times("send") == pytest.approx([delay])
        began = loop.time()
        await answered(bench, ",status")
        assert stage.times("send")[1] == pytest.approx(began)


class TestPoison:
    @virtual
    async def test_a_channel_that_hangs_at_typing_costs_nothing(self) -> None:
        stage = Stage()
        stage.hang = {"typing"}
        async with live(Played({"text": "done", "delay": 1}), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["done"]

    @virtual
    async def test_a_channel_that_hangs_at_editing_delays_the_answer_only_so_long(self) -> None:
        stage = Stage()
        async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await asyncio.sleep(3)
            assert stage.seen
            stage.hang = {"edit"}
            await bench.app.idle()
            loop = asyncio.get_running_loop()
            ended = loop.time()
            await shown(bench).settled(HOME)
            assert loop.time() - ended <= 2 * CALLED
            stage.hang = set()
            await bench.quiet(1000)
            assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

    @virtual
    async def test_a_change_that_never_comes_back_does_not_hold_the_answer(self) -> None:
        class Stuck(Stage):
            """Does not even let itself be cancelled while it changes a message."""

            async def edit(self, message: str, part: Part) -> None:
                """See `Editing`."""
                asked.append(part.text)
                while not let_go.is_set():
                    with suppress(asyncio.CancelledError):
                        await let_go.wait()
                await super().edit(message, part)

        let_go, stage = asyncio.Event(), Stuck()
        asked: list[str] = []
        async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await bench.app.idle()
            await asyncio.sleep(2 * CALLED + 1.1)
            let_go.set()
            assert asked[-1].split() == list("01234567")  # the answer itself was on its way by then
            await bench.quiet(1000)
            assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

    @pytest.mark.parametrize("error", [RuntimeError("defect"), asyncio.CancelledError(), KeyError("x")])
    def test_whatever_it_raises_the_answer_arrives(self, error: Exception) -> None:
        @virtual
        async def test() -> None:
            stage = Stage()
            stage.fail = lambda act: error if act != "send" else None
            async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
                await bench.gate.receive(bench.inbound("hello"))
                await bench.app.idle()
                stage.fail = lambda _: None
                await bench.quiet(1000)
                assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

        test()

    @virtual
    async def test_messages_without_ids_are_not_begun_again_and_again(self) -> None:
        class Nameless(Stage):
            """Gives no ids."""

            async def send(self, part: Part) -> Receipt:
                """See `Channel.send`."""
                await super().send(part)
                return Receipt()

        stage = Nameless()
        async with live(writing(*(f"{number} " for number in range(20))), stage) as bench:
            await answered(bench)
            assert len(stage.acts("send")) == 2

    @virtual
    async def test_cutting_into_parts_may_fail(self) -> None:
        class Uncut(Stage):
            """Cannot cut."""

            def parts(self, outbound: Outbound) -> Sequence[Part]:
                """See `Channel.parts`."""
                raise ValueError("a defect")

        stage = Uncut()
        async with live(writing(*"abcdef"), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["abcdef"]
