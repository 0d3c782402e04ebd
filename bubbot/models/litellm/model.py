"""Models of providers, through litellm: any `provider/model` that it knows.

litellm translates; retries, time limits and the check that an answer is complete are ours. A stream that ends without
the provider's own finish reason was cut, even if litellm reports one.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from bubbot.errors import ModelError, ModelRefused, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.catalogue import sizes
from bubbot.models.catalogue.keys import KEY_PROVIDER, PLACEHOLDER_KEY, SERVER, describe_key_source
from bubbot.models.failures import build_failure, classify_status, read_error, read_error_status
from bubbot.models.fit import ModelFit, limit_output
from bubbot.models.litellm import errors
from bubbot.models.litellm.messages import LitellmReply, convert_usage
from bubbot.models.litellm.quiet import litellm
from bubbot.models.litellm.wire import StreamEnding
from bubbot.models.messages import build_messages, provider_of
from bubbot.models.openai.answer import StreamedAnswer
from bubbot.models.openai.providers import find_server
from bubbot.models.provider import CallLimits, ProviderModel, read_limits
from bubbot.models.reply import FinishReader
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import (
    Model,
    ModelOptions,
    ModelReply,
    ModelRequest,
    TextDelta,
    Transcript,
    Usage,
    read_call_headers,
)
from bubbot.runtime.context.tokens import estimate_tokens

T = TypeVar("T")


class LitellmClient:
    """A `ProviderClient` that calls one model through litellm."""

    def __init__(self, options: ModelOptions, limits: CallLimits, meter: UsageMeter) -> None:
        self._name = options.name
        self._limits = limits
        self._meter = meter
        self._endpoint = _endpoint(options)
        self._server = _find_server(options)
        self._finishes = FinishReader(options.name)
        self._own_secrets = Redactor([key for key in (options.settings.get("api_key"),) if key])

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `ProviderClient.transcribe`."""
        target, seconds = self._name, self._limits.first_token
        call: Awaitable[Any] = litellm.atranscription(
            **self._endpoint, model=target, file=(name, data, media_type), max_retries=0, timeout=seconds
        )
        answer = await self._await_step(seconds, f"{target} sent nothing for {seconds:g} seconds", call)
        text = getattr(answer, "text", None)
        if not isinstance(text, str):
            raise ModelUnavailable(f"{target} sent something that is not a transcription")
        return Transcript(text, self._transcription_usage(answer))

    def _transcription_usage(self, answer: Any) -> Usage:
        """Return the provider's token counts, 0 if it sent none, and the cost that litellm computes from them or the time."""
        counts = [getattr(answer.usage, name, None) for name in ("input_tokens", "output_tokens")]
        read, wrote = (count if isinstance(count, int) else 0 for count in counts)
        is_own = sizes.is_own_server(self._name, own_address=has_own_address(self._endpoint))
        cost = None if is_own else answer.hidden_params.get("response_cost")
        usage = Usage(read, wrote, cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None)
        return usage if usage.is_plausible() else Usage()

    async def aclose(self) -> None:
        with suppress(Exception):  # shutting down: nothing useful can be done about it
            await litellm.close_litellm_async_clients()
        # The cache would give a closed client of the OpenAI library to the next model; litellm's own clients reopen.
        clients = litellm.in_memory_llm_clients_cache.cache_dict
        for key, client in list(clients.items()):
            if hasattr(client, "is_closed"):
                with suppress(Exception):  # that function skips the clients of transcriptions
                    await client.close()
                clients.pop(key)

    async def connect(self) -> None:
        """Do nothing: litellm cannot connect in advance."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """See `ProviderClient.stream`."""
        target, limits, ending = self._name, self._limits, StreamEnding()
        answer, body = LitellmReply(target, server=self._server), StreamedAnswer(target, server=self._server)
        loop = asyncio.get_running_loop()
        first_deadline = loop.time() + limits.first_token
        late = f"{target} sent nothing for {limits.first_token:g} seconds"
        silent = f"{target} fell silent for {limits.idle:g} seconds in the middle of its answer"
        broken = f"{target} could not be reached or failed: the connection failed"
        chunks = await self._await_step(limits.first_token, late, self._start_call(request), cut=broken)
        if chunks is None:  # litellm returns this after the second 422
            refused = ModelRefused(f"{target} refused the request: it calls it unprocessable")
            refused.status = 422
            raise refused
        ending.listen(chunks)
        try:
            begun = False
            while True:
                seconds, sentence = (limits.idle, silent) if begun else (first_deadline - loop.time(), late)
                cut = f"{target} broke off {'in the middle of' if begun else 'before'} its answer"
                chunk = await self._await_step(seconds, sentence, anext(chunks, None), cut=cut, ending=ending)
                if chunk is None:
                    break
                text = answer.add(chunk)
                begun = answer.has_output
                if text:
                    yield TextDelta(text)
            cut = f"{target} broke off in the middle of its answer"
            await self._await_step(limits.idle, silent, ending.read_rest(), cut=cut)
            text = ending.refusal
            answer.text += text
            is_body = not answer.has_output and ending.read_body(body)
            text = body.text if is_body else text
            if text:
                yield TextDelta(text)
            yield await self._build_reply(chunks, body if is_body else answer, ending, request)
        except ModelError as error:
            error.heard = estimate_tokens(answer.collect_text()) if answer.has_output else 0
            raise
        finally:
            with suppress(Exception):  # the connection may be closed already, which is the goal
                await chunks.aclose()
                await ending.aclose()

    def _start_call(self, request: ModelRequest) -> Awaitable[Any]:
        limits = self._limits
        parameters: dict[str, Any] = dict(request.parameters)
        if request.tools:
            parameters["tools"] = [tool.as_json() for tool in request.tools]
        # Without a configured address nobody here knows which host litellm calls.
        if headers := read_call_headers(urlsplit(self._endpoint.get("api_base", "")).hostname or ""):
            parameters["extra_headers"] = {**headers, **parameters.get("extra_headers", {})}
        read_timeout = max(limits.first_token, limits.idle)
        call: Awaitable[Any] = litellm.acompletion(
            **parameters,
            **self._endpoint,
            model=self._name,
            messages=build_messages(request, self._name, self._server),
            stream=True,
            num_retries=0,
            max_retries=0,
            timeout=httpx.Timeout(read_timeout, connect=limits.connect, pool=limits.connect),
        )
        return call

    async def _await_step(
        self,
        seconds: float,
        sentence: str,
        step: Awaitable[T],
        *,
        cut: str = "",
        ending: StreamEnding | None = None,
    ) -> T:
        """Wait for one step of a call and translate its errors.

        Args:
            seconds: the time limit.
            sentence: the error message if the step takes longer.
            cut: the error message if the connection breaks; empty to treat that like any other error.
            ending: the end that the provider itself sent; None before it sent any.

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
            if ending is not None and ending.error is not None:
                raise self._build_event_failure(ending.error) from None
            raise errors.translate(error, self._name, self._redact, key_source=self._key_source) from None

    @property
    def _key_source(self) -> str:
        return describe_key_source(provider_of(self._name), is_set="api_key" in self._endpoint)

    def _build_event_failure(self, error: Mapping[str, Any]) -> ModelError:
        """Build the error that came with the status of a success."""
        status, (words, codes) = read_error_status(error), read_error(error)
        kind = classify_status(status, f"{words} {codes}")
        message = self._redact(" ".join(words.split()) or codes)
        failure = build_failure(kind, self._name, message, status=status, key_source=self._key_source)
        failure.status = status
        return failure

    async def _build_reply(
        self, chunks: Any, answer: LitellmReply | StreamedAnswer, ending: StreamEnding, request: ModelRequest
    ) -> ModelReply:
        """Build the reply. Raise `ModelUnavailable` if the provider itself never said that the answer is over."""
        if ending.error is not None:
            raise self._build_event_failure(ending.error)
        body = answer if isinstance(answer, StreamedAnswer) else None
        found = chunks.received_finish_reason or chunks.intermittent_finish_reason
        reported = ending.resolve_finish(found if body is None else body.finish)
        if reported is None and (ending.is_done or body is not None):
            reported = answer.natural_end
        if reported is None:
            raise ModelUnavailable(f"{self._name} broke off in the middle of its answer")
        finish = self._finishes.read(ending.stop_reason or reported, answer, reported)
        answer.response_id = ending.message_id or answer.response_id
        sent = _provider_usage(chunks)
        counted = None if sent is None else convert_usage(sent, self._cost(sent))
        usage = self._meter.check(counted if body is None else body.usage, request)
        if usage is None:
            usage = await self._meter.count_usage(request, answer.collect_text())
        return answer.build_reply(finish, request, usage)

    def _cost(self, usage: Any) -> float | None:
        """Return the cost in US dollars as litellm computes it; None if the model had no price before the call either."""
        if self._meter.price is None:
            return None
        try:
            parts = litellm.cost_per_token(model=self._name, usage_object=usage)
        except Exception:  # noqa: BLE001 - an unknown model raises a bare Exception
            return None
        total = float(sum(parts))
        return total or None

    def _redact(self, text: str) -> str:
        return redact(self._own_secrets(text))


def _endpoint(options: ModelOptions) -> dict[str, Any]:
    """Return the configured address and key of the model's provider; without them litellm reads the environment."""
    settings, provider = options.settings, provider_of(options.name)
    if provider != settings.get(KEY_PROVIDER, provider):
        return {}
    endpoint = {key: settings[key] for key in ("api_base", "api_key") if settings.get(key)}
    if "api_base" in endpoint and provider == "openai":
        endpoint.setdefault("api_key", PLACEHOLDER_KEY)  # else litellm would send it OpenAI's key from the environment
    return endpoint


def _find_server(options: ModelOptions) -> str:
    api_base = _endpoint(options).get("api_base")
    return str(options.settings.get(SERVER) or find_server(options.name, api_base=api_base, variables={}))


def has_own_address(endpoint: Mapping[str, Any]) -> bool:
    """Return true if the settings name the model's address: the server there may only borrow the name."""
    return "api_base" in endpoint


def _provider_usage(chunks: Any) -> Any:
    """Return the usage that the provider sent, from the chunks litellm keeps; its own sums are not among them."""
    usages = [usage for chunk in chunks.chunks if (usage := getattr(chunk, "usage", None)) is not None]
    return next((usage for usage in reversed(usages) if usage.prompt_tokens or usage.completion_tokens), None)


def create(options: ModelOptions) -> Model:
    """Create the model; the entry point. It takes seconds, because litellm loads half of itself at the first call."""
    asyncio.run(_rehearse())
    return make_model(options)


def make_model(
    options: ModelOptions,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> ProviderModel:
    """Make the model without the rehearsal. `sleep` and `jitter` (0 to 1) are for the waits before retries."""
    own_address, limits = has_own_address(_endpoint(options)), read_limits(options.settings)
    meter = UsageMeter(options.name, own_address=own_address)
    size = options.settings.get("context_tokens")
    traits = sizes.find_traits(options.name, context_tokens=size, own_address=own_address)
    client = LitellmClient(options, limits, meter)
    parameters = {"stream_options": {"include_usage": True}} | limit_output(options.settings)
    fit = ModelFit(options.name, options.lessons, server=_find_server(options), parameters=parameters)
    return ProviderModel(options.name, traits, limits, client, meter=meter, fit=fit, sleep=sleep, jitter=jitter)


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
