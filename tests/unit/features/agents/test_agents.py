"""Sub-tasks as people and models meet them: what they see, what they leave on the tape, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import Args
from bubbot.errors import LeaseLost
from bubbot.feature import Around, Feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.budget.metering import budget_subject
from bubbot.middleware import CallNext, ModelCall
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Preview, Role, StepFinished, TextStreamed, ToolStarted
from bubbot.ports.model import ModelReply
from bubbot.ports.turn import Turn
from bubbot.ports.usage import BudgetSubject
from bubbot.runtime.compose import rebuild_request
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry, event
from bubbot.tape.store import TapeStore
from bubbot.texts import OUTCOME_UNKNOWN, Texts
from bubbot.tool import INSIDE, READS_OWN, Tool, tool
from tests.turns import HOME, WAIT, Bench, Options, calls, running, says

SUBTASK = "You work on one sub-task. Nobody is there to answer questions"


def scripted(**rules: Sequence[Mapping[str, Any]]) -> ScriptedModel:
    """A model that answers prompts with these words by these steps."""
    return ScriptedModel(
        {"rules": [{"when": when.replace("_", " "), "steps": list(steps)} for when, steps in rules.items()]}
    )


def both(*steps: dict[str, Any]) -> dict[str, Any]:
    """One step with the calls of several."""
    return {"calls": [call for step in steps for call in step["calls"]]}


def run(task: str, **arguments: Any) -> dict[str, Any]:
    return calls("agent_run", task=task, **arguments)


class NumberArgs(Args, frozen=True):
    number: int = 0


def counted(name: str, ran: list[str], **options: Any) -> Tool:
    """A tool that notes each of its calls."""

    @tool(name, **options)
    async def note_call(turn: Turn, args: NumberArgs) -> str:
        """Note a call."""
        ran.append(f"{name} {args.number}")
        return f"{name} gave {args.number}"

    return note_call


def options(*tools: Tool, **fields: Any) -> Options:
    return Options(tools=tools, **{"agents": AgentsSettings(), **fields})


async def results(bench: Bench, fork: str | None = "") -> list[str]:
    """The results of calls of the turn itself, or of the sub-task with this fork; None: all."""
    return [
        result["content"]
        for entry in await bench.entries()
        if entry.kind == Kind.TOOL_RESULT and fork in (None, entry.meta.get("fork", ""))
        for result in entry.payload["results"]
    ]


async def are_errors(bench: Bench) -> list[bool]:
    """Of each result of the turn itself, true if it is an error."""
    return [
        "is_error" in result
        for entry in await bench.entries()
        if entry.kind == Kind.TOOL_RESULT and "fork" not in entry.meta
        for result in entry.payload["results"]
    ]


async def step_ids(bench: Bench) -> list[int]:
    return [entry.id for entry in await bench.entries() if entry.name == "loop.step"]


def ends(step: Mapping[str, Any]) -> list[int]:
    """The last entries of what a step was shown."""
    return [high for low, high in step["shown"] if type(low) is int]


def of_fork(entries: Sequence[TapeEntry], fork: str) -> list[int]:
    return [entry.id for entry in entries if entry.meta.get("fork") == fork]


class TestASubTask:
    async def test_it_sees_only_its_task_and_its_result_cites_its_entries(self, memory_store: InMemoryStore) -> None:
        model = scripted(plan=[run("dig", name="digger"), says("done")], dig=[calls("tape_info"), says("gold")])
        async with running(memory_store, model, options()) as bench:
            await bench.say("hello there")
            assert (await bench.say("plan")).text == "done"
            first, last = bench.requests[2], bench.requests[4]
            entries = await bench.entries()
            (ended,) = await bench.events("agent/ended")
            (result,) = await results(bench)
            assert await are_errors(bench) == [False]
        assert [message["role"] for message in first.messages] == ["assistant", "user"]
        assert "hello there" not in str(first.messages)
        assert SUBTASK in first.system
        assert SUBTASK not in last.system
        written = of_fork(entries, ended["fork"])
        assert written == list(range(ended["entries"][0][0], ended["entries"][0][1] + 1))
        assert {entry.meta["origin"] for entry in entries if entry.meta.get("fork")} == {"agent:digger"}
        assert result.startswith("gold\n\n[Sub-task digger: entries ")
        tokens = sum(ended["usage"].values())
        assert f"#{written[0]}-#{written[-1]}, fork {ended['fork']}; steps: 2, tokens: {tokens}]" in result
        assert "dig" not in [message["content"] for message in last.messages]
        assert last.messages[-1]["content"] == result

    async def test_it_has_the_tools_that_only_read_unless_others_are_named(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        own = (counted("look.up", ran, effect=READS_OWN), counted("send.out", ran))
        model = scripted(
            one=[run("task"), says("done")], two=[run("task", tools=["send.out"]), says("done")], task=[says("ok")]
        )
        async with running(memory_store, model, options(*own)) as bench:
            await bench.say("one")
            await bench.say("two")
            names = [{spec.name for spec in request.tools} for request in bench.requests]
        assert {"look_up", "tape_search", "memory_show"} <= names[1]
        assert names[1].isdisjoint({"send_out", "memory_save", "agent_run", "file_send"})
        assert names[4] == {"send_out"}

    async def test_it_never_has_more_than_the_person_who_asks(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        owners = counted("owners.only", ran, effect=READS_OWN, role=Role.OWNER)
        model = scripted(
            go=[run("task", tools="owners.only"), run("task"), says("done")],
            task=[calls("owners_only"), says("tried")],
        )
        async with running(memory_store, model, options(owners, role=Role.MEMBER)) as bench:
            await bench.say("go")
            first, second = await results(bench)
            (refused,) = [text for text in await results(bench, None) if text not in (first, second)]
        assert first.startswith("A sub-task cannot be given the tool owners.only; it can be given: ")
        assert not first.endswith(": .")
        assert refused == "owners.only is not available here"
        assert ran == []

    async def test_where_it_can_be_given_no_tool_it_says_so(self, memory_store: InMemoryStore) -> None:
        model = scripted(
            go=[run("task", tools=["agent.run"]), says("done")], task=[run("inner", tools="x"), says("ok")]
        )
        async with running(memory_store, model, options(agents=AgentsSettings(max_depth=2))) as bench:
            await bench.say("go")
            told = (await results(bench, None))[0]
        assert told == "A sub-task cannot be given the tool x; here it can be given none."

    async def test_several_run_at_once_and_each_is_attributable(self, memory_store: InMemoryStore) -> None:
        inside = list[int]()
        here = asyncio.Event()

        @tool("meet.up", effect=READS_OWN)
        async def meet_up(turn: Turn, args: NumberArgs) -> str:
            """Wait for the others."""
            inside.append(args.number)
            if len(inside) == 3:
                here.set()
            await asyncio.wait_for(here.wait(), WAIT)
            return f"met {args.number}"

        names = ("red", "green", "blue")
        step = both(*[run(f"{name} task", name=name) for name in names])
        tasks = {
            f"{name}_task": [calls("meet_up", number=place), says(f"{name} answer")] for place, name in enumerate(names)
        }
        async with running(memory_store, scripted(go=[step, says("done")], **tasks), options(meet_up)) as bench:
            assert (await bench.say("go")).text == "done"
            entries, ended = await bench.entries(), await bench.events("agent/ended")
            found = await results(bench)
        assert sorted(inside) == [0, 1, 2]
        assert [text.split("\n")[0] for text in found] == ["red answer", "green answer", "blue answer"]
        for text, name in zip(found, names, strict=True):
            (mine,) = [data for data in ended if data["name"] == name]
            low, high = mine["entries"][0]
            assert f"{name}: entries #{low}-#{high}, fork {mine['fork']}" in text
            assert of_fork(entries, mine["fork"]) == list(range(low, high + 1))
            assert [entry.payload["content"] for entry in entries[low - 1 : high] if entry.kind == Kind.MESSAGE] == [
                f"{name} task",
                f"{name} answer",
            ]

    async def test_no_more_run_at_once_than_the_settings_allow(self, memory_store: InMemoryStore) -> None:
        now, most = [0], [0]

        @tool("slow.look", effect=READS_OWN)
        async def slow_look(turn: Turn, args: NumberArgs) -> str:
            """Look slowly."""
            now[0] += 1
            most[0] = max(most[0], now[0])
            await asyncio.sleep(0.01)
            now[0] -= 1
            return "ok"

        step = both(*[run(f"task {place}") for place in range(4)])
        model = scripted(go=[step, says("done")], task=[calls("slow_look"), says("ok")])
        agents = AgentsSettings(max_parallel=2)
        async with running(memory_store, model, options(slow_look, agents=agents)) as bench:
            assert (await bench.say("go")).text == "done"
            assert len(await bench.events("agent/ended")) == 4
        assert most == [2]

    async def test_those_that_may_write_begin_where_the_one_before_ended(self, memory_store: InMemoryStore) -> None:
        step = both(*[run(f"note {word}", tools=["memory.save"]) for word in ("tea", "rum")])
        model = scripted(
            go=[step, calls("memory_show"), says("done")],
            note_tea=[calls("memory_save", content="likes tea"), says("saved")],
            note_rum=[calls("memory_save", content="likes tea\nlikes rum"), says("saved")],
        )
        async with running(memory_store, model, options()) as bench:
            assert (await bench.say("go")).text == "done"
            seals = [entry for entry in await bench.entries() if entry.name == "memory/seal"]
        assert [seal.payload["state"]["version"] for seal in seals] == [1, 2, 3]

    async def test_its_text_and_steps_are_not_shown_to_people_but_its_tools_are(
        self, memory_store: InMemoryStore
    ) -> None:
        shown: list[Preview] = []
        model = scripted(go=[run("dig"), says("done")], dig=[calls("tape_info"), says("secret")])
        async with running(memory_store, model, options(show=lambda _, event: shown.append(event))) as bench:
            await bench.say("go")
        assert [event.text for event in shown if isinstance(event, TextStreamed)] == ["done"]
        assert [event.step for event in shown if isinstance(event, StepFinished)] == [1, 2]
        assert [event.name for event in shown if isinstance(event, ToolStarted)] == ["agent_run", "tape_info"]

    async def test_its_calls_are_metered_for_the_person_of_its_turn(self, memory_store: InMemoryStore) -> None:
        subjects: list[BudgetSubject] = []

        async def meter(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
            subjects.append(budget_subject(call.turn))
            return await call_next(call)

        model = scripted(go=[run("outer", tools=["agent.run"]), says("done")], outer=[run("inner"), says("x")])
        own = options(features=[Feature(name="meter", around=Around(model=[meter]))])
        async with running(memory_store, model, own) as bench:
            await bench.say("go", sender="7")
        assert len(subjects) == 5
        assert {(subject.user, subject.session) for subject in subjects} == {("test:7", HOME)}
        assert len({subject.turn for subject in subjects}) == 1

    async def test_what_people_read_of_a_question_beside_is_in_their_language(
        self, memory_store: InMemoryStore
    ) -> None:
        model = scripted(aside=[says("顺便")], loop=[calls("tape_info")])
        async with running(memory_store, model, options(texts=Texts("zh"))) as bench:
            assert "[条目 #" in (await bench.say(",fork an aside")).text
            assert "子任务一直用相同的参数调用 tape_info" in (await bench.say(",fork loop")).text


class TestWhatItLeaves:
    async def test_only_its_result_and_its_cost_if_that_was_asked_for(self, memory_store: InMemoryStore) -> None:
        model = scripted(go=[run("dig", mode="result"), says("done")], dig=[calls("tape_info"), says("gold")])
        async with running(memory_store, model, options()) as bench:
            await bench.say("go")
            entries = [entry for entry in await bench.entries() if entry.meta.get("fork")]
            (result,) = await results(bench)
        assert [entry.name for entry in entries] == ["loop.step", "loop.step", "agent/ended"]
        assert [entry.payload["data"]["purpose"] for entry in entries[:2]] == ["agent:task"] * 2
        ended = entries[2].payload["data"]
        assert ended["usage"]["input_tokens"] == sum(
            entry.payload["data"]["usage"]["input_tokens"] for entry in entries[:2]
        )
        assert (ended["merged"], ended["entries"], ended["result"]) == (False, (), "gold")
        assert result.startswith(f"gold\n\n[Sub-task task: only its result was kept, entry #{entries[2].id}, fork ")
        assert await memory_store.forks() == []

    @pytest.mark.law("T13")
    @pytest.mark.parametrize(
        ("first", "inside"),
        [
            (",fork dig", [calls("tape_info")]),
            ("go", [calls("tape_info")]),
            ("go", [run("inner", mode="result"), run("inner")]),
            ("both", [calls("tape_info")]),
        ],
        ids=["beside", "one", "nested", "parallel"],
    )
    async def test_what_a_discarded_one_was_shown_can_be_built_again(
        self, store: TapeStore, first: str, inside: Sequence[Mapping[str, Any]]
    ) -> None:
        task = run("dig", mode="result", tools="tape.info,agent.run")
        model = scripted(
            go=[task, says("done")],
            both=[both(task, task), says("done")],
            dig=[*inside, says("gold")],
            inner=[calls("tape_info"), says("inner done")],
        )
        async with running(store, model, options()) as bench:
            await bench.say("the hotel has a sauna")
            await bench.say(first)
            steps = await bench.events("loop.step")
            sent = {request.digest(): request.as_bytes() for request in bench.requests}
            assert {step["request"] for step in steps} == set(sent)
            for step in steps:
                rebuilt = await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)
                assert rebuilt.as_bytes() == sent[step["request"]]
            discarded = [step for step in steps if step.get("purpose", "").startswith("agent:")]
            assert len(discarded) >= 2
            assert all(
                high < step_id
                for step_id, step in zip(await step_ids(bench), steps, strict=True)
                for high in ends(step)
            )
            if first == ",fork dig":  # it sees the conversation, and its answer names what it rests on
                (asked,) = [
                    entry.id
                    for entry in await bench.entries()
                    if "sauna" in str(entry.payload.get("content")) and entry.payload["role"] == "user"
                ]
                assert all(any(low <= asked <= high for low, high in step["shown"]) for step in discarded)

    async def test_all_of_it_if_it_changed_something(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        model = scripted(
            go=[run("act", mode="result", tools="send.out"), says("done")], act=[calls("send_out"), says("sent")]
        )
        async with running(memory_store, model, options(counted("send.out", ran))) as bench:
            await bench.say("go")
            (ended,) = await bench.events("agent/ended")
            assert await results(bench, ended["fork"]) == ["send.out gave 0"]
        assert ended["merged"] is True

    async def test_what_a_sub_task_of_it_changed_counts_too(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        model = scripted(
            go=[run("outer", mode="result", tools=["agent.run", "send.out"]), says("done")],
            outer=[run("inner", mode="result", tools="send.out"), says("outer done")],
            inner=[calls("send_out"), says("inner done")],
        )
        async with running(memory_store, model, options(counted("send.out", ran))) as bench:
            await bench.say("go")
            ended = await bench.events("agent/ended")
        assert [data["merged"] for data in ended] == [True, True]
        assert [data["tools"] for data in ended] == [
            ("send.out",),
            ("agent.run",),
        ]  # each has those that it called itself

    @pytest.mark.parametrize(
        ("tools", "steps", "is_kept"),
        [
            ("memory.save", [calls("memory_save", content="likes tea")], True),
            ("agent.run", [run("inner", mode="result")], False),
            ("agent.run,memory.save", [run("inner", mode="result", tools="memory.save")], True),
        ],
    )
    async def test_its_result_alone_is_left_if_nothing_was_changed(
        self, memory_store: InMemoryStore, tools: str, steps: Sequence[Mapping[str, Any]], is_kept: bool
    ) -> None:
        inner = [calls("memory_save", content="likes tea"), says("inner done")]
        model = scripted(
            go=[run("outer", mode="result", tools=tools), says("done")], outer=[*steps, says("outer done")], inner=inner
        )
        async with running(memory_store, model, options()) as bench:
            await bench.say("go")
            assert [data["merged"] for data in await bench.events("agent/ended")][-1] is is_kept
            saved = [data["content"] for data in await bench.events("memory.long_term")]
            assert saved == (["likes tea"] if is_kept else [])

    async def test_every_request_can_be_built_again(self, memory_store: InMemoryStore) -> None:
        from bubbot.runtime.compose import rebuild_request

        model = scripted(
            go=[both(run("outer", tools=["agent.run", "tape.info"]), run("other")), says("done")],
            outer=[run("inner"), calls("tape_info"), says("outer done")],
            inner=[calls("tape_info"), says("inner done")],
            other=[calls("tape_info"), says("other done")],
        )
        async with running(memory_store, model, options()) as bench:
            await bench.say("hello")
            await bench.say("go")
            steps = await bench.events("loop.step")
            for step in steps:
                request = await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)
                assert request.digest() == step["request"]
        assert len(steps) == 10
        assert sorted(request.digest() for request in bench.requests) == sorted(step["request"] for step in steps)


class TestHowItEnds:
    @pytest.mark.parametrize(
        ("task", "arguments", "said"),
        [
            ("loop", {"steps": 2}, "The sub-task has used up its model calls (2) without a result."),
            ("loop", {}, "The sub-task kept calling tape_info with the same arguments."),
            ("dear", {"budget": 10}, "The sub-task has used up its budget: 10 of 10 tokens are left, and"),
            ("down", {}, "The sub-task failed: "),
        ],
    )
    async def test_without_a_result_its_turn_is_told_why_and_goes_on(
        self, memory_store: InMemoryStore, task: str, arguments: dict[str, Any], said: str
    ) -> None:
        model = scripted(
            go=[run(task, **arguments), says("done")],
            loop=[calls("tape_info")],
            dear=[says("no")],
            down=[{"error": "unavailable", "message": "no network"}],
        )
        async with running(memory_store, model, options()) as bench:
            result = await bench.say("go")
            assert (result.status, result.text) == ("answered", "done")
            (told,) = await results(bench)
            assert await are_errors(bench) == [True]
            (ended,) = await bench.events("agent/ended")
            assert [entry.meta.get("fork") for entry in await bench.entries() if entry.kind == Kind.ERROR] == [
                ended["fork"]
            ]
        assert told.startswith(said)
        assert f"fork {ended['fork']}" in told
        assert (ended["status"], ended["merged"]) == ("failed", True)

    async def test_a_budget_is_shared_with_its_own_sub_tasks(self, memory_store: InMemoryStore) -> None:
        model = scripted(
            go=[run("outer", tools=["agent.run"], budget=2500), says("done")],
            outer=[run("inner"), says("outer done")],
            inner=[calls("tape_info"), calls("tape_anchors"), calls("memory_show"), says("inner done")],
        )
        async with running(memory_store, model, options()) as bench:
            assert (await bench.say("go")).text == "done"
            inner, outer = await bench.events("agent/ended")
        assert (inner["status"], outer["status"]) == ("failed", "failed")
        assert outer["usage"]["input_tokens"] >= inner["usage"]["input_tokens"] > 0
        assert sum(outer["usage"].values()) <= 2500

    async def test_nesting_ends_at_the_depth_of_the_settings(self, memory_store: InMemoryStore) -> None:
        model = scripted(
            go=[run("outer", tools=["agent.run"]), says("done")],
            outer=[run("inner", tools=["agent.run"]), run("inner"), says("outer done")],
            inner=[run("deeper"), says("inner done")],
        )
        async with running(memory_store, model, options()) as bench:
            assert (await bench.say("go")).text == "done"
            found = await results(bench, None)
            ended = await bench.events("agent/ended")
        assert found[0].startswith("A sub-task cannot be given the tool agent.run")
        assert found[1] == "agent.run is not available here"
        assert [data["status"] for data in ended] == ["answered", "answered"]
        assert found[2].startswith(f"inner done\n\n[Sub-task task: fork {ended[0]['fork']}; steps: ")

    async def test_a_stop_ends_it_and_leaves_no_open_fork(self, store: TapeStore) -> None:
        begun = asyncio.Event()

        @tool("wait.long", effect=READS_OWN)
        async def wait_long(turn: Turn, args: NumberArgs) -> str:
            """Wait."""
            begun.set()
            await asyncio.sleep(60)
            return ""

        model = scripted(
            go=[both(run("outer", tools=["agent.run", "wait.long"]), run("quick")), says("done")],
            outer=[run("inner", tools=["wait.long"]), says("no")],
            inner=[calls("wait_long"), says("no")],
            quick=[says("quick answer")],
        )
        async with running(store, model, options(wait_long)) as bench:
            answer = await bench.post("go")
            await asyncio.wait_for(begun.wait(), WAIT)
            bench.app.stop(HOME)
            assert (await asyncio.wait_for(answer, WAIT)).status == "stopped"
            ended = await bench.events("agent/ended")
            assert await results(bench) == [text for text in await results(bench) if text.startswith("quick answer")]
            assert (await bench.say("quick")).text == "quick answer"
        assert sorted((data["status"], data["name"]) for data in ended) == [
            ("answered", "task"),
            ("stopped", "task"),
            ("stopped", "task"),
        ]
        assert await store.forks() == []

    async def test_two_that_contradict_each_other_under_one_key_leave_one_and_an_error(
        self, memory_store: InMemoryStore
    ) -> None:
        here = [0]
        both_here = asyncio.Event()

        @tool("claim.key", effect=READS_OWN)
        async def claim_key(turn: Turn, args: NumberArgs) -> str:
            """Write under a key, although it says that it only reads."""
            await turn.tape.append([event("claimed", {"number": args.number}, key="claim")])
            here[0] += 1
            if here[0] == 2:
                both_here.set()
            await asyncio.wait_for(both_here.wait(), WAIT)
            return "claimed"

        model = scripted(
            go=[both(run("claim one"), run("claim two")), says("done")],
            claim_one=[calls("claim_key", number=1), says("one")],
            claim_two=[calls("claim_key", number=2), says("two")],
        )
        async with running(memory_store, model, options(claim_key)) as bench:
            assert (await bench.say("go")).text == "done"
            ended = await bench.events("agent/ended")
            claims = await bench.events("claimed")
        assert [(data["status"], data["merged"]) for data in ended] == [("answered", True), ("failed", False)]
        assert "already has other content under the key claim" in ended[1]["result"]
        assert len(claims) == 1
        assert await memory_store.forks() == []

    async def test_it_has_its_own_time_limit(self, memory_store: InMemoryStore) -> None:
        model = scripted(go=[run("slow"), says("done")], slow=[{"text": "late", "delay": 30}])
        async with running(memory_store, model, options(agents=AgentsSettings(timeout=0.05))) as bench:
            assert (await bench.say("go")).text == "done"
            assert await results(bench) == ["agent.run was stopped after 0.05 seconds"]
            (ended,) = await bench.events("agent/ended")
        assert ended["status"] == "stopped"


class TestAfterAnInterruption:
    @pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
    async def test_what_has_a_result_is_not_done_again(self, store: TapeStore, *, is_killed: bool) -> None:
        ran, begun = list[str](), asyncio.Event()

        @tool("get.stuck", effect=INSIDE)
        async def get_stuck(turn: Turn, args: NumberArgs) -> str:
            """Get stuck in the first life."""
            ran.append(f"get.stuck {args.number}")
            if len([each for each in ran if each.startswith("get.stuck")]) == 1:
                begun.set()
                await asyncio.sleep(60)
            return "free"

        own = options(counted("send.out", ran), counted("look.up", ran, effect=READS_OWN), get_stuck)
        rules = {
            "go": [
                *[both(run("first"), run("first"), run("second", tools=["send.out", "get.stuck"]))] * 2,
                says("done"),
            ],
            "first": [calls("look_up", number=1), says("first answer")],
            "second": [calls("send_out", number=2), calls("get_stuck", number=3), says("second answer")],
        }
        async with running(store, scripted(**rules), own) as bench:
            await bench.post("go")
            await asyncio.wait_for(begun.wait(), WAIT)
            for _ in range(100):
                if await _ended_durably(store) == 2:
                    break
                await asyncio.sleep(0.01)
            await (abandon(bench) if is_killed else bench.kill())
        async with running(store, scripted(**rules), own, life="second") as bench:
            (result,) = await bench.resume()
            assert result.text == "done"
            found = await results(bench)
            ended = await bench.events("agent/ended")
            model = bench.model
            assert isinstance(model, ScriptedModel)
            prompts = [request.messages[-1] for request in model.requests]
        assert sorted(ran) == ["get.stuck 3", "look.up 1", "look.up 1", "send.out 2"]
        third = OUTCOME_UNKNOWN if is_killed else "sub-task was stopped"
        assert found[:2] == ["first answer", "first answer"]  # as the interrupted attempt left them
        assert third in found[2]
        for text in found[-3:-1]:
            assert text.startswith("first answer\n\n[Sub-task task: entries #")
        assert found[-3] != found[-2]  # equal orders are answered by an attempt each
        assert found[-1].startswith("second answer")
        assert not any("first" in str(message["content"]) for message in prompts if message["role"] == "user")
        left = ["answered"] * 3 if is_killed else ["answered", "answered", "stopped", "answered"]
        assert [data["status"] for data in ended] == left
        assert await store.forks() == []
        assert any("outcome is unknown" in text for text in await results(bench, None))


async def _ended_durably(store: TapeStore) -> int:
    return sum(
        entry.name == "agent/ended"
        for record in await store.forks()
        for batch in record.staged
        for entry in batch.entries
    )


async def abandon(bench: Bench) -> None:
    """Ends the process without letting it write: as SIGKILL does."""
    store: Any = bench.store

    async def refuse(*_: Any, **__: Any) -> Any:
        raise LeaseLost("the process is gone")

    real = {name: getattr(store, name) for name in ("extend_fork", "merge_fork", "open_fork", "append", "drop_fork")}
    for name in real:
        setattr(store, name, refuse)
    try:
        await bench.kill()
    finally:
        for name in real:
            delattr(store, name)


class TestForkCommand:
    async def test_it_answers_from_here_and_the_next_message_does_not_see_it(self, memory_store: InMemoryStore) -> None:
        model = scripted(rain=[says("no rain")], aside=[says("an aside")], last=[says("ok")])
        async with running(memory_store, model, options()) as bench:
            await bench.say("will it rain?")
            result = await bench.say(",fork an aside, please")
            assert result.text.startswith("an aside\n\n[Entries #")
            await bench.say("the last one")
            first, aside, last = bench.requests
        texts = [str(message["content"]) for message in aside.messages]
        assert any("will it rain?" in text for text in texts)
        assert texts[-1].endswith("an aside, please")
        assert aside.system == first.system
        assert not any("aside" in str(message["content"]) for message in last.messages)
        assert last.messages[: len(first.messages)] == first.messages

    async def test_merged_whole_it_is_on_the_tape_and_still_not_in_the_conversation(
        self, memory_store: InMemoryStore
    ) -> None:
        model = scripted(aside=[calls("tape_info"), says("an aside")], last=[says("ok")])
        async with running(memory_store, model, options()) as bench:
            result = await bench.say(",fork merge=delta an aside")
            await bench.say("the last one")
            said = [entry.payload["content"] for entry in await bench.entries() if entry.kind == Kind.MESSAGE]
            last = bench.requests[-1]
        assert "[Entries #" in result.text
        assert said == ["an aside", "an aside", "the last one", "ok"]
        assert not any("aside" in str(message["content"]) for message in last.messages)

    async def test_a_retry_answers_what_the_person_said_last(self, memory_store: InMemoryStore) -> None:
        model = scripted(aside=[says("an aside")], hello=[says("hi")])
        async with running(memory_store, model, options()) as bench:
            await bench.say("hello")
            await bench.say(",fork merge=delta an aside")
            assert (await bench.say(",retry")).text == "hi"


class TestWhy:
    async def test_it_attributes_steps_and_tokens(self, memory_store: InMemoryStore) -> None:
        model = scripted(go=[run("dig", name="digger", mode="result"), says("done")], dig=[says("gold")])
        async with running(memory_store, model, options()) as bench:
            await bench.say("go")
            lines = (await bench.say(",why")).text.splitlines()
            request = (await bench.say(",why yes")).text
        assert sum("digger" in line for line in lines) == 1
        assert '"content":"gold' in request  # the result, in the last request of the turn itself
