"""Models of providers, through litellm: any `provider/model` that it knows, and any OpenAI-compatible address.

litellm translates; the rest is ours: retries with back-off, fallback models, time limits, and the check that an answer
is complete. A stream that ends without the provider's own finish reason was cut, even if litellm reports one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from bubbot.concurrency import Backoff
from bubbot.errors import ModelError, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.litellm import errors, sizes
from bubbot.models.litellm.keys import KEY_PROVIDER, describe_key_source
from bubbot.models.litellm.messages import ReplyAssembler, build_messages, provider_of
from bubbot.models.litellm.quiet import litellm
from bubbot.models.litellm.tokens import TokenizerCache
from bubbot.models.litellm.wire import INVALID_OUTPUT_REASONS, StreamEnding
from bubbot.ports.model import (
    FailedAttempt,
    Model,
    ModelEvent,
    ModelOptions,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    TokenCount,
    Transcript,
    Usage,
)
from bubbot.views.compact import estimate_tokens

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_RETRY_WAIT_SECONDS = 60.0
"""Seconds we wait at most before a retry; a provider that asks for more has failed for this turn."""
MAX_ADDED_TOKENS = 100_000
"""Tokens that a provider may add to a request by itself, such as its search results."""
DEFAULT_OUTPUT_LIMIT_TOKENS = 1_000_000
"""Tokens of an answer that count as plausible if the model's output limit is unknown."""
PLACEHOLDER_KEY = "none"
"""The key for an own address if none is set: the client insists on one."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time limits and retries of one call.

    Attributes:
        connect: seconds to connect.
        first_token: seconds until the first token.
        idle: seconds between two tokens.
        retries: how often a failed call is repeated.
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


class LitellmModel:
    """A `Model` that calls providers through litellm.

    `sleep` and `jitter` (0 to 1) are for tests. Models that lack their key (`keyless` of the settings) are skipped; their
    fallbacks are called.
    """

    def __init__(
        self,
        options: ModelOptions,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        settings = options.settings
        self._name = options.name
        self._settings = settings
        self._key_provider = settings.get(KEY_PROVIDER, provider_of(options.name))
        self._limits = CallLimits(**{field: settings[key] for key, field in _LIMITS.items() if key in settings})
        keyless = settings.get("keyless", ())
        self._targets = tuple(name for name in (options.name, *settings.get("fallback", ())) if name not in keyless)
        self._own_secrets = Redactor([key for key in (settings.get("api_key"),) if key])
        self._sleep = sleep
        # The limit is applied below, after the jitter.
        self._backoff = Backoff(jitter, first_seconds=self._limits.retry_wait, max_seconds=math.inf)
        size = settings.get("context_tokens")
        self._tokenizers = TokenizerCache()
        self._max_output = {
            name: sizes.find_output_limit(name) or DEFAULT_OUTPUT_LIMIT_TOKENS for name in self._targets
        }
        self._has_price = {
            name: sizes.find_price(name, own_address=self._own(name)) is not None for name in self._targets
        }
        self._traits = sizes.find_traits(options.name, context_tokens=size, own_address=self._own(options.name))

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. Until any text has arrived, a model that is unavailable or rate limited leads to the next."""
        for target, fallback in zip(self._targets, (*self._targets[1:], ""), strict=True):
            has_output = False
            try:
                async with aclosing(self._stream_with_retries(target, request, fallback)) as events:
                    async for event in events:
                        has_output = has_output or not isinstance(event, FailedAttempt)
                        yield event
                return
            except (ModelUnavailable, ModelRateLimited) as error:
                if has_output or not fallback:
                    raise
                self._log_failure("model.fallback", error, next=fallback)

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: counts for OpenAI's models at OpenAI's address; returns None for all others."""
        if self._own(self._name):
            return None
        messages = build_messages(request, provider_of(self._name))
        return await asyncio.to_thread(self._tokenizers.count, self._name, messages, request.tools)

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `TranscribesAudio.transcribe`. It retries while that can help; fallback models are for chats."""
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._transcribe_once((name, data, media_type or "application/octet-stream"))
            except (ModelUnavailable, ModelRateLimited) as error:
                wait = self._retry_delay(error, attempt)
                if wait is None or attempt == self._limits.retries:
                    raise
                self._log_failure("model.retry", error, seconds=f"{wait:.2f}")
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _transcribe_once(self, file: tuple[str, bytes, str]) -> Transcript:
        target, seconds = self._name, self._limits.first_token
        call: Awaitable[Any] = litellm.atranscription(
            **self._endpoint(target), model=target, file=file, max_retries=0, timeout=seconds
        )
        answer = await self._await_step(seconds, f"{target} sent nothing for {seconds:g} seconds", target, call)
        text = getattr(answer, "text", None)
        if not isinstance(text, str):
            raise ModelUnavailable(f"{target} sent something that is not a transcription")
        return Transcript(text, self._transcription_usage(target, answer))

    def _transcription_usage(self, target: str, answer: Any) -> Usage:
        """Return the provider's token counts, 0 if it sent none, and the cost that litellm computes from them or the time."""
        counts = [getattr(answer.usage, name, None) for name in ("input_tokens", "output_tokens")]
        read, wrote = (count if isinstance(count, int) else 0 for count in counts)
        is_own = sizes.is_own_server(target, own_address=self._own(target))
        cost = None if is_own else answer.hidden_params.get("response_cost")
        usage = Usage(read, wrote, cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None)
        return usage if usage.is_plausible() else Usage()

    async def aclose(self) -> None:
        """Close the connections."""
        with suppress(Exception):  # shutting down: nothing useful can be done about it
            await litellm.close_litellm_async_clients()
        # The cache would give a closed client of the OpenAI library to the next model; litellm's own clients reopen.
        clients = litellm.in_memory_llm_clients_cache.cache_dict
        for key, client in list(clients.items()):
            if hasattr(client, "is_closed"):
                with suppress(Exception):  # that function skips the clients of transcriptions
                    await client.close()
                clients.pop(key)

    async def _stream_with_retries(
        self, target: str, request: ModelRequest, fallback: str
    ) -> AsyncGenerator[ModelEvent, None]:
        """Stream from one model; retry while that can help and no part of the answer was yielded.

        Each failure is yielded, too. `fallback` is the model that is called after the last failure; empty if none.
        """
        loop = asyncio.get_running_loop()
        for attempt in range(self._limits.retries + 1):
            has_output, started = False, loop.time()
            try:
                async with aclosing(self._stream_once(target, request)) as events:
                    async for event in events:
                        has_output = True
                        yield event
                return
            except ModelError as error:
                wait, next_model = None, ""
                if isinstance(error, (ModelUnavailable, ModelRateLimited)) and not has_output:
                    wait = self._retry_delay(error, attempt) if attempt < self._limits.retries else None
                    next_model = fallback if wait is None else target
                yield FailedAttempt(target, error.kind, str(error), loop.time() - started, wait or 0.0, next_model)
                if wait is None:
                    raise
                self._log_failure("model.retry", error, seconds=f"{wait:.2f}")
            await self._sleep(wait)

    def _retry_delay(self, error: ModelUnavailable | ModelRateLimited, attempt: int) -> float | None:
        """Return the seconds until the next try; None if the provider asks for too many.

        It is what the provider asks for, else twice as long each time, give or take a quarter.
        """
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MAX_RETRY_WAIT_SECONDS else None
        return min(MAX_RETRY_WAIT_SECONDS, self._backoff.delay_seconds(attempt + 1))

    async def _stream_once(self, target: str, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one call; translate every error of litellm and of the libraries below it."""
        limits, answer, ending = self._limits, ReplyAssembler(target), StreamEnding()
        loop = asyncio.get_running_loop()
        first_deadline = loop.time() + limits.first_token
        late = f"{target} sent nothing for {limits.first_token:g} seconds"
        silent = f"{target} fell silent for {limits.idle:g} seconds in the middle of its answer"
        chunks = await self._await_step(first_deadline - loop.time(), late, target, self._start_call(target, request))
        if chunks is None:  # litellm returns this after the second 422
            raise ModelRefused(f"{target} refused the request: it calls it unprocessable")
        ending.listen(chunks)
        try:
            begun = False
            while True:
                seconds, sentence = (limits.idle, silent) if begun else (first_deadline - loop.time(), late)
                cut = f"{target} broke off {'in the middle of' if begun else 'before'} its answer"
                chunk = await self._await_step(seconds, sentence, target, anext(chunks, None), cut=cut)
                if chunk is None:
                    break
                text = answer.add(chunk)
                begun = answer.has_output
                if text:
                    yield TextDelta(text)
            cut = f"{target} broke off in the middle of its answer"
            await self._await_step(limits.idle, silent, target, ending.read_rest(), cut=cut)
            yield await self._build_reply(chunks, answer, ending, request)
        except ModelError as error:
            error.heard = estimate_tokens(answer.collect_text()) if answer.has_output else 0
            raise
        finally:
            with suppress(Exception):  # the connection may be closed already, which is the goal
                await chunks.aclose()
                await ending.aclose()

    def _start_call(self, target: str, request: ModelRequest) -> Awaitable[Any]:
        limits = self._limits
        parameters: dict[str, Any] = dict(request.parameters)
        if self._settings.get("max_tokens"):
            parameters.setdefault("max_tokens", self._settings["max_tokens"])
        if request.tools:
            parameters["tools"] = [tool.as_json() for tool in request.tools]
        read_timeout = max(limits.first_token, limits.idle)
        call: Awaitable[Any] = litellm.acompletion(
            **parameters,
            **self._endpoint(target),
            model=target,
            messages=build_messages(request, provider_of(target)),
            stream=True,
            stream_options={"include_usage": True},
            num_retries=0,
            max_retries=0,
            timeout=httpx.Timeout(read_timeout, connect=limits.connect, pool=limits.connect),
        )
        return call

    def _endpoint(self, target: str) -> dict[str, Any]:
        """Return address and key for models of the provider they are set for; others take theirs from the environment."""
        if provider_of(target) != self._key_provider:
            return {}
        endpoint = {key: self._settings[key] for key in ("api_base", "api_key") if self._settings.get(key)}
        if "api_base" in endpoint and provider_of(target) == "openai":
            endpoint.setdefault(
                "api_key", PLACEHOLDER_KEY
            )  # else litellm would send it OpenAI's key from the environment
        return endpoint

    async def _await_step(self, seconds: float, sentence: str, target: str, step: Awaitable[T], *, cut: str = "") -> T:
        """Wait for one step of a call and translate its errors.

        Args:
            seconds: the time limit.
            sentence: the error message if the step takes longer.
            target: the model that was called.
            step: what to wait for.
            cut: the error message if the connection breaks; empty to treat that like any other error.

        Raises:
            ModelUnavailable: the step took too long, or the connection broke.
            ModelError: any other error of litellm.
        """
        limit = asyncio.timeout(max(seconds, 0.0))
        try:
            async with limit:
                return await step
        except Exception as error:  # noqa: BLE001 - litellm raises anything; we translate all of it
            if limit.expired():
                raise ModelUnavailable(sentence) from None
            if cut and errors.is_cut(error):
                raise ModelUnavailable(cut) from None
            # The cause is dropped: its text and its frames hold headers, and with them the key.
            key_source = describe_key_source(provider_of(target), is_set="api_key" in self._endpoint(target))
            raise errors.translate(error, target, self._redact, key_source=key_source) from None

    async def _build_reply(
        self, chunks: Any, answer: ReplyAssembler, ending: StreamEnding, request: ModelRequest
    ) -> ModelReply:
        """Build the reply. Raise `ModelUnavailable` if the provider itself never said that the answer is over."""
        target = answer.model
        finish = ending.resolve_finish(chunks.received_finish_reason or chunks.intermittent_finish_reason)
        if finish is None:
            raise ModelUnavailable(f"{target} broke off in the middle of its answer")
        if ending.stop_reason in INVALID_OUTPUT_REASONS:
            raise ModelUnavailable(f"{target} wrote something that is not an answer: {ending.stop_reason}")
        answer.response_id = ending.message_id or answer.response_id
        answer.usage = self._plausible_usage(target, request, _provider_usage(chunks))
        own = await self._count_usage(target, request, answer) if answer.usage is None else None
        reply = answer.build_reply(finish, request, self._cost(target, answer), own)
        if reply.finish == "content_filter":
            raise ModelRefused(f"{target} stopped its answer: its content filter stepped in")
        return reply

    def _plausible_usage(self, target: str, request: ModelRequest, usage: Any) -> Any:
        """Return the usage as the provider counted it; None if it cannot be true, so that we count ourselves.

        A token stands for one byte at least, except those that a provider adds by itself.
        """
        if usage is None:
            return None
        counts = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)
        max_input = len(request.as_bytes()) + MAX_ADDED_TOKENS
        if counts.is_plausible(max_input=max_input, max_output=self._max_output[target]):
            return usage
        log.warning(
            "implausible token counts, estimating instead: %s reports %d tokens read and %d written",
            target,
            counts.input_tokens,
            counts.output_tokens,
            extra={"action": "model.odd_usage"},
        )
        return None

    def _cost(self, target: str, answer: ReplyAssembler) -> float | None:
        """Return the cost in US dollars as litellm computes it; None if the model had no price before the call either."""
        if answer.usage is None or not self._has_price[target]:
            return None
        try:
            parts = litellm.cost_per_token(model=target, usage_object=answer.usage)
        except Exception:  # noqa: BLE001 - an unknown model raises a bare Exception
            return None
        total = float(sum(parts))
        return total or None

    async def _count_usage(self, target: str, request: ModelRequest, answer: ReplyAssembler) -> Usage | None:
        """Count request and answer with the model's own tokenizer; None if there is none, or if it fails."""
        if self._own(target):
            return None
        messages = build_messages(request, provider_of(target))
        try:
            request_count = await asyncio.to_thread(self._tokenizers.count, target, messages, request.tools)
            answer_tokens = await asyncio.to_thread(self._tokenizers.count_text, target, answer.collect_text())
        except Exception:  # an answer that arrived must not be lost because it could not be counted
            log.warning(
                "token count of an answer failed: %s",
                target,
                exc_info=True,
                extra={"action": "litellm.count"},
            )
            return None
        if request_count is None or answer_tokens is None:
            return None
        return Usage(request_count.tokens, answer_tokens)

    def _own(self, target: str) -> bool:
        """Return true if the target is called at an address of the settings: the server there may only borrow the name."""
        return "api_base" in self._endpoint(target)

    def _redact(self, text: str) -> str:
        return redact(self._own_secrets(text))

    def _log_failure(self, action: str, error: ModelError, **facts: str) -> None:
        log.info("model call failed: %s", error, extra={"action": action, **facts})


def _provider_usage(chunks: Any) -> Any:
    """Return the usage that the provider sent, from the chunks litellm keeps; its own sums are not among them."""
    usages = [usage for chunk in chunks.chunks if (usage := getattr(chunk, "usage", None)) is not None]
    return next((usage for usage in reversed(usages) if usage.prompt_tokens or usage.completion_tokens), None)


def create(options: ModelOptions) -> Model:
    """Create the model; the entry point. It takes seconds, because litellm loads half of itself at the first call."""
    asyncio.run(_rehearse())
    return LitellmModel(options)


async def _rehearse() -> None:
    """Make two dry calls, so that the first real one does not stop the event loop.

    One goes to a port of this machine on which nothing listens, litellm itself answers the other. Run this in a separate
    thread.
    """
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    call: Mapping[str, Any] = {
        "model": "openai/rehearsal",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
        "stream": True,
        "num_retries": 0,
        "max_retries": 0,
    }
    clients = litellm.in_memory_llm_clients_cache.cache_dict
    clients_before = set(clients)
    with socket.socket() as closed, suppress(Exception):  # any of its errors will do
        closed.bind(("127.0.0.1", 0))  # bound but not listening: the connection is refused at once
        await litellm.acompletion(
            **call, api_base=f"http://127.0.0.1:{closed.getsockname()[1]}/v1", api_key=PLACEHOLDER_KEY, timeout=5.0
        )
    async for _ in await litellm.acompletion(**call, api_key=PLACEHOLDER_KEY, mock_response="hello"):
        pass
    # Only the clients of these calls: other models may be in the middle of an answer.
    for key in set(clients) - clients_before:
        with suppress(Exception):  # unused from here on
            await clients.pop(key).close()
