"""The facts about sub-tasks and branches."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import EntryId, PersonId, Spans


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


class BranchSetup(Struct, frozen=True):
    """Who answers in a branch, as far as it differs from the conversation.

    Attributes:
        model: the model that was asked for; absent: that of the conversation.
        prompt: an instruction beside the system prompt; absent: none.
        agent: the agent that was asked; absent: whoever answered the turn.
    """

    model: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET


class BranchEffect(Struct, frozen=True):
    """What a branch did outside.

    Attributes:
        begin: the `effect.begin` of the call.
        tool: its tool.
        status: `ok`, `error`, or `unknown` if no end was recorded.
    """

    begin: EntryId
    tool: str
    status: Literal["ok", "error", "unknown"]


class BranchesAsked(Fact):
    """Somebody asked a question in several branches side by side. The key is `branch:` and the group.

    Attributes:
        group: the name of the branches of this question.
        asker: the numeric id of who asked; empty if nobody typed it.
        alternatives: who answers in each, in the order of their numbers, from 1.
    """

    EVENTS = ("branch/asked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"asker": ("question",)})
    group: str
    asker: PersonId
    question: str
    alternatives: tuple[BranchSetup, ...]


class BranchEnded(Fact):
    """A branch ended. Its sub-task writes it just before its `agent/ended`.

    Attributes:
        group: that of its question.
        number: which of the alternatives it is, from 1.
        status: that of its sub-task.
        entries: all that it wrote, the facts of its end included; empty if only these were kept.
        models: those that answered, or were asked in vain, in the order of their first calls.
        steps: model calls, without those of its own sub-tasks.
        tools: those that it called, in order.
        usage: the tokens of all its model calls.
        cost: what these cost in US dollars; None if nobody knows a price.
        effects: what it did outside, in order.
    """

    EVENTS = ("branch/ended",)
    group: str
    number: int
    fork: str
    alternative: BranchSetup
    status: str
    entries: Spans
    models: tuple[str, ...]
    steps: int
    tools: tuple[str, ...]
    usage: TaskUsage
    cost: float | None
    effects: tuple[BranchEffect, ...]

    @property
    def is_answered(self) -> bool:
        """True if it has an answer to choose."""
        return self.status == "answered" and bool(self.entries)


class BranchChosen(Fact):
    """A branch became part of the conversation. The key is `branch:`, the group and `:chosen`.

    Attributes:
        by: the numeric id of who chose it.
        sources: the entries of the branch that were copied.
        copies: the copies, in the same order.
        effects: what it had done outside, and what is not done again.
    """

    EVENTS = ("branch/chosen",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("number",)})
    group: str
    number: int
    fork: str
    by: PersonId
    sources: Spans
    copies: Spans
    effects: tuple[BranchEffect, ...]


class AgentJoined(Fact):
    """An agent was called in a chat for the first time, and lives there from now on.

    Attributes:
        agent: its name, as the settings have it.
    """

    EVENTS = ("agent/joined",)
    agent: str


FACTS: tuple[type[Fact], ...] = (AgentStarted, AgentEnded, AgentJoined, BranchesAsked, BranchEnded, BranchChosen)
