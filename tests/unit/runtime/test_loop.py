"""The agent loop: what is run, what is asked, and what people are told in the end; and the fork it works on."""

from __future__ import annotations

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.turn import Turn
from bubbot.runtime.context.strategy import ModelContext
from bubbot.runtime.context.view import ContextView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.query import TapeQuery, Window, evaluate
from bubbot.tape.store import TapeStore
from bubbot.tool import RerunModel, Tool, tool
from tests.turns import HOME, Options, Played, asked, calls, running, says


async def test_a_message_is_answered_by_the_model(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        result = await bench.say("hello")
        assert (result.status, result.text) == ("answered", "You said: hello")


async def test_a_command_is_answered_without_it(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        assert (await bench.say(",anchors")).status == "answered"
        assert bench.requests == []


async def test_a_command_with_nothing_to_say_sends_nothing(memory_store: InMemoryStore) -> None:
    @tool("say.nothing")
    async def say_nothing(turn: Turn, args: NoArguments) -> str:
        """Says nothing."""
        return ""

    async with running(memory_store, ScriptedModel(), Options([say_nothing])) as bench:
        result = await bench.say(",say.nothing")
        assert (result.status, result.text, bench.channel.sent) == ("answered", "", [])
        assert (await bench.recover()).inbounds == ()


@tool("ask.again")
async def ask_again(turn: Turn, args: NoArguments) -> RerunModel:
    """Has the model asked."""
    stored = await turn.tape.append([message("user", "asked by a command")])
    turn.message_ids.append(stored[0].id)
    return RerunModel("first this")


async def test_a_command_can_have_the_model_asked_and_say_something_first(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says("then that")), Options([ask_again])) as bench:
        assert (await bench.say(",ask.again")).text == "first this\n\nthen that"


async def test_what_a_command_said_is_told_though_the_model_is_silent(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says("[SILENT]")), Options([ask_again])) as bench:
        result = await bench.say(",ask.again")
        assert (result.status, result.text) == ("answered", "first this")


async def test_a_rerun_asked_for_by_a_model_is_only_its_text(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(calls("ask_again"), says("ok")), Options([ask_again])) as bench:
        await bench.say("go")
        assert ("tool", "first this") in asked(bench.requests[1])


@pytest.mark.law("T13")
class TestTheFork:
    async def test_a_turn_reads_its_fork_as_the_tape_reads_after_the_merge(self, store: TapeStore) -> None:
        seen: list[tuple[int, tuple[TapeEntry, ...], ModelContext]] = []
        model = Played(
            says("a"), calls("look_on"), calls("tape_handoff", name="phase/two"), calls("look_on"), says("b")
        )
        async with running(store, model, Options([_looking(seen)])) as bench:
            await bench.say("one")
            await bench.say("two")
            assert len(seen) == 2
            for head, window, context in seen:
                upto = [entry for entry in await bench.entries() if entry.id <= head]
                view = ContextView()
                assert list(window) == evaluate(upto, TapeQuery(HOME, Window()))
                assert context == view.fold([evaluate(upto, query) for query in view.queries(HOME)])

    async def test_the_merge_adds_the_delta_and_nothing_else(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            await bench.say("one")
            before = await bench.entries()
            result = await bench.say("two")
            assert await bench.entries() == (*before, *result.merged_entries)

    async def test_while_a_turn_runs_its_tape_stays_as_it_was(self, store: TapeStore) -> None:
        heads: list[int] = []

        @tool("look.on")
        async def look_on(turn: Turn, args: NoArguments) -> str:
            """Looks at the parent."""
            heads.append(await store.head(HOME))
            return "seen"

        async with running(store, Played(says("a"), calls("look_on"), says("b")), Options([look_on])) as bench:
            await bench.say("one")
            head = await store.head(HOME)
            await bench.say("two")
            assert heads == [head]


def _looking(seen: list[tuple[int, tuple[TapeEntry, ...], ModelContext]]) -> Tool:
    """A tool that reads the turn's fork."""

    @tool("look.on")
    async def look_on(turn: Turn, args: NoArguments) -> str:
        """Looks."""
        window = (await turn.tape.fetch([TapeQuery(turn.tape.name, Window())]))[0]
        seen.append((await turn.tape.head(), window, await turn.tape.read(ContextView())))
        return "seen"

    return look_on
