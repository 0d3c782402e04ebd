"""Requests that fit: counted with the model's own tokenizer if the estimate does not settle it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from bubbot.errors import ModelOverflow
from bubbot.ports.model import CountsTokens, Model, ModelRequest, TokenCount
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.runtime.compose import ComposedRequest, RequestComposer, estimate_fixed_tokens, request_token_limit
from bubbot.runtime.context.tokens import estimate_context_tokens

log = logging.getLogger(__name__)

COUNT_TIMEOUT = 60.0
"""Seconds that counting may take, with loading the model; after that the estimate applies."""
UNCUT_FACTOR = 4
"""So many times its budget a conversation may have by the estimate if its count is to fit: a token has no more bytes on average."""


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request and its token count.

    Attributes:
        composed: the request.
        count: None if nobody counted.
        limit: the tokens it may have; None if nobody counted, or if it fits.
    """

    composed: ComposedRequest
    count: TokenCount | None = None
    limit: int | None = None

    def count_input(self) -> int:
        """Return the tokens of the request: counted, or estimated if nobody counted."""
        if self.count is not None:
            return self.count.tokens
        # From the context, which holds images as references: their bytes in the request are not tokens.
        request = self.composed.request
        return _estimate(self.composed) + estimate_fixed_tokens(request.system, request.tools)

    def count_facts(self) -> dict[str, Any]:
        """Build what a step records of the count; empty if it was unnecessary or impossible."""
        return {"count": self.count.as_json()} if self.count else {}

    def check(self) -> None:
        """Raise `ModelOverflow` if the request is too long, so that it is never sent."""
        if self.limit is not None:
            check_count(self.composed.model.name, self.count, self.limit)


class RequestFitter:
    """Composes requests that fit into the model's context. `timeout`: the limit of one full model call."""

    def __init__(self, composer: RequestComposer, timeout: float) -> None:
        self._composer = composer
        self._seconds = min(timeout, COUNT_TIMEOUT)

    async def fit(self, turn: Turn, *, is_last: bool = False) -> FittedRequest:
        """Compose the next request; if it cannot be cut to fit, return it with its limit.

        Args:
            turn: the turn that asks.
            is_last: there is no shorter window to fall back to, so that the request may also use the share of the answer.
        """
        first = await self._composer.compose(turn)
        size = first.model.traits.context_tokens
        if size is None or not isinstance(first.model, CountsTokens):
            return FittedRequest(first)
        is_cut = bool(first.context.facts)
        # A token is at least a byte: a request with no more bytes than there is room for tokens needs no counting.
        if not is_cut and len(first.request.as_bytes()) <= request_token_limit(size):
            return FittedRequest(first)
        uncut = await self._compose_uncut(turn, first) if is_cut else first
        count = await count_tokens(uncut.model, uncut.request, self._seconds)
        return FittedRequest(first) if count is None else await self._narrow(turn, uncut, count, size, last=is_last)

    async def _compose_uncut(self, turn: Turn, first: ComposedRequest) -> ComposedRequest:
        """Compose what is after the recorded cut, with the smallest budget that shows it; of more than may fit a part."""
        composed = await self._composer.compose(turn, first.view["budget"] * UNCUT_FACTOR)
        if composed.context.facts:
            return composed
        return replace(composed, view={**composed.view, "budget": _estimate(composed)})

    async def _narrow(
        self, turn: Turn, composed: ComposedRequest, count: TokenCount, size: int, *, last: bool
    ) -> FittedRequest:
        """Cut more until the count fits or nothing is left to cut; each round has a smaller budget."""
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

        None if the selector cannot cut, or if only one exchange is left. The budget is for the part that can be cut,
        whose size is unknown here: it is halved until the request gets shorter.
        """
        budget = min(budget, composed.view["budget"] - 1)
        while budget > 0 and composed.is_compacting:
            shorter = await self._composer.compose(turn, budget)
            if shorter.context.texts != composed.context.texts:
                return shorter
            budget //= 2
        return None


def check_count(model: str, count: TokenCount | None, limit: int) -> None:
    """Raise `ModelOverflow` if a request has more tokens than it may; None is the count of one that nobody counted."""
    if count is not None and count.tokens > limit:
        raise ModelOverflow(
            f"The request is too long for {model}: it has {count.tokens} tokens "
            f"(counted with {count.tokenizer}) and may have {limit}; it was not sent"
        )


async def count_tokens(model: Model, request: ModelRequest, timeout: float) -> TokenCount | None:
    """Count with the model's tokenizer; None if it cannot count, fails, or takes too long. Never raise."""
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
