"""A model that is loaded on demand: clients of providers take a while to import, and most commands never call a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Protocol, cast, runtime_checkable

from msgspec import structs

from bubbot.errors import BubbotError, ModelError
from bubbot.ports.model import (
    CountsTokens,
    KnowsLessons,
    ListsMessages,
    Model,
    ModelEvent,
    ModelRequest,
    ModelTraits,
    TokenCount,
    TranscribesAudio,
    Transcript,
)
from bubbot.tape.entry import JsonObject


@runtime_checkable
class Connects(Protocol):
    """A model that can open a connection ahead of its first call."""

    async def connect(self) -> None:
        """Open a connection; never raise."""
        ...


class LazyModel:
    """A `Model` that `load` makes at the first request, or earlier if `warm` is called.

    `load` runs once, in a thread. If it raises, the next request tries again. The context size that `lessons` know overrides the
    one in the traits.
    """

    def __init__(
        self,
        name: str,
        traits: ModelTraits,
        load: Callable[[], Model],
        lessons: KnowsLessons | None = None,
    ) -> None:
        self._name = name
        self._traits = traits
        self._lessons = lessons
        self._load = load
        self._loading: asyncio.Task[Model] | None = None
        self._connecting: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """The traits, known without loading."""
        lessons = self._lessons.find(self._name, self._traits.server) if self._lessons else ()
        told = [tokens for lesson in lessons if (tokens := lesson.find_tokens("context"))]
        return structs.replace(self._traits, context_tokens=told[-1], assumes_size=False) if told else self._traits

    @property
    def is_loading(self) -> bool:
        """See `LoadsLater.is_loading`."""
        return self._loading is not None and not self._loading.done()

    def warm(self) -> None:
        """See `WarmsUp.warm`."""
        if self._loading is None:
            self._connecting = asyncio.create_task(self._connect(self._begin_loading()))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        model = await self._get_model()
        # A stream is a generator: closing this one early has to close the inner one, too.
        async with aclosing(cast("AsyncGenerator[ModelEvent, None]", model.stream(request))) as events:
            async for event in events:
                yield event

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`. It waits for the load, which the following call needs anyway."""
        model = await self._get_model()
        return await model.count(request) if isinstance(model, CountsTokens) else None

    async def list_messages(self, request: ModelRequest) -> list[JsonObject]:
        """See `ListsMessages.list_messages`. It waits for the load, which the following call needs anyway."""
        model = await self._get_model()
        if not isinstance(model, ListsMessages):
            raise ModelError(f"{self._name} cannot tell which messages it sends")
        return await model.list_messages(request)

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `TranscribesAudio.transcribe`."""
        model = await self._get_model()
        if not isinstance(model, TranscribesAudio):
            raise ModelError(f"{self._name} cannot write down what recordings say")
        return await model.transcribe(data, name, media_type)

    async def aclose(self) -> None:
        """See `Model.aclose`. It waits for a running load: a thread cannot be stopped."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._loading is not None:
            with suppress(BubbotError):
                await (await asyncio.shield(self._loading)).aclose()

    async def _get_model(self) -> Model:
        # Shielded: a caller that stops waiting must not cancel the load for the others.
        return await asyncio.shield(self._begin_loading())

    def _begin_loading(self) -> asyncio.Task[Model]:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
            self._loading.add_done_callback(self._on_load_done)
        return self._loading

    async def _connect(self, loading: asyncio.Task[Model]) -> None:
        with suppress(BubbotError):  # the first call loads again, and reports what is wrong
            model = await asyncio.shield(loading)
            if isinstance(model, Connects):
                await model.connect()

    def _on_load_done(self, task: asyncio.Task[Model]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._loading = None
