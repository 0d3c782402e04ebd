"""What the model is shown: the window, its anchor first, and byte for byte the same from request to request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import NoArguments
from bubbot.errors import AnchorNotFound, ConfigError
from bubbot.features.memory.zone import MemoryZone
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import ModelRequest, ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.selectors import MessageStyle
from bubbot.runtime.context.view import ContextView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, TapeEntry, message, tool_call, tool_result
from bubbot.tape.service import TapeService
from bubbot.tool import tool
from tests.doubles import SteppingClock
from tests.turns import Bench, Options, Played, asked, calls, running, says


async def lines(tape: TapeService, selector: str = "window", **style: Any) -> list[tuple[str, Any]]:
    """What the tape's context shows, as role and content."""
    context = await tape.read(ContextView(selector, MessageStyle(**style), strategies=OWN_STRATEGIES))
    return [(one["role"], one["content"]) for one in context.messages]


def user(text: str) -> TapeEntry:
    return message("user", text)


@pytest.mark.law("T10")
class TestTheWindow:
    async def test_the_anchor_that_opens_it_comes_first_with_its_state(self, tape: TapeService) -> None:
        await tape.append([user("before")])
        await tape.handoff("phase/build", {"summary": "the plan is made", "next_steps": ["build"]})
        await tape.append([user("after")])
        assert await lines(tape) == [
            ("assistant", '[Anchor created: phase/build]: {"summary":"the plan is made","next_steps":["build"]}'),
            ("user", "after"),
        ]

    async def test_what_lies_before_it_is_not_shown(self, tape: TapeService) -> None:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        await tape.append([user("old"), tool_call([call]), tool_result([{"tool_call_id": "c", "content": "old"}])])
        await tape.handoff("one")
        await tape.append([user("older")])
        await tape.handoff("two")
        assert [content for _, content in await lines(tape)] == ["[Anchor created: two]: {}"]

    async def test_what_its_anchor_recalls_is_shown_in_its_own_place(self, tape: TapeService) -> None:
        await tape.append([user("a"), user("b"), user("c")])
        await tape.handoff("phase/x", recalls=[(2, 2)])
        await tape.append([user("d")])
        assert [content for _, content in await lines(tape)][1:] == ["b", "d"]

    async def test_the_summary_of_a_handoff_reaches_the_next_request(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("tape_handoff", name="phase/two", summary="47 is the number"), says("ok"), says("47"))
        async with running(memory_store, model) as bench:
            await bench.say("keep 47")
            await bench.say("which number?")
            assert all("47 is the number" in asked(request)[0][1] for request in bench.requests[1:])


@pytest.mark.law("T10")
class TestEntriesOutsideTheContext:
    """`"context": false` in the meta, as imports may have it."""

    async def test_they_are_never_shown(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        out = {"context": False}
        exchange = [_call("c"), tool_result([{"tool_call_id": "c", "content": "hidden result"}])]
        await tape.append([user("a"), replace(user("hidden words"), meta=out)])
        await tape.append([replace(entry, meta=out) for entry in exchange])
        assert [content for _, content in await lines(tape)][1:] == ["a"]
        await tape.append([replace(message("assistant", "hidden answer"), meta=out), user("b")])
        assert [content for _, content in await lines(tape)][1:] == ["a", "b"]

    async def test_nor_is_an_anchor_that_opens_the_window(self, tape: TapeService) -> None:
        await tape.append([replace(anchor("phase/x", {"summary": "hidden"}), meta={"context": False}), user("a")])
        assert await lines(tape) == [("user", "a")]

    async def test_any_other_value_keeps_them_in(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([replace(user(str(value)), meta={"context": value}) for value in (True, None, 0, "false")])
        assert len((await lines(tape))[1:]) == 4


@pytest.mark.law("T11")
class TestWhatLeavesTheWindowAlone:
    async def test_saving_a_memory_keeps_the_conversation(self, tape: TapeService, clock: SteppingClock) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("hello")])
        zone = MemoryZone(tape, now=clock, zone=clock().tzinfo)  # type: ignore[arg-type]
        await zone.save_long_term("Likes tea.")
        await tape.append([user("again")])
        assert [content for role, content in await lines(tape) if role == "user"] == ["hello", "again"]

    async def test_a_memory_saved_by_the_model_keeps_its_own_step_in_view(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("memory_save", content="Likes tea."), says("saved"))
        async with running(memory_store, model) as bench:
            await bench.say("I like tea")
            roles = [role for role, _ in asked(bench.requests[1])]
            assert roles == ["assistant", "user", "assistant", "tool"]

    @pytest.mark.parametrize("name", ["memory/open", "memory/seal"])
    async def test_imported_memory_anchors_that_say_nothing_of_a_window_open_none(
        self, tape: TapeService, name: str
    ) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("hello"), TapeEntry("anchor", {"name": name, "state": {"version": 1}})])
        assert ("user", "hello") in await lines(tape)

    async def test_an_anchor_that_says_false_is_no_line_either(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("hello"), anchor("task/1", {"x": 1}, window=False)])
        assert [content for _, content in await lines(tape)][1:] == ["hello"]


@pytest.mark.law("T6")
class TestCorrections:
    async def test_the_original_stays_in_place_and_the_correction_stands_where_it_was_made(
        self, tape: TapeService
    ) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("at five"), message("assistant", "noted")])
        await tape.correct(2, "at six")
        await tape.append([user("when?")])
        shown = [content for _, content in await lines(tape)][1:]
        assert shown == ["at five", "noted", "[corrects #2] at six", "when?"]

    async def test_a_hidden_entry_is_gone_and_leaves_no_line(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("secret"), user("open")])
        await tape.hide(2)
        assert [content for _, content in await lines(tape)][1:] == ["open"]

    async def test_a_hidden_correction_is_gone_too(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("at five")])
        correction = await tape.correct(2, "at six, my phone number is 12345")
        await tape.hide(correction.id)
        assert [content for _, content in await lines(tape)][1:] == ["at five"]

    async def test_hiding_a_call_takes_its_result_away(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([_call("c"), tool_result([{"tool_call_id": "c", "content": "secret"}])])
        await tape.hide(2)
        assert len(await lines(tape)) == 1

    async def test_hiding_a_result_leaves_the_call_with_a_word_for_it(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([_call("c"), tool_result([{"tool_call_id": "c", "content": "secret"}])])
        await tape.hide(3)
        assert (await lines(tape))[-1] == ("tool", "[this result was removed]")


def _call(call_id: str) -> TapeEntry:
    return tool_call([{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}])


class TestAProviderThatWantsTheUserFirst:
    async def test_the_anchor_line_rides_in_the_first_user_message(self, tape: TapeService) -> None:
        await tape.handoff("phase/x", {"summary": "s"})
        await tape.append([user("hello"), message("assistant", "hi")])
        assert await lines(tape, first_assistant=False) == [
            ("user", '[Anchor created: phase/x]: {"summary":"s"}\n\nhello'),
            ("assistant", "hi"),
        ]

    async def test_where_an_answer_comes_first_the_line_is_a_message_of_its_own(self, tape: TapeService) -> None:
        await tape.handoff("phase/x")
        await tape.append([message("assistant", "hi")])
        assert [role for role, _ in await lines(tape, first_assistant=False)] == ["user", "assistant"]

    async def test_without_an_anchor_line_a_user_message_still_comes_first(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        await tape.append([message("assistant", "hi")])
        shown = await lines(tape, first_assistant=False, bootstrap=False)
        assert shown == [("user", "[The conversation goes on]"), ("assistant", "hi")]

    async def test_both_entries_are_cited_for_the_joined_message(self, tape: TapeService) -> None:
        await tape.handoff("phase/x")
        await tape.append([user("hello")])
        context = await tape.read(ContextView(style=MessageStyle(first_assistant=False)))
        assert context.context_messages[0].ids == (1, 3)

    async def test_content_in_parts_is_left_as_it_is(self, tape: TapeService) -> None:
        await tape.handoff("phase/x")
        await tape.append([message("user", [{"type": "text", "text": "hello"}])])
        assert await lines(tape, first_assistant=False) == [
            ("user", "[Anchor created: phase/x]: {}"),
            ("user", [{"type": "text", "text": "hello"}]),
        ]


class TestSelectors:
    @pytest.fixture
    async def told(self, tape: TapeService) -> TapeService:
        await tape.ensure_bootstrap_anchor()
        await tape.append([user("a")])
        await tape.handoff("one")
        await tape.append([user("b")])
        await tape.handoff("two")
        await tape.append([user("c")])
        return tape

    @pytest.mark.law("T10")
    @pytest.mark.parametrize(
        ("selector", "shown"),
        [("messages", ["c"]), ("full", ["a", "b", "c"]), ("from:one", ["b", "c"]), ("from:two", ["c"])],
    )
    async def test_a_selector_says_by_name_what_is_shown(
        self, told: TapeService, selector: str, shown: list[str]
    ) -> None:
        assert [content for _, content in await lines(told, selector)] == shown

    async def test_an_anchor_that_does_not_exist_is_named(self, told: TapeService) -> None:
        with pytest.raises(AnchorNotFound, match="no anchor three"):
            await lines(told, "from:three")

    @pytest.mark.parametrize("selector", ["", "from:", "everything", "Window"])
    async def test_an_unknown_selector_is_an_error_that_lists_those_there_are(
        self, told: TapeService, selector: str
    ) -> None:
        with pytest.raises(ConfigError, match=r"selector is .*window, messages, full"):
            await lines(told, selector)

    async def test_a_view_comes_back_from_its_recorded_form(self) -> None:
        view = ContextView("compact", MessageStyle(first_assistant=False), 4000, strategies=OWN_STRATEGIES)
        assert ContextView.from_json(view.as_json(), OWN_STRATEGIES) == view


class TestTheStablePrefix:
    """Requests of one window extend each other: provider caches and exported trajectories depend on it."""

    async def test_turn_after_turn(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            for text in ("one", "two", "three", "four"):
                await bench.say(text)
            assert_extending(bench.requests)

    async def test_over_steps_with_tools(self, memory_store: InMemoryStore) -> None:
        model = Played(
            calls("tape_info"), calls("memory_show"), says("a"), calls("tape_search", query="x"), says("b"), says("c")
        )
        async with running(memory_store, model) as bench:
            for text in ("one", "two", "three"):
                await bench.say(text)
            assert len(bench.requests) == 6
            assert_extending(bench.requests)

    async def test_with_the_time_before_each_message(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            await bench.say("two")
            assert asked(bench.requests[1])[-1] == ("user", "[2026-11-21 20:21] two")
            assert_extending(bench.requests)

    async def test_where_the_user_has_to_come_first(self, memory_store: InMemoryStore) -> None:
        model = ScriptedModel(traits=ModelTraits(first_assistant=False))
        async with running(memory_store, model) as bench:
            for text in ("one", "two", "three"):
                await bench.say(text)
            assert bench.requests[0].messages[0]["role"] == "user"
            assert_extending(bench.requests)

    async def test_over_commands_corrections_and_failures(self, memory_store: InMemoryStore) -> None:
        model = Played(says("a"), {"error": "unavailable"}, says("c"), calls("no_such_tool"), says("d"), says("e"))
        async with running(memory_store, model) as bench:
            for text in ("one", ",tape.info", "two", ",correct 3 rather this", "three", "four", ",help", "five"):
                await bench.say(text)
            assert len(bench.requests) == 6
            assert_extending(bench.requests)

    @pytest.mark.law("T10")
    async def test_the_message_of_the_turn_that_hands_off_stays_in_the_new_window(
        self, memory_store: InMemoryStore
    ) -> None:
        model = Played(calls("tape_handoff", name="phase/two", summary="s"), says("ok"), says("later"))
        async with running(memory_store, model) as bench:
            await bench.say("go on to phase two")
            await bench.say("and now?")
            for request in bench.requests[1:]:
                assert asked(request)[1] == ("user", "[2026-11-21 20:21] go on to phase two")
            assert_extending(bench.requests[1:])

    async def test_the_system_prompt_is_the_same_from_turn_to_turn(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            for text in ("one", "two", "three"):
                await bench.say(text)
            assert len({request.system for request in bench.requests}) == 1
            assert all(request.tools == bench.requests[0].tools for request in bench.requests)


def assert_extending(requests: Sequence[ModelRequest]) -> None:
    """Each request begins with all the messages of the one before."""
    for before, after in pairwise(requests):
        kept = ModelRequest(after.system, after.messages[: len(before.messages)], after.tools).as_bytes()
        assert kept == ModelRequest(before.system, before.messages, before.tools).as_bytes()
        assert len(after.messages) > len(before.messages)


async def test_people_of_several_roles_get_one_list_of_tools_in_a_window(memory_store: InMemoryStore) -> None:
    @tool("owners.only", role=Role.OWNER)
    async def owners_only(turn: Turn, args: NoArguments) -> str:
        """Not for members."""
        ran.append(turn.role)
        return "done"

    ran: list[Role] = []
    requests: list[ModelRequest] = []
    for role in (Role.MEMBER, Role.OWNER):
        model, options = Played(calls("owners_only"), says("ok")), Options(role=role, tools=[owners_only])
        async with running(memory_store, model, options, life=role) as bench:
            await bench.say("hello")
            requests += bench.requests
            told = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT][-1]
    assert all(request.tools == requests[0].tools for request in requests)
    assert_extending(requests)
    assert (ran, told.payload["results"][0]["content"]) == ([Role.OWNER], "done")


async def test_a_stranger_does_not_reach_the_model(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel(), Options(role=Role.STRANGER)) as bench:
        assert (await bench.say("hello")).status == "silent"
        assert (bench.requests, bench.channel.sent) == ([], [])


async def test_a_selector_from_the_settings_is_used(memory_store: InMemoryStore) -> None:
    options = Options(compose=ContextPolicy("messages"))
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say("hello")
        assert asked(bench.requests[0]) == [("user", "[2026-11-21 20:21] hello")]


async def step_views(bench: Bench) -> list[Any]:
    """The selectors of the recorded steps."""
    return [step["view"]["selector"] for step in await bench.events("loop.step")]


@pytest.mark.parametrize(("size", "selector"), [(None, "window"), (32_000, "compact")])
async def test_a_model_of_known_size_is_shown_a_compacted_window(
    memory_store: InMemoryStore, size: int | None, selector: str
) -> None:
    async with running(memory_store, ScriptedModel(traits=ModelTraits(context_tokens=size))) as bench:
        await bench.say("hello")
        assert await step_views(bench) == [selector]


def test_a_record_from_before_requests_could_end_with_the_answer_is_read_as_it_was_meant() -> None:
    recorded = ContextView().as_json()
    assert ContextView.from_json(recorded) == ContextView()
    without = {key: value for key, value in recorded.items() if key != "asking"}
    assert ContextView.from_json(without).ends_with_user is False
