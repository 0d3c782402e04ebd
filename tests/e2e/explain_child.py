"""A bot that explains, and that ends itself with SIGKILL at one point of a turn. Arguments: as those of `kill_child`.

A further point is `explain:before`, before each call of the model in an explanation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bubbot.features.explain.feature import EXPLAIN_PROMPT
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from tests.e2e.kill_child import Killer, main

LIE, TRUTH = "The train leaves at 19:55.", "The train leaves at 18:40."


class LyingModel:
    """Explains with a lie first, which it cites from wherever it was shown; told that this cannot be used, with the truth."""

    def __init__(self, model: Model, killer: Killer) -> None:
        self._model, self._killer = model, killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        if EXPLAIN_PROMPT not in request.system:
            async for event in self._model.stream(request):
                yield event
            return
        self._killer.at("explain:before")
        shown = [str(message["content"]) for message in request.messages if message["role"] == "tool"]
        if not shown:
            calls = (ToolCall("c1", "tape_read", '{"ids": ["1-60"]}'), ToolCall("c2", "explain_turn", "{}"))
            yield ModelReply("", calls, "tool_calls", Usage(1, 1))
            return
        is_told = "cannot be used" in str(request.messages[-1]["content"])
        text = TRUTH if is_told else LIE
        found = [line for part in shown for line in part.replace("\n    ", " ").splitlines() if text in line]
        entry = found[0].partition(" ")[0] if found else "#3"
        yield ModelReply(f"{entry} {text}", usage=Usage(1, 1))


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, script, point, _broken, features = [*arguments, "", "", ""][:5]
    killer = Killer(point)
    wrap = partial(LyingModel, killer=killer)
    asyncio.run(main(Path(home), script, killer, [], features=features, wrap_model=wrap))
    return 0
