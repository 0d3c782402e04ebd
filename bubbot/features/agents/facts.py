"""The facts about sub-tasks."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact
from bubbot.tape.references import Spans


class AgentStarted(Fact):
    """A sub-task began. It is on the tape only if its entries were merged.

    Attributes:
        order: the digest of all that was asked for.
        depth: 1 for a sub-task of a turn, 2 for one of that.
        tools: those that it may call.
        steps: model calls at most.
        tokens: tokens that it may read and write.
        mode: what it is to leave on the tape, `delta` or `result`.
    """

    EVENTS = ("agent/started",)
    fork: str
    name: str
    order: str
    depth: int
    tools: tuple[str, ...]
    steps: int
    tokens: int
    mode: str


class TaskUsage(Struct, frozen=True):
    """The tokens that a sub-task used, those of its own sub-tasks included."""

    input_tokens: int
    output_tokens: int


class AgentEnded(Fact):
    """A sub-task ended.

    Attributes:
        status: `answered`, `failed` or `stopped`.
        merged: false if only its result was kept.
        entries: all that it wrote, this entry included; empty if only the result was kept.
        result: its text, or why there is none.
        tools: those that it called, in order.
        call_id: the model's call that ordered it; absent for a command, and in earlier versions.
    """

    EVENTS = ("agent/ended",)
    fork: str
    name: str
    order: str
    status: str
    merged: bool
    entries: Spans
    result: str
    steps: int
    tools: tuple[str, ...]
    usage: TaskUsage
    call_id: str | UnsetType = UNSET

    @property
    def is_answered(self) -> bool:
        """True if it gave a result."""
        return self.status == "answered"


class AgentJoined(Fact):
    """An agent was called in a chat for the first time, and lives there from now on.

    Attributes:
        agent: its name, as the settings have it.
    """

    EVENTS = ("agent/joined",)
    agent: str


FACTS: tuple[type[Fact], ...] = (AgentStarted, AgentEnded, AgentJoined)
