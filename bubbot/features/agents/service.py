"""Running a sub-task: its fork, its turn, and what becomes of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from msgspec import UNSET

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
from bubbot.features.agents.facts import AgentEnded, AgentStarted, TaskUsage
from bubbot.features.agents.record import AttemptsView, find_cut_off, find_finished
from bubbot.features.agents.task import RUN_TOOL, MergeMode, RunningTasks, SubTask, TaskBudgetExceeded, TaskOrder
from bubbot.formatting import clean
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import detach_step
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.effects import EFFECT_BEGIN, find_record
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import read_calls
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, thaw
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.fact import Cited
from bubbot.tape.fork import ForkedTape
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
            if (can_nest or tool.name != RUN_TOOL) and not tool.is_reserved
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
        agent: str = "",
    ) -> Cited[AgentEnded]:
        """Run a sub-task; return how it ended, as the tape of the turn has it.

        Its limits are within the settings, and within those of a sub-task that orders it. One that an interrupted attempt
        of this turn has finished already is not run again.

        Raises:
            CommandRefused: a sub-task here can have none of its own.
        """
        depth, settings, parent = _depth(turn) + 1, self.settings, turn.find_metadata(SubTask)
        if depth > settings.max_depth:
            raise CommandRefused("agent_too_deep", depth=settings.max_depth)
        max_tokens = settings.max_tokens if parent is None else min(settings.max_tokens, parent.order.tokens)
        order = TaskOrder(
            text,
            name,
            frozenset(tool.name for tool in tools),
            min(steps or settings.max_steps, settings.max_steps),
            min(tokens or max_tokens, max_tokens),
            mode,
            has_own_window,
            agent,
        )
        tasks = turn.metadata.setdefault(RunningTasks, RunningTasks(settings.max_parallel))
        assert isinstance(tasks, RunningTasks)
        task = SubTask(order, depth, parent, turn.call_id)
        ended = await self._take_up(turn, task, tasks)
        if ended is not None:
            return ended
        async with AsyncExitStack() as stack:
            if any(tool.effect.kind is not EffectKind.READ for tool in tools):
                await stack.enter_async_context(tasks.writer(turn.tape.id))
            await stack.enter_async_context(tasks.places(depth))
            return Cited.of(AgentEnded, await self._run(turn, task))

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
        order, origin = task.order, f"agent:{task.order.name}"
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
                agent=self.agents.make(order.agent).limit_memory(turn.agent) if order.agent else None,
            )
            status, text = await _answer(child, turn.result_texts)
        except asyncio.CancelledError:  # stopped, out of time, or the process is ending: the fork must not stay open
            await self._close(fork, task, "stopped", turn.result_texts.say("agent_stopped"))
            raise
        return await self._close(fork, task, status, text)

    @uninterrupted
    async def _close(self, fork: ForkedTape, task: SubTask, status: str, text: str) -> TapeEntry:
        """Merge the fork, or only the result and the usage if that was asked for and nothing was changed."""
        has_effects = any(entry.name == EFFECT_BEGIN for entry in fork.delta) or any(
            tool.effect.kind is not EffectKind.READ and tool.name != RUN_TOOL
            for _, tool in self._list_calls(fork, task)
        )
        if task.order.mode == "result" and not has_effects and status == "answered":
            return await self._close_with_result(fork, task, status, text)
        end = self._end(fork, task, status, text, [[fork.base + 1, await fork.head() + 1]])
        await fork.append([end])
        try:
            return (await fork.merge()).delta[-1]
        except TapeConflict as error:  # another sub-task wrote other content under one of its keys
            return await self._close_with_result(fork, task, "failed", clean(str(error)))

    async def _close_with_result(self, fork: ForkedTape, task: SubTask, status: str, text: str) -> TapeEntry:
        steps = [await self._detach(entry, fork, task) for entry in fork.delta if entry.name == STEP_EVENT]
        return (await fork.merge_instead([*steps, self._end(fork, task, status, text, [])])).delta[-1]

    async def _detach(self, step: TapeEntry, fork: ForkedTape, task: SubTask) -> TapeEntry:
        """Build the step of a discarded sub-task as a call with a purpose: its request and what it cost stay facts (T13)."""
        data = await detach_step(thaw(step.data), fork, strategies=self._strategies)
        return make.event(STEP_EVENT, {"purpose": f"agent:{task.order.name}", **data})

    def _end(
        self, fork: ForkedTape, task: SubTask, status: str, text: str, entries: Sequence[Sequence[int]]
    ) -> TapeEntry:
        """Build the event of an end; `entries` are the id ranges that the sub-task leaves, none for its result alone."""
        return AgentEnded(
            fork=fork.id,
            name=task.order.name,
            order=task.order.digest,
            status=status,
            merged=bool(entries),
            entries=entries,
            result=text,
            steps=task.steps,
            tools=tuple([tool.name for writer, tool in self._list_calls(fork, task) if writer == fork.id]),
            usage=TaskUsage(task.input_tokens, task.output_tokens),
            call_id=task.call or UNSET,
        ).to_entry()

    def _list_calls(self, fork: ForkedTape, task: SubTask) -> list[tuple[str, Tool]]:
        """List the tools that it called, in order, each with the fork that called it: that of the sub-task, or one of that."""
        tools = {name: tool for tool in self._list_tools() if tool.name in task.order.tools for name in tool.names}
        calls = [(entry.meta["fork"], unwrap_call(call).name) for entry in fork.delta for call in read_calls(entry)]
        return [(writer, tools[name]) for writer, name in calls if name in tools]


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
