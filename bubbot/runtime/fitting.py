"""Requests that fit: counted with the model's own tokenizer if the estimate is not conclusive."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import Struct, structs

from bubbot.errors import ModelOverflow
from bubbot.ports.model import CountsTokens, Model, ModelRequest, TokenCount
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest, RequestComposer, estimate_fixed_tokens, request_token_limit
from bubbot.runtime.context.tokens import estimate_context_tokens

log = logging.getLogger(__name__)

COUNT_TIMEOUT = 60.0
"""Seconds for counting, loading the model included; after that the estimate applies."""
UNCUT_FACTOR = 4
"""A conversation can fit only if its estimate is within this many budgets: tokens have no more bytes on average."""


class FittedRequest(Struct, frozen=True):
    """A request and its token count.

    Attributes:
        count: None if not counted.
        limit: the allowed tokens if it does not fit; None if it fits or was not counted.
    """

    composed: ComposedRequest
    count: TokenCount | None = None
    limit: int | None = None

    def count_input(self) -> int:
        """Return the tokens of the request, counted or else estimated."""
        if self.count is not None:
            return self.count.tokens
        # Estimate from the context, where images are references: their bytes in the request are not tokens.
        request = self.composed.request
        return _estimate(self.composed) + estimate_fixed_tokens(request.system, request.tools)

    def count_facts(self) -> dict[str, Any]:
        """Build a step's record of the count; empty if counting was unnecessary or impossible."""
        return {"count": self.count.as_json()} if self.count else {}

    def check(self) -> None:
        """Raise `ModelOverflow` if the request is too long to be sent."""
        if self.limit is not None:
            check_count(self.composed.model.name, self.count, self.limit)


class RequestFitter:
    """Composes requests that fit into the model's context. `timeout`: seconds for one full model call."""

    def __init__(self, composer: RequestComposer, timeout: float) -> None:
        self._composer = composer
        self._seconds = min(timeout, COUNT_TIMEOUT)

    async def fit(self, turn: Turn, *, is_last: bool = False) -> FittedRequest:
        """Compose the next request; return it with its limit if nothing can make it fit.

        Args:
            is_last: no shorter window is left, so that the request may also use the answer's share.
        """
        first = await self._composer.compose(turn)
        size = first.model.traits.context_tokens
        if size is None or not isinstance(first.model, CountsTokens):
            return FittedRequest(first)
        is_cut = bool(first.context.facts)
        # A token has at least one byte: a request with fewer bytes than allowed tokens needs no counting.
        if not is_cut and len(first.request.as_bytes()) <= request_token_limit(size):
            return FittedRequest(first)
        uncut = await self._compose_uncut(turn, first) if is_cut else first
        count = await count_tokens(uncut.model, uncut.request, self._seconds)
        return FittedRequest(first) if count is None else await self._narrow(turn, uncut, count, size, last=is_last)

    async def _compose_uncut(self, turn: Turn, first: ComposedRequest) -> ComposedRequest:
        """Compose the messages after the recorded cut, with the smallest budget that shows them; a part if they are too
        many.
        """
        composed = await self._composer.compose(turn, first.view["budget"] * UNCUT_FACTOR)
        if composed.context.facts:
            return composed
        return structs.replace(composed, view={**composed.view, "budget": _estimate(composed)})

    async def _narrow(
        self, turn: Turn, composed: ComposedRequest, count: TokenCount, size: int, *, last: bool
    ) -> FittedRequest:
        """Reduce the budget until the count fits or nothing is left to cut."""
        limit = size if last else request_token_limit(size)
        while count.tokens > request_token_limit(size):
            shorter = await self._shorten(turn, composed, _scale_budget(composed, count, request_token_limit(size)))
            if shorter is None:
                return FittedRequest(composed, count, limit)
            composed = shorter
            recount = await count_tokens(composed.model, composed.request, self._seconds)
            if recount is None:
                return FittedRequest(composed)
            count = recount
        return FittedRequest(composed, count)

    async def _shorten(self, turn: Turn, composed: ComposedRequest, budget: int) -> ComposedRequest | None:
        """Compose the request with less of the conversation.

        Return None if the selector cannot cut, or if only one exchange is left. The budget covers the part that can be
        cut, whose size is unknown here: it is halved until the request gets shorter.
        """
        budget = min(budget, composed.view["budget"] - 1)
        while budget > 0 and composed.is_compacting:
            shorter = await self._composer.compose(turn, budget)
            if shorter.context.texts != composed.context.texts:
                return shorter
            budget //= 2
        return None


def check_count(model: str, count: TokenCount | None, limit: int) -> None:
    """Raise `ModelOverflow` if a request has more tokens than allowed; `count` is None if it was not counted."""
    if count is not None and count.tokens > limit:
        raise ModelOverflow(
            f"The request is too long for {model}: it has {count.tokens} tokens "
            f"(counted with {count.tokenizer}) and may have {limit}; it was not sent"
        )


async def count_tokens(model: Model, request: ModelRequest, timeout: float) -> TokenCount | None:
    """Count with the model's tokenizer; None if it cannot count, fails or takes too long. It never raises."""
    if not isinstance(model, CountsTokens):
        return None
    try:
        async with asyncio.timeout(timeout):
            return await model.count(request)
    except Exception as error:  # noqa: BLE001 - a count is optional; the call itself reports the model's error
        log.info(
            "token count failed, using the estimate: %s: %s", model.name, error, extra={"action": "model.count_failed"}
        )
        return None


def _estimate(composed: ComposedRequest) -> int:
    return estimate_context_tokens(composed.context.context_messages)


def _scale_budget(composed: ComposedRequest, count: TokenCount, limit: int) -> int:
    """Convert a limit of counted tokens to a budget of estimated ones."""
    fixed = estimate_fixed_tokens(composed.request.system, composed.request.tools)
    return max(1, limit * (_estimate(composed) + fixed) // max(count.tokens, 1) - fixed)
