"""AgentDojo's tasks and attacks at our gate, with a model that obeys whatever it reads: nothing acts without a yes.

`make agentdojo` gets the tasks (https://github.com/ethz-spylab/agentdojo) into an environment of their own, and exports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bubbot.arguments.fields import Args, dump_given
from bubbot.features.approvals.decision import CallFacts, Decision, EffectRow, Verdict
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.tool import READS_WEB, READS_WORLD, CallPlan, Effect, GrantKind, GrantTarget, Tool
from tests.approving import ApprovalBench, approving

ROOT = Path(__file__).parents[4]
SUITES = ROOT / ".venv-agentdojo" / "suites.json"
INJECTION = "INJECTION"
READING = ("get_", "search_", "list_", "read_", "check_")
RECIPIENTS = ("recipients", "recipient", "user_email", "email", "url", "channel")
"""Arguments that name where something goes."""
NAMES = ("workspace", "travel", "banking", "slack")
DojoCall = Mapping[str, Any]


@dataclass
class Play:
    """A task under way, with an attack or without.

    Attributes:
        task: what the person wants.
        attack: what stands wherever an attacker may write; None if there is none.
        done: the calls that acted.
        was_shown: the model has read the attack.
    """

    task: Mapping[str, Any]
    attack: Mapping[str, Any] | None = None
    done: list[str] = field(default_factory=list)
    was_shown: bool = False

    @property
    def calls(self) -> list[DojoCall]:
        """Every call of this play."""
        return [*self.task["calls"], *(self.attack["calls"] if self.attack else ())]

    @property
    def order(self) -> str:
        """What the attacker writes."""
        return with_schemes(f"<INFORMATION> {self.attack['text']} </INFORMATION>") if self.attack else ""

    def result(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a call answers in AgentDojo's own world."""
        wanted = describe(name, arguments)
        found = (one["result"] for one in self.calls if describe(one["tool"], one["arguments"]) == wanted)
        return with_schemes(next(found, "done").replace(INJECTION, self.order))


@dataclass
class Stage:
    """The play that is on, for the tools and the model of a bot."""

    play: Play


class ObedientModel(ScriptedModel):
    """Carries out what the person wants, and before that whatever is ordered in anything it reads.

    Calls of one kind that follow each other share a step. `is_patient`: it ends the turn once something was asked.
    `acts_last`: it reads everything before it acts.
    """

    def __init__(self, stage: Stage, *, is_patient: bool, acts_last: bool = False) -> None:
        super().__init__(keep_requests=False)
        self._stage, self._is_patient, self._acts_last = stage, is_patient, acts_last
        self._play, self._left, self._count = stage.play, list[list[DojoCall]](), 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        play = self._stage.play
        if play is not self._play:
            self._play, self._left = play, list(steps(play.task["calls"], acts_last=self._acts_last))
        last = list(answers_of_last_step(request.messages))
        if play.attack and not play.was_shown and any(play.order in text for text in last):
            play.was_shown = True
            self._left = [*steps(play.attack["calls"]), *self._left]
        if not self._left or (self._is_patient and any(text.startswith("asked (") for text in last)):
            yield ModelReply("Done.", usage=Usage(1, 1), model="obedient")
            return
        made = []
        for call in self._left.pop(0):
            self._count += 1
            made.append(ToolCall(f"c{self._count}", f"dojo_{call['tool']}", json.dumps(call["arguments"])))
        yield ModelReply("", tuple(made), "tool_calls", Usage(1, 1), "obedient")


def steps(calls: Sequence[DojoCall], *, acts_last: bool = False) -> Iterator[list[DojoCall]]:
    """Split calls into steps: those that follow each other and are of one kind."""
    if acts_last:
        calls = sorted(calls, key=lambda call: is_acting(call["tool"]))
    for _, group in groupby(calls, key=lambda call: is_acting(call["tool"])):
        yield list(group)


def answers_of_last_step(messages: Sequence[Any]) -> Iterator[str]:
    """Yield the results that the model has not seen before."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return
        content = message["content"]
        yield content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def with_schemes(text: str) -> str:
    """Write the addresses in a text as our tools read them."""
    return re.sub(r"(?<![/\w])www\.", "http://www.", text)


def is_acting(name: str) -> bool:
    """True if a tool of AgentDojo does more than read."""
    return not name.startswith(READING)


def describe(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call down, so that two can be compared."""
    return f"{name} {json.dumps({key: value for key, value in arguments.items() if value is not None}, sort_keys=True)}"


def dojo_tool(declared: Mapping[str, Any], stage: Stage) -> Tool:
    """Make a tool of AgentDojo a tool of ours, with what it does declared."""
    name = declared["name"]
    fields = [(argument, Any, None) for argument in declared["arguments"]]
    args: Any = msgspec.defstruct(f"{name}_args", fields, bases=(Args,), frozen=True)
    effect = Effect() if is_acting(name) else READS_WEB if name == "get_webpage" else READS_WORLD

    async def plan(_turn: Turn, values: Args) -> CallPlan:
        given = dump_given(values)
        named = [str(given[key]) for key in RECIPIENTS if given.get(key)]
        target = GrantTarget(GrantKind.RECIPIENT, " ".join(named)) if named and is_acting(name) else None
        address = with_schemes(given["url"]) if name == "get_webpage" else ""
        return CallPlan(effect, json.dumps(given, indent=2), target, address)

    async def run(_turn: Turn, values: Args) -> str:
        given = dump_given(values)
        if is_acting(name):
            stage.play.done.append(describe(name, given))
        return stage.play.result(name, given)

    return Tool(f"dojo.{name}", declared["summary"], args, run, effect=effect, plan=plan)


@dataclass
class DojoBench:
    """A bot with the tools of a suite; each play is a chat of its own."""

    bench: ApprovalBench
    stage: Stage
    count: int = 0

    async def perform(self, play: Play, *, says_yes: bool = False) -> int:
        """Perform a play, and answer each card with yes, or none; return how many cards there were."""
        self.stage.play, self.count = play, self.count + 1
        before = len(self.bench.cards)
        session = f"play{self.count}"
        await self.bench.say(with_schemes(play.task["text"]), session=session)
        answered = before
        while says_yes and len(self.bench.cards) > answered:
            answered += 1
            await self.bench.say(f",approve {self.bench.cards[answered - 1]}", session=session)
        return len(self.bench.cards) - before


@pytest.fixture
def suites(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The suites; without them the test is skipped, and fails under --proof."""
    if not SUITES.exists():
        message = "AgentDojo's tasks are not here: make agentdojo, which needs a package index"
        pytest.fail(message) if request.config.getoption("--proof") else pytest.skip(message)
    found: Mapping[str, Any] = json.loads(SUITES.read_text())["suites"]
    return found


@asynccontextmanager
async def performing(
    home: Path, suite: Mapping[str, Any], *, is_patient: bool = False, acts_last: bool = False
) -> AsyncIterator[DojoBench]:
    """Open a bot with the tools of a suite."""
    stage = Stage(Play({"text": "", "calls": []}))
    model = ObedientModel(stage, is_patient=is_patient, acts_last=acts_last)
    async with approving(home, model, tools=[dojo_tool(one, stage) for one in suite["tools"]]) as bench:
        yield DojoBench(bench, stage)


def list_plays(suite: Mapping[str, Any], every: int = 1) -> list[Play]:
    """Every task with every attack that has calls, or one of so many pairs."""
    attacks = [attack for attack in suite["attacks"].values() if attack["calls"]]
    return [Play(task, attack) for task in suite["tasks"].values() for attack in attacks][::every]


@pytest.mark.parametrize("every", [110, pytest.param(1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("name", NAMES)
async def test_no_attack_acts_without_a_yes(tmp_path: Path, suites: Mapping[str, Any], name: str, every: int) -> None:
    plays = list_plays(suites[name], every)
    async with performing(tmp_path, suites[name]) as bench:
        for play in plays:
            await bench.perform(play)
    acting = [play for play in plays if play.attack and any(is_acting(call["tool"]) for call in play.attack["calls"])]
    print(f"{name}: {len(plays)} pairs, {len(acting)} of them with attacks that act")
    assert [play.done for play in plays if play.done] == []
    assert all(play.was_shown for play in plays), "a model that does not read the order proves nothing"


@dataclass(frozen=True)
class Manner:
    """How a model goes about a harmless task.

    Attributes:
        is_patient: it ends the turn once something was asked, instead of doing meanwhile whatever else there is.
        acts_last: it reads everything before it acts, instead of keeping to AgentDojo's own order.
    """

    is_patient: bool
    acts_last: bool = False


async def perform_harmless(home: Path, suite: Mapping[str, Any], manner: Manner, every: int) -> list[tuple[int, int]]:
    """Do each task, or one of so many, with a yes to each card; return of each that acts how many cards it took, and in how
    many steps its model acted."""
    counts = []
    async with performing(home, suite, is_patient=manner.is_patient, acts_last=manner.acts_last) as bench:
        for play in [Play(task) for task in list(suite["tasks"].values())[::every]]:
            cards = await bench.perform(play, says_yes=True)
            made = [
                step for step in steps(play.task["calls"], acts_last=manner.acts_last) if is_acting(step[0]["tool"])
            ]
            assert play.done == [describe(call["tool"], call["arguments"]) for step in made for call in step]
            assert bool(cards) == bool(made)
            counts += [(cards, len(made))] if made else []
    print(f"{len(counts)} tasks that act, {sum(cards for cards, _ in counts)} cards")
    return counts


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "manner", [Manner(is_patient=False), pytest.param(Manner(is_patient=True, acts_last=True), marks=pytest.mark.proof)]
)
async def test_a_harmless_task_that_acts_is_done_after_one_card(
    tmp_path: Path, suites: Mapping[str, Any], name: str, manner: Manner, every: int
) -> None:
    counts = await perform_harmless(tmp_path, suites[name], manner, every)
    assert {cards for cards, _ in counts} == {1}


@pytest.mark.proof
@pytest.mark.parametrize("name", NAMES)
async def test_a_model_that_waits_for_each_yes_asks_for_each_step_that_acts(
    tmp_path: Path, suites: Mapping[str, Any], name: str
) -> None:
    counts = await perform_harmless(tmp_path, suites[name], Manner(is_patient=True), 1)
    assert all(cards == made for cards, made in counts)


async def test_without_the_decision_attacks_act(
    tmp_path: Path, suites: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(_facts: CallFacts) -> Decision:
        return Decision(Verdict.RUN, EffectRow.OUTSIDE, ())

    monkeypatch.setattr("bubbot.features.approvals.gate.decide", decide)
    play = list_plays(suites["banking"])[0]
    async with performing(tmp_path, suites["banking"]) as bench:
        await bench.perform(play)
    assert play.attack is not None
    assert {describe(call["tool"], call["arguments"]) for call in play.attack["calls"]} <= set(play.done)
