"""Attempts at nodes: a sub-conversation of a model in a fork of the turn's tape, judged by the harness while it works."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from msgspec import UNSET, structs
from msgspec.structs import replace as replace_fields

from bubbot.arguments.fields import dump_args
from bubbot.concurrency import uninterrupted
from bubbot.errors import BubbotError, LeaseLost, ModelError, StoreError, ToolRefused
from bubbot.features.tasks.brief import ArtifactOf, brief_entries, write_brief
from bubbot.features.tasks.contracts import ArtifactInvalid, parse_artifact
from bubbot.features.tasks.facts import ArtifactMade, MoveRefused, NodeChanged, Status
from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.monitor import RuleVerdict
from bubbot.features.tasks.schema import MAX_BACKOFF_SECONDS, TaskNode
from bubbot.features.tasks.settings import TaskSettings
from bubbot.features.tasks.work import RunWork
from bubbot.formatting import clean
from bubbot.middleware import CallNext, ModelCall, ToolInvocation
from bubbot.ports.access import Allowance
from bubbot.ports.agents import Agent, FindAgent
from bubbot.ports.model import ModelReply
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.effects import AttemptRecord, RecordedCall, read_fork_record
from bubbot.runtime.turns import StepRecord
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, timestamp
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import source_of
from bubbot.tape.query import IdRanges, TapeQuery, parse_moment
from bubbot.tool import Tool, ToolOutput

log = logging.getLogger(__name__)

NODE_BEGAN, NODE_ENDED = "dag.node/init", "dag.node/fin"
TASK_BEGAN, TASK_PASSED, TASK_ENDED = "task/init", "task/checkpoint", "task/fin"
"""Anchors for people and searches. The state of a run never depends on one."""
MAX_DETAIL_CHARS = 1_000
TOO_SLOW = " (to search the text for the pattern takes too long: write a shorter one)"
OWN_TOOLS = "task.*"
"""The tools of this feature, which no node gets: a run that begins runs has no end."""


@dataclass
class NodeAttempt:
    """An attempt under way; metadata of its turn, and of the sub-tasks that it has.

    Attributes:
        work: the run.
        name: the node.
        number: the number of the attempt.
        fork: what it writes to.
        started: the monotonic time in seconds.
        record: what its forks did before it was cut off: none of it happens again.
        spent: what its models read and wrote before it was cut off.
        tokens: what they read and wrote since.
        reserved: tokens of calls under way.
    """

    work: RunWork
    name: str
    number: int
    fork: ForkedTape
    started: float
    record: AttemptRecord = field(default_factory=lambda: AttemptRecord(()))
    spent: int = 0
    tokens: int = 0
    reserved: int = 0

    @property
    def node(self) -> TaskNode:
        """What the schema says of the node."""
        return self.work.definition.schema.nodes[self.name]


class NodeBudgetExceeded(ModelError):
    """An attempt at a node, or its whole run, has used its tokens."""

    kind = "node_budget"

    def __init__(self, left: int, needed: int) -> None:
        super().__init__(f"{max(left, 0)} tokens are left for this step of the task, and the next call needs {needed}")


class NodeRunner:
    """Runs attempts at nodes.

    Attributes:
        settings: the section.
    """

    def __init__(self, list_tools: Callable[[], Sequence[Tool]], find_agent: FindAgent, settings: TaskSettings) -> None:
        self.settings = settings
        self._list_tools = list_tools
        self._find_agent = find_agent

    async def run(self, turn: Turn, work: RunWork, name: str) -> None:
        """Run the next attempt at a node, or go on with one that was cut off; what it leaves is merged into the turn.

        If it is cancelled, what it did is merged, and the attempt stays open: who resumes the run goes on with it.
        """
        node, before = work.definition.schema.nodes[name], work.find_node(name)
        forks = before.forks if before.status == "running" else ()
        fork = await turn.tape.fork(stamp={"origin": f"task:{name}"})
        number = before.attempt if forks else before.attempt + 1
        attempt = NodeAttempt(work, name, number, fork, time.monotonic())
        attempt.record = await read_fork_record(
            turn.tape, forks, work.opened_at, fork.id, partial(self._note_answered, attempt)
        )
        counted = before.tokens if forks else 0
        tokens, spent = await _read_spent(turn.tape, forks, work.opened_at)
        attempt.spent = max(tokens, counted)
        lost = attempt.spent - counted  # a process that is killed says nothing
        began = NodeChanged(
            run=work.run, node=name, status="running", attempt=number, fork=fork.id, tokens=lost or UNSET
        )
        work.change(fork, began, turn.now())
        try:
            seconds = _find_time_left(work, node, spent)
            async with asyncio.timeout(seconds) as limit:
                await asyncio.sleep(0)  # if no time is left, it ends here
                artifact = await self._work(turn, attempt)
        except asyncio.CancelledError:
            await _merge_stopped(turn, attempt)
            raise
        except (StoreError, LeaseLost):
            raise  # nothing can be recorded; what the fork saved is durable
        except ArtifactInvalid as error:
            await self._fail(turn, attempt, "task_artifact_invalid", str(error))
        except TimeoutError:
            if not limit.expired():
                raise
            await self._fail(turn, attempt, "task_node_too_slow", f"{seconds + spent:g}")
        except BubbotError as error:
            await self._fail(turn, attempt, "task_model_failed", turn.texts.english.reason(error))
        except Exception as error:  # the boundary of a node: our own defect ends it and not its run
            log.exception("node failed", extra={"action": "task.node_failed"})
            await self._fail(turn, attempt, "task_defect", type(error).__name__)
        else:
            await self._succeed(turn, attempt, artifact)

    async def _work(self, turn: Turn, attempt: NodeAttempt) -> Any:
        """Ask the model until its answer fits the contract and the harness, and return the artifact.

        Raises:
            ArtifactInvalid: it does not after all repairs.
            ModelError: see `TurnRunner.run_model`.
        """
        work, name, node, fork = attempt.work, attempt.name, attempt.node, attempt.fork
        artifacts = [await read_artifact(turn.tape, work, parent) for parent in node.after]
        parts, prompt = write_brief(work, name, artifacts, work.source, self.settings.max_view_tokens)
        state = {"run": work.run, "node": name, "attempt": attempt.number, "phase": "node", "owner": "agent"}
        began = work.make_event("started", name, name, turn.now(), {})
        if violations := self._judge(attempt, began):
            raise ModelError(f"the harness forbids this step now ({violations})")
        await work.record(fork, began, attempt.number)
        stored = await fork.append([anchor(NODE_BEGAN, state), *brief_entries(work.run, parts, prompt)])
        await fork.save()
        agent = self._choose_agent(turn, node)
        child = turn.derive(
            fork,
            origin=f"task:{name}",
            message_ids=[stored[-1].id],
            allowed_tools=self._choose_tools(turn, node, agent),
            max_steps=node.steps,
            metadata=[attempt, attempt.record],
            agent=structs.replace(agent, tools=None),
        )
        child.allowed_before = (*turn.allowed_before, *map(Allowance.parse, node.allow))
        for repair in range(node.repairs + 1):
            text = (await child.runner.run_model(child)).text
            try:
                return self._accept(attempt, turn, parse_artifact(text, node.artifact))
            except ArtifactInvalid as error:
                if repair == node.repairs:
                    raise
                asked = await fork.append([make.message("user", f"[{clean(str(error))}]", origin="system")])
                child.message_ids.append(asked[-1].id)
        raise AssertionError("the last repair returns or raises")

    def _accept(self, attempt: NodeAttempt, turn: Turn, artifact: Any) -> Any:
        """Return an artifact that the harness allows. Raise `ArtifactInvalid` with the rules that it breaks."""
        event = attempt.work.make_event("artifact", attempt.name, attempt.name, turn.now(), artifact_values(artifact))
        if violations := self._judge(attempt, event):
            raise ArtifactInvalid([f"the harness of this task forbids it: {violations}"])
        return artifact

    def _judge(self, attempt: NodeAttempt, event: RunEvent) -> str:
        """Return the rules that an event would break, with their places; empty for none."""
        return describe_rules(attempt.work, attempt.work.judge(event, attempt.number))

    def _choose_tools(self, turn: Turn, node: TaskNode, agent: Agent) -> frozenset[str]:
        """Return the tools of a node: those that it names, and that the person and the agent may call."""
        return frozenset(
            tool.name
            for tool in self._list_tools()
            if tool.for_model and turn.role.at_least(tool.role) and turn.may_call(tool.name) and not tool.is_reserved
            if any(fnmatchcase(tool.name, pattern) for pattern in node.tools) and not fnmatchcase(tool.name, OWN_TOOLS)
            if agent.tools is None or tool.name in agent.tools
        )

    def _choose_agent(self, turn: Turn, node: TaskNode) -> Agent:
        agent = turn.agent
        if node.agent:
            found = self._find_agent(turn.session, node.agent)
            if found is None:
                raise ModelError(f"there is no agent {node.agent} in this chat")
            agent = found.limit_memory(turn.agent)
        return structs.replace(agent, model=node.model or agent.model, strategy=node.strategy or agent.strategy)

    @uninterrupted
    async def _succeed(self, turn: Turn, attempt: NodeAttempt, artifact: Any) -> None:
        work, name, fork = attempt.work, attempt.name, attempt.fork
        made = ArtifactMade(work.run, name, attempt.number, artifact)
        await fork.append([made.to_entry(key=artifact_key(work.run, name, attempt.number))])
        event = work.make_event("artifact", name, name, turn.now(), artifact_values(artifact))
        await work.record(fork, event, attempt.number)
        await self._end(turn, attempt, "succeeded")

    @uninterrupted
    async def _fail(self, turn: Turn, attempt: NodeAttempt, reason: str, detail: str) -> None:
        detail = clean(detail)[:MAX_DETAIL_CHARS]
        await attempt.fork.append([make.error("task_node", detail or reason)])
        await self._end(turn, attempt, "failed", reason, detail)

    async def _end(self, turn: Turn, attempt: NodeAttempt, status: Status, reason: str = "", detail: str = "") -> None:
        """Write the end of an attempt and merge its fork. After a failure it waits for the next attempt, if it may have one."""
        work, name, node, fork, now = attempt.work, attempt.name, attempt.node, attempt.fork, turn.now()
        await work.record(fork, work.make_event("ended", name, name, now, {"state": status}), attempt.number)
        fact = NodeChanged(
            run=work.run,
            node=name,
            status=status,
            attempt=attempt.number,
            reason=reason or UNSET,
            detail=detail or UNSET,
            tokens=attempt.tokens,
            seconds=work.take_seconds(attempt.started),
        )
        if status == "failed" and attempt.number <= node.retries:
            pause = min(node.backoff * 2 ** (attempt.number - 1), MAX_BACKOFF_SECONDS)
            until = timestamp(now + timedelta(seconds=pause)) if pause else UNSET
            fact = replace_fields(fact, status="waiting" if pause else "queued", until=until)
        state = {"run": work.run, "node": name, "attempt": attempt.number, "phase": fact.status, "owner": "agent"}
        await fork.append([anchor(NODE_ENDED, state, window=False)])
        await work.merge(fork, fact, now)

    # Middleware

    async def around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Keep the model calls of nodes within the tokens of their attempt and of their run.

        Raises:
            NodeBudgetExceeded: the call needs more tokens than are left.
        """
        attempt = call.turn.find_metadata(NodeAttempt)
        if attempt is None:
            return await call_next(call)
        tokens, limit = call.count_input(), attempt.work.definition.schema.tokens
        left = attempt.node.tokens - attempt.spent - attempt.tokens - attempt.reserved
        if limit is not None:
            used = attempt.work.state.tokens + sum(attempt.work.running.values())
            left = min(left, limit - used - attempt.work.reserved)
        if tokens > left:
            raise NodeBudgetExceeded(left, tokens)
        attempt.reserved += tokens
        attempt.work.reserved += tokens
        try:
            reply = await call_next(call)
        finally:
            attempt.reserved -= tokens
            attempt.work.reserved -= tokens
        usage = reply.usage
        attempt.tokens += (usage.input_tokens or tokens) + (usage.output_tokens or estimate_tokens(reply.text))
        attempt.work.running[attempt.name] = attempt.tokens
        return reply

    async def around_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """Judge each call of a node before anything is asked or done; record it, and how it ended.

        Raises:
            ToolRefused: the harness forbids it.
        """
        attempt = call.turn.find_metadata(NodeAttempt)
        if attempt is None or not attempt.work.harness.rules:
            return await call_next(call)
        work, tape = attempt.work, call.turn.tape
        event = work.make_event("call", call.tool.name, attempt.name, call.turn.now(), dump_args(call.args))
        if violations := work.judge(event, attempt.number):
            raise ToolRefused(await self._refuse(call, attempt, violations))
        await work.record(tape, event, attempt.number)
        is_ok = False
        try:
            output = await call_next(call)
            is_ok = True
        finally:
            ended = work.make_event("result", call.tool.name, attempt.name, call.turn.now(), {"ok": is_ok})
            await work.record(tape, ended, attempt.number)
        return output

    async def _note_answered(
        self,
        attempt: NodeAttempt,
        call: ToolInvocation,
        recorded: RecordedCall,
        is_ok: bool,  # noqa: FBT001 - the record's
    ) -> None:
        """Record what the cut-off attempt had not recorded yet of a call that is answered from its record.

        A call that was refused is no event. One of which nobody knows whether it was refused or ran is judged again.
        """
        if call.turn.find_metadata(NodeAttempt) is not attempt:
            return
        work, name, now = attempt.work, call.tool.name, call.turn.now()
        called = work.make_event("call", name, attempt.name, now, dump_args(call.args))
        if not work.repeats(called, attempt.number) and (recorded.content is not None or work.monitor.judge(called)):
            return
        await work.record(call.turn.tape, called, attempt.number)
        ended = work.make_event("result", name, attempt.name, now, {"ok": is_ok})
        await work.record(call.turn.tape, ended, attempt.number)

    async def _refuse(self, call: ToolInvocation, attempt: NodeAttempt, violations: Sequence[RuleVerdict]) -> str:
        """Write down why a call does not run; return what the model reads."""
        work, tape = attempt.work, call.turn.tape
        numbers = [number for verdict in violations for number in verdict.events]
        rules = tuple(verdict.rule for verdict in violations)
        texts = tuple(rule.text for rule in work.harness.rules if rule.id in rules)
        refused = MoveRefused(work.run, attempt.name, call.tool.name, rules, texts, work.cite(tape, numbers))
        await tape.append([refused.to_entry()])
        broken = describe_rules(work, violations)
        return f"{call.tool.name} was not run: the harness of this task forbids it ({broken}). Go on without it."


def _find_time_left(work: RunWork, node: TaskNode, spent: float) -> float:
    """Return the seconds that an attempt may still take: those of its node without `spent`, and what its run has left."""
    limit, left = work.definition.schema.timeout, node.timeout - spent
    return max(left if limit is None else min(left, limit - work.state.seconds), 0.0)


async def _read_spent(tape: TapeHandle, forks: Sequence[str], first: int) -> tuple[int, float]:
    """Return the tokens that forks of a cut-off attempt used, and the seconds from their first to their last entry.

    Args:
        first: an entry id not above any of their entries.
    """
    kinds, names = (Kind.ANCHOR, Kind.EVENT, Kind.ERROR), (NODE_BEGAN, STEP_EVENT)
    query = TapeQuery(tape.name, IdRanges(((first, None),)), kinds=kinds, names=names)
    entries = (await tape.fetch([query]))[0] if forks else ()
    tokens, seconds = 0, 0.0
    for fork in forks:
        own = [entry for entry in entries if entry.meta.get("fork") == fork]
        usages = [StepRecord(entry, entry.data, None, ()) for entry in own if entry.name == STEP_EVENT]
        tokens += sum(usage.input_tokens + usage.output_tokens for usage in usages)
        moments = [moment for entry in own if (moment := parse_moment(entry.date)) is not None]
        if moments:
            seconds += (moments[-1] - moments[0]).total_seconds()
    return tokens, max(seconds, 0.0)


@uninterrupted
async def _merge_stopped(turn: Turn, attempt: NodeAttempt) -> None:
    """Merge the fork of an attempt that was stopped: what it used counts, and its facts still say that it runs."""
    work, fork = attempt.work, attempt.fork
    await fork.append([make.error("stopped", turn.texts.english.say("stopped"))])
    used = NodeChanged(
        run=work.run,
        node=attempt.name,
        status="running",
        attempt=attempt.number,
        tokens=attempt.tokens,
        seconds=work.take_seconds(attempt.started),
    )
    await work.merge(fork, used, turn.now())


def artifact_values(artifact: Any) -> dict[str, Any]:
    """Return an artifact as the values of an event."""
    return artifact if isinstance(artifact, dict) else {"value": artifact}


def describe_rules(work: RunWork, verdicts: Sequence[RuleVerdict]) -> str:
    """Name rules of the harness by place, scenario and step, and say if a search took too long to tell."""
    found = {verdict.rule: verdict for verdict in verdicts}
    return "; ".join(
        f"{rule.path}:{rule.line}: {rule.scenario}: {rule.text}" + (TOO_SLOW if found[rule.id].is_undecided else "")
        for rule in work.harness.rules
        if rule.id in found
    )


def artifact_key(run: str, node: str, attempt: int) -> str:
    """Return the key of an artifact on the tape of its chat."""
    return f"artifact:{run}:{node}:{attempt}"


def opened_key(run: str) -> str:
    """Return the key of the fact with the sources of a run."""
    return f"task:{run}"


async def read_artifact(tape: TapeHandle, work: RunWork, node: str) -> ArtifactOf:
    """Read the artifact of a node that succeeded. Raise `ArtifactInvalid` if it is gone."""
    kept = {name: (run, attempt) for name, run, attempt in work.state.queued.fact.kept}
    run, attempt = kept.get(node, (work.run, work.find_node(node).attempt))
    found = (await tape.fetch([TapeQuery(tape.name, keys=(artifact_key(run, node, attempt),))]))[0]
    if not found or found[0].erased:
        raise ArtifactInvalid([f"the artifact of {node} is gone: it was erased, or the chat was reset"])
    return ArtifactOf(node, found[0].id, make.thaw(ArtifactMade.of(found[0]).artifact), source_of(found[0]))
