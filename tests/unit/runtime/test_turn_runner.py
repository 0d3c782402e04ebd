"""The seam by which a feature asks models: one call with a purpose, and a model with its tools on a fork."""

from __future__ import annotations

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import ModelOverflow, ModelUnavailable
from bubbot.feature import Around, Feature
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.channel import Preview, TextStreamed
from bubbot.ports.model import ModelReply, ModelRequest, ModelTraits, TokenCount
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import rebuild_request
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tool import Tool, tool
from tests.turns import Options, Played, calls, running, says

QUESTION = ({"role": "user", "content": "Sum this up."},)


def asking(replies: list[ModelReply], errors: list[Exception]) -> Tool:
    """A tool that asks the model once."""

    @tool("ask.once")
    async def ask_once(turn: Turn, args: NoArguments) -> str:
        """Ask once."""
        try:
            replies.append(
                await turn.runner.ask(turn, "You sum up.", QUESTION, purpose="summary", shown=turn.message_ids)
            )
        except Exception as error:
            errors.append(error)
            raise
        return "asked"

    return ask_once


class TestAsk:
    async def test_a_call_is_recorded_with_purpose_usage_and_what_it_shows(self, memory_store: InMemoryStore) -> None:
        replies: list[ModelReply] = []
        model = Played(calls("ask_once"), says("a summary"), says("done"))
        async with running(memory_store, model, Options(tools=[asking(replies, [])])) as bench:
            result = await bench.say("hello")
            asked = bench.requests[1]
            (step,) = [step for step in await bench.events("loop.step") if "purpose" in step]
            assert (await memory_store.get_blob(bench.tape().name, step["system"])).decode() == "You sum up."
        assert [reply.text for reply in replies] == ["a summary"]
        assert result.text == "done"
        assert (asked.system, asked.messages, asked.tools) == ("You sum up.", QUESTION, ())
        assert (step["purpose"], step["status"], step["shown"]) == ("summary", "ok", ((3, 3),))
        assert step["usage"]["input_tokens"] > 0
        assert step["attempts"][0]["usage"] == step["usage"]
        assert step["request"] == asked.digest()

    async def test_its_request_is_built_again_byte_for_byte(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("ask_once"), says("a summary"), says("done"))
        async with running(memory_store, model, Options(tools=[asking([], [])])) as bench:
            await bench.say("hello")
            (step,) = [step for step in await bench.events("loop.step") if "purpose" in step]
            rebuilt = await rebuild_request(step, bench.tape())
        assert rebuilt.as_bytes() == bench.requests[1].as_bytes()
        assert rebuilt.digest() == step["request"]

    async def test_a_call_that_fails_is_recorded_and_raises(self, memory_store: InMemoryStore) -> None:
        errors: list[Exception] = []
        model = Played(calls("ask_once"), {"error": "unavailable", "message": "down"}, says("done"))
        async with running(memory_store, model, Options(tools=[asking([], errors)])) as bench:
            assert (await bench.say("hello")).text == "done"
            (step,) = [step for step in await bench.events("loop.step") if "purpose" in step]
        assert [type(error) for error in errors] == [ModelUnavailable]
        assert (step["status"], step["error"]) == ("error", "down")

    async def test_it_passes_the_middleware_of_models(self, memory_store: InMemoryStore) -> None:
        seen: list[str] = []

        async def around(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
            assert call.count_input() > 0
            seen.append(call.request.system[:12])
            return await call_next(call)

        options = Options(tools=[asking([], [])], features=[Feature(name="meter", around=Around(model=[around]))])
        async with running(memory_store, Played(calls("ask_once"), says("x"), says("done")), options) as bench:
            await bench.say("hello")
        assert seen[1] == "You sum up."
        assert len(seen) == 3

    async def test_a_request_that_is_too_long_is_not_sent(self, memory_store: InMemoryStore) -> None:
        class Counting(Played):
            async def count(self, request: ModelRequest) -> TokenCount | None:
                return TokenCount(1_000_000 if request.system == "You sum up." else 10, "fake")

        errors: list[Exception] = []
        traits = structs.replace(ModelTraits(), context_tokens=40)
        model = Counting(calls("ask_once"), says("done"), traits=traits)
        async with running(memory_store, model, Options(tools=[asking([], errors)])) as bench:
            assert (await bench.say("hello")).text == "done"
            assert len(bench.requests) == 2
        assert [type(error) for error in errors] == [ModelOverflow]

    async def test_its_text_is_not_shown_to_people(self, memory_store: InMemoryStore) -> None:
        shown: list[Preview] = []
        options = Options(tools=[asking([], [])], show=lambda _, event: shown.append(event))
        async with running(memory_store, Played(calls("ask_once"), says("secret"), says("done")), options) as bench:
            await bench.say("hello")
        assert [event.text for event in shown if isinstance(event, TextStreamed)] == ["done"]


class TestRunModel:
    @pytest.mark.parametrize("allowed", [frozenset[str](), frozenset({"tape.info"})])
    async def test_a_derived_turn_has_fewer_tools(self, memory_store: InMemoryStore, allowed: frozenset[str]) -> None:
        outcomes: list[str] = []

        @tool("run.child")
        async def run_child(turn: Turn, args: NoArguments) -> str:
            """Run a child."""
            fork = await turn.tape.fork([make.message("user", "the task")])
            ids = [entry.id for entry in fork.delta]
            child = turn.derive(fork, origin="agent:test", message_ids=ids, allowed_tools=allowed)
            outcomes.append((await turn.runner.run_model(child)).text)
            await fork.merge()
            return "ran"

        model = Played(calls("run_child"), calls("memory_show"), says("child done"), says("done"))
        async with running(memory_store, model, Options(tools=[run_child])) as bench:
            assert (await bench.say("hello")).text == "done"
            names = [[spec.name for spec in request.tools] for request in bench.requests]
            results = [entry.payload["results"][0] for entry in await bench.entries() if entry.kind == "tool_result"]
        assert names[1] == names[2] == [name.replace(".", "_") for name in sorted(allowed)]
        assert len(names[0]) > 5
        assert outcomes == ["child done"]
        assert results[0]["content"] == "memory.show is not available here"

    async def test_a_derived_turn_has_fewer_steps(self, memory_store: InMemoryStore) -> None:
        @tool("run.child")
        async def run_child(turn: Turn, args: NoArguments) -> str:
            """Run a child."""
            fork = await turn.tape.fork([make.message("user", "the task")])
            child = turn.derive(fork, origin="agent:test", message_ids=[fork.delta[0].id], max_steps=1)
            try:
                await turn.runner.run_model(child)
            finally:
                await fork.merge()
            return "ran"

        model = Played(calls("run_child"), calls("tape_info"), says("done"))
        async with running(memory_store, model, Options(tools=[run_child])) as bench:
            assert (await bench.say("hello")).text == "done"
            results = [entry.payload["results"][0] for entry in await bench.entries() if entry.kind == "tool_result"]
        assert results[-1]["is_error"]
        assert "after 1 steps" in results[-1]["content"]
