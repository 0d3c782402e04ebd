"""A running sub-task: what it may do, and what it did so far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from msgspec import Struct, to_builtins

from bubbot.errors import ModelError
from bubbot.features.agents.facts import BranchSetup
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.model import ModelReply
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.entry import canonical

MergeMode: TypeAlias = Literal["delta", "result"]
"""What a sub-task leaves on the tape: all that it wrote, or only its result if it changed nothing."""
ORDER_TOOL = "agent.order"
"""The tool that gives a sub-task to a named agent; there is none without agents."""
RUN_TOOL = "agent.run"
"""The tool that runs a sub-task. What that one changes is counted by its own tools."""


class TaskBudgetExceeded(ModelError):
    """A sub-task has `left` of its `limit` of tokens, and its next call needs `needed`."""

    kind = "task_budget"

    def __init__(self, left: int, limit: int, needed: int) -> None:
        super().__init__(f"{left} of {limit} tokens are left, and the next step needs {needed}")
        self.left, self.limit, self.needed = left, limit, needed


class BranchOrder(Struct, frozen=True):
    """The place of a sub-task among the branches of a question.

    Attributes:
        group: that of the question.
        number: its number, from 1.
        alternative: who answers in it.
    """

    group: str
    number: int
    alternative: BranchSetup


class TaskOrder(Struct, frozen=True):
    """What a sub-task is asked for.

    Attributes:
        name: a label for people and for the entries' origin.
        tools: the tools that its model may call.
        steps: model calls at most.
        tokens: tokens that it may read and write.
        mode: what it leaves on the tape.
        has_own_window: it begins with an empty window; otherwise with that of its turn.
        branch: its place among the branches of a question; None for another sub-task.
        agent: the agent that works on it; empty for whoever answers the turn.
    """

    text: str
    name: str
    tools: frozenset[str]
    steps: int
    tokens: int
    mode: MergeMode
    has_own_window: bool = True
    branch: BranchOrder | None = None
    agent: str = ""

    @property
    def digest(self) -> str:
        """Digest of all that decides what it does: equal orders are the same task."""
        parts: list[object] = [self.text, self.name, sorted(self.tools), self.steps, self.tokens, self.mode]
        parts.append(self.has_own_window)
        if self.branch is not None:
            parts += [self.branch.group, self.branch.number, to_builtins(self.branch.alternative)]
        parts += [self.agent] if self.agent else []  # the digests of earlier versions stay
        return sha256(canonical({"order": parts}).encode()).hexdigest()[:32]


@dataclass
class SubTask:
    """A sub-task and what it used so far. It is metadata of its turn.

    Attributes:
        depth: 1 for a sub-task of a turn, 2 for one of that.
        parent: the sub-task that it is one of; None for one of a turn.
        call: the id of the model's call that orders it; empty for a command.
        attempt: the fork of an interrupted attempt at it that it continues; empty for none.
        steps: model calls so far.
        input_tokens: tokens that its models read, those of its own sub-tasks included.
        output_tokens: tokens that they wrote.
        reserved_tokens: tokens of calls under way.
    """

    order: TaskOrder
    depth: int
    parent: SubTask | None = None
    call: str = ""
    attempt: str = ""
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved_tokens: int = 0

    def lineage(self) -> Iterator[SubTask]:
        """Yield it and the sub-tasks that it is part of."""
        task: SubTask | None = self
        while task is not None:
            yield task
            task = task.parent

    @property
    def tokens(self) -> int:
        """The tokens that it used."""
        return self.input_tokens + self.output_tokens

    @property
    def tokens_left(self) -> int:
        """The tokens that it may still use, calls under way counted."""
        return min(task.order.tokens - task.tokens - task.reserved_tokens for task in self.lineage())

    def reserve(self, tokens: int) -> None:
        """Count a call that begins, here and in all that it is part of; a negative number takes it back."""
        for task in self.lineage():
            task.reserved_tokens += tokens

    def count(self, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of a call, here and in all that it is part of."""
        for task in self.lineage():
            task.input_tokens += input_tokens
            task.output_tokens += output_tokens


class RunningTasks:
    """The sub-tasks of one turn; metadata that they share.

    Attributes:
        answered: the forks of interrupted attempts that have answered an order, or are continued by one.
        questions: how many questions were asked in branches so far.
    """

    def __init__(self, max_parallel: int) -> None:
        self.answered: set[str] = set()
        self.questions = 0
        self._max_parallel = max_parallel
        self._places: dict[int, asyncio.Semaphore] = {}
        self._writers: dict[str, asyncio.Lock] = {}

    def places(self, depth: int) -> asyncio.Semaphore:
        """Return the places of a depth. Each depth has its own, so that no task waits for a place that waits for it."""
        return self._places.setdefault(depth, asyncio.Semaphore(self._max_parallel))

    def writer(self, fork: str) -> asyncio.Lock:
        """Return the lock of the sub-tasks on a fork that may write: each begins where the one before it ended."""
        return self._writers.setdefault(fork, asyncio.Lock())


async def keep_token_limit(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
    """Keep the model calls of sub-tasks within their tokens.

    Raises:
        TaskBudgetExceeded: the call needs more tokens than are left.
    """
    task = call.turn.find_metadata(SubTask)
    if task is None:
        return await call_next(call)
    tokens = call.count_input()
    if tokens > task.tokens_left:
        raise TaskBudgetExceeded(max(task.tokens_left, 0), task.order.tokens, tokens)
    task.steps += 1
    task.reserve(tokens)
    try:
        reply = await call_next(call)
    finally:
        task.reserve(-tokens)
    usage = reply.usage
    task.count(usage.input_tokens or tokens, usage.output_tokens or estimate_tokens(reply.text))
    return reply
