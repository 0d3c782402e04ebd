"""The model of a provider: retries with back-off and time limits around the single calls of a client."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct, structs

from bubbot.concurrency import Backoff
from bubbot.errors import ModelError, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.fit import ModelFit
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import (
    FailedAttempt,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    TokenCount,
    Transcript,
)
from bubbot.tape.entry import JsonObject

log = logging.getLogger(__name__)

MAX_RETRY_WAIT_SECONDS = 60.0
"""Seconds we wait at most before a retry; a provider that asks for more has failed for this turn."""


class CallLimits(Struct, frozen=True):
    """Time limits and retries of one call.

    Attributes:
        connect: seconds to connect.
        first_token: seconds until the first token.
        idle: seconds between two tokens.
        retries: retries of a failed call.
        retry_wait: seconds before the first retry; doubled for each further one.
    """

    connect: float = 10.0
    first_token: float = 300.0
    idle: float = 60.0
    retries: int = 3
    retry_wait: float = 1.0


_LIMITS = {
    "connect_timeout": "connect",
    "first_token_timeout": "first_token",
    "idle_timeout": "idle",
    "retries": "retries",
    "retry_wait": "retry_wait",
}


def read_limits(settings: Mapping[str, Any]) -> CallLimits:
    """Read the limits from the values of `[model]`."""
    return CallLimits(**{field: settings[key] for key, field in _LIMITS.items() if key in settings})


class ProviderClient(Protocol):
    """Single calls to one model, without retries. Implementations translate every error of a library to a `ModelError`."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """Yield text deltas, then the reply. Closing it early ends the call."""
        ...

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """Convert a recording to text."""
        ...

    async def connect(self) -> None:
        """Open a connection ahead of the first call, without the key; never raise."""
        ...

    async def aclose(self) -> None: ...


class ProviderModel:
    """A `Model` that calls one model of a provider through a client."""

    def __init__(
        self,
        name: str,
        traits: ModelTraits,
        limits: CallLimits,
        client: ProviderClient,
        *,
        meter: UsageMeter,
        fit: ModelFit,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Set the parts.

        Args:
            name: `provider/model`.
            jitter: random numbers from 0 to 1, for the waits.
        """
        self._name = name
        self._traits = traits
        self._limits = limits
        self._client = client
        self._meter = meter
        self._fit = fit
        self._sleep = sleep
        # The limit is applied below, after the jitter.
        self._backoff = Backoff(jitter, first_seconds=limits.retry_wait, max_seconds=math.inf)

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. It retries while that can help and no part of the answer was yielded.

        The runner retries after a refusal that teaches something, because it reserves and counts each try.
        """
        loop = asyncio.get_running_loop()
        request, fit = self._fit.fit(request)
        for attempt in range(self._limits.retries + 1):
            has_output, started = False, loop.time()
            try:
                async with aclosing(self._client.stream(request)) as events:
                    async for event in events:
                        has_output = True
                        yield event if fit is None or isinstance(event, TextDelta) else structs.replace(event, fit=fit)
                return
            except ModelError as error:
                wait, lesson = None, None
                if isinstance(error, ModelRefused) and not has_output:
                    lesson = self._fit.read_refusal(error, request)
                if isinstance(error, (ModelUnavailable, ModelRateLimited)) and not has_output:
                    wait = self._retry_delay(error, attempt) if attempt < self._limits.retries else None
                next_model = "" if wait is None else self._name
                elapsed = loop.time() - started
                yield FailedAttempt(self._name, error.kind, str(error), elapsed, wait or 0.0, next_model, fit, lesson)
                if wait is None:
                    raise
                self._log_retry(error, wait)
            await self._sleep(wait)

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: counts for OpenAI's models at OpenAI's address; returns None for all others."""
        return await self._meter.count(request)

    async def list_messages(self, request: ModelRequest) -> list[JsonObject]:
        """See `ListsMessages.list_messages`."""
        return self._fit.list_messages(request)

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `TranscribesAudio.transcribe`. It retries while that can help; fallback models are for chats."""
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._client.transcribe(data, name, media_type or "application/octet-stream")
            except (ModelUnavailable, ModelRateLimited) as error:
                wait = self._retry_delay(error, attempt)
                if wait is None or attempt == self._limits.retries:
                    raise
                self._log_retry(error, wait)
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def connect(self) -> None:
        """See `ProviderClient.connect`."""
        await self._client.connect()

    async def aclose(self) -> None:
        await self._client.aclose()

    def _retry_delay(self, error: ModelUnavailable | ModelRateLimited, attempt: int) -> float | None:
        """Return the seconds until the next try; None if the provider asks for too many.

        The provider's own delay wins; else the delay doubles each time, give or take a quarter.
        """
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MAX_RETRY_WAIT_SECONDS else None
        return min(MAX_RETRY_WAIT_SECONDS, self._backoff.delay_seconds(attempt + 1))

    def _log_retry(self, error: ModelError, wait: float) -> None:
        log.info("model call failed: %s", error, extra={"action": "model.retry", "seconds": f"{wait:.2f}"})
