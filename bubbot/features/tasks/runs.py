"""The runs of tasks: what is ready is run, what waits is looked at, and what is over is judged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import Any

from msgspec import UNSET, Struct, to_builtins

from bubbot.errors import CommandRefused, ConfigError
from bubbot.feature import Kernel
from bubbot.features.tasks.attempts import (
    NODE_BEGAN,
    NODE_ENDED,
    TASK_BEGAN,
    TASK_ENDED,
    TASK_PASSED,
    NodeRunner,
    artifact_key,
    artifact_values,
    opened_key,
    read_artifact,
)
from bubbot.features.tasks.brief import write_question
from bubbot.features.tasks.contracts import ArtifactInvalid
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.facts import (
    TASKS_TAPE,
    ArtifactMade,
    NodeChanged,
    RuleJudged,
    RunChanged,
    RunEventSeen,
    RunQueued,
    Status,
    TaskOpened,
    VerdictCounts,
)
from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.harness.feature_files import Harness
from bubbot.features.tasks.harness.monitor import Monitor
from bubbot.features.tasks.progress import ProgressMessages
from bubbot.features.tasks.settings import TaskSettings
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.features.tasks.state import TASKS_PROJECTION, NodeState, RunState, TasksState, begin_run
from bubbot.features.tasks.vocabulary import read_harness
from bubbot.features.tasks.work import RunWork
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.channel import JOB_TASK_ORIGIN, TASK_ORIGIN, Inbound, Sender
from bubbot.ports.session_names import split_session
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, TapeEntry, canonical, timestamp
from bubbot.tape.fact import Cited
from bubbot.tape.fork import MergeResult
from bubbot.tape.provenance import source_of
from bubbot.tape.query import IdRanges, TapeQuery, parse_moment

log = logging.getLogger(__name__)

RUN_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Characters of the names of runs: none looks like another one."""
RUN_LENGTH = 5
GATE = "task.gate"
"""What the card of a gate names as asking."""
TIMER_SECONDS = 5.0
"""Seconds between looks at what waits for a moment."""
MAX_CACHED_WORKS = 64
"""Runs whose sources and harness stay in memory between their turns."""


class RunOutcome(Struct, frozen=True):
    """What a turn did for a run.

    Attributes:
        state: of the run.
        text: what people read; empty if there is nothing to say yet.
        artifact: the entry of the artifact that the text is; 0 for none.
    """

    state: RunState
    text: str
    artifact: int = 0


class TaskRuns:
    """The runs of a bot. Facts of a turn are merged with it; those of nobody's turn are durable when they return.

    Attributes:
        tape: the tape of tasks.
        nodes: runs attempts at nodes.
    """

    def __init__(self, kernel: Kernel, settings: TaskSettings) -> None:
        self._kernel = kernel
        self.tape = kernel.open_tape(TASKS_TAPE)
        self._projected = kernel.projections.project(TASKS_PROJECTION, self.tape, self._note_cancelled)
        self._works: dict[str, RunWork] = {}
        self._active: set[str] = set()
        self._progress = ProgressMessages(kernel)
        self.nodes = NodeRunner(kernel.list_tools, kernel.find_agent, settings)

    @property
    def state(self) -> TasksState:
        """The runs as of the last load or change."""
        return self._projected.state

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        await self._projected.ensure_loaded()

    def _note_cancelled(self, entries: Sequence[TapeEntry]) -> None:
        """Let the work on a run end that somebody has cancelled, also in another process."""
        for entry in entries:
            fact = RunChanged.try_of(entry) if entry.name in RunChanged.EVENTS else None
            if fact is not None and fact.status == "cancelled" and (work := self._works.get(fact.run)):
                work.is_cancelled.set()

    async def apply_merge(self, result: MergeResult) -> None:
        """Apply the merged facts of a turn, and learn the entries of its events."""
        if result.has_erased:
            await self._projected.load()
            self._works.clear()
        elif facts := result.staged.get(TASKS_TAPE):
            if all(entry.id for entry in facts):
                await self._projected.follow(facts)
            else:
                await self._projected.catch_up()
        for entry in result.delta:
            fact = RunEventSeen.try_of(entry) if entry.name in RunEventSeen.EVENTS else None
            if fact is not None and (work := self._works.get(fact.run)):
                work.entries[fact.number] = entry.id

    def list_agents(self, session: str, definition: TaskDefinition) -> list[str]:
        """List the agents that the nodes of a task name and that may be called in a chat."""
        named = dict.fromkeys(node.agent for node in definition.schema.nodes.values() if node.agent)
        return [name for name in named if self._kernel.find_agent(session, name) is not None]

    def find(self, name: str) -> RunState:
        """Return the state of a run by its name as people type it. Raise `CommandRefused` if there is none."""
        if (state := self.state.runs.get(read_run(name))) is None:
            raise CommandRefused("task_no_run", run=name.strip())
        return state

    def read_live(self, state: RunState) -> RunState:
        """Return the state of a run with what a turn of this process has changed and not merged yet."""
        work = self._works.get(state.run)
        return work.state if work is not None and state.run in self._active else state

    # Beginning

    async def begin(
        self,
        turn: Turn,
        definition: TaskDefinition,
        description: str,
        *,
        source: RunState | None = None,
        kept: Sequence[tuple[str, str, int]] = (),
    ) -> RunState:
        """Begin a run in a turn: its facts, and the inbound of its first step, are merged with the turn.

        A turn that runs again after a crash goes on with the run that it began before.
        """
        inbound = turn.inbounds[0].inbound
        name, is_new = self._name_run(inbound.external_id, definition, description)
        if not is_new:
            self._follow(turn, self.state.runs[name])
            return self.state.runs[name]
        queued = RunQueued(
            name,
            definition.name,
            turn.session,
            turn.session.partition(":")[0],
            turn.sender.id,
            turn.sender.name,
            tuple(turn.sender.roles),
            inbound.direct,
            inbound.space,
            tuple(definition.schema.nodes),
            turn.works_for_person,
            inbound.external_id,
            source.run if source else UNSET,
            tuple(kept),
            "" if turn.works_for_person else turn.cause,
        )
        opened = TaskOpened(queued.run, definition.to_text(), description, turn.sender.id)
        state = {"run": queued.run, "task": queued.task, "phase": "task", "owner": "human"}
        await turn.tape.append([opened.to_entry(key=opened_key(queued.run)), anchor(TASK_BEGAN, state, window=False)])
        turn.tape.stage(TASKS_TAPE, [queued.to_entry(key=f"queued:{queued.run}")])
        begun = begin_run(Cited(queued))
        self._follow(turn, begun)
        if definition.schema.progress == "message":
            self._progress.begin(turn, begun, definition)
        return begun

    def _name_run(self, request: str, definition: TaskDefinition, description: str) -> tuple[str, bool]:
        """Return the name of the run that a request begins, and false if it has begun it already."""
        for salt in count():
            text = canonical({"run": [salt, request, definition.digest, description]})
            digest = sha256(text.encode()).digest()
            name = "".join(RUN_ALPHABET[byte % len(RUN_ALPHABET)] for byte in digest[:RUN_LENGTH])
            known = self.state.runs.get(name)
            if known is None or known.queued.fact.request == request:
                return name, known is None
        raise AssertionError("count has no end")

    def _follow(self, turn: Turn, state: RunState) -> None:
        """Let the chat go on with the run in a turn of its own, accepted with the merge of this one."""
        origin = TASK_ORIGIN if state.queued.fact.has_person else JOB_TASK_ORIGIN
        key, first = f"task:{state.run}:{state.revision}:{state.done}", turn.inbounds[0].inbound
        turn.following.append(
            first.follow_up(
                key,
                f",task.resume {state.run}",
                timestamp(turn.now()),
                origin=origin,
                provenance=str(turn.tape.source),
            )
        )

    # Working

    async def open_work(self, turn: Turn, run: str) -> RunWork:
        """Return a run to work on in a turn of its chat. Raise `CommandRefused` if its sources are gone."""
        state = self.state.runs[run]
        tape, work = turn.tape, self._works.get(run)
        found = (await tape.fetch([TapeQuery(tape.name, keys=(opened_key(run),))]))[0]
        if not found or found[0].erased:  # the chat was reset, or it was erased
            raise CommandRefused("task_lost", run=run)
        if work is not None and work.state.revision == state.revision and not _was_cut_off(work):
            return work
        opened = TaskOpened.of(found[0])
        definition = TaskDefinition.of_text(opened.definition)
        harness, monitor = await asyncio.to_thread(_read_rules, definition)
        work = RunWork(state, definition, opened.description, harness, monitor, found[0].id, source_of(found[0]))
        if harness.rules:
            names = RunEventSeen.EVENTS
            query = TapeQuery(tape.name, IdRanges(((found[0].id, None),)), kinds=(Kind.EVENT,), names=names)
            await asyncio.to_thread(work.load_events, (await tape.fetch([query]))[0])
        work.state = self.state.runs.get(run, state)  # somebody may have ended it meanwhile
        self._works[run] = work
        for old in [each for each in self._works if each not in self._active][:-MAX_CACHED_WORKS]:
            del self._works[old]
        return work

    async def advance(self, turn: Turn, run: str) -> RunOutcome:
        """Run what is ready of a run, and what becomes ready while that runs; then the chat goes on with the rest.

        Raises:
            CommandRefused: it is over, belongs to another chat, or its sources are gone.
        """
        state = self.find(run)
        if state.session != turn.session:
            raise CommandRefused("task_elsewhere", run=state.run, session=state.session)
        if state.has_ended and not await self.was_ended_by(turn, state):
            raise CommandRefused("task_over", run=state.run, status=state.status)
        try:
            work = await self.open_work(turn, state.run)
        except CommandRefused:
            self._stage(turn, RunChanged(run=state.run, status="lost", reason="task_lost"))
            raise
        # Either the turn that ended it was interrupted before it told anybody, or somebody cancelled it just now.
        if work.state.has_ended:
            return RunOutcome(work.state, *await self._read_result(turn, work))
        work.is_stopped.clear()
        self._active.add(state.run)
        try:
            return await self._advance(turn, work)
        finally:
            self._active.discard(state.run)
            work.is_stopped.set()

    async def was_ended_by(self, turn: Turn, state: RunState) -> bool:
        """Return true if an interrupted attempt of this turn ended a run, so that nobody was told yet."""
        interrupted = {accepted.interrupted_turn for accepted in turn.inbounds if accepted.interrupted_turn}
        if not (interrupted and state.ended):
            return False
        (found,) = await self.tape.fetch([TapeQuery(TASKS_TAPE, IdRanges(((state.ended, state.ended),)))])
        return any(entry.meta.get("turn") in interrupted for entry in found)

    async def _advance(self, turn: Turn, work: RunWork) -> RunOutcome:
        graph = TaskGraph(work.definition.schema)
        if work.state.status == "queued":
            await work.record(turn.tape, work.make_event("anchor", TASK_BEGAN, "", turn.now(), {}))
            await self._record_kept(turn, work)
        await self._settle_waiting(turn, work)
        running: dict[asyncio.Task[None], str] = {}
        cancelled = asyncio.create_task(work.is_cancelled.wait())
        try:
            while not work.is_cancelled.is_set():
                if not self._is_out_of_time(work):
                    await self._start_ready(turn, work, graph, running)
                if not running:
                    break
                done, _ = await asyncio.wait([*running, cancelled], return_when=asyncio.FIRST_COMPLETED)
                for task in running.keys() & done:
                    work.running.pop(running.pop(task), None)
                    task.result()
                await self._progress.show(turn, work)
                if not running:
                    break  # the rest is for the next turn: people are heard between the two
        finally:
            cancelled.cancel()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return await self._end_turn(turn, work, graph)

    async def _record_kept(self, turn: Turn, work: RunWork) -> None:
        """Record the artifacts that a run takes from another one, for its harness. A yes to a gate was for that run alone."""
        for name, _, _ in work.state.queued.fact.kept:
            if work.definition.schema.nodes[name].is_gate:
                continue
            with suppress(ArtifactInvalid):  # it is gone: the node that is shown it says so
                artifact = await read_artifact(turn.tape, work, name)
                values = artifact_values(artifact.value)
                await work.record(turn.tape, work.make_event("artifact", name, name, turn.now(), values))

    async def _start_ready(
        self, turn: Turn, work: RunWork, graph: TaskGraph, running: dict[asyncio.Task[None], str]
    ) -> None:
        """Begin the attempts and ask the questions that are ready, as many as may run at the same time."""
        schema = work.definition.schema
        while True:
            names = [name for name in self._list_ready(work, graph) if name not in running.values()]
            if names and work.state.status != "running":
                work.change(turn.tape, RunChanged(run=work.run, status="running"), turn.now())
            gates = [name for name in names if schema.nodes[name].is_gate]
            for name in gates:
                await self._ask(turn, work, name)
            places = schema.parallel - len(running)
            for name in [name for name in names if name not in gates][:places]:
                work.running[name] = 0
                running[asyncio.create_task(self.nodes.run(turn, work, name))] = name
            if not gates:
                return

    def _list_ready(self, work: RunWork, graph: TaskGraph) -> list[str]:
        """List the nodes whose next attempt may begin: new ones, those that were cut off, and those whose pause is over."""
        states = {name: node.status for name, node in work.state.by_node.items() if node.status != "queued"}
        again = [name for name, node in work.state.by_node.items() if node.status == "running" and node.forks]
        fresh = [name for name, node in work.state.by_node.items() if node.status == "queued" and node.attempt]
        return [*again, *fresh, *(name for name in graph.ready(states) if name not in fresh)]

    def _is_out_of_time(self, work: RunWork) -> bool:
        limit = work.definition.schema.timeout
        return limit is not None and work.state.seconds >= limit

    async def _settle_waiting(self, turn: Turn, work: RunWork) -> None:
        """Look at the answers and moments that the run waits for."""
        for name, node in work.state.by_node.items():
            if node.status != "waiting":
                continue
            if node.approval:
                await self._settle_gate(turn, work, name)
            elif _is_past(node.until, turn.now()):
                work.change(
                    turn.tape,
                    NodeChanged(run=work.run, node=name, status="queued", attempt=node.attempt),
                    turn.now(),
                )

    async def _settle_gate(self, turn: Turn, work: RunWork, name: str) -> None:
        """Look at the answer of a gate; without one, its end means no. A yes to something else than is asked now asks again."""
        node, now = work.find_node(name), turn.now()
        answer = await self._kernel.find_answer(node.approval) if self._kernel.find_answer else None
        if answer is None and not _is_past(node.until, now):
            return
        if answer is not None and answer.is_yes:
            if await self._digest_question(turn, work, name) != node.digest or _is_stale(answer.date, work, name, now):
                change = NodeChanged(run=work.run, node=name, status="queued", attempt=0)
                work.change(turn.tape, change, now)
                return
            made = ArtifactMade(work.run, name, node.attempt, {"confirmed": True, "by": answer.by})
            await turn.tape.append([made.to_entry(key=artifact_key(work.run, name, node.attempt))])
            await work.record(turn.tape, work.make_event("confirmed", name, name, now, {"by": answer.by}))
            await self._end_gate(turn, work, name, "succeeded", "")
            return
        values = {"by": answer.by} if answer else {}
        await work.record(turn.tape, work.make_event("denied", name, name, now, values))
        await self._end_gate(turn, work, name, "failed", "task_denied" if answer else "task_unanswered")

    async def _end_gate(self, turn: Turn, work: RunWork, name: str, status: Status, reason: str) -> None:
        node = work.find_node(name)
        fact = NodeChanged(
            run=work.run,
            node=name,
            status=status,
            attempt=node.attempt,
            approval=node.approval,
            reason=reason or UNSET,
        )
        work.change(turn.tape, fact, turn.now())
        state = {"run": work.run, "node": name, "attempt": node.attempt, "phase": status, "owner": "human"}
        await turn.tape.append([anchor(NODE_ENDED, state, window=False)])

    async def _ask(self, turn: Turn, work: RunWork, name: str) -> None:
        """Ask people a question with a card, which is merged with the turn."""
        node, before = work.definition.schema.nodes[name], work.find_node(name)
        reason, ask, details = "", self._kernel.ask, ""
        try:
            details = await self._write_question(turn, work, name)
        except ArtifactInvalid:
            reason = "task_artifact_gone"
        except DefinitionInvalid:
            reason = "task_question_wrong"
        if ask is None or reason:
            reason = reason or "task_no_approvals"
            fact = NodeChanged(run=work.run, node=name, status="failed", attempt=before.attempt + 1, reason=reason)
            work.change(turn.tape, fact, turn.now())
            return
        question = ApprovalQuestion(GATE, details, f",task.resume {work.run}", node.by, node.hours)
        number = await ask(turn, question)
        fact = NodeChanged(
            run=work.run,
            node=name,
            status="waiting",
            attempt=before.attempt + 1,
            approval=number,
            until=timestamp(turn.now() + timedelta(hours=node.hours)),
            digest=sha256(details.encode()).hexdigest(),
        )
        work.change(turn.tape, fact, turn.now())
        state = {"run": work.run, "node": name, "attempt": fact.attempt, "phase": "gate", "owner": "human"}
        await turn.tape.append([anchor(NODE_BEGAN, state, window=False)])

    async def _write_question(self, turn: Turn, work: RunWork, name: str) -> str:
        parents = work.definition.schema.nodes[name].after
        return write_question(work, name, [await read_artifact(turn.tape, work, parent) for parent in parents])

    async def _digest_question(self, turn: Turn, work: RunWork, name: str) -> str:
        try:
            details = await self._write_question(turn, work, name)
        except (ArtifactInvalid, DefinitionInvalid):
            return ""
        return sha256(details.encode()).hexdigest()

    # Ending

    async def _end_turn(self, turn: Turn, work: RunWork, graph: TaskGraph) -> RunOutcome:
        """Let the chat go on with what is left, or judge the run if nothing is."""
        if work.is_cancelled.is_set():
            return RunOutcome(self.state.runs[work.run], "")
        nodes = work.state.nodes
        if self._is_out_of_time(work):
            self._give_up_cut_off(turn, work)
        else:
            if any(node.status == "running" for node in nodes):  # it was stopped; the middleware says so
                return RunOutcome(work.state, "")
            if self._list_ready(work, graph):
                await self._pass(turn, work)
                self._follow(turn, work.state)
                await self._progress.show(turn, work)
                return RunOutcome(work.state, "")
            if any(node.status == "waiting" for node in nodes):
                if work.state.status != "waiting":  # nothing happened else
                    await self._pass(turn, work)
                    work.change(turn.tape, RunChanged(run=work.run, status="waiting"), turn.now())
                await self._progress.show(turn, work)
                return RunOutcome(work.state, "")
        return await self._finish(turn, work)

    def _give_up_cut_off(self, turn: Turn, work: RunWork) -> None:
        """End the attempts that were cut off, and that no time is left for."""
        for name, node in work.state.by_node.items():
            if node.status == "running":
                fact = NodeChanged(
                    run=work.run, node=name, status="failed", attempt=node.attempt, reason="task_too_slow"
                )
                work.change(turn.tape, fact, turn.now())

    async def _pass(self, turn: Turn, work: RunWork) -> None:
        """Mark on the tape how far the run is, for people who look it up."""
        done = [name for name, node in work.state.by_node.items() if node.status == "succeeded"]
        state = {"run": work.run, "phase": "task", "owner": "agent", "summary": f"done: {', '.join(done) or 'nothing'}"}
        await turn.tape.append([anchor(TASK_PASSED, state, window=False)])
        await work.record(turn.tape, work.make_event("anchor", TASK_PASSED, "", turn.now(), {}))

    async def _finish(self, turn: Turn, work: RunWork) -> RunOutcome:
        """Judge a run of which nothing can go on any more, and write its end."""
        is_done = all(node.status == "succeeded" for node in work.state.nodes)
        reason = "" if is_done else "task_too_slow" if self._is_out_of_time(work) else "task_node_failed"
        finished = work.make_event("finished", "", "", turn.now(), {"state": "succeeded" if is_done else "failed"})
        await work.record(turn.tape, finished)
        rules = {rule.id: rule for rule in work.harness.rules}
        judged, counts = [], dict.fromkeys(("satisfied", "violated", "pending"), 0)
        for verdict in work.monitor.verdicts():
            rule = rules[verdict.rule]
            counts[verdict.status] += 1
            cites = work.cite(turn.tape, verdict.events)
            place = f"{rule.path}:{rule.line}"
            judged.append(RuleJudged(work.run, rule.id, rule.text, place, verdict.status, cites).to_entry())
        if is_done and counts["violated"]:
            is_done, reason = False, "task_duties_left"
        fact = RunChanged(
            run=work.run,
            status="succeeded" if is_done else "failed",
            reason=reason or UNSET,
            verdicts=VerdictCounts(**counts),
        )
        work.change(turn.tape, fact, turn.now())
        state = {"run": work.run, "task": work.definition.name, "phase": fact.status, "owner": "agent"}
        await turn.tape.append([*judged, anchor(TASK_ENDED, state, window=False)])
        await self._progress.show(turn, work)
        return RunOutcome(work.state, *await self._read_result(turn, work))

    async def _read_result(self, turn: Turn, work: RunWork) -> tuple[str, int]:
        """Return what people get of a run that succeeded, the artifact of the node that its schema names, and its entry."""
        node = TaskGraph(work.definition.schema).result
        if work.state.status != "succeeded" or not node:
            return "", 0
        artifact = await read_artifact(turn.tape, work, node)
        turn.note_answer(artifact.source)
        return artifact.value if isinstance(artifact.value, str) else _format_json(artifact.value), artifact.entry

    def _stage(self, turn: Turn, fact: RunChanged) -> None:
        turn.tape.stage(TASKS_TAPE, [fact.to_entry()])

    def block(self, turn: Turn, run: str, reason: str) -> None:
        """Note with a turn that a run goes on only if somebody resumes it."""
        state = self.state.runs.get(run)
        if state is not None and not state.has_ended:
            self._stage(turn, RunChanged(run=run, status="blocked", reason=reason))

    def follow(self, turn: Turn, run: str) -> None:
        """Let the chat go on with a run after a turn that could not."""
        self._follow(turn, self.state.runs[run])

    async def cancel(self, run: str) -> RunState:
        """End a run now. It is durable when this returns, and no attempt is under way any more."""
        state = self.find(run)
        if state.has_ended:
            raise CommandRefused("task_over", run=state.run, status=state.status)
        await self._projected.append(RunChanged(run=state.run, status="cancelled"))
        if (work := self._works.pop(state.run, None)) is not None:
            work.is_cancelled.set()
            if state.run in self._active:
                await work.is_stopped.wait()
        after = self.state.runs[state.run]
        await self._progress.end(after, work.definition if work else None)
        return after

    # Moments

    async def watch(self) -> None:
        """Take up runs whose moment has come, until cancelled; first those with which an earlier process did not go on."""
        for state in [each for each in self.state.runs.values() if each.status in ("queued", "running")]:
            await self._queue(state, self._kernel.now())
        while True:
            await self.take_up_due()
            await asyncio.sleep(TIMER_SECONDS)

    async def take_up_due(self) -> None:
        """Queue a turn for each run with a question that nobody answered in time, or an attempt whose pause is over."""
        now = self._kernel.now()
        for state in [each for each in self.state.runs.values() if not each.has_ended]:
            if state.run not in self._active and _list_due(state, now):
                await self._queue(state, now)
        await self._projected.write_checkpoint()

    async def resume(self, run: str) -> bool:
        """Queue a turn that goes on with a run, also a blocked one; false if its channel does not run here."""
        if self.find(run).status == "blocked":
            await self._projected.append(RunChanged(run=run, status="waiting"))
        return await self._queue(self.find(run), self._kernel.now())

    async def _queue(self, state: RunState, now: datetime) -> bool:
        fact = state.queued.fact
        place = split_session(self._kernel.current_session(fact.session))
        inbound = Inbound(
            fact.channel,
            f"task:{state.run}:{state.revision}:{state.done}:due",
            place.chat,
            Sender(fact.by, fact.by_name, roles=fact.by_roles),
            f",task.resume {state.run}",
            timestamp(now),
            thread=place.thread,
            direct=fact.direct,
            space=fact.space,
            origin=TASK_ORIGIN if fact.has_person else JOB_TASK_ORIGIN,
        )
        try:
            await self._kernel.accept(inbound, {})
        except ConfigError:  # its channel does not run here
            return False
        return True


def read_run(name: str) -> str:
    """Return the name of a run as it is stored."""
    return "".join(name.upper().split())


def _read_rules(definition: TaskDefinition) -> tuple[Harness, Monitor]:
    harness = read_harness(definition.harness)
    return harness, Monitor(harness)


def list_waiting(state: RunState) -> Mapping[str, str]:
    """Return the questions of a run that wait for an answer, by node."""
    return {name: node.approval for name, node in state.by_node.items() if node.status == "waiting" and node.approval}


def _list_due(state: RunState, now: datetime) -> list[NodeState]:
    """Return the nodes whose moment has come: a pause is over, or nobody answered in time."""
    return [node for node in state.nodes if node.status == "waiting" and _is_past(node.until, now)]


def _was_cut_off(work: RunWork) -> bool:
    """Return true if attempts run that this process does not run: the turn was interrupted, and its events come again."""
    return any(node.status == "running" for node in work.state.nodes)


def _is_past(moment: str, now: datetime) -> bool:
    at = parse_moment(moment)
    return at is None or at <= now


def _is_stale(date: str, work: RunWork, name: str, now: datetime) -> bool:
    """Return true if a yes is so old that what was right then may be wrong now: the bot did not run since."""
    at = parse_moment(date)
    return at is not None and at + timedelta(hours=work.definition.schema.nodes[name].hours) <= now


def _format_json(value: Any) -> str:
    text = json.dumps(to_builtins(value), ensure_ascii=False, indent=2)
    return f"```json\n{text}\n```"
