"""Branches as people meet them: asked side by side, compared, and one of them taken into the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.command import Caller
from bubbot.errors import ConfigError
from bubbot.feature import Around, Feature
from bubbot.features.agents.branch_commands import BranchesShown
from bubbot.features.agents.branches import BranchGroupView, ShownTape, copy_entries, read_alternatives
from bubbot.features.agents.facts import BranchEnded, BranchesAsked, BranchSetup, TaskUsage
from bubbot.features.agents.settings import AgentsSettings
from bubbot.middleware import CallNext, ToolInvocation
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.copies import CopyIndex
from bubbot.tape.entry import Kind, TapeEntry, event, message, tool_result
from bubbot.tape.events import TapeErased
from bubbot.tape.query import Ranked, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from bubbot.texts import Texts
from bubbot.tool import INSIDE, READS_OWN, READS_WORLD, Tool, ToolOutput, tool
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import admitting
from tests.turns import HOME, WAIT, Bench, Options, Replying, calls, running, says
from tests.unit.features.agents.test_agents import NumberArgs, abandon, counted, scripted
from tests.unit.gateway.test_presses import ButtonStage, press

ASK = ',branch.ask prompts="be brief | give reasons"'


def told(**answers: Sequence[str | Mapping[str, Any]]) -> Replying:
    """A model that answers in a branch by its instruction: the words after "like this:", with underscores for blanks.

    Elsewhere it says `plain`.
    """
    made = 0

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        nonlocal made
        made += 1
        steps: Sequence[str | Mapping[str, Any]] = ["plain"]
        for name, found in answers.items():
            if f"like this: {name.replace('_', ' ')}" in request.system:
                steps = found
        users = [place for place, each in enumerate(request.messages) if each["role"] == "user"]
        done = sum("tool_calls" in each for each in request.messages[users[-1] :])
        step = steps[min(done, len(steps) - 1)]
        if isinstance(step, str):
            yield ModelReply(step, usage=Usage(10, 5, cost=0.001), model="scripted")
        else:
            call = step["calls"][0]
            arguments = str(call["arguments"]).replace("'", '"')
            yield ModelReply(
                "", (ToolCall(f"c{made}", call["name"], arguments),), "tool_calls", Usage(10, 5), "scripted"
            )

    return Replying(stream)


def options(*tools: Tool, **fields: Any) -> Options:
    return Options(tools=tools, **{"agents": AgentsSettings(), **fields})


async def of_kind(bench: Bench, *kinds: Kind, fork: str | None = "") -> list[TapeEntry]:
    """The entries of these kinds of the conversation itself, or of a fork; None: all."""
    return [
        entry for entry in await bench.entries() if entry.kind in kinds and fork in (None, entry.meta.get("fork", ""))
    ]


async def copies(bench: Bench) -> list[TapeEntry]:
    return [entry for entry in await bench.entries() if "source" in entry.meta]


def window(request: ModelRequest) -> str:
    return "\n".join(str(each.get("content")) for each in request.messages)


class TestAsking:
    async def test_each_alternative_answers_from_the_window_in_its_own_way(self, memory_store: InMemoryStore) -> None:
        model = told(be_brief=["by train"], give_reasons=["by train, it is faster"])
        async with running(memory_store, model, options()) as bench:
            await bench.say("we go to Rome")
            result = await bench.say(f"{ASK} How do we go?")
            first, *branches = bench.requests
            group = await bench.tape().read(BranchGroupView())
            await bench.say("and then?")
            last = bench.requests[-1]
        assert len(branches) == 2
        assert all("we go to Rome" in window(request) for request in branches)
        assert [request.system.removeprefix(first.system).strip() for request in branches] == [
            "The person who asks wants the next answer like this: be brief",
            "The person who asks wants the next answer like this: give reasons",
        ]
        assert result.text.splitlines() == [
            "Asked in branches: How do we go?",
            "",
            "1: scripted, told: be brief",
            "by train",
            "Model calls: 1, tokens: 15, cost 0.001 USD",
            "Was shown: #1, #3, #7",
            "",
            "2: scripted, told: give reasons",
            "by train, it is faster",
            "Model calls: 1, tokens: 15, cost 0.001 USD",
            "Was shown: #1, #3, #7",
            "",
            ",branches NUMBER shows the whole answer of one; ,branch.choose NUMBER takes it into the conversation.",
        ]
        assert group is not None
        assert [(each.number, each.text, each.cost, each.is_chosen) for each in group.branches] == [
            (1, "by train", 0.001, False),
            (2, "by train, it is faster", 0.001, False),
        ]
        assert "by train" not in window(last)
        assert "How do we go?" not in window(last)
        assert last.system == first.system

    async def test_each_may_be_asked_of_another_model(self, memory_store: InMemoryStore) -> None:
        others = {name: ScriptedModel({"default": [says(f"from {name}")]}, name=name) for name in ("a/one", "b/two")}

        def load(name: str) -> Model:
            if name not in others:
                raise ConfigError(f"there is no model {name}")
            return others[name]

        async with running(memory_store, ScriptedModel(), options(load=load)) as bench:
            await bench.say(",branch.ask models=a/one,b/two Which one?")
            ended = await bench.events("branch/ended")
            steps = [step["model"] for step in await bench.events("loop.step")]
            unknown = (await bench.say(",branch.ask models=a/one,c/three Which one?")).text
            plain = (await bench.say("hello")).text
        assert [(data["models"], data["alternative"]) for data in ended] == [
            (("a/one",), {"model": "a/one"}),
            (("b/two",), {"model": "b/two"}),
        ]
        assert steps == ["a/one", "b/two"]
        assert unknown == "c/three cannot be asked: there is no model c/three. You can name: scripted, other."
        assert plain == "You said: hello"

    async def test_only_owners_choose_models_and_members_ask_in_several_ways(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options(role=Role.MEMBER)) as bench:
            refused = await bench.say(",branch.ask models=a,b Which one?")
            result = await bench.say(f"{ASK} Which one?")
        assert "only the owner chooses models; you are a member here" in refused.text
        assert result.text.count("\nplain\n") == 2

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (",branch.ask What?", "name at least two models, or two instructions"),
            (",branch.ask models=a What?", "name at least two models, or two instructions"),
            (',branch.ask prompts="be brief" What?', "name at least two models, or two instructions"),
            (",branch.ask models=a,b,c,d,e,f,g What?", "a question can have 6 branches at most"),
            (
                ',branch.ask models=a,b prompts="a|b|c" What?',
                "2 models, 3 instructions and 0 agents do not go together",
            ),
            (f"{ASK} tools=frob What?", "A sub-task cannot be given the tool frob"),
            (ASK, "text"),
        ],
    )
    async def test_what_does_not_fit_is_said(self, memory_store: InMemoryStore, line: str, said: str) -> None:
        def load(name: str) -> Model:
            return ScriptedModel(name=name)

        async with running(memory_store, told(), options(load=load)) as bench:
            result = await bench.say(line)
            assert said in result.text
            assert await bench.events("branch/asked") == []

    def test_one_of_either_goes_with_all_and_an_empty_instruction_is_none(self) -> None:
        made = read_alternatives(["m"], ["", "be brief"])
        assert [(each.model, each.prompt or None) for each in made] == [("m", None), ("m", "be brief")]
        paired = read_alternatives(["m", "n"], ["x", "y"])
        assert [(each.model, each.prompt) for each in paired] == [("m", "x"), ("n", "y")]

    async def test_they_run_at_the_same_time_within_the_limit(self, memory_store: InMemoryStore) -> None:
        inside, most = [0], [0]
        both = asyncio.Event()

        @tool("meet.up", effect=READS_OWN)
        async def meet_up(turn: Turn, args: NumberArgs) -> str:
            """Wait for another."""
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            if inside[0] == 2:
                both.set()
            await asyncio.wait_for(both.wait(), WAIT)
            await asyncio.sleep(0)
            inside[0] -= 1
            return "met"

        step: list[str | Mapping[str, Any]] = [calls("meet_up"), "met"]
        model = told(one=step, two=step, three=step)
        own = options(meet_up, agents=AgentsSettings(max_parallel=2))
        async with running(memory_store, model, own) as bench:
            await bench.say(',branch.ask prompts="one|two|three" Meet')
            assert [data["status"] for data in await bench.events("branch/ended")] == ["answered"] * 3
        assert most == [2]

    async def test_those_that_change_something_run_one_after_another(self, memory_store: InMemoryStore) -> None:
        inside, most = [0], [0]

        @tool("send.out")
        async def send_out(turn: Turn, args: NumberArgs) -> str:
            """Send something."""
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            await asyncio.sleep(0.02)
            inside[0] -= 1
            return "sent"

        step: list[str | Mapping[str, Any]] = [calls("send_out"), "sent"]
        async with running(memory_store, told(one=step, two=step), options(send_out)) as bench:
            await bench.say(',branch.ask prompts="one|two" tools=send.out Send it')
            assert [data["status"] for data in await bench.events("branch/ended")] == ["answered"] * 2
        assert most == [1]

    async def test_they_only_read_unless_a_tool_is_named(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        own = (counted("look.up", ran, effect=READS_OWN), counted("send.out", ran))
        model = told(be_brief=[calls("send_out"), "sent"], give_reasons=["thought"])
        async with running(memory_store, model, options(*own)) as bench:
            await bench.say(f"{ASK} Send it")
            offered = {spec.name for spec in bench.requests[0].tools}
            assert ran == []
            result = await bench.say(f"{ASK} tools=send.out Send it")
            (first, second) = (await bench.events("branch/ended"))[2:]
        assert "look_up" in offered
        assert offered.isdisjoint({"send_out", "memory_save", "branch_ask"})
        assert ran == ["send.out 0"]
        assert [(each["tool"], each["status"]) for each in first["effects"]] == [("send.out", "ok")]
        assert second["effects"] == ()
        assert "Called: send.out\nDid in the world: send.out (done)" in result.text

    async def test_one_that_fails_or_takes_too_long_says_so_beside_the_others(
        self, memory_store: InMemoryStore
    ) -> None:
        model = scripted(slow=[{"text": "late", "delay": 30}])

        def load(name: str) -> Model:
            rules: dict[str, Any] = {
                "down": {"default": [{"error": "unavailable", "message": "no network"}]},
                "slow": {"default": [{"text": "late", "delay": 30}]},
                "fine": {"default": [says("fine")]},
            }
            return ScriptedModel(rules[name], name=name)

        own = options(load=load, agents=AgentsSettings(timeout=0.2))
        async with running(memory_store, model, own) as bench:
            result = await bench.say(",branch.ask models=down,slow,fine What?")
            statuses = {data["number"]: data["status"] for data in await bench.events("branch/ended")}
            assert (await bench.say(",branch.choose 1")).text == "branch 1 has no answer that could be chosen"
            assert (await bench.say(",branch.choose 3")).status == "answered"
        assert statuses == {1: "failed", 2: "stopped", 3: "answered"}
        assert "1: down (failed)\nThe sub-task failed: " in result.text
        assert "(stopped)\nThe sub-task was stopped." in result.text
        assert "3: fine\nfine" in result.text
        assert await memory_store.forks() == []

    async def test_what_each_was_shown_is_told_apart(self, memory_store: InMemoryStore) -> None:
        model = told(be_brief=["short"], give_reasons=[calls("tape_info"), "long"])
        async with running(memory_store, model, options()) as bench:
            await bench.say("one")
            await bench.say(f"{ASK} What?")
            group = await bench.tape().read(BranchGroupView())
            entries = await bench.entries()
        assert group is not None
        own = {entry.id for entry in entries if entry.meta.get("fork")}
        for branch in group.branches:
            assert own.isdisjoint(number for low, high in branch.shown for number in range(low, high + 1))
        assert [branch.steps for branch in group.branches] == [1, 2]
        assert [branch.tools for branch in group.branches] == [(), ("tape.info",)]

    async def test_what_only_some_were_shown_is_named(self, memory_store: InMemoryStore) -> None:
        """Models with windows of other sizes are shown less."""
        tape = TapeService(memory_store, "t", now=SteppingClock(), new_id=CountingIds("x"))
        await tape.append([message("user", "one"), message("assistant", "two"), message("user", "three")])
        alternatives = (BranchSetup(model="a"), BranchSetup(model="b"))
        await tape.append([BranchesAsked("g", "1", "q", alternatives).to_entry(key="branch:g")])
        for number, shown in enumerate(([[1, 3], [6, 6]], [[2, 3], [10, 10], ["u", [[7, 9]]]]), 1):
            low, fork = await tape.head() + 1, f"r/{number}"
            step = event("loop.step", {"step": 1, "model": "m", "status": "ok", "shown": shown}, fork=fork)
            end = BranchEnded(
                "g", number, fork, alternatives[number - 1], "answered", [[low, low + 3]], ("m",), 1, (),
                TaskUsage(1, 1), None, (),
            )  # fmt: skip
            written = [message("user", "q", fork=fork), message("assistant", "a", fork=fork), step]
            await tape.append([*written, end.to_entry(fork=fork)])
        group = await tape.read(BranchGroupView())
        assert group is not None
        first, second = group.branches
        assert (first.shown, first.shown_alone, first.shown_elsewhere) == (((1, 3),), ((1, 1),), ())
        assert (second.shown, second.shown_alone) == (((2, 3),), ())
        assert second.shown_elsewhere == (ShownTape("u", ((7, 9),)),)
        told = BranchesShown("g", "q", 4, 0, group.branches).describe(Caller())
        assert "Was shown: #1-#3 (not all branches: #1)" in told
        assert "Was shown: #2-#3; u #7-#9" in told

    async def test_in_the_language_of_the_chat(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options(texts=Texts("zh"))) as bench:
            assert "在各分支中提出的问题：什么？" in (await bench.say(f"{ASK} 什么？")).text


class TestOutsideTheConversation:
    async def test_no_search_finds_a_branch_and_one_finds_the_chosen_copy_once(
        self, memory_store: InMemoryStore
    ) -> None:
        model = told(be_brief=["a walrus"], give_reasons=["a narwhal because"])
        async with running(memory_store, model, options()) as bench:
            await bench.say(f"{ASK} Which quagga?")
            await bench.say(",branches 1")
            words = ("walrus", "narwhal", "quagga")
            found = {word: (await bench.say(f",search {word}")).text for word in words}
            ranked = (await bench.tape().fetch([TapeQuery(HOME, Ranked(" ".join(words)), kinds=(Kind.MESSAGE,))]))[0]
            assert all(text.startswith("Nothing") or "no" in text.splitlines()[0].lower() for text in found.values())
            assert ranked == ()
            await bench.say(",branch.choose 1")
            chosen = {word: (await bench.say(f",search {word}")).text.count("#") for word in words}
            (question, answer) = await copies(bench)
            ranked = (await bench.tape().fetch([TapeQuery(HOME, Ranked("walrus"), kinds=(Kind.MESSAGE,))]))[0]
        assert chosen == {"walrus": 1, "narwhal": 0, "quagga": 1}
        assert [entry.id for entry in ranked] == [answer.id]
        assert question.payload["content"] == "Which quagga?"

    async def test_what_it_wrote_stays_on_the_tape_as_facts(self, memory_store: InMemoryStore) -> None:
        model = told(be_brief=["a walrus"])
        async with running(memory_store, model, options()) as bench:
            await bench.say(f"{ASK} Which?")
            await bench.say(",branch.choose 2")
            group = await bench.tape().read(BranchGroupView())
            whole = (await bench.say(",branches 1")).text
        assert group is not None
        assert [branch.is_chosen for branch in group.branches] == [False, True]
        assert whole.startswith("1: scripted, told: be brief\na walrus\n")


class TestChoosing:
    async def test_its_delta_is_the_conversation_from_then_on(self, memory_store: InMemoryStore) -> None:
        model = told(be_brief=["short"], give_reasons=[calls("tape_info"), "long"])
        async with running(memory_store, model, options()) as bench:
            await bench.say(f"{ASK} What?")
            result = await bench.say(",branch.choose 2")
            (chosen,) = await bench.events("branch/chosen")
            copied, entries = await copies(bench), await bench.entries()
            await bench.say("go on")
            last = bench.requests[-1]
        first, end = copied[0].id, copied[-1].id
        assert result.text == f"Branch 2 is part of the conversation now: entries #{first}-#{end}."
        assert [entry.kind for entry in copied] == [Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.MESSAGE]
        assert chosen["copies"] == ((first, end),)
        for copy in copied:
            tape, number = copy.meta["source"]
            original = entries[number - 1]
            assert (tape, original.kind, original.payload) == (HOME, copy.kind, copy.payload)
            assert original.meta["fork"] == chosen["fork"]
            assert "fork" not in copy.meta
            assert copy.meta["turn"] != original.meta["turn"]
        assert [message["role"] for message in last.messages][-5:] == ["user", "assistant", "tool", "assistant", "user"]
        assert "What?" in window(last)
        assert "long" in window(last)
        assert "short" not in window(last)

    async def test_the_question_is_the_askers_and_the_answer_the_bots(self, memory_store: InMemoryStore) -> None:
        roles = {"1": Role.OWNER, "7": Role.MEMBER}
        own = options(role_of=lambda inbound: roles[inbound.sender.id])
        async with running(memory_store, told(be_brief=["short"]), own) as bench:
            await bench.say(f"{ASK} What?", sender="7", direct=False)
            await bench.say(",branch.choose 1", sender="1", direct=False)
            question, answer = await copies(bench)
            await bench.say("go on", sender="1", direct=False)
            last = bench.requests[-1]
        assert (question.meta["sender"]["id"], question.meta["origin"], question.meta["group"]) == ("7", "human", True)
        assert question.meta["provenance"] == answer.meta["provenance"] == "people"
        assert "origin" not in answer.meta
        assert "Ann (#7): What?" in window(last)

    async def test_its_taint_goes_with_it(self, memory_store: InMemoryStore) -> None:
        @tool("look.out", effect=READS_WORLD)
        async def look_out(turn: Turn, args: NumberArgs) -> str:
            """Look."""
            return "foreign words"

        model = told(be_brief=[calls("look_out"), "they say"])
        async with running(memory_store, model, options(look_out)) as bench:
            await bench.say(f"{ASK} What?")
            await bench.say(",branch.choose 1")
            copied = await copies(bench)
        assert [entry.meta["provenance"] for entry in copied] == ["own", "own", "world", "world"]

    async def test_what_it_did_in_the_world_is_not_done_again(self, memory_store: InMemoryStore) -> None:
        ran = list[str]()
        model = told(be_brief=[calls("send_out", number=4), "sent it"])
        async with running(memory_store, model, options(counted("send.out", ran))) as bench:
            await bench.say(f"{ASK} tools=send.out Send it")
            result = await bench.say(",branch.choose 1")
            (chosen,) = await bench.events("branch/chosen")
            begins = await bench.events("effect.begin")
            await bench.say("go on")
            last = bench.requests[-1]
        assert ran == ["send.out 4"]
        assert len(begins) == 1
        assert [(each["tool"], each["status"]) for each in chosen["effects"]] == [("send.out", "ok")]
        assert "stays done and is not done again: send.out (done)" in result.text
        assert "send.out gave 4" in window(last)

    async def test_what_its_own_sub_tasks_wrote_stays_theirs(self, memory_store: InMemoryStore) -> None:
        step = calls("agent_run", task="dig")
        model = told(be_brief=[step, "found gold"])
        async with running(memory_store, model, options()) as bench:
            await bench.say(f"{ASK} tools=agent.run What?")
            await bench.say(",branch.choose 1")
            (chosen,) = await bench.events("branch/chosen")
            (ended,) = [data for data in await bench.events("branch/ended") if data["number"] == 1]
            nested = [
                entry for entry in await bench.entries() if entry.meta.get("fork", "").startswith(f"{ended['fork']}/")
            ]
            copied = await copies(bench)
        low, high = ended["entries"][0]
        assert nested
        assert all(low <= entry.id <= high for entry in nested)
        assert {entry.meta["source"][1] for entry in copied}.isdisjoint(entry.id for entry in nested)
        assert [entry.kind for entry in copied] == [Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.MESSAGE]
        assert chosen["effects"] == ()

    @pytest.mark.parametrize(
        ("before", "line", "said"),
        [
            ((), ",branch.choose 1", "There are no branches in this conversation"),
            ((f"{ASK} What?",), ",branch.choose 3", "there is no branch 3; there are: 1, 2"),
            ((f"{ASK} What?",), ",branch.choose 0", "number"),
            ((f"{ASK} What?",), ",branch.choose 1 group=abc", "group"),
            ((f"{ASK} What?",), ",branch.choose 1 group=0123456789ab", "These branches are not in this conversation"),
            ((f"{ASK} What?", ",branch.choose 1"), ",branch.choose 1", "branch 1 of this question was chosen already"),
            ((f"{ASK} What?", ",branch.choose 1"), ",branch.choose 2", "branch 1 of this question was chosen already"),
            ((f"{ASK} What?", ",new"), ",branch.choose 1", "the conversation went on in a new window since (entry #"),
            ((f"{ASK} What?", ",reset archive"), ",branch.choose 1", "There are no branches in this"),
        ],
    )
    async def test_what_cannot_be_chosen_is_said_and_nothing_is_added(
        self, memory_store: InMemoryStore, before: Sequence[str], line: str, said: str
    ) -> None:
        async with running(memory_store, told(), options()) as bench:
            for each in before:
                await bench.say(each)
            copied = await copies(bench)
            assert said in (await bench.say(line)).text
            assert await copies(bench) == copied

    async def test_only_who_asked_and_admins_choose(self, memory_store: InMemoryStore) -> None:
        roles = {"1": Role.ADMIN, "7": Role.MEMBER, "8": Role.MEMBER}
        own = options(role_of=lambda inbound: roles[inbound.sender.id])
        async with running(memory_store, told(), own) as bench:
            await bench.say(f"{ASK} What?", sender="7", direct=False)
            refused = await bench.say(",branch.choose 1", sender="8", direct=False)
            assert refused.text == "Ann asked this question: only that person and admins choose"
            assert "Branch 1 is part" in (await bench.say(",branch.choose 1", sender="7", direct=False)).text
            await bench.say(f"{ASK} And?", sender="7", direct=False)
            assert "Branch 2 is part" in (await bench.say(",branch.choose 2", sender="1", direct=False)).text

    async def test_an_earlier_question_is_chosen_by_its_name(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options()) as bench:
            await bench.say(f"{ASK} First?")
            await bench.say(f"{ASK} Second?")
            first, second = [data["group"] for data in await bench.events("branch/asked")]
            await bench.say(f",branch.choose 1 group={first}")
            await bench.say(",branch.choose 1")
            assert [data["group"] for data in await bench.events("branch/chosen")] == [first, second]
            said = [entry.payload["content"] for entry in await copies(bench)]
        assert said == ["First?", "plain", "Second?", "plain"]

    async def test_a_button_chooses_and_presses_after_it_do_nothing(self, memory_store: InMemoryStore) -> None:
        channel = ButtonStage()
        own = options(rules=admitting(memory_store, owners={"1"}, members={"2"}))
        async with running(memory_store, told(), own, channel=channel) as bench:
            await bench.gate.receive(bench.inbound(f"{ASK} What?"))
            await bench.quiet()
            shown, buttons = channel.offer()
            assert [button.label for button in buttons.buttons] == ["Choose 1", "Choose 2"]
            await bench.gate.receive(press(shown, buttons.button_id(1), key="c1"))
            await bench.quiet()
            (chosen,) = await bench.events("branch/chosen")
            await bench.gate.receive(press(shown, buttons.button_id(0), key="c2"))
            await bench.quiet()
            assert len(await bench.events("branch/chosen")) == 1
            await bench.gate.receive(bench.inbound(",branches"))
            await bench.quiet()
            assert not any(channel.below.values())
        assert chosen["number"] == 2

    async def test_while_a_turn_runs_the_choice_waits_for_it(self, memory_store: InMemoryStore) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        @tool("wait.long", effect=READS_OWN)
        async def wait_long(turn: Turn, args: NumberArgs) -> str:
            """Wait."""
            begun.set()
            await asyncio.wait_for(may_end.wait(), WAIT)
            return "over"

        model = scripted(stay=[calls("wait_long"), says("stayed")])
        async with running(memory_store, model, options(wait_long)) as bench:
            await bench.say(f"{ASK} What?")
            running_turn = await bench.post("stay")
            await asyncio.wait_for(begun.wait(), WAIT)
            choice = await bench.post(",branch.choose 1")
            may_end.set()
            assert (await asyncio.wait_for(running_turn, WAIT)).text == "stayed"
            assert "is part of the conversation" in (await asyncio.wait_for(choice, WAIT)).text
            said = [entry.payload["content"] for entry in await of_kind(bench, Kind.MESSAGE)]
        assert said == ["stay", "stayed", "What?", "You said: What?"]

    async def test_after_an_erasure_it_is_refused(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options()) as bench:
            await bench.say(f"{ASK} What?")
            group = await bench.tape().read(BranchGroupView())
            assert group is not None
            answer = group.branches[0].answer
            assert answer is not None
            fact = TapeErased(reason="person").to_entry().with_meta({}, "2026-11-21T20:21:00+00:00")
            await memory_store.erase([Batch("bubbot/people", (fact,))], [(HOME, (answer,))])
            assert (await bench.say(",branch.choose 1")).text == "branch 1 was erased, or a part of it"
            assert "(erased)" in (await bench.say(",branches")).text
            assert "is part of" in (await bench.say(",branch.choose 2")).text

    def test_references_among_the_copies_lead_to_copies(self) -> None:
        originals = [
            message("user", "q", fork="f").with_id(5),
            tool_result([{"tool_call_id": "c", "content": "x"}], fork="f", sources=[["t", [[5, 5], [2, 2]]]]).with_id(
                9
            ),
        ]
        made = copy_entries("t", originals, 21, {})
        assert made[0].meta["source"] == ("t", 5)
        assert made[1].meta["source"] == ("t", 9)
        assert made[1].meta["sources"] == (("t", ((21, 21), (2, 2))),)

    async def test_an_erasure_of_the_branch_finds_its_copies(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options()) as bench:
            await bench.say(f"{ASK} What?")
            await bench.say(",branch.choose 1")
            index = CopyIndex(OWN_REFERENCES)
            index.add(HOME, await bench.entries())
            copied = await copies(bench)
        sources = {entry.meta["source"][1] for entry in copied}
        assert index.find_copies({HOME: sources}) == {HOME: {entry.id for entry in copied}}

    async def test_a_retry_answers_the_chosen_question_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(be_brief=["short"]), options()) as bench:
            await bench.say(f"{ASK} What?")
            await bench.say(",branch.choose 1")
            assert (await bench.say(",retry")).text == "plain"
            await bench.say("go on")
            last = bench.requests[-1]
        assert "short" not in window(last)
        assert "What?" in window(last)


class TestWhy:
    async def test_it_follows_the_chosen_answer_to_the_branch(self, memory_store: InMemoryStore) -> None:
        model = told(be_brief=["short"], give_reasons=[calls("tape_info"), "long"])
        async with running(memory_store, model, options()) as bench:
            await bench.say("hello")
            await bench.say(f"{ASK} What?")
            await bench.say(",branch.choose 2")
            lines = (await bench.say(",why")).text.splitlines()
            request = (await bench.say(",why yes")).text
            (ended,) = [data for data in await bench.events("branch/ended") if data["number"] == 2]
            answer = (await copies(bench))[-1]
            await bench.say("go on")
            after = (await bench.say(",why")).text
        low, high = ended["entries"][0]
        assert lines[0].endswith(f"answered, entry {answer.id}")
        assert lines[1].startswith(f"copied from entries {low} to {high} of turn ")
        assert [line.partition(": step ")[0] for line in lines if ": step " in line] == ["agent:branch-2"] * 2
        assert any(line.startswith("tool tape_info") for line in lines)
        assert "like this: give reasons" in request
        assert "copied from" not in after

    async def test_a_turn_of_branches_is_explained_until_one_is_chosen(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, told(), options()) as bench:
            await bench.say(f"{ASK} What?")
            lines = (await bench.say(",why")).text.splitlines()
        assert [line.split(":")[1] for line in lines if ": step " in line] == ["branch-1", "branch-2"]


class TestAfterAnInterruption:
    @pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
    async def test_branches_that_have_ended_are_not_asked_again(self, store: TapeStore, *, is_killed: bool) -> None:
        ran, begun = list[str](), asyncio.Event()

        @tool("get.stuck", effect=INSIDE)
        async def get_stuck(turn: Turn, args: NumberArgs) -> str:
            """Get stuck in the first life."""
            ran.append(f"get.stuck {args.number}")
            if ran.count(f"get.stuck {args.number}") == 1:
                begun.set()
                await asyncio.sleep(60)
            return "free"

        def model() -> Replying:
            return told(
                be_brief=[calls("send_out", number=1), "short"],
                give_reasons=[calls("send_out", number=2), calls("get_stuck", number=3), "long"],
            )

        own = options(counted("send.out", ran), get_stuck)
        async with running(store, model(), own) as bench:
            await bench.post(f"{ASK} tools=send.out,get.stuck What?")
            await asyncio.wait_for(begun.wait(), WAIT)
            await (abandon(bench) if is_killed else bench.kill())
        async with running(store, model(), own, life="second") as bench:
            (result,) = await bench.resume()
            (asked,) = await bench.events("branch/asked")
            group = await bench.tape().read(BranchGroupView())
            await bench.say(",branch.choose 2")
            (chosen,) = await bench.events("branch/chosen")
            said = [entry.payload["content"] for entry in await of_kind(bench, Kind.MESSAGE)]
        assert sorted(each for each in ran if "send" in each) == ["send.out 1", "send.out 2"]
        assert group is not None
        assert group.fact.group == asked["group"]
        assert [(branch.number, branch.status) for branch in group.branches] == [(1, "answered"), (2, "answered")]
        assert "1: scripted, told: be brief\nshort" in result.text
        assert [[each.tool for each in branch.effects] for branch in group.branches] == [["send.out"]] * 2
        assert [each["tool"] for each in chosen["effects"]] == ["send.out"]
        assert said == ["What?", "long"]
        assert await store.forks() == []

    async def test_a_choice_that_was_merged_with_an_interrupted_turn_is_not_made_twice(self, store: TapeStore) -> None:
        chosen = asyncio.Event()

        async def stay(call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
            output = await call_next(call)
            if call.tool.name == "branch.choose":
                await call.turn.tape.save()
                chosen.set()
                await asyncio.sleep(60)
            return output

        stuck = options(features=[Feature(name="stuck", around=Around(tool=[stay]))])
        async with running(store, told(be_brief=["short"]), stuck) as bench:
            await bench.say(f"{ASK} What?")
            await bench.post(",branch.choose 1")
            await asyncio.wait_for(chosen.wait(), WAIT)
            await abandon(bench)
        async with running(store, told(), options(), life="second") as bench:
            (result,) = await bench.resume()
            copied = await copies(bench)
            assert len(await bench.events("branch/chosen")) == 1
            again = await bench.say(",branch.choose 2")
        assert result.text == f"Branch 1 is part of the conversation now: entries #{copied[0].id}-#{copied[-1].id}."
        assert [entry.payload["content"] for entry in copied] == ["What?", "short"]
        assert again.text == "branch 1 of this question was chosen already; only one can be"


async def test_agents_answer_side_by_side_and_the_chosen_one_speaks_in_the_conversation(
    memory_store: InMemoryStore,
) -> None:
    agents = AgentsSettings.model_validate(
        {"rosi": {"prompt": "You cook."}, "tom": {"prompt": "You teach.", "tools": []}}
    )
    model = ScriptedModel(
        {"rules": [{"when": "train", "steps": [says("By night.")]}, {"when": "more", "steps": [says("No.")]}]}
    )
    async with running(memory_store, model, Options(agents=agents)) as bench:
        compared = (await bench.say(",branch.ask agents=rosi,tom Which train?")).text
        assert "1: @rosi" in compared
        assert "2: @tom" in compared
        assert {request.system.partition("\n")[0] for request in bench.requests} == {"You cook.", "You teach."}
        assert [bool(request.tools) for request in bench.requests if request.system.startswith("You teach.")] == [False]
        await bench.say(",branch.choose 2")
        await bench.say("more")
        answer = [entry for entry in await bench.entries() if "source" in entry.meta][-1]
        assert answer.meta["origin"] == "agent:tom"
        assert "tom (agent): By night." in str(bench.requests[-1].messages)
