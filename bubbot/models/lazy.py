"""A model that is loaded when it is needed: litellm takes seconds to import, and most commands never ask a model."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import cast

from bubbot.errors import BubbotError, ModelError
from bubbot.ports.model import (
    CountsTokens,
    Model,
    ModelEvent,
    ModelRequest,
    ModelTraits,
    TokenCount,
    TranscribesAudio,
    Transcript,
)


class LazyModel:
    """See `Model`. `load` runs in a thread, once: at the first request, or earlier where `warm` is called.

    `load` raises a `BubbotError` where it fails; the next request then tries again.
    """

    def __init__(self, name: str, traits: ModelTraits, load: Callable[[], Model]) -> None:
        self._name = name
        self._traits = traits
        self._load = load
        self._loading: asyncio.Task[Model] | None = None

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """Known without loading."""
        return self._traits

    def warm(self) -> None:
        """Begins to load in the background."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(_without_collector, self._load))
            self._loading.add_done_callback(self._loaded)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        model = await self._loaded_model()
        # A stream is a generator; closing it early has to reach the one inside.
        async with aclosing(cast("AsyncGenerator[ModelEvent, None]", model.stream(request))) as events:
            async for event in events:
                yield event

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`. Waits for the load, which the call that follows needs anyway."""
        model = await self._loaded_model()
        return await model.count(request) if isinstance(model, CountsTokens) else None

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `TranscribesAudio.transcribe`."""
        model = await self._loaded_model()
        if not isinstance(model, TranscribesAudio):
            raise ModelError(f"{self._name} cannot write down what recordings say")
        return await model.transcribe(data, name, media_type)

    async def aclose(self) -> None:
        """See `Model.aclose`. A load that runs is waited for: a thread cannot be stopped."""
        if self._loading is not None:
            with suppress(BubbotError):
                await (await asyncio.shield(self._loading)).aclose()

    async def _loaded_model(self) -> Model:
        self.warm()
        assert self._loading is not None
        # Shielded: whoever stops waiting must not take the model away from the others.
        return await asyncio.shield(self._loading)

    def _loaded(self, task: asyncio.Task[Model]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._loading = None


def _without_collector(load: Callable[[], Model]) -> Model:
    """Loads with the garbage collector off, which saves a fifth of the time.

    What was loaded stays for good, so it is frozen: a collection that walked through it would stop the event loop.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        model = load()
        gc.freeze()
        return model
    finally:
        if was_on:
            gc.enable()
