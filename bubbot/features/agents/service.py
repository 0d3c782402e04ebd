"""Running a sub-task: its fork, its turn, and what becomes of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Literal

from msgspec import UNSET, structs

from bubbot.concurrency import uninterrupted
from bubbot.errors import (
    BubbotError,
    CommandRefused,
    LeaseLost,
    ModelRepeatsCall,
    ModelStepLimit,
    StoreError,
    TapeConflict,
)
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.facts import AgentEnded, AgentStarted, BranchEffect, BranchEnded, TaskUsage
from bubbot.features.agents.record import MAX_EVENTS, AttemptsView, find_cut_off, find_finished
from bubbot.features.agents.task import (
    ORDER_TOOL,
    RUN_TOOL,
    BranchOrder,
    MergeMode,
    RunningTasks,
    SubTask,
    TaskBudgetExceeded,
    TaskOrder,
)
from bubbot.formatting import clean
from bubbot.ports.agents import ORIGIN_PREFIX, Agent
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import detach_step
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.effects import EFFECT_BEGIN, find_record
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import TurnRecord, read_calls
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, TapeEntry, text_field, thaw
from bubbot.tape.events import STEP_EVENT, EffectBegin, EffectEnd
from bubbot.tape.fact import Cited
from bubbot.tape.fork import ForkedTape
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from bubbot.tool import EffectKind, Tool

log = logging.getLogger(__name__)


class SubTaskService:
    """Runs sub-tasks of turns."""

    def __init__(
        self,
        agents: ConfiguredAgents,
        list_tools: Callable[[], Sequence[Tool]],
        strategies: ContextStrategies,
    ) -> None:
        """Take the agents with the limits, all tools, and what rebuilds the requests of a sub-task that is not kept."""
        self.settings = agents.settings
        self.agents = agents
        self._strategies = strategies
        self._list_tools = list_tools

    def available_tools(self, turn: Turn) -> dict[str, Tool]:
        """Return the tools that a sub-task of this turn may be given, by every name they answer to."""
        can_nest = _depth(turn) + 1 < self.settings.max_depth
        return {
            name: tool
            for tool in self._list_tools()
            if tool.for_model and turn.role.at_least(tool.role) and turn.may_call(tool.name)
            if (can_nest or tool.name not in (RUN_TOOL, ORDER_TOOL)) and not tool.is_reserved
            for name in tool.names
        }

    async def run(
        self,
        turn: Turn,
        text: str,
        tools: Sequence[Tool],
        *,
        name: str,
        mode: MergeMode,
        steps: int | None = None,
        tokens: int | None = None,
        has_own_window: bool = True,
        branch: BranchOrder | None = None,
        agent: str = "",
    ) -> Cited[AgentEnded]:
        """Run a sub-task; return how it ended, as the tape of the turn has it.

        Its limits are within the settings, and within those of a sub-task that orders it. One that an interrupted attempt
        of this turn has finished already is not run again.

        Args:
            branch: its place among the branches of a question; it has its own time limit then.
            agent: who works on it; empty for whoever answers the turn.

        Raises:
            CommandRefused: a sub-task here can have none of its own.
            TimeoutError: the branch took too long; it was stopped, and its end is recorded.
        """
        depth, settings, parent = _depth(turn) + 1, self.settings, turn.find_metadata(SubTask)
        if depth > settings.max_depth:
            raise CommandRefused("agent_too_deep", depth=settings.max_depth)
        max_tokens = settings.max_tokens if parent is None else min(settings.max_tokens, parent.order.tokens)
        if agent and (own := self.agents.make(agent).tools) is not None:
            tools = [tool for tool in tools if tool.name in own]
        order = TaskOrder(
            text,
            name,
            frozenset(tool.name for tool in tools),
            min(steps or settings.max_steps, settings.max_steps),
            min(tokens or max_tokens, max_tokens),
            mode,
            has_own_window,
            branch,
            agent,
        )
        tasks = self.find_tasks(turn)
        task = SubTask(order, depth, parent, turn.call_id)
        ended = await self._take_up(turn, task, tasks)
        if ended is not None:
            return ended
        async with AsyncExitStack() as stack:
            if any(tool.effect.kind is not EffectKind.READ for tool in tools):
                await stack.enter_async_context(tasks.writer(turn.tape.id))
            await stack.enter_async_context(tasks.places(depth))
            if branch is not None:
                await stack.enter_async_context(asyncio.timeout(settings.timeout))
            return Cited.of(AgentEnded, await self._run(turn, task))

    def find_callable(self, turn: Turn, name: str) -> Agent:
        """Return an agent that may be called in the chat of a turn. Raise `CommandRefused` with the names of those if it may not."""
        names = self.agents.list_callable(turn.session)
        if name not in names:
            raise CommandRefused("agent_unknown" if names else "agent_none", name=name, names=", ".join(names))
        return self.agents.make(name)

    def _find_agent(self, turn: Turn, order: TaskOrder) -> Agent:
        """Return who works on a sub-task: the agent that was ordered, or whoever answers the turn, with the model of a branch."""
        agent = self.agents.make(order.agent).limit_memory(turn.agent) if order.agent else turn.agent
        model = order.branch.alternative.model if order.branch else UNSET
        return structs.replace(agent, model=model) if isinstance(model, str) else agent

    def find_tasks(self, turn: Turn) -> RunningTasks:
        """Return what the sub-tasks of a turn share."""
        tasks: RunningTasks = turn.metadata.setdefault(RunningTasks, RunningTasks(self.settings.max_parallel))
        return tasks

    async def _take_up(self, turn: Turn, task: SubTask, tasks: RunningTasks) -> Cited[AgentEnded] | None:
        """Find what an interrupted attempt of this turn has done: its end, or the fork whose calls it continues."""
        interrupted = {accepted.interrupted_turn for accepted in turn.inbounds if accepted.interrupted_turn}
        if not interrupted:
            return None
        attempts = await turn.tape.read(AttemptsView(task.order.digest, frozenset(interrupted)))
        if (finished := find_finished(attempts, tasks.answered)) is not None:
            tasks.answered.add(finished.fact.fork)
            return finished
        if (cut_off := find_cut_off(attempts, tasks.answered)) is not None:
            tasks.answered.add(cut_off.fact.fork)
            task.attempt = cut_off.fact.fork
        return None

    async def _run(self, turn: Turn, task: SubTask) -> TapeEntry:
        """Run a sub-task in a fork and close that; return the event of its end, as the turn's tape has it."""
        order, origin = task.order, f"{ORIGIN_PREFIX}{task.order.name}"
        fork = await turn.tape.fork(stamp={"origin": origin})
        try:
            if task.attempt and (record := await find_record(turn)) is not None:
                record.continue_fork(fork.id, task.attempt)
            stored = await fork.append(_opening(fork, task))
            await fork.save()
            child = turn.derive(
                fork,
                origin=origin,
                message_ids=[stored[-1].id],
                allowed_tools=order.tools,
                max_steps=order.steps,
                metadata=[task],
                agent=self._find_agent(turn, order),
            )
            status, text = await _answer(child, turn.result_texts)
        except asyncio.CancelledError:  # stopped, out of time, or the process is ending: the fork must not stay open
            await self._close(turn, fork, task, "stopped", turn.result_texts.say("agent_stopped"))
            raise
        return await self._close(turn, fork, task, status, text)

    @uninterrupted
    async def _close(self, turn: Turn, fork: ForkedTape, task: SubTask, status: str, text: str) -> TapeEntry:
        """Merge the fork, or only the result and the usage if that was asked for and nothing was changed."""
        attempts = await _read_attempts(turn, task)
        has_effects = any(entry.name == EFFECT_BEGIN for entry in fork.delta) or any(
            tool.effect.kind is not EffectKind.READ and tool.name not in (RUN_TOOL, ORDER_TOOL)
            for _, tool in self._list_calls(fork, task)
        )
        if task.order.mode == "result" and not has_effects and status == "answered":
            return await self._close_with_result(fork, task, status, text)
        count = 1 if task.order.branch is None else 2
        spans = [[fork.base + 1, await fork.head() + count]]
        await fork.append(self._ends(fork, task, status, text, entries=spans, attempts=attempts))
        try:
            return (await fork.merge()).delta[-1]
        except TapeConflict as error:  # another sub-task wrote other content under one of its keys
            return await self._close_with_result(fork, task, "failed", clean(str(error)))

    async def _close_with_result(self, fork: ForkedTape, task: SubTask, status: str, text: str) -> TapeEntry:
        steps = [await self._detach(entry, fork, task) for entry in fork.delta if entry.name == STEP_EVENT]
        return (await fork.merge_instead([*steps, *self._ends(fork, task, status, text)])).delta[-1]

    async def _detach(self, step: TapeEntry, fork: ForkedTape, task: SubTask) -> TapeEntry:
        """Build the step of a discarded sub-task as a call with a purpose: its request and what it cost stay facts (T13)."""
        data = await detach_step(thaw(step.data), fork, strategies=self._strategies)
        return make.event(STEP_EVENT, {"purpose": f"{ORIGIN_PREFIX}{task.order.name}", **data})

    def _ends(
        self,
        fork: ForkedTape,
        task: SubTask,
        status: str,
        text: str,
        *,
        entries: Sequence[Sequence[int]] = (),
        attempts: Sequence[TapeEntry] = (),
    ) -> list[TapeEntry]:
        """Build the events of an end, `agent/ended` last.

        Args:
            entries: the id ranges that the sub-task leaves, none for its result alone.
            attempts: what interrupted attempts at it did outside.
        """
        usage = TaskUsage(task.input_tokens, task.output_tokens)
        tools = tuple([tool.name for writer, tool in self._list_calls(fork, task) if writer == fork.id])
        ended = AgentEnded(
            fork=fork.id,
            name=task.order.name,
            order=task.order.digest,
            status=status,
            merged=bool(entries),
            entries=entries,
            result=text,
            steps=task.steps,
            tools=tools,
            usage=usage,
            call_id=task.call or UNSET,
        )
        if (branch := task.order.branch) is None:
            return [ended.to_entry()]
        record = TurnRecord.of(fork.delta)
        models = [step.model for step in record.steps if step.fork == fork.id and step.model]
        end_of_branch = BranchEnded(
            group=branch.group,
            number=branch.number,
            fork=fork.id,
            alternative=branch.alternative,
            status=status,
            entries=entries,
            models=tuple(dict.fromkeys(models)),
            steps=task.steps,
            tools=tools,
            usage=usage,
            cost=record.cost,
            effects=list_effects(
                [*attempts, *(fork.delta if entries else ())],
                {fork.id, *(text_field(entry.meta, "fork") for entry in attempts)},
            ),
        )
        return [end_of_branch.to_entry(), ended.to_entry()]

    def _list_calls(self, fork: ForkedTape, task: SubTask) -> list[tuple[str, Tool]]:
        """List the tools that it called, in order, each with the fork that called it: that of the sub-task, or one of that."""
        tools = {name: tool for tool in self._list_tools() if tool.name in task.order.tools for name in tool.names}
        calls = [(entry.meta["fork"], unwrap_call(call).name) for entry in fork.delta for call in read_calls(entry)]
        return [(writer, tools[name]) for writer, name in calls if name in tools]


def choose_tools(available: Mapping[str, Tool], names: Sequence[str] | None) -> list[Tool]:
    """Choose tools by their names; None: all that only read. Raise `CommandRefused` if one is not available."""
    if names is None:
        return [tool for tool in available.values() if tool.effect.kind is EffectKind.READ]
    if unknown := [name for name in names if name not in available]:
        known = ", ".join(dict.fromkeys(tool.name for tool in available.values()))
        raise CommandRefused("agent_no_tool" if known else "agent_no_tools", name=unknown[0], names=known)
    return [available[name] for name in names]


def list_effects(entries: Sequence[TapeEntry], forks: Collection[str]) -> tuple[BranchEffect, ...]:
    """List what these forks and their forks did outside, in order; what ran again under its key is one effect."""
    begun: dict[int, EffectBegin] = {}
    waiting: dict[tuple[str, str], list[int]] = {}
    ended: dict[int, Literal["ok", "error"]] = {}
    for entry in entries:
        fork = text_field(entry.meta, "fork")
        if not any(f"{fork}/".startswith(f"{each}/") for each in forks):
            continue
        if entry.name in EffectBegin.EVENTS and (begin := EffectBegin.try_of(entry)):
            for number in [number for number, each in begun.items() if begin.key and each.key == begin.key]:
                del begun[number]
            begun[entry.id] = begin
            waiting.setdefault((fork, begin.call), []).append(entry.id)
        end = EffectEnd.try_of(entry) if entry.name in EffectEnd.EVENTS else None
        if end is not None and (begins := waiting.get((fork, end.call))):  # models reuse ids
            ended[begins.pop(0)] = "ok" if end.status == "ok" else "error"
    return tuple(BranchEffect(number, begin.tool, ended.get(number, "unknown")) for number, begin in begun.items())


async def _read_attempts(turn: Turn, task: SubTask) -> list[TapeEntry]:
    """Read what interrupted attempts at a branch did outside: it is answered with their results."""
    if not task.attempt or task.order.branch is None:
        return []
    names = (*AgentStarted.EVENTS, *EffectBegin.EVENTS, *EffectEnd.EVENTS)
    query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_EVENTS)
    entries = (await turn.tape.fetch([query]))[0][::-1]
    starts = [AgentStarted.try_of(entry) for entry in entries if entry.name in AgentStarted.EVENTS]
    forks = {start.fork for start in starts if start and start.order == task.order.digest}
    return [entry for entry in entries if text_field(entry.meta, "fork") in forks]


def _depth(turn: Turn) -> int:
    task = turn.find_metadata(SubTask)
    return task.depth if task else 0


def _opening(fork: ForkedTape, task: SubTask) -> list[TapeEntry]:
    """Build the first entries: a window of its own unless it continues that of its turn, what it is, and the task."""
    order = task.order
    started = AgentStarted(
        fork=fork.id,
        name=order.name,
        order=order.digest,
        depth=task.depth,
        tools=tuple(sorted(order.tools)),
        steps=order.steps,
        tokens=order.tokens,
        mode=order.mode,
    )
    window = [anchor(f"agent/{order.name}", {"phase": "sub-task", "owner": "agent"})] if order.has_own_window else []
    return [*window, started.to_entry(), make.message("user", clean(order.text))]


async def _answer(child: Turn, texts: Texts) -> tuple[str, str]:
    """Ask the model; return how that ended, with the answer or the reason. What ended it early is a fact (T14)."""
    try:
        return "answered", (await child.runner.run_model(child)).text
    except (StoreError, LeaseLost):
        raise  # nothing can be recorded; what the fork saved is durable
    except BubbotError as error:
        kind, text = error.kind, clean(_failure_text(error, texts))
    except Exception as error:  # sub-task boundary: our own defect ends it and not its turn
        log.exception("sub-task failed", extra={"action": "agent.failed"})
        kind, text = "internal", clean(texts.say("agent_failed", reason=f"{type(error).__name__}: {error}"))
    await child.tape.append([make.error(kind, text)])
    return "failed", text


def _failure_text(error: BubbotError, texts: Texts) -> str:
    match error:
        case ModelStepLimit():
            return texts.say("agent_steps_used", steps=error.steps)
        case ModelRepeatsCall():
            return texts.say("agent_repeats", tool=error.name)
        case TaskBudgetExceeded():
            return texts.say("agent_tokens_used", left=error.left, limit=error.limit, needed=error.needed)
    return texts.say("agent_failed", reason=texts.reason(error).rstrip("."))
