"""A request that fits: counted with the model's own tokenizer where the estimate does not settle it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

from bubbot.errors import ModelOverflow
from bubbot.ports.model import CountsTokens, Model, ModelRequest, TokenCount
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest, RequestComposer, fixed_tokens, room
from bubbot.views.compact import message_tokens
from bubbot.views.context import COMPACTING

log = logging.getLogger(__name__)

COUNT_TIMEOUT = 60.0
"""Seconds counting may take at most, with the load of the model; then the estimate holds."""
_UNCUT = 2**53
"""A budget that nothing exceeds; never recorded."""


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request, what it counts, and the tokens it may have (None: nobody counted, or it fits)."""

    composed: ComposedRequest
    count: TokenCount | None = None
    limit: int | None = None

    def facts(self) -> dict[str, Any]:
        """What a step records of the count; nothing where nobody had to count or could."""
        return {"count": self.count.as_json()} if self.count else {}

    def check(self) -> None:
        """Raises `ModelOverflow` where the request is too long, so that it is never sent."""
        if self.count is None or self.limit is None or self.count.tokens <= self.limit:
            return
        raise ModelOverflow(
            f"The request is too long for {self.composed.model.name}: it has {self.count.tokens} tokens "
            f"(counted with {self.count.by}) and may have {self.limit}; it was not sent"
        )


class RequestFitter:
    """Composes requests that fit into the model's context. `seconds`: what a whole model call may take."""

    def __init__(self, composer: RequestComposer, seconds: float) -> None:
        self._composer = composer
        self._seconds = min(seconds, COUNT_TIMEOUT)

    async def fitted(self, turn: Turn, *, last: bool = False) -> FittedRequest:
        """The next request. What cannot be cut to fit comes back with its limit.

        `last`: there is no shorter window to go to, so that the share of the answer may be used up too.
        """
        first = await self._composer.compose(turn)
        size = first.model.traits.context_tokens
        if size is None or not isinstance(first.model, CountsTokens):
            return FittedRequest(first)
        cut = first.context.new_cut is not None
        # A token is a byte at least: what has fewer bytes than there is room needs no counting.
        if not cut and len(first.request.as_bytes()) <= room(size):
            return FittedRequest(first)
        whole = await self._uncut(turn) if cut else first
        count = await counted(whole.model, whole.request, self._seconds)
        return FittedRequest(first) if count is None else await self._narrowed(turn, whole, count, size, last=last)

    async def _uncut(self, turn: Turn) -> ComposedRequest:
        """All that stands after the recorded cut, with the smallest budget that shows it."""
        composed = await self._composer.compose(turn, _UNCUT)
        return replace(composed, view={**composed.view, "budget": _estimated(composed)})

    async def _narrowed(
        self, turn: Turn, composed: ComposedRequest, count: TokenCount, size: int, *, last: bool
    ) -> FittedRequest:
        """Cuts more until the count fits or nothing is left to cut. Each round has a smaller budget."""
        limit = size if last else room(size)
        while count.tokens > room(size):
            shorter = await self._shorter(turn, composed, _scaled(composed, count, room(size)))
            if shorter is None:
                return FittedRequest(composed, count, limit)
            composed = shorter
            again = await counted(composed.model, composed.request, self._seconds)
            if again is None:
                return FittedRequest(composed)
            count = again
        return FittedRequest(composed, count)

    async def _shorter(self, turn: Turn, composed: ComposedRequest, budget: int) -> ComposedRequest | None:
        """The request with less of the conversation; None where the selector cannot cut, or only one exchange is left.

        The budget is for what can be cut, of which nobody here knows the size: it is halved until it bites.
        """
        budget = min(budget, composed.view["budget"] - 1)
        while budget > 0 and composed.view["selector"] in COMPACTING:
            shorter = await self._composer.compose(turn, budget)
            if shorter.context.texts != composed.context.texts:
                return shorter
            budget //= 2
        return None


async def counted(model: Model, request: ModelRequest, seconds: float) -> TokenCount | None:
    """The model's own count; None where it cannot count, or fails to, or takes too long. Never raises."""
    if not isinstance(model, CountsTokens):
        return None
    try:
        async with asyncio.timeout(seconds):
            return await model.count(request)
    except Exception as error:  # noqa: BLE001 - a count is a help; the call itself tells what is wrong with a model
        log.info("%s could not count: %s", model.name, error, extra={"action": "model.count_failed"})
        return None


def _estimated(composed: ComposedRequest) -> int:
    return sum(map(message_tokens, composed.context.shown))


def _scaled(composed: ComposedRequest, count: TokenCount, most: int) -> int:
    """The budget in estimated tokens that stands for `most` counted ones."""
    fixed = fixed_tokens(composed.request.system, composed.request.tools)
    return max(1, most * (_estimated(composed) + fixed) // max(count.tokens, 1) - fixed)
