"""Models that stand in for each other: the next is called if the one before is unavailable or limits its requests."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

from msgspec import structs

from bubbot.errors import ModelError, ModelRateLimited, ModelUnavailable
from bubbot.ports.model import (
    CountsTokens,
    FailedAttempt,
    LoadsLater,
    Model,
    ModelEvent,
    ModelRequest,
    ModelTraits,
    TokenCount,
    WarmsUp,
)

log = logging.getLogger(__name__)

_REPLACEABLE = (ModelUnavailable.kind, ModelRateLimited.kind)


class FallbackModel:
    """A `Model` that calls the first of its models, and the next ones if that fails before any text has arrived.

    `name` is the configured name: its own model need not be among `models`, if it lacks its key.
    """

    def __init__(self, name: str, traits: ModelTraits, models: Sequence[Model]) -> None:
        self._name = name
        self._traits = traits
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """The traits of the configured model."""
        first = self._models[0]
        return first.traits if first.name == self._name else self._traits

    @property
    def is_loading(self) -> bool:
        """See `LoadsLater.is_loading`; true if any of its models loads."""
        return any(isinstance(model, LoadsLater) and model.is_loading for model in self._models)

    def warm(self) -> None:
        """Load the first model in the background. The others load at their first call."""
        if isinstance(self._models[0], WarmsUp):
            self._models[0].warm()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        for model, fallback in zip(self._models, (*self._models[1:], None), strict=True):
            has_output = False
            try:
                async with aclosing(cast("AsyncGenerator[ModelEvent, None]", model.stream(request))) as events:
                    async for event in events:
                        if not isinstance(event, FailedAttempt):
                            has_output = True
                        elif fallback and not has_output and not event.next_model and event.kind in _REPLACEABLE:
                            event = structs.replace(event, next_model=fallback.name)  # noqa: PLW2901 - the same, with its end
                        yield event
                return
            except (ModelUnavailable, ModelRateLimited) as error:
                if has_output or fallback is None:
                    raise
                _log_fallback(error, fallback.name)

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: the configured model counts; None if it lacks its key."""
        first = self._models[0]
        return await first.count(request) if first.name == self._name and isinstance(first, CountsTokens) else None

    async def aclose(self) -> None:
        """Close every model."""
        for model in self._models:
            await model.aclose()


def _log_fallback(error: ModelError, name: str) -> None:
    log.info("model call failed: %s", error, extra={"action": "model.fallback", "next": name})
