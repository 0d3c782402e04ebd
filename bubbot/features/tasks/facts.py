"""The facts about runs of tasks: their states on a tape of their own, their words on the tapes of chats."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import PersonId, SessionId, Spans

TASKS_TAPE = "bubbot/tasks"
Status: TypeAlias = Literal["queued", "running", "waiting", "blocked", "succeeded", "failed", "cancelled", "lost"]
"""The state of a run or of a node. `waiting`: for an answer or a moment. `blocked`: it goes on only if somebody resumes it.
`lost`: what it rested on is gone."""
EventKind: TypeAlias = Literal[
    "call", "result", "artifact", "confirmed", "denied", "started", "ended", "anchor", "finished"
]
"""What the rules of a harness are about."""
ENDED: frozenset[Status] = frozenset({"succeeded", "failed", "cancelled", "lost"})


class RunQueued(Fact):
    """A run of a task began. It is on the tape of tasks, with no words of people.

    Attributes:
        run: what people type.
        task: the name of the task.
        session: the chat in which it runs.
        channel: of that chat.
        by: the numeric id of the person for whom it runs.
        by_name: the shown name.
        by_roles: the roles that the platform reported.
        direct: the chat has one person only.
        space: see `Inbound`.
        nodes: the names of its nodes, in the order of the schema.
        has_person: false if a job began it, so that nobody is there.
        job: the job that began it, whose permissions its nodes have; empty for none.
        request: the external id of the inbound that began it, which may come again after a crash.
        source: the run that it runs again; absent for a run of its own.
        kept: the nodes whose artifacts it takes from that run, each with the run and the attempt that made them.
    """

    EVENTS = ("task/queued",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("run", "task", "by_name")})
    run: str
    task: str
    session: SessionId
    channel: str
    by: PersonId
    by_name: str
    by_roles: tuple[str, ...]
    direct: bool
    space: str
    nodes: tuple[str, ...]
    has_person: bool
    request: str
    source: str | UnsetType = UNSET
    kept: tuple[tuple[str, str, int], ...] = ()
    job: str = ""

    @property
    def subject(self) -> str:
        """The run."""
        return self.run


class NodeChanged(Fact, kw_only=True):
    """A node of a run has another state.

    Attributes:
        attempt: the number of the attempt, from 1.
        fork: the fork of the attempt, while it runs.
        until: the moment for which it waits, or at which a question means no, ISO 8601 in UTC.
        approval: the card that it waits for, or that was answered.
        digest: of what that card asks for.
        reason: the name of a sentence that says why.
        detail: a value for that sentence.
        tokens: what the attempt used, when it ended or was stopped, or when it goes on after a process that could not say it.
        seconds: the time of the run that the attempt took, when it ended; what ran beside it has not counted that.
    """

    EVENTS = ("task/node",)
    run: str
    node: str
    status: Status
    attempt: int
    fork: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    approval: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET


class VerdictCounts(Struct, frozen=True):
    """How many rules of a harness are satisfied, violated and pending.

    Attributes:
        satisfied: kept.
        violated: broken.
        pending: not decided, because the run has not ended.
    """

    satisfied: int = 0
    violated: int = 0
    pending: int = 0


class RunChanged(Fact, kw_only=True):
    """A run has another state.

    Attributes:
        reason: the name of a sentence that says why.
        verdicts: of its harness, once it has ended.
    """

    EVENTS = ("task/run",)
    run: str
    status: Status
    reason: str | UnsetType = UNSET
    verdicts: VerdictCounts | UnsetType = UNSET


class TaskOpened(Fact):
    """What a run does: the four sources, as they were when it began. It is on the tape of its chat; the key is `task:` and the run.

    Attributes:
        definition: schema, config and harness of the task, as `TaskDefinition.to_text` writes them: one text, since each turn of a
            run reads the fact, and a value of many nodes takes long to read.
        description: what people want of this run.
        by: the numeric id of the person for whom it runs.
    """

    EVENTS = ("task/opened",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("description",)})
    run: str
    definition: str
    description: str
    by: PersonId


class ArtifactMade(Fact):
    """A node handed in its artifact, which fits its contract. The key is `artifact:`, the run, the node and the attempt."""

    EVENTS = ("task/artifact",)
    run: str
    node: str
    attempt: int
    artifact: Any


class RunEventSeen(Fact):
    """Something happened in a run that its harness looks at.

    Attributes:
        number: its place in the run, from 1.
        time: seconds since the epoch.
        name: the tool, the node or the anchor.
        node: the node in which it happened; empty for the run itself.
        attempt: the attempt of that node.
        fields: its arguments, or what it has.
    """

    EVENTS = ("task/event",)
    run: str
    number: int
    time: float
    kind: EventKind
    name: str
    node: str
    attempt: int
    fields: Mapping[str, Any]


class MoveRefused(Fact):
    """A call did not run, because it breaks rules of the harness.

    Attributes:
        rules: the ids of the rules.
        texts: their steps, as the harness has them.
        cites: the entries on which the verdict rests, as far as they are on this fork.
    """

    EVENTS = ("task/refused",)
    run: str
    node: str
    tool: str
    rules: tuple[str, ...]
    texts: tuple[str, ...]
    cites: Spans


class RuleJudged(Fact):
    """The verdict about one rule, when a run ended.

    Attributes:
        rule: its id.
        text: its step, as the harness has it.
        place: its file and line.
        status: `satisfied`, `violated` or `pending`.
        cites: the entries on which the verdict rests.
    """

    EVENTS = ("task/verdict",)
    run: str
    rule: str
    text: str
    place: str
    status: str
    cites: Spans


class TaskDrafted(Fact):
    """The bot wrote a task, which a person has to confirm.

    Attributes:
        files: its files by path.
        approval: the card that asks for it.
        by: the numeric id of who asked for it.
    """

    EVENTS = ("task/drafted",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("task",)})
    task: str
    files: Mapping[str, str]
    approval: str
    by: PersonId


FACTS: tuple[type[Fact], ...] = (
    RunQueued,
    NodeChanged,
    RunChanged,
    TaskOpened,
    ArtifactMade,
    RunEventSeen,
    MoveRefused,
    RuleJudged,
    TaskDrafted,
)
SESSION_EVENTS = RunQueued.EVENTS
"""Facts on the tape of tasks about one chat, which an erasure of that chat reaches."""
