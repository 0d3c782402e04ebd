"""Middleware: in the order it is listed, and what goes wrong in one call ends that call alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import DeliveryFailed, ModelUnavailable, ToolFailed
from bubbot.feature import Around, Feature
from bubbot.middleware import CallNext, Middleware, ModelCall, PartDelivery, ToolInvocation, wrap
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Receipt
from bubbot.ports.model import ModelReply, TextDelta
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tool import ToolOutput, tool
from tests.turns import HOME, WAIT, Bench, Options, Played, calls, running, says, texts_of

AnyMiddleware = Callable[[Any, Any], Awaitable[Any]]


def noting(name: str, notes: list[str]) -> AnyMiddleware:
    """Middleware that notes when it is entered and left."""

    async def around(value: Any, call_next: Any) -> Any:
        notes.append(f"{name} in")
        try:
            return await call_next(value)
        finally:
            notes.append(f"{name} out")

    return around


def failing_once(error: BaseException) -> AnyMiddleware:
    """Middleware that raises before its first call."""
    errors = [error]

    async def around(value: Any, call_next: Any) -> Any:
        if errors:
            raise errors.pop()
        return await call_next(value)

    return around


def hanging_once(begun: asyncio.Event, cancelled: list[str]) -> AnyMiddleware:
    """Middleware whose first call waits until it is cancelled."""

    async def around(value: Any, call_next: Any) -> Any:
        if not begun.is_set():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append("cancelled")
                raise
        return await call_next(value)

    return around


def feature(**around: Any) -> Options:
    """A bench with one feature; each keyword is a list of middleware."""
    return Options(features=[Feature(name="test", around=Around(**around))])


async def errors_of(bench: Bench) -> list[str]:
    return [entry.payload["kind"] for entry in await bench.entries() if entry.kind == "error"]


class TestOrder:
    async def test_the_first_is_outermost(self) -> None:
        notes: list[str] = []

        async def inner(value: int) -> str:
            notes.append("inner")
            return str(value)

        around: list[Middleware[int, str]] = [noting("a", notes), noting("b", notes)]
        assert await wrap(around, inner)(7) == "7"
        assert notes == ["a in", "b in", "inner", "b out", "a out"]

    async def test_without_any_the_callable_itself_is_called(self) -> None:
        async def inner(value: int) -> int:
            return value

        assert wrap([], inner) is inner

    async def test_each_changes_what_the_next_gets_and_what_the_one_before_gets_back(self) -> None:
        async def doubled(value: int, call_next: CallNext[int, int]) -> int:
            return 2 * await call_next(value)

        async def plus_one(value: int, call_next: CallNext[int, int]) -> int:
            return await call_next(value + 1)

        async def inner(value: int) -> int:
            return value

        assert await wrap([doubled, plus_one], inner)(1) == 4
        assert await wrap([plus_one, doubled], inner)(1) == 4
        assert await wrap([doubled, doubled, plus_one], inner)(1) == 8

    async def test_one_may_call_the_next_twice_or_never(self) -> None:
        counted: list[int] = []

        async def twice(value: int, call_next: CallNext[int, int]) -> int:
            await call_next(value)
            return await call_next(value)

        async def never(value: int, _: CallNext[int, int]) -> int:
            return -value

        async def inner(value: int) -> int:
            counted.append(value)
            return value

        assert await wrap([twice], inner)(3) == 3
        assert await wrap([never, twice], inner)(5) == -5
        assert counted == [3, 3]

    async def test_in_a_bot_they_wrap_turn_model_tool_and_delivery_in_the_order_of_the_features(self) -> None:
        notes: list[str] = []
        features = [
            Feature(
                name=name,
                around=Around(
                    turn=[noting(f"{name} turn", notes)],
                    model=[noting(f"{name} model", notes)],
                    tool=[noting(f"{name} tool", notes)],
                    delivery=[noting(f"{name} delivery", notes)],
                ),
            )
            for name in "ab"
        ]
        model = Played(calls("tape_info"), says("done"))
        async with running(InMemoryStore(), model, Options(features=features)) as bench:
            await bench.say("hello")
            await bench.quiet()

        def nested(what: str) -> list[str]:
            return [f"a {what} in", f"b {what} in", f"b {what} out", f"a {what} out"]

        inside = [*nested("model"), *nested("tool"), *nested("model")]
        turn = nested("turn")
        assert notes == [*turn[:2], *inside, *turn[2:], *nested("delivery")]


class TestAroundTurn:
    async def test_it_may_answer_itself_and_change_an_answer(self) -> None:
        async def around(turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
            if turn.inbounds[0].inbound.text == "ping":
                return TurnOutcome("answered", "pong")
            outcome = await call_next(turn)
            return replace(outcome, text=f"{outcome.text}!")

        async with running(InMemoryStore(), ScriptedModel(), feature(turn=[around])) as bench:
            assert (await bench.say("ping")).text == "pong"
            assert (await bench.say("hello")).text == "You said: hello!"
            assert len(bench.requests) == 1

    @pytest.mark.parametrize("error", [RuntimeError("oops"), ModelUnavailable("down"), asyncio.CancelledError()])
    async def test_one_that_raises_ends_its_turn_and_no_other(self, error: BaseException) -> None:
        async with running(InMemoryStore(), ScriptedModel(), feature(turn=[failing_once(error)])) as bench:
            first = await bench.say("one")
            assert first.status in ("failed", "stopped")
            assert first.text
            assert bench.channel.texts == [first.text]
            assert len(await errors_of(bench)) == 1
            assert (await bench.say("two")).text == "You said: two"
            assert texts_of(await bench.entries(), "user") == ["one", "two"]
            assert await bench.inbox.open_inbounds() == ()

    async def test_it_learns_that_a_turn_failed_or_was_stopped(self) -> None:
        seen: list[str] = []
        begun = asyncio.Event()

        async def around(turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
            outcome = await call_next(turn)
            seen.append(outcome.status)
            return outcome

        async def reached(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
            begun.set()
            return await call_next(call)

        model = Played({"error": "unavailable", "message": "down"}, {"text": "late", "delay": 60})
        options = feature(turn=[around], model=[reached])
        async with running(InMemoryStore(), model, options) as bench:
            await bench.say("one")
            begun.clear()
            turn = await bench.post("two")
            async with asyncio.timeout(WAIT):
                await begun.wait()
                bench.app.stop(HOME)
                await turn
        assert seen == ["failed", "stopped"]

    async def test_the_end_of_the_process_cancels_it_and_the_message_is_answered_later(self) -> None:
        store, begun, cancelled = InMemoryStore(), asyncio.Event(), list[str]()
        async with running(store, ScriptedModel(), feature(turn=[hanging_once(begun, cancelled)])) as bench:
            await bench.post("hello")
            async with asyncio.timeout(WAIT):
                await begun.wait()
        assert cancelled == ["cancelled"]
        async with running(store, ScriptedModel(), life="second") as bench:
            assert [result.text for result in await bench.resume()] == ["You said: hello"]


class TestAroundModel:
    async def test_it_may_answer_itself_and_reads_the_text_as_it_comes(self) -> None:
        pieces: list[str] = []

        async def around(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
            if "cached" in str(call.request.messages[-1]["content"]):
                return ModelReply("from the cache", model=call.model.name)

            def note(delta: TextDelta) -> None:
                pieces.append(delta.text)

            call.on_text.append(note)
            return await call_next(call)

        async with running(InMemoryStore(), ScriptedModel(), feature(model=[around])) as bench:
            assert (await bench.say("cached")).text == "from the cache"
            assert (await bench.say("hello")).text == "You said: hello" == "".join(pieces)
            steps = await bench.events("loop.step")
            assert ["cost" in step for step in steps] == [False, True], "nothing was sent, so nothing was to pay"

    @pytest.mark.parametrize("error", [RuntimeError("oops"), ModelUnavailable("down")])
    async def test_one_that_raises_ends_its_turn_and_no_other(self, error: Exception) -> None:
        async with running(InMemoryStore(), ScriptedModel(), feature(model=[failing_once(error)])) as bench:
            assert (await bench.say("one")).status == "failed"
            assert (await bench.say("two")).text == "You said: two"
            assert len(bench.requests) == 1

    async def test_a_stop_cancels_it(self) -> None:
        begun, cancelled = asyncio.Event(), list[str]()
        options = feature(model=[hanging_once(begun, cancelled)])
        async with running(InMemoryStore(), ScriptedModel(), options) as bench:
            turn = await bench.post("one")
            async with asyncio.timeout(WAIT):
                await begun.wait()
                assert bench.app.stop(HOME)
                assert (await turn).status == "stopped"
            assert cancelled == ["cancelled"]
            assert [step["status"] for step in await bench.events("loop.step")] == ["stopped"]
            assert (await bench.say("two")).status == "answered"


class TestAroundTool:
    async def test_it_wraps_the_calls_of_models_and_commands(self) -> None:
        seen: list[tuple[str, bool]] = []

        async def around(call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
            seen.append((call.tool.name, call.turn.runs_command))
            output = await call_next(call)
            return f"<{output}>"

        @tool("test.echo", commands=("echo",))
        async def echo(turn: Turn, args: NoArguments) -> str:
            """Say something."""
            return "ho"

        options = replace(feature(tool=[around]), tools=[echo])
        async with running(InMemoryStore(), Played(calls("test_echo"), says("done")), options) as bench:
            assert (await bench.say(",echo")).text == "<ho>"
            await bench.say("hello")
            assert bench.requests[-1].messages[-1]["content"] == "<ho>"
        assert seen == [("test.echo", True), ("test.echo", False)]

    @pytest.mark.parametrize("error", [RuntimeError("oops"), ToolFailed("refused")])
    async def test_one_that_raises_is_the_result_of_its_call_alone(self, error: Exception) -> None:
        model = Played(calls("tape_info"), calls("tape_anchors"), says("done"))
        async with running(InMemoryStore(), model, feature(tool=[failing_once(error)])) as bench:
            assert (await bench.say("hello")).text == "done"
            results = [entry.payload["results"][0] for entry in await bench.entries() if entry.kind == "tool_result"]
            assert [result.get("is_error", False) for result in results] == [True, False]
            assert str(error) in results[0]["content"]

    async def test_a_stop_cancels_it(self) -> None:
        begun, cancelled = asyncio.Event(), list[str]()
        model = Played(calls("tape_info"), says("done"))
        options = feature(tool=[hanging_once(begun, cancelled)])
        async with running(InMemoryStore(), model, options) as bench:
            turn = await bench.post("one")
            async with asyncio.timeout(WAIT):
                await begun.wait()
                assert bench.app.stop(HOME)
                assert (await turn).status == "stopped"
            assert cancelled == ["cancelled"]
            assert (await bench.say("two")).text == "done"


class TestAroundDelivery:
    async def test_it_may_change_a_part_and_knows_where_it_goes(self) -> None:
        seen: list[tuple[str, str]] = []

        async def around(delivery: PartDelivery, call_next: CallNext[PartDelivery, Receipt]) -> Receipt:
            seen.append((delivery.channel, delivery.session))
            return await call_next(
                structs.replace(delivery, part=structs.replace(delivery.part, text=delivery.part.text.upper()))
            )

        async with running(InMemoryStore(), ScriptedModel(), feature(delivery=[around])) as bench:
            await bench.say("hello")
            assert bench.channel.texts == ["YOU SAID: HELLO"]
        assert seen == [("test", HOME)]

    @pytest.mark.parametrize(
        "error", [RuntimeError("oops"), DeliveryFailed("refused", permanent=True), asyncio.CancelledError()]
    )
    async def test_one_that_raises_fails_its_delivery_and_no_other(self, error: BaseException) -> None:
        async with running(InMemoryStore(), ScriptedModel(), feature(delivery=[failing_once(error)])) as bench:
            assert (await bench.say("one")).status == "answered"
            assert (await bench.say("two")).status == "answered"
            assert bench.channel.texts == ["You said: two"]

    async def test_one_that_raises_is_tried_again(self) -> None:
        options = replace(feature(delivery=[failing_once(RuntimeError("oops"))]), waits=(0.0,))
        async with running(InMemoryStore(), ScriptedModel(), options) as bench:
            await bench.say("one")
            assert bench.channel.texts == ["You said: one"]

    async def test_the_end_of_the_process_cancels_it_and_the_message_is_delivered_later(self) -> None:
        store, begun, cancelled = InMemoryStore(), asyncio.Event(), list[str]()
        options = feature(delivery=[hanging_once(begun, cancelled)])
        async with running(store, ScriptedModel(), options) as bench:
            await bench.post("hello")
            async with asyncio.timeout(WAIT):
                await begun.wait()
        assert cancelled == ["cancelled"]
        async with running(store, ScriptedModel(), life="second") as bench:
            assert await bench.resume() == []
            assert bench.channel.texts == ["You said: hello"]
