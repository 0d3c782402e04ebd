"""The states of runs and of their nodes, from the facts on the tape of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatchmethod
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from bubbot.features.tasks.facts import (
    ENDED,
    TASKS_TAPE,
    NodeChanged,
    RunChanged,
    RunQueued,
    Status,
    VerdictCounts,
)
from bubbot.ports.session_names import FetchesEntries
from bubbot.tape.fact import Cited, FactState
from bubbot.tape.projection import checkpoint_model, project_facts
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.texts import Texts

MAX_ENDED_RUNS = 200
"""The newest ended runs that the state keeps; older ones are on the tape."""


MARKS: Mapping[Status, str] = MappingProxyType(
    {
        "queued": "·",
        "running": "▶",
        "waiting": "?",
        "blocked": "‖",
        "succeeded": "✓",
        "failed": "✗",
        "cancelled": "✗",
        "lost": "✗",
    }
)
"""The sign before a node or a run, by its state."""


class NodeState(Struct, array_like=True, frozen=True):
    """The state of a node.

    Attributes:
        attempt: the number of its last attempt; 0 before the first.
        forks: the forks of the attempt that runs, the newest last; one that went on after it was cut off has several.
        until: see `NodeChanged`.
        approval: see `NodeChanged`.
        digest: see `NodeChanged`.
        reason: see `NodeChanged`.
        changed: the fact that changed it last; 0 for none.
        tokens: what the last attempt used, as far as facts say.
    """

    status: Status = "queued"
    attempt: int = 0
    forks: tuple[str, ...] = ()
    until: str = ""
    approval: str = ""
    digest: str = ""
    reason: str = ""
    changed: int = 0
    tokens: int = 0


class RunState(Struct, array_like=True, frozen=True):
    """The state of a run.

    Attributes:
        queued: the fact with which it began.
        nodes: the states of its nodes, in the order of the schema.
        revision: how many facts it is made of; each change has another one.
        changed: when it changed last, ISO 8601 in UTC.
        tokens: what its attempts used.
        seconds: how long they took.
        ended: the fact with which it ended; 0 for none.
    """

    queued: Cited[RunQueued]
    status: Status = "queued"
    nodes: tuple[NodeState, ...] = ()
    revision: int = 1
    changed: str = ""
    reason: str = ""
    verdicts: VerdictCounts = VerdictCounts()
    tokens: int = 0
    seconds: float = 0.0
    ended: int = 0

    @property
    def run(self) -> str:
        """Its name."""
        return self.queued.fact.run

    @property
    def session(self) -> str:
        """The chat in which it runs."""
        return self.queued.fact.session

    @property
    def has_ended(self) -> bool:
        """True if nothing changes it any more."""
        return self.status in ENDED

    @property
    def done(self) -> int:
        """The number of nodes that succeeded."""
        return sum(node.status == "succeeded" for node in self.nodes)

    @property
    def by_node(self) -> Mapping[str, NodeState]:
        """The states of its nodes, by name."""
        return dict(zip(self.queued.fact.nodes, self.nodes, strict=True))

    def apply(self, fact: NodeChanged | RunChanged, date: str, number: int = 0) -> RunState:
        """Return the state after a fact; `number` is the id of its entry."""
        if isinstance(fact, RunChanged):
            verdicts = self.verdicts if fact.verdicts is UNSET else fact.verdicts
            ended = number if fact.status in ENDED else 0
            changed = replace(self, status=fact.status, reason=fact.reason or "", verdicts=verdicts, ended=ended)
        else:
            names = self.queued.fact.nodes
            if fact.node not in names:
                return self
            place = names.index(fact.node)
            before = self.nodes[place]
            goes_on = fact.status == before.status == "running" and fact.attempt == before.attempt
            forks = before.forks if goes_on else ()
            state = NodeState(
                fact.status,
                fact.attempt,
                (*forks, fact.fork) if fact.fork else forks,
                fact.until or "",
                fact.approval or "",
                fact.digest or "",
                fact.reason or "",
                number,
                (before.tokens if fact.attempt == before.attempt else 0) + (fact.tokens or 0),
            )
            changed = replace(
                self,
                nodes=(*self.nodes[:place], state, *self.nodes[place + 1 :]),
                tokens=self.tokens + (fact.tokens or 0),
                seconds=self.seconds + (fact.seconds or 0.0),
            )
        return replace(changed, revision=self.revision + 1, changed=date)


def begin_run(queued: Cited[RunQueued]) -> RunState:
    """Return the state of a run that begins: what it takes from another run has succeeded."""
    attempts = {node: attempt for node, _, attempt in queued.fact.kept}
    nodes = [NodeState("succeeded", attempts[n]) if n in attempts else NodeState() for n in queued.fact.nodes]
    return RunState(queued, nodes=tuple(nodes), changed=queued.date)


class TasksState(FactState):
    """The runs by name, in the order in which they began."""

    FACTS: ClassVar = (RunQueued, NodeChanged, RunChanged)
    runs: dict[str, RunState] = msgspec.field(default_factory=dict)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: RunQueued, cited: Cited[Any], /) -> None:
        self.runs.setdefault(fact.run, begin_run(cited))

    @fold.register
    def _(self, fact: NodeChanged | RunChanged, cited: Cited[Any], /) -> None:
        if (before := self.runs.get(fact.run)) is None or before.has_ended:
            return  # it was erased, or was cancelled meanwhile
        self.runs[fact.run] = after = before.apply(fact, cited.date, cited.id)
        if after.has_ended:
            ended = [run for run, state in self.runs.items() if state.has_ended]
            for run in ended[:-MAX_ENDED_RUNS]:
                del self.runs[run]


def say_reason(reason: str, texts: Texts, run: str = "") -> str:
    """Say why a run or a node is as it is; the name of a sentence that this version does not have says it itself."""
    return texts.say(reason, run=run) if reason in texts else reason


def format_node(title: str, status: Status, texts: Texts, *, approval: str, until: str, reason: str) -> str:
    """Write the state of a node on one line; `reason` in words."""
    line = f"{MARKS[status]} {title}"
    if status == "waiting":
        kind = "task_waits_answer" if approval else "task_waits_again"
        return line + texts.say(kind, approval=approval, until=until[:16].replace("T", " "))
    return f"{line}: {reason}" if reason else line


async def read_details(tape: FetchesEntries, state: RunState) -> Mapping[str, str]:
    """Read why nodes failed, by node, from the facts that said so."""
    numbers = sorted(node.changed for node in state.nodes if node.reason and node.changed)
    if not numbers:
        return {}
    query = TapeQuery(TASKS_TAPE, IdRanges(tuple((number, number) for number in numbers)))
    facts = [NodeChanged.try_of(entry) for entry in (await tape.fetch([query]))[0] if entry.name in NodeChanged.EVENTS]
    return {fact.node: fact.detail or "" for fact in facts if fact is not None and fact.run == state.run}


TASKS_PROJECTION = project_facts(TasksState, name="tasks", version=2, tapes=TASKS_TAPE, interval=500)

CHECKPOINTS = {TASKS_PROJECTION.checkpoint_name: checkpoint_model(TasksState)}
