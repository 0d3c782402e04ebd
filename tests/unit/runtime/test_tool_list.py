"""The list of tools in a request: within its budget, the same for everybody, and what is beyond it within reach."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bubbot.arguments.fields import Args
from bubbot.ports.channel import Role
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import estimate_size
from bubbot.runtime.tool_list import ToolList, unwrap_call
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tool import INSIDE, READS_OWN, CallPlan, Effect, Tool, Toolbox, tool
from tests.turns import Options, Played, running, says
from tests.unit.runtime.test_effects import World, results_of


class FrogArgs(Args, frozen=True):
    """The arguments of many tools."""

    pond: str = ""
    jumps: int = 1


def made(name: str, summary: str = "Count the frogs.", **options: Any) -> Tool:
    """A tool of this name."""

    async def handler(turn: Turn, args: FrogArgs) -> str:
        return f"{name} did"

    handler.__doc__ = summary
    return tool(name, **{"effect": READS_OWN, **options})(handler)


def many(count: int, **options: Any) -> list[Tool]:
    """Tools with long summaries."""
    return [
        made(f"frog.number{place}", f"Count the frogs of pond {place}. {'word ' * 50}", **options)
        for place in range(count)
    ]


def names(tools: ToolList, allowed: frozenset[str] | None = None) -> list[str]:
    """The names in a list."""
    return [spec.name for spec in tools.specs(allowed)]


class TestBudget:
    def test_a_list_that_fits_has_no_doors(self) -> None:
        assert names(ToolList(Toolbox(many(3)))) == [each.provider_name for each in many(3)]

    def test_one_that_does_not_fit_is_cut_and_has_doors(self) -> None:
        tools = ToolList(Toolbox(many(30)), 1_000)
        assert estimate_size(tools.specs().encoded) <= 1_000
        assert names(tools)[-2:] == ["tool_find", "tool_use"]
        assert 3 <= len(names(tools)) < 20

    def test_rare_tools_leave_it_first_and_the_others_keep_their_order(self) -> None:
        tools = [*many(4, is_rare=True), made("everyday.one"), made("everyday.two")]
        assert names(ToolList(Toolbox(tools), 500))[-4:-2] == ["everyday_one", "everyday_two"]
        assert "frog_number3" not in names(ToolList(Toolbox(tools), 500))

    def test_it_is_the_same_each_time_and_sub_tasks_may_have_fewer(self) -> None:
        tools = ToolList(Toolbox(many(3)))
        assert tools.specs() is tools.specs()
        assert names(tools, frozenset({"frog.number1"})) == ["frog_number1"]

    def test_commands_for_people_are_in_none(self) -> None:
        assert names(ToolList(Toolbox([made("a.b", for_model=False), made("c.d")]))) == ["c_d"]


class TestUnwrap:
    @pytest.mark.parametrize("name", ["tool_use", "tool.use"])
    @pytest.mark.parametrize("arguments", [{"pond": "x"}, '{"pond": "x"}'], ids=["object", "text"])
    def test_a_call_through_the_door_is_the_call_behind_it(self, name: str, arguments: object) -> None:
        text = json.dumps({"name": "frog_count", "arguments": arguments})
        assert unwrap_call(ToolCall("c", name, text)) == ToolCall("c", "frog_count", '{"pond": "x"}')

    @pytest.mark.parametrize("arguments", ["", "{", "[]", "{}", '{"name": 7}', '{"name": "x", "other": 1}', "[" * 9000])
    def test_one_that_cannot_be_read_stays_as_it_is(self, arguments: str) -> None:
        call = ToolCall("c", "tool_use", arguments)
        assert unwrap_call(call) is call

    def test_any_other_stays_as_it_is(self) -> None:
        call = ToolCall("c", "frog_count", '{"name": "x"}')
        assert unwrap_call(call) is call


def use(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A step that calls a tool through the door."""
    return {"calls": [{"name": "tool_use", "arguments": {"name": name, "arguments": arguments}, "id": "u"}]}


def find(words: str) -> dict[str, Any]:
    """A step that looks for tools."""
    return {"calls": [{"name": "tool_find", "arguments": {"words": words}}]}


async def told(step: dict[str, Any], options: Options) -> str:
    """What a model is told of the one call of this step."""
    async with running(InMemoryStore(), Played(step, says("ok")), options) as bench:
        assert (await bench.say("go")).text == "ok"
        (result,) = results_of(await bench.entries())
        return result


class TestDoors:
    async def test_tools_are_found_by_words_with_their_arguments(self) -> None:
        frogs = made("frog.count", "Count the frogs of a pond.")
        found = [json.loads(line) for line in (await told(find("frogs"), Options(tools=[frogs]))).splitlines()]
        assert found[0] == {
            "name": "frog_count",
            "description": "Count the frogs of a pond.",
            "parameters": {
                "properties": {"pond": {"type": "string"}, "jumps": {"type": "integer"}},
                "type": "object",
            },
        }

    @pytest.mark.parametrize(
        ("words", "first"),
        [
            ("bring back an older version of the memory", "memory_restore"),
            ("empty the memory", "memory_clear"),
            ("newest messages of another chat", "chat_read"),
            ("topics", "topic_list"),
            ("tape.anchors", "tape_anchors"),
        ],
    )
    async def test_the_tool_that_fits_best_comes_first(self, words: str, first: str) -> None:
        assert json.loads((await told(find(words), Options())).splitlines()[0])["name"] == first

    async def test_without_words_all_are_named(self) -> None:
        text = await told(find(""), Options(tools=[made("frog.count")]))
        assert "frog_count: Count the frogs" in text.splitlines()
        assert any(line.startswith("tape_search: ") for line in text.splitlines())

    async def test_what_does_not_exist_is_not_found(self) -> None:
        assert "no tool does that; there are" in await told(find("qqqqzzzz"), Options())

    async def test_tools_of_other_roles_are_neither_found_nor_used(self) -> None:
        options = Options(tools=[made("frog.count", role=Role.OWNER)], role=Role.MEMBER)
        assert "frog_count" not in await told(find(""), options)
        assert await told(use("frog_count"), options) == "frog.count is not available here"

    async def test_a_tool_is_used_by_its_name(self) -> None:
        assert await told(use("frog_count", jumps=2), Options(tools=[made("frog.count")])) == "frog.count did"

    async def test_wrong_arguments_are_told_as_in_a_direct_call(self) -> None:
        text = await told(use("frog_count", hops=2), Options(tools=[made("frog.count")]))
        assert text == "frog.count: there is no hops; it takes pond, jumps"

    async def test_a_call_that_cannot_be_read_says_what_it_takes(self) -> None:
        step = {"calls": [{"name": "tool_use", "arguments": {"tool": "x"}}]}
        assert "name is missing" in await told(step, Options())

    async def test_the_doors_lead_to_no_door(self) -> None:
        assert "cannot be called through" in await told(use("tool_use", name="tape_info"), Options())

    @pytest.mark.law("T19")
    async def test_such_a_call_is_planned_decided_and_recorded_like_a_direct_one(
        self, memory_store: InMemoryStore
    ) -> None:
        async def plan(turn: Turn, args: Any) -> CallPlan:
            return CallPlan(Effect(), f"sends {args.text}")

        world = World()
        options = world.options()
        options = replace(options, tools=[world.tool(plan=plan, effect=INSIDE)])
        async with running(memory_store, Played(use("send_out", text="a"), says("ok")), options) as bench:
            await bench.say("go")
            (begin,) = await bench.events("effect.begin")
        (seen,) = world.invocations
        assert (seen.tool.name, seen.plan and seen.plan.details, begin["tool"]) == ("send.out", "sends a", "send.out")
        assert world.texts == ["a"]

    @pytest.mark.law("T20")
    async def test_one_that_was_cut_off_is_not_repeated_directly(self, memory_store: InMemoryStore) -> None:
        world = World(stuck={"a": "after"})
        await world.cut_off(memory_store, use("send_out", text="a"), says("never"))
        step = {"calls": [{"name": "send_out", "arguments": {"text": "a"}}]}
        _, results, _ = await world.go_on(memory_store, step, says("ok"))
        assert "was not run again" in results[0]
        assert world.texts == ["a"]
