"""Tasks in a bot put together from its real parts over any store: see `tests.turns.running`."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bubbot.app.events import OWN_REFERENCES
from bubbot.arguments.fields import NoArguments
from bubbot.command import make_tools
from bubbot.feature import Around, Feature
from bubbot.features.approvals.feature import ApprovalsFeature
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.tasks.commands import TaskCommands
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.facts import TASKS_TAPE
from bubbot.features.tasks.feature import OPTIONS
from bubbot.features.tasks.library import TaskLibrary
from bubbot.features.tasks.runs import TaskRuns
from bubbot.features.tasks.schema import TaskSchema
from bubbot.features.tasks.settings import TaskSettings
from bubbot.features.tasks.source import TaskTurns
from bubbot.features.tasks.state import RunState
from bubbot.gateway.directory import ChannelDirectory
from bubbot.ports.channel import JOB_TASK_ORIGIN, TASK_ORIGIN, Role
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, Tool, Toolbox, tool
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.turns import CHANNEL, Bench, KeptChannel, Options, Replying, running

RULES = """Feature: What a run must not do

  Scenario: It forgets nothing
    When tool "memory.forget" is called
    Then it is refused
"""


async def no_pause() -> None:
    """Answer at once."""


@dataclass(frozen=True)
class NodePlan:
    """What the model does in a node: each attempt the same.

    Attributes:
        calls: one after the other, as tools with underscores and arguments.
        answers: after the calls, and after each repair; the last stands for the rest.
        failures: how many attempts end in nothing that a contract lets pass.
    """

    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    answers: Sequence[str] = ('{"made": true}',)
    failures: int = 0


@dataclass
class NodePlayer:
    """Plays the model of a run: what it says follows from the node and the attempt alone. A prompt has to be `STEP-` and the
    name of its node.

    Attributes:
        asked: the nodes for which it was asked, in order.
        shown: the artifacts that it was shown, as node, parent and text.
    """

    plans: Mapping[str, NodePlan]
    pause: Callable[[], Awaitable[None]] = no_pause
    usage: Usage = field(default_factory=lambda: Usage(10, 5))
    asked: list[str] = field(default_factory=list)
    shown: list[tuple[str, str, str]] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        contents = [str(message["content"]) for message in request.messages]
        text, usage = "\n".join(contents), self.usage
        steps = re.findall(r"STEP-(\w+)", text)
        if not steps:  # people talk with the bot meanwhile
            await self.pause()
            yield ModelReply("hello", usage=usage, model="scripted")
            return
        node, plan = steps[-1], self.plans[steps[-1]]
        self.asked.append(node)
        shown = (
            re.search(r"The artifact of (\w+) \(#\d+\), as evidence; it gives no orders:\n(?s:(.*))", each)
            for each in contents
        )
        self.shown += [(node, found[1], found[2]) for found in shown if found]
        attempt = int(re.findall(rf'"node":"{node}","attempt":(\d+)', text)[-1])
        done = sum("tool_calls" in message for message in request.messages)
        await self.pause()
        if attempt <= plan.failures:
            yield ModelReply("Nothing.", usage=usage, model="scripted")
        elif done < len(plan.calls):
            name, arguments = plan.calls[done]
            call = ToolCall(f"{node}{done}", name, json.dumps(arguments))
            yield ModelReply("", (call,), "tool_calls", usage, "scripted")
        else:
            repairs = text.count("does not fit its contract")
            answer = plan.answers[min(repairs, len(plan.answers) - 1)]
            yield ModelReply(answer, usage=usage, model="scripted")

    def make_model(self) -> Replying:
        """Make the model."""
        return Replying(self.stream)


@dataclass
class TaskBench:
    """A running bot, and the runs of its tasks."""

    bench: Bench
    runs: TaskRuns
    commands: TaskCommands
    approvals: ApprovalsFeature

    @property
    def run(self) -> RunState:
        """The newest run."""
        return [*self.runs.state.runs.values()][-1]


def define(schema: TaskSchema, rules: str = RULES) -> TaskDefinition:
    """Make a definition without a folder."""
    return TaskDefinition(name="trip", schema=schema, config={}, harness={"scripts/rules.feature": rules})


@asynccontextmanager
async def running_tasks(
    store: TapeStore,
    model: Model,
    definition: TaskDefinition,
    *,
    tools: Sequence[Tool] = (),
    life: str = "first",
    clock: SteppingClock | None = None,
    channel: KeptChannel | None = None,
) -> AsyncIterator[TaskBench]:
    """Run a bot for the block, in which `,trip.begin` begins a run of the definition. It has taken up what was open."""
    clock, new_id = clock or SteppingClock(), CountingIds(f"{life}-feature")
    lines: dict[str, object] = {}
    directory = ChannelDirectory(lines, Texts())  # type: ignore[arg-type]
    toolbox: list[Toolbox] = []

    def open_tape(name: str) -> TapeService:
        return TapeService(store, name, now=clock, new_id=new_id, references=OWN_REFERENCES)

    kernel = make_kernel(
        now=clock,
        new_id=new_id,
        projections=ProjectionRunner(),
        open_tape=open_tape,
        role_of=lambda _: Role.OWNER,
        accept=directory.accept,
        send=directory.send,
        notify=directory.notify,
        draft=directory.draft,
        stage=directory.stage,
        find_sent=directory.find_sent,
        find_texts=directory.find_texts,
        list_tools=lambda: tuple(toolbox[0]),
        find_agent=lambda _session, _name: None,
    )
    approvals = ApprovalsFeature(kernel, ApprovalSettings(), lambda: tuple(toolbox[0]), lambda _: ())
    kernel = replace(kernel, ask=approvals.ask, find_answer=approvals.service.find_answer)
    runs = TaskRuns(kernel, TaskSettings())
    commands = TaskCommands(TaskLibrary(Path("unused"), {}), TaskSettings(), runs)
    turns = TaskTurns(runs, kernel.role_of)
    tasks = Feature(
        name="tasks",
        tools=make_tools(TaskCommands, lambda: commands, task_resume=OPTIONS["task_resume"]),
        sources={TASK_ORIGIN: turns, JOB_TASK_ORIGIN: turns},
        traces=(TASKS_TAPE,),
        around=Around(turn=(turns.around_turn,), model=(runs.nodes.around_model,), tool=(runs.nodes.around_tool,)),
        on_merged=(runs.apply_merge,),
    )

    @tool("trip.begin", effect=READS_OWN)
    async def begin(turn: Turn, args: NoArguments) -> str:
        """Begin a run."""
        await runs.begin(turn, definition, "to the sea")
        return "begun"

    feature = approvals.feature()
    options = Options(tools=[begin, *tools], features=[tasks, feature], clock=clock)
    async with running(store, model, options, channel=channel, life=life) as bench:
        lines[CHANNEL] = bench.line
        toolbox.append(bench.toolbox)
        bench.line.open_gate(bench.app, Texts(), decide_press=approvals.decide_press)
        directory.join(bench.line, _ignore_unreachable)
        await runs.load()
        assert feature.lifecycle.on_recovered is not None
        open_work = await bench.find_open_work()
        await feature.lifecycle.on_recovered()
        await bench.deliverer.resume(queued=True)
        bench.line.resume(open_work)
        for session in open_work.sessions:
            bench.app.take_up(session)
        yield TaskBench(bench, runs, commands, approvals)


async def _ignore_unreachable(_channel: str, _chat: str, _reason: str) -> None:
    """No chat goes away."""
