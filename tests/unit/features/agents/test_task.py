"""What a sub-task may use: its tokens, those of the sub-tasks it is part of, and when two orders are the same task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bubbot.errors import ModelError
from bubbot.features.agents.task import SubTask, TaskOrder, keep_token_limit
from bubbot.middleware import ModelCall
from bubbot.ports.model import ModelReply, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import estimate_tokens

UNUSED: Any = None
ORDER = TaskOrder("dig", "task", frozenset({"a.b"}), 5, 100, "delta")


@pytest.mark.parametrize(
    "change",
    [
        {"text": "dug"}, {"name": "other"}, {"tools": frozenset({"a.c"})}, {"steps": 6}, {"tokens": 99}, {"mode": "result"},
        {"has_own_window": False},
    ],
)  # fmt: skip
def test_another_order_is_another_task(change: dict[str, Any]) -> None:
    assert replace(ORDER, **change).digest != ORDER.digest == replace(ORDER).digest


async def test_tokens_count_in_all_that_a_task_is_part_of(begin: Callable[..., Awaitable[Turn]]) -> None:
    outer = SubTask(replace(ORDER, tokens=150), 1)
    task, sibling = SubTask(ORDER, 2, outer), SubTask(ORDER, 2, outer)
    turn = await begin(metadata={SubTask: task})

    async def ask(tokens: int, reply: ModelReply | None) -> tuple[int, int]:
        """Ask a model; return what is left to the task and to its sibling meanwhile."""
        left = []

        async def call_next(call: ModelCall) -> ModelReply:
            left.extend([task.tokens_left, sibling.tokens_left])
            if reply is None:
                raise ConnectionError
            return reply

        await keep_token_limit(ModelCall(turn, UNUSED, UNUSED, lambda: tokens), call_next)
        return left[0], left[1]

    assert await ask(40, ModelReply("gold", usage=Usage(30, 20))) == (60, 100)
    assert (task.tokens_left, outer.tokens, sibling.tokens_left) == (50, 50, 100)
    with pytest.raises(ConnectionError):
        await ask(40, None)
    assert (task.tokens_left, outer.tokens_left) == (50, 100)
    outer.count(20, 5)
    assert await ask(50, ModelReply("gold")) == (0, 25)  # all that is left; a model that does not tell is estimated
    assert (task.input_tokens, task.output_tokens) == (80, 20 + estimate_tokens("gold"))
    with pytest.raises(ModelError, match="0 of 100 tokens are left, and the next step needs 1"):
        await ask(1, UNUSED)
    assert task.steps == 3
