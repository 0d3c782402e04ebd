"""The usage of calls: checks of the provider's counts, prices, and our own counts."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from bubbot.models.catalogue import sizes
from bubbot.models.messages import build_messages
from bubbot.ports.model import NANOS_PER_USD, ModelRequest, TokenCount, Usage

if TYPE_CHECKING:
    from bubbot.models.catalogue.tokens import TokenizerCache

log = logging.getLogger(__name__)

MAX_ADDED_TOKENS = 100_000
"""Tokens that a provider may add to a request by itself, such as its search results."""
DEFAULT_OUTPUT_LIMIT_TOKENS = 1_000_000
"""Tokens of an answer that count as plausible if the model's output limit is unknown."""


class UsageMeter:
    """Prices and token counts of one model. Making one reads the price list: do it in a thread.

    `own_address`: the settings name the address; the server there may only borrow the model's name.
    """

    def __init__(self, model: str, *, own_address: bool) -> None:
        self._model = model
        self._own_address = own_address
        self._max_output = sizes.find_output_limit(model) or DEFAULT_OUTPUT_LIMIT_TOKENS
        self.price = sizes.find_price(model, own_address=own_address)
        self._tokenizers: TokenizerCache | None = None

    def check(self, usage: Usage | None, request: ModelRequest) -> Usage | None:
        """Return the provider's usage; None if its counts cannot be true, so that the caller counts.

        A token stands for one byte at least, except those that a provider adds by itself.
        """
        if usage is None:
            return None
        counts = Usage(usage.input_tokens, usage.output_tokens)
        if counts.is_plausible(max_input=MAX_ADDED_TOKENS, max_output=self._max_output):
            return usage  # the usual case: nobody need know how long the request was
        max_input = len(request.as_bytes()) + MAX_ADDED_TOKENS
        if counts.is_plausible(max_input=max_input, max_output=self._max_output):
            return usage
        log.warning(
            "implausible token counts, estimating instead: %s reports %s tokens read and %s written",
            self._model,
            usage.input_tokens,
            usage.output_tokens,
            extra={"action": "model.odd_usage"},
        )
        return None

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in US dollars, from the price that the reservation used; None if it is unknown."""
        if self.price is None:
            return None
        return self.price.cost_nanousd(usage) / NANOS_PER_USD or None

    def transcription_cost(self, usage: Usage, seconds: object) -> float | None:
        """Return the cost in US dollars of a recording, by its tokens or else by its length; None if it is unknown."""
        if usage.input_tokens or usage.output_tokens:
            return self.cost(usage)
        if isinstance(seconds, int | float) and (price := sizes.find_second_price(self._model)) is not None:
            return price * seconds or None
        return None

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """Count the request with the model's own tokenizer: for OpenAI's models at OpenAI's address, else None."""
        if self._own_address:
            return None
        messages = build_messages(request, self._model)
        return await asyncio.to_thread(lambda: self._load_tokenizers().count(self._model, messages, request.tools))

    async def count_usage(self, request: ModelRequest, text: str) -> Usage | None:
        """Count request and answer with the model's own tokenizer; None if there is none, or if it fails."""
        if self._own_address:
            return None
        try:
            count = await self.count(request)
            written = await asyncio.to_thread(lambda: self._load_tokenizers().count_text(self._model, text))
        except Exception:  # an answer that arrived must not be lost because it could not be counted
            log.warning(
                "token count of an answer failed: %s", self._model, exc_info=True, extra={"action": "model.count_usage"}
            )
            return None
        return None if count is None or written is None else Usage(count.tokens, written)

    def _load_tokenizers(self) -> TokenizerCache:
        """Import and return the tokenizers. Most answers need none, because providers count."""
        if self._tokenizers is None:
            from bubbot.models.catalogue.tokens import TokenizerCache

            self._tokenizers = TokenizerCache()
        return self._tokenizers
