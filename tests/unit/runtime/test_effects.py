"""Outside effects: a begin before each, none twice after an interruption, and calls that wait for a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import Args
from bubbot.errors import ConfigError, StoreFull, ToolFailed, ToolRefused
from bubbot.feature import Around, Feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.middleware import CallNext, ToolInvocation
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.runtime.calls import ToolLimits
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.store import Batch, TapeStore
from bubbot.tool import (
    INSIDE,
    READS_OWN,
    CallPlan,
    Effect,
    Repeat,
    Tool,
    ToolOutput,
    digest_call,
    tool,
)
from tests.provider_rules import alternation_faults, faults
from tests.turns import HOME, WAIT, Bench, Options, Played, asked, calls, running, says

REFUSAL_LIMIT = 3
NOT_RUN = "not run: the turn was cut off before this call began"
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"


class SendArgs(Args, frozen=True):
    """What is sent."""

    text: str = "x"


@dataclass
class World:
    """What is outside: it keeps what reached it, each with its key, and the calls that middleware saw.

    Attributes:
        once: what the tool that acts on it declares.
        stuck: the texts at which a call does not come back: `before` it acted, or `after`.
        invocations: what reached the middleware.
        raises: what the middleware raises for a text.
    """

    once: Repeat = Repeat.NEVER
    stuck: dict[str, str] = field(default_factory=dict)
    sent: list[tuple[str, str]] = field(default_factory=list)
    invocations: list[ToolInvocation] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    raises: dict[str, Exception] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """What reached it; once for each key if there are keys."""
        seen = dict.fromkeys(self.sent) if self.once is Repeat.KEY else self.sent
        return [text for text, _ in seen]

    async def probe(self, turn: Turn, args: SendArgs) -> str | None:
        """Look whether it arrived."""
        if args.text == "hidden":
            raise ToolFailed("nobody can tell")
        return f"it had sent {args.text}" if (args.text, turn.effect_key) in self.sent else None

    def tool(self, name: str = "send.out", **options: Any) -> Tool:
        """The tool that acts on it."""

        async def wait_for_ever(place: str, text: str) -> None:
            if self.stuck.get(text) == place:
                del self.stuck[text]
                self.entered.set()
                await asyncio.Event().wait()

        probe = self.probe if self.once is Repeat.PROBE else None

        @tool(name, **{"effect": Effect(once=self.once), "probe": probe, **options})
        async def send(turn: Turn, args: SendArgs) -> str:
            """Send a text."""
            await wait_for_ever("before", args.text)
            self.sent.append((args.text, turn.effect_key))
            await wait_for_ever("after", args.text)
            return f"sent {args.text}"

        return send

    async def watch(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """See the calls, as approvals does."""
        self.invocations.append(call)
        if (error := self.raises.get(getattr(call.args, "text", ""))) is not None:
            raise error
        return await call_next(call)

    def options(self, *tools: Tool, **fields: Any) -> Options:
        """A bot with the tool."""
        features = [Feature(name="watching", around=Around(tool=[self.watch]))]
        return Options(tools=[self.tool(), *tools], features=features, **fields)

    async def cut_off(self, store: TapeStore, *steps: Mapping[str, Any], text: str = "go", **fields: Any) -> None:
        """The first life: it dies while a call is stuck."""
        async with running(store, Played(*steps), self.options(**fields)) as bench:
            await bench.post(text)
            await asyncio.wait_for(self.entered.wait(), WAIT)
            await bench.kill()

    async def go_on(
        self, store: TapeStore, *steps: Mapping[str, Any], options: Options | None = None
    ) -> tuple[str, list[str], Bench]:
        """The second life: the answer, and the results that its turn got."""
        self.invocations.clear()
        async with running(store, Played(*steps), options or self.options(), life="second") as bench:
            (result,) = await bench.resume()
            entries = await bench.entries()
            own = [entry for entry in entries if entry.meta.get("turn") == result.turn_id]
            return result.text, results_of(own), bench


def results_of(entries: Sequence[TapeEntry]) -> list[str]:
    """The results among the entries, in order."""
    return [item["content"] for entry in entries if entry.kind == Kind.TOOL_RESULT for item in entry.payload["results"]]


def names_of(entries: Sequence[TapeEntry]) -> list[str]:
    """The names of events, and the kinds of others."""
    return [entry.name or str(entry.kind) for entry in entries]


def both(*texts: str, name: str = "send_out") -> dict[str, Any]:
    """A step with a call for each text."""
    return {"calls": [{"name": name, "arguments": {"text": text}, "id": f"c-{text}"} for text in texts]}


@pytest.mark.law("T19")
class TestBegin:
    async def test_it_is_durable_before_the_tool_runs_and_names_the_call(self, store: TapeStore) -> None:
        seen: list[TapeEntry] = []

        @tool("look.on")
        async def look_on(turn: Turn, args: SendArgs) -> str:
            """Look at what is durable."""
            (record,) = await store.forks()
            seen.extend(entry for batch in record.staged for entry in batch.entries)
            return "seen"

        async with running(store, Played(both("a", name="look_on"), says("ok")), Options(tools=[look_on])) as bench:
            await bench.say("go")
            entries = await bench.entries()
        data = {"call": "c-a", "tool": "look.on", "digest": digest_call(look_on, SendArgs(text="a")), "once": "never"}
        assert (seen[-1].name, dict(seen[-1].payload["data"])) == ("effect.begin", data)
        place = names_of(entries).index("effect.begin")
        assert names_of(entries)[place + 1 : place + 3] == ["effect.end", "tool_result"]
        assert dict(entries[place + 1].payload["data"]) == {"call": "c-a", "status": "ok"}

    async def test_the_result_is_durable_before_the_next_call_of_the_step(self, store: TapeStore) -> None:
        world = World(stuck={"b": "before"})
        async with running(store, Played(both("a", "b"), says("ok")), world.options()) as bench:
            await bench.post("go")
            await asyncio.wait_for(world.entered.wait(), WAIT)
            (record,) = await store.forks()
            await bench.kill()
        assert results_of([entry for batch in record.staged for entry in batch.entries]) == ["sent a"]

    @pytest.mark.parametrize("effect", [READS_OWN, INSIDE], ids=["reads", "inside"])
    async def test_what_does_not_act_outside_has_none(self, memory_store: InMemoryStore, effect: Effect) -> None:
        options = Options(tools=[World().tool(effect=effect)])
        async with running(memory_store, Played(both("a"), says("ok")), options) as bench:
            await bench.say("go")
            assert {"effect.begin", "effect.end"}.isdisjoint(names_of(await bench.entries()))

    async def test_a_plan_may_say_that_this_call_acts_outside(self, memory_store: InMemoryStore) -> None:
        async def plan(turn: Turn, args: SendArgs) -> CallPlan:
            return CallPlan(Effect(), "sends it") if args.text == "out" else CallPlan(INSIDE, "keeps it")

        options = Options(tools=[World().tool(effect=INSIDE, plan=plan)])
        async with running(memory_store, Played(both("in", "out"), says("ok")), options) as bench:
            await bench.say("go")
            assert [begin["call"] for begin in await bench.events("effect.begin")] == ["c-out"]

    async def test_a_call_whose_begin_cannot_be_stored_does_not_run(self, memory_store: InMemoryStore) -> None:
        world, real, failed = World(), memory_store.extend_fork, list[str]()

        async def full(fork: str, staged: Any, reset: Any = None) -> Any:
            if not failed and any(entry.name == "effect.begin" for batch in staged for entry in batch.entries):
                failed.append("the disk is full")
                raise StoreFull("the disk is full")
            return await real(fork, staged, reset)

        memory_store.extend_fork = full  # type: ignore[method-assign]
        async with running(memory_store, Played(both("a"), says("ok")), world.options()) as bench:
            assert (await bench.say("go")).text == "ok"
            assert results_of(await bench.entries()) == failed
        assert world.sent == []

    async def test_it_names_what_middleware_made_of_the_call(self, memory_store: InMemoryStore) -> None:
        async def change(call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
            return await call_next(structs.replace(call, args=SendArgs(text="b")))

        world = World()
        options = replace(world.options(), features=[Feature(name="changing", around=Around(tool=[change]))])
        async with running(memory_store, Played(both("a"), says("ok")), options) as bench:
            await bench.say("go")
            (begin,) = await bench.events("effect.begin")
        assert (world.texts, begin["digest"]) == (["b"], digest_call(world.tool(), SendArgs(text="b")))

    async def test_middleware_cannot_run_one_twice_that_must_not(self, memory_store: InMemoryStore) -> None:
        async def twice(call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
            await call_next(call)
            return await call_next(call)

        for once, sent in ((Repeat.NEVER, 1), (Repeat.KEY, 2)):
            world = World(once)
            options = replace(world.options(), features=[Feature(name="twice", around=Around(tool=[twice]))])
            async with running(memory_store, Played(both("a"), says("ok")), options, life=once) as bench:
                await bench.say("go")
            assert (len(world.sent), len(set(world.sent))) == (sent, 1)

    async def test_a_command_has_one_too(self, memory_store: InMemoryStore) -> None:
        world = World()
        async with running(memory_store, ScriptedModel(), world.options()) as bench:
            assert (await bench.say(",send.out a")).text == "sent a"
            entries = await bench.entries()
        assert names_of(entries)[-4:] == ["effect.begin", "effect.end", "command", "turn/end"]
        assert entries[-4].payload["data"]["call"] == ""

    async def test_an_error_ends_it_as_an_error(self, memory_store: InMemoryStore) -> None:
        @tool("break.it")
        async def break_it(turn: Turn, args: SendArgs) -> str:
            """Break."""
            raise ToolFailed("broken")

        async with running(
            memory_store, Played(both("a", name="break_it"), says("ok")), Options(tools=[break_it])
        ) as bench:
            await bench.say("go")
            assert [end["status"] for end in await bench.events("effect.end")] == ["error"]

    async def test_equal_calls_of_a_turn_have_keys_of_their_own(self, memory_store: InMemoryStore) -> None:
        world = World(Repeat.KEY)
        steps = [both("a"), both("a"), says("ok")]
        async with running(memory_store, Played(*steps), world.options()) as bench:
            await bench.say("go")
            keys = [begin["key"] for begin in await bench.events("effect.begin")]
        assert [key for _, key in world.sent] == keys
        assert len(set(keys)) == 2

    def test_a_tool_that_can_be_asked_needs_what_asks_it(self) -> None:
        with pytest.raises(ConfigError, match="no probe"):
            World().tool(effect=Effect(once=Repeat.PROBE))


@pytest.mark.law("T12", "T20")
class TestRecovery:
    async def test_what_began_is_unknown_and_what_had_no_begin_did_not_run(self, store: TapeStore) -> None:
        world = World(stuck={"b": "before"})
        await world.cut_off(store, both("a", "b", "c"), says("never"))
        async with running(store, ScriptedModel(), life="second") as bench:
            await bench.recover()
            assert results_of(await bench.entries()) == ["sent a", OUTCOME_UNKNOWN, NOT_RUN]

    async def test_calls_of_a_version_that_wrote_no_begins_are_unknown(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"b": "before"})
        await world.cut_off(memory_store, both("b", "c"), says("never"))
        (record,) = await memory_store.forks()
        await memory_store.drop_fork(record.id)
        await memory_store.open_fork(structs.replace(record, staged=tuple(map(_as_before, record.staged))))
        async with running(memory_store, ScriptedModel(), life="second") as bench:
            await bench.recover()
            assert results_of(await bench.entries()) == [OUTCOME_UNKNOWN, OUTCOME_UNKNOWN]
        text, told, _ = await world.go_on(memory_store, both("b"), says("ok"))
        assert ("was not run again" in told[0], world.sent, text) == (True, [], "ok")

    async def test_a_stop_leaves_no_doubt_about_what_never_began(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"a": "before"})
        async with running(memory_store, Played(both("a", "b"), says("next")), world.options()) as bench:
            waiting = await bench.post("go")
            await asyncio.wait_for(world.entered.wait(), WAIT)
            assert bench.app.stop(HOME)
            assert (await waiting).status == "stopped"
            assert results_of(await bench.entries()) == [NOT_RUN]
            await bench.say("and now?")
            shown = [message["content"] for message in bench.requests[1].messages if message["role"] == "tool"]
        assert shown == [OUTCOME_UNKNOWN, NOT_RUN]


def _as_before(batch: Batch) -> Batch:
    entries = [
        replace(entry, payload={name: value for name, value in entry.payload.items() if name != "outside"})
        for entry in batch.entries
        if entry.name != "effect.begin"
    ]
    return structs.replace(batch, entries=tuple(entries))


@pytest.mark.law("T20")
class TestRunAgain:
    @pytest.mark.parametrize("place", ["before", "after"])
    async def test_a_call_that_must_not_happen_twice_is_not_run_again(self, store: TapeStore, place: str) -> None:
        world = World(stuck={"a": place})
        await world.cut_off(store, both("a"), says("never"))
        sent = list(world.sent)
        text, told, bench = await world.go_on(store, both("a"), says("ok"))
        assert (text, world.sent, world.invocations) == ("ok", sent, [])
        assert told == ["send.out began before an interruption, and its outcome is unknown; it was not run again"]
        assert faults(bench.requests[-1].messages) == []

    async def test_another_call_of_the_tool_says_that_it_was_used_before(self, store: TapeStore) -> None:
        world = World(stuck={"a": "before"})
        other = world.tool("send.other")
        await world.cut_off(store, both("a"), says("never"))
        options = world.options(other)
        await world.go_on(store, both("b"), both("c", name="send_other"), says("ok"), options=options)
        used = [(call.tool.name, call.used_before) for call in world.invocations]
        assert used == [("send.out", True), ("send.other", False)]

    @pytest.mark.parametrize("place", ["before", "after"])
    async def test_one_that_takes_a_key_runs_again_under_the_same_key(self, store: TapeStore, place: str) -> None:
        """Before the model is asked: it may not think of it again. If it does, it is told what came of it."""
        world = World(Repeat.KEY, stuck={"a": place})
        await world.cut_off(store, both("a"), says("never"))
        text, told, bench = await world.go_on(store, both("a"), says("ok"))
        assert (text, world.texts, told) == ("ok", ["a"], ["sent a", "sent a"])
        assert len(set(world.sent)) == 1
        begins = [begin["key"] for begin in await bench.events("effect.begin")]
        assert len(begins) == 2
        assert len(set(begins)) == 1
        for request in bench.requests:
            assert faults(request.messages) == alternation_faults(request.messages[1:]) == []

    async def test_a_copy_of_a_bot_repeats_none_under_its_key(self, memory_store: InMemoryStore) -> None:
        world = World(Repeat.KEY, stuck={"a": "after"})
        await world.cut_off(memory_store, both("a"), says("never"))
        copied = world.options(calls=ToolLimits(may_repeat_effects=False))
        _, results, _ = await world.go_on(memory_store, says("ok"), options=copied)
        assert (len(world.sent), len(results)) == (1, 1)
        assert "its outcome is unknown" in results[0]

    @pytest.mark.parametrize(("place", "told"), [("before", "sent a"), ("after", "it had sent a")])
    async def test_one_that_can_be_asked_is_asked(self, store: TapeStore, place: str, told: str) -> None:
        world = World(Repeat.PROBE, stuck={"a": place})
        await world.cut_off(store, both("a"), says("never"))
        text, results, _ = await world.go_on(store, says("ok"))
        assert (text, world.texts, results) == ("ok", ["a"], [told])

    async def test_one_that_nobody_can_tell_is_unknown(self, memory_store: InMemoryStore) -> None:
        world = World(Repeat.PROBE, stuck={"hidden": "before"})
        await world.cut_off(memory_store, both("hidden"), says("never"))
        _, results, _ = await world.go_on(memory_store, says("ok"))
        assert (results, world.sent) == (["nobody can tell"], [])

    async def test_a_call_with_a_result_is_answered_from_the_record_once(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"b": "before"})
        await world.cut_off(memory_store, both("a", "b"), says("never"))
        _, results, _ = await world.go_on(memory_store, both("a"), both("a"), says("ok"))
        assert (results, world.texts) == (["sent a", "sent a"], ["a", "a"])
        assert [call.used_before for call in world.invocations] == [True]

    async def test_a_call_that_never_began_runs(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"b": "before"})
        await world.cut_off(memory_store, both("b", "c"), says("never"))
        _, results, _ = await world.go_on(memory_store, both("c"), says("ok"))
        assert (results, world.texts) == (["sent c"], ["c"])

    async def test_what_was_changed_inside_is_not_changed_again_and_what_was_read_is_read_again(
        self, memory_store: InMemoryStore
    ) -> None:
        world, inner = World(stuck={"b": "before"}), World()
        tools = [inner.tool("keep.it", effect=INSIDE), inner.tool("look.up", effect=READS_OWN)]
        steps = [both("k", name="keep_it"), both("r", name="look_up")]
        async with running(memory_store, Played(*steps, both("b")), world.options(*tools)) as bench:
            await bench.post("go")
            await asyncio.wait_for(world.entered.wait(), WAIT)
            await bench.kill()
        _, results, _ = await world.go_on(memory_store, *steps, says("ok"), options=world.options(*tools))
        assert results == ["sent k", "sent r"]
        assert inner.texts == ["k", "r", "r"]

    async def test_a_command_is_not_run_twice_either(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"a": "after"})
        await world.cut_off(memory_store, says("never"), text=",send.out a")
        text, _, _ = await world.go_on(memory_store, says("never"))
        assert "outcome is unknown" in text
        assert world.texts == ["a"]

    async def test_a_command_that_ended_is_answered_from_the_record(self, memory_store: InMemoryStore) -> None:
        world = World()
        await self._end_command(memory_store, ",send.out a", world.options())
        text, _, _ = await world.go_on(memory_store, says("never"))
        assert (text, world.texts) == ("sent a", ["a"])

    @staticmethod
    async def _end_command(store: InMemoryStore, text: str, options: Options) -> None:
        """The first life: it dies after a command, while its turn is merged."""
        async with running(store, ScriptedModel(), options) as bench:
            real, merging = store.merge_fork, asyncio.Event()

            async def hang(*_: Any) -> Any:
                merging.set()
                await asyncio.Event().wait()

            store.merge_fork = hang  # type: ignore[method-assign, assignment]
            await bench.post(text)
            await asyncio.wait_for(merging.wait(), WAIT)
            await bench.kill()
            store.merge_fork = real  # type: ignore[method-assign]

    async def test_a_sub_task_repeats_no_effect_of_any_attempt(self, memory_store: InMemoryStore) -> None:
        """Also if the model orders it in other words, so that it is no sub-task of before."""
        world = World(stuck={"b": "before"})

        def order(task: str) -> dict[str, Any]:
            return calls("agent_run", task=task, tools=["send.out"])

        fields: dict[str, Any] = {"agents": AgentsSettings()}
        await world.cut_off(memory_store, order("do it"), both("a", "b"), says("never"), **fields)
        options = world.options(**fields)
        steps = [order("please do it"), both("a", "b", "c"), says("done"), says("ok")]
        text, results, _ = await world.go_on(memory_store, *steps, options=options)
        assert text == "ok"
        assert results[0] == "sent a"
        assert "outcome is unknown" in results[1]
        assert (results[2], world.texts) == ("sent c", ["a", "c"])
        assert [call.used_before for call in world.invocations if call.tool.name == "send.out"] == [True]

    async def test_a_sub_task_that_leaves_its_result_alone_leaves_its_effects_too(
        self, memory_store: InMemoryStore
    ) -> None:
        """Also if its tool says only in its plan that it acts outside."""

        async def plan(turn: Turn, args: SendArgs) -> CallPlan:
            return CallPlan(Effect(), "sends it")

        world = World()
        sneaky = world.tool("look.up", effect=READS_OWN, plan=plan)
        order = calls("agent_run", task="do it", tools=["look.up"], mode="result")
        options = Options(tools=[sneaky], agents=AgentsSettings())
        async with running(
            memory_store, Played(order, both("a", name="look_up"), says("x"), says("ok")), options
        ) as bench:
            await bench.say("go")
            assert [begin["call"] for begin in await bench.events("effect.begin")] == ["c-a"]

    async def test_what_another_sub_task_changed_inside_answers_nobody_else(self, memory_store: InMemoryStore) -> None:
        world, inner = World(stuck={"b": "before"}), World()
        keep = inner.tool("keep.it", effect=INSIDE)
        order = calls("agent_run", task="do it", tools=["keep.it", "send.out"])
        options = world.options(keep, agents=AgentsSettings())
        async with running(memory_store, Played(order, both("k", name="keep_it"), both("b")), options) as bench:
            await bench.post("go")
            await asyncio.wait_for(world.entered.wait(), WAIT)
            await bench.kill()
        await world.go_on(memory_store, both("k", name="keep_it"), says("ok"), options=options)
        assert inner.texts == ["k", "k"]

    async def test_a_turn_that_was_not_interrupted_reads_no_record(self, memory_store: InMemoryStore) -> None:
        world = World()
        async with running(
            memory_store, Played(both("a"), says("ok"), both("a"), says("ok")), world.options()
        ) as bench:
            await bench.say("go")
            await bench.say("again")
        assert world.texts == ["a", "a"]
        assert [call.used_before for call in world.invocations] == [False, False]


UNKNOWN = "send.out began before an interruption, and its outcome is unknown; it was not run again"
BROKEN_OFF = (
    "send_out was not run: a call before it failed, on which it may depend. If it is still wanted, call it again."
)


@dataclass
class Approving:
    """The source of turns that run a stored call: what approvals does after a yes."""

    calls: Sequence[ToolCall]

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """See `TurnSource.prepare`."""
        turn.stored_calls = self.calls

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:
        """See `TurnSource.build_reply`."""
        return SourcedReply(outcome.text)

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:
        """See `TurnSource.failure_entries`."""
        return {}


@pytest.mark.law("T21")
class TestStoredCalls:
    def options(self, world: World) -> Options:
        """A bot in which a yes runs two stored calls."""
        stored = [ToolCall(f"s-{text}", "send_out", f'{{"text": "{text}"}}') for text in "ab"]
        options = world.options()
        return replace(options, features=[*options.features, Feature(name="y", sources={"yes": Approving(stored)})])

    async def test_they_run_as_they_were_stored_before_the_model_is_asked(self, memory_store: InMemoryStore) -> None:
        world = World()
        async with running(memory_store, Played(says("both are sent")), self.options(world)) as bench:
            result = await bench.say("yes", origin="yes")
            entries = await bench.entries()
        assert (result.text, world.texts) == ("both are sent", ["a", "b"])
        (call,) = [entry for entry in entries if entry.kind == Kind.TOOL_CALL]
        assert (call.meta["stored"], call.payload["outside"]) == (True, ("s-a", "s-b"))
        (request,) = bench.requests
        assert faults(request.messages) == alternation_faults(request.messages[1:]) == []
        assert asked(request)[-2:] == [("tool", "sent a"), ("tool", "sent b")]

    @pytest.mark.law("T20")
    @pytest.mark.parametrize("once", list(Repeat))
    async def test_a_restart_in_the_middle_runs_none_twice(self, store: TapeStore, once: Repeat) -> None:
        world = World(once, stuck={"a": "after"})
        async with running(store, Played(says("never")), self.options(world)) as bench:
            await bench.post("yes", origin="yes")
            await asyncio.wait_for(world.entered.wait(), WAIT)
            await bench.kill()
        text, results, bench = await world.go_on(store, says("ok"), options=self.options(world))
        assert (text, world.texts) == ("ok", ["a"] if once is Repeat.NEVER else ["a", "b"])
        assert results == {
            Repeat.KEY: ["sent a", "sent b"],
            Repeat.PROBE: ["it had sent a", "sent b"],
            Repeat.NEVER: [UNKNOWN, BROKEN_OFF],  # it may depend on what nobody knows
        }.get(once)
        assert faults(bench.requests[-1].messages) == []

    async def test_none_that_acts_runs_after_one_that_was_refused(self, memory_store: InMemoryStore) -> None:
        world = World(raises={"a": ToolRefused("no longer granted")})
        async with running(memory_store, Played(says("ok")), self.options(world)) as bench:
            await bench.say("yes", origin="yes")
            assert results_of(await bench.entries()) == ["no longer granted", BROKEN_OFF]


class TestRefusedCalls:
    async def test_three_in_a_row_end_the_turn(self, memory_store: InMemoryStore) -> None:
        world = World(raises=dict.fromkeys("abcd", ToolRefused("not here")))
        async with running(
            memory_store, Played(both("a"), both("b", "c", "d"), says("never")), world.options()
        ) as bench:
            result = await bench.say("go")
            entries = await bench.entries()
        assert (result.status, world.sent, len(bench.requests)) == ("failed", [], 2)
        assert f"{REFUSAL_LIMIT} calls in a row were not allowed, the last one of send_out" in result.text
        assert results_of(entries) == ["not here", "not here", "not here", NOT_RUN]
        assert [entry.payload["kind"] for entry in entries if entry.kind == Kind.ERROR] == ["calls_refused"]

    async def test_any_other_result_between_them_counts_anew(self, memory_store: InMemoryStore) -> None:
        world = World(raises=dict.fromkeys("abcd", ToolRefused("not here")))
        steps = [both("a", "b"), both("x"), both("c", "d"), says("ok")]
        async with running(memory_store, Played(*steps), world.options()) as bench:
            assert (await bench.say("go")).text == "ok"

    async def test_a_command_is_told_why(self, memory_store: InMemoryStore) -> None:
        world = World(raises={"a": ToolRefused("not here")})
        async with running(memory_store, ScriptedModel(), world.options()) as bench:
            assert (await bench.say(",send.out a")).text == "not here"
