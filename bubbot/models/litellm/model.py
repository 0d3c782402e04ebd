"""Models of providers, through litellm: any `provider/model` that it knows, and any OpenAI-compatible address.

litellm translates; the rest is ours: retries with back-off, fallback models, time limits, and whether an answer is
whole. A stream that ends without the provider's own word for how it ended was cut, whatever litellm makes of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from bubbot.errors import ModelError, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.litellm import errors, sizes
from bubbot.models.litellm.keys import KEY_PROVIDER
from bubbot.models.litellm.messages import ReplyAssembler, messages_for, provider_of
from bubbot.models.litellm.quiet import litellm
from bubbot.models.litellm.tokens import TokenizerCache
from bubbot.models.litellm.wire import BROKEN, StreamEnding
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

LONGEST_WAIT = 60.0
"""Seconds we wait at most before asking again; a provider that asks for more has failed for this turn."""
ADDED_TOKENS = 100_000
"""Tokens that a provider may add to a request by itself, such as what it has searched for."""
LONGEST_ANSWER = 1_000_000
"""Tokens of an answer that are believed if nobody knows how much a model writes."""
NO_KEY = "none"
"""What an own address is sent where no key is set: the client insists on one."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Seconds to connect, until the first token, and between two; how often a failed call is repeated."""

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
    """See `Model`. `sleep` and `chance` (0 to 1) are for tests. Models without their key (`keyless` of the settings) are
    not asked: their fallbacks are."""

    def __init__(
        self,
        options: ModelOptions,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        given = options.settings
        self._name = options.name
        self._settings = given
        self._key_provider = given.get(KEY_PROVIDER, provider_of(options.name))
        self._limits = CallLimits(**{ours: given[key] for key, ours in _LIMITS.items() if key in given})
        keyless = given.get("keyless", ())
        self._targets = tuple(one for one in (options.name, *given.get("fallback", ())) if one not in keyless)
        self._own_secrets = Redactor([key for key in (given.get("api_key"),) if key])
        self._sleep = sleep
        self._chance = chance
        size = given.get("context_tokens")
        self._tokenizers = TokenizerCache()
        self._longest_answers = {one: sizes.longest_answer(one) or LONGEST_ANSWER for one in self._targets}
        self._priced = {one: sizes.price(one, own_address=self._own(one)) is not None for one in self._targets}
        self._traits = sizes.traits(options.name, context_tokens=size, own_address=self._own(options.name))

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. Fallback models are asked where one is not there or wants less, before any text."""
        for target, fallback in zip(self._targets, (*self._targets[1:], ""), strict=True):
            said = False
            try:
                async with aclosing(self._repeated(target, request, fallback)) as events:
                    async for event in events:
                        said = said or not isinstance(event, FailedAttempt)
                        yield event
                return
            except (ModelUnavailable, ModelRateLimited) as error:
                if said or not fallback:
                    raise
                self._tell("model.fallback", error, next=fallback)

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: for models of OpenAI at its own address; None for all others."""
        if self._own(self._name):
            return None
        messages = messages_for(request, provider_of(self._name))
        return await asyncio.to_thread(self._tokenizers.count, self._name, messages, request.tools)

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `TranscribesAudio.transcribe`. Asked again while that can help; fallback models are for chats."""
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._transcribed((name, data, media_type or "application/octet-stream"))
            except (ModelUnavailable, ModelRateLimited) as error:
                wait = self._wait(error, attempt)
                if wait is None or attempt == self._limits.retries:
                    raise
                self._tell("model.retry", error, seconds=f"{wait:.2f}")
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _transcribed(self, file: tuple[str, bytes, str]) -> Transcript:
        target, seconds = self._name, self._limits.first_token
        asked: Awaitable[Any] = litellm.atranscription(
            **self._address(target), model=target, file=file, max_retries=0, timeout=seconds
        )
        answer = await self._within(seconds, f"{target} sent nothing for {seconds:g} seconds", target, asked)
        text = getattr(answer, "text", None)
        if not isinstance(text, str):
            raise ModelUnavailable(f"{target} sent something that is no transcription")
        return Transcript(text, self._heard_usage(target, answer))

    def _heard_usage(self, target: str, answer: Any) -> Usage:
        """Tokens as the provider counted them, where it did, and what litellm reckons for them or for the seconds."""
        counted = [getattr(answer.usage, name, None) for name in ("input_tokens", "output_tokens")]
        read, wrote = (one if isinstance(one, int) else 0 for one in counted)
        own = sizes.is_own_server(target, own_address=self._own(target))
        cost = None if own else answer.hidden_params.get("response_cost")
        usage = Usage(read, wrote, cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None)
        return usage if usage.is_plausible() else Usage()

    async def aclose(self) -> None:
        """Closes the connections."""
        with suppress(Exception):  # on the way out; nobody could do anything about it
            await litellm.close_litellm_async_clients()
        # A closed client of the OpenAI library would be handed to the next model; those of litellm itself open anew.
        clients = litellm.in_memory_llm_clients_cache.cache_dict
        for key, client in list(clients.items()):
            if hasattr(client, "is_closed"):
                with suppress(Exception):  # that function leaves out the clients of transcriptions
                    await client.close()
                clients.pop(key)

    async def _repeated(self, target: str, request: ModelRequest, fallback: str) -> AsyncGenerator[ModelEvent, None]:
        """One model, asked again while that can help and nothing of its answer was handed on. Each failure is
        yielded; `fallback` is who is asked when this one has failed for good."""
        loop = asyncio.get_running_loop()
        for attempt in range(self._limits.retries + 1):
            said, started = False, loop.time()
            try:
                async with aclosing(self._once(target, request)) as events:
                    async for event in events:
                        said = True
                        yield event
                return
            except ModelError as error:
                wait, then = None, ""
                if isinstance(error, (ModelUnavailable, ModelRateLimited)) and not said:
                    wait = self._wait(error, attempt) if attempt < self._limits.retries else None
                    then = fallback if wait is None else target
                yield FailedAttempt(target, error.kind, str(error), loop.time() - started, wait or 0.0, then)
                if wait is None:
                    raise
                self._tell("model.retry", error, seconds=f"{wait:.2f}")
            await self._sleep(wait)

    def _wait(self, error: ModelUnavailable | ModelRateLimited, attempt: int) -> float | None:
        """Seconds until the next try: what the provider asks, else twice as long each time, give or take a quarter."""
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= LONGEST_WAIT else None
        return float(min(LONGEST_WAIT, self._limits.retry_wait * 2**attempt * (0.75 + self._chance() / 2)))

    async def _once(self, target: str, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One call. Every error of litellm and of what lies below it is translated here."""
        limits, answer, ending = self._limits, ReplyAssembler(target), StreamEnding()
        loop = asyncio.get_running_loop()
        first = loop.time() + limits.first_token
        late = f"{target} sent nothing for {limits.first_token:g} seconds"
        silent = f"{target} fell silent for {limits.idle:g} seconds in the middle of its answer"
        chunks = await self._within(first - loop.time(), late, target, self._asked(target, request))
        if chunks is None:  # what litellm returns after a 422 that came twice
            raise ModelRefused(f"{target} refused the request: it calls it unprocessable")
        ending.listen(chunks)
        try:
            begun = False
            while True:
                seconds, sentence = (limits.idle, silent) if begun else (first - loop.time(), late)
                cut = f"{target} broke off {'in the middle of' if begun else 'before'} its answer"
                chunk = await self._within(seconds, sentence, target, anext(chunks, None), cut=cut)
                if chunk is None:
                    break
                text = answer.add(chunk)
                begun = answer.begun
                if text:
                    yield TextDelta(text)
            cut = f"{target} broke off in the middle of its answer"
            await self._within(limits.idle, silent, target, ending.rest(), cut=cut)
            yield await self._whole(chunks, answer, ending, request)
        except ModelError as error:
            error.heard = estimate_tokens(answer.said()) if answer.begun else 0
            raise
        finally:
            with suppress(Exception):  # the connection may be gone, which is what is wanted
                await chunks.aclose()
                await ending.aclose()

    def _asked(self, target: str, request: ModelRequest) -> Awaitable[Any]:
        limits = self._limits
        known: dict[str, Any] = dict(request.parameters)
        if self._settings.get("max_tokens"):
            known.setdefault("max_tokens", self._settings["max_tokens"])
        if request.tools:
            known["tools"] = [tool.as_json() for tool in request.tools]
        reading = max(limits.first_token, limits.idle)
        asked: Awaitable[Any] = litellm.acompletion(
            **known,
            **self._address(target),
            model=target,
            messages=messages_for(request, provider_of(target)),
            stream=True,
            stream_options={"include_usage": True},
            num_retries=0,
            max_retries=0,
            timeout=httpx.Timeout(reading, connect=limits.connect, pool=limits.connect),
        )
        return asked

    def _address(self, target: str) -> dict[str, Any]:
        """Return address and key for models of the provider they were set for; others take theirs from the environment."""
        if provider_of(target) != self._key_provider:
            return {}
        found = {key: self._settings[key] for key in ("api_base", "api_key") if self._settings.get(key)}
        if "api_base" in found and provider_of(target) == "openai":
            found.setdefault("api_key", NO_KEY)  # else it would be sent the key of OpenAI, from the environment
        return found

    async def _within(self, seconds: float, sentence: str, target: str, awaited: Awaitable[T], *, cut: str = "") -> T:
        """Waits for one step of a call. Raises `ModelUnavailable` with the sentence if it takes too long, and with `cut`
        if the connection breaks."""
        limit = asyncio.timeout(max(seconds, 0.0))
        try:
            async with limit:
                return await awaited
        except Exception as error:  # noqa: BLE001 - litellm raises anything; all of it leaves here as ours
            if limit.expired():
                raise ModelUnavailable(sentence) from None
            if cut and errors.is_cut(error):
                raise ModelUnavailable(cut) from None
            # The cause is kept out: its text and its frames hold headers, and with them the key.
            raise errors.translated(error, target, self._redact) from None

    async def _whole(
        self, chunks: Any, answer: ReplyAssembler, ending: StreamEnding, request: ModelRequest
    ) -> ModelReply:
        """The reply, where the provider itself said that the answer is over."""
        target = answer.model
        finish = ending.finish(chunks.received_finish_reason or chunks.intermittent_finish_reason)
        if finish is None:
            raise ModelUnavailable(f"{target} broke off in the middle of its answer")
        if ending.reason in BROKEN:
            raise ModelUnavailable(f"{target} wrote something that is no answer: {ending.reason}")
        answer.response_id = ending.message or answer.response_id
        answer.usage = self._believed(target, request, _counted(chunks))
        own = await self._own_usage(target, request, answer) if answer.usage is None else None
        reply = answer.reply(finish, request, self._cost(target, answer), own)
        if reply.finish == "content_filter":
            raise ModelRefused(f"{target} stopped its answer: its content filter stepped in")
        return reply

    def _believed(self, target: str, request: ModelRequest, usage: Any) -> Any:
        """The usage as the provider counted it; None if it cannot be true: then we count ourselves.

        A token stands for a byte at least, apart from what a provider adds by itself.
        """
        if usage is None:
            return None
        counted = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)
        most_input = len(request.as_bytes()) + ADDED_TOKENS
        if counted.is_plausible(most_input=most_input, most_output=self._longest_answers[target]):
            return usage
        log.warning(
            "%s says that it read %d and wrote %d tokens, which cannot be; they are estimated instead",
            target,
            counted.input_tokens,
            counted.output_tokens,
            extra={"action": "model.odd_usage"},
        )
        return None

    def _cost(self, target: str, answer: ReplyAssembler) -> float | None:
        """US dollars as litellm reckons them; None for what had no price before the call either."""
        if answer.usage is None or not self._priced[target]:
            return None
        try:
            parts = litellm.cost_per_token(model=target, usage_object=answer.usage)
        except Exception:  # noqa: BLE001 - an unknown model raises a bare Exception
            return None
        total = float(sum(parts))
        return total or None

    async def _own_usage(self, target: str, request: ModelRequest, answer: ReplyAssembler) -> Usage | None:
        """What the model's own tokenizer counts, where the provider sent no usage; None where there is none."""
        if self._own(target):
            return None
        messages = messages_for(request, provider_of(target))
        try:
            asked = await asyncio.to_thread(self._tokenizers.count, target, messages, request.tools)
            said = await asyncio.to_thread(self._tokenizers.count_text, target, answer.said())
        except Exception:  # an answer that is here is not lost because it could not be counted
            log.warning(
                "the tokens of an answer of %s could not be counted",
                target,
                exc_info=True,
                extra={"action": "litellm.count"},
            )
            return None
        return Usage(asked.tokens, said) if asked is not None and said is not None else None

    def _own(self, target: str) -> bool:
        """Whether the target sits at an address of the settings; whatever answers there only goes by its name."""
        return "api_base" in self._address(target)

    def _redact(self, text: str) -> str:
        return redact(self._own_secrets(text))

    def _tell(self, action: str, error: ModelError, **facts: str) -> None:
        log.info("%s", error, extra={"action": action, **facts})


def _counted(chunks: Any) -> Any:
    """The usage the provider sent, out of the chunks litellm keeps; what it adds up itself is not among them."""
    found = [usage for chunk in chunks.chunks if (usage := getattr(chunk, "usage", None)) is not None]
    return next((usage for usage in reversed(found) if usage.prompt_tokens or usage.completion_tokens), None)


def create(options: ModelOptions) -> Model:
    """The factory of the entry point. Takes seconds, for litellm loads half of itself at the first call."""
    asyncio.run(_rehearsed())
    return LitellmModel(options)


async def _rehearsed() -> None:
    """Two calls that cannot succeed or need not: so that the first real one does not stop the event loop.

    One to a port of this machine where nobody listens, one answered by litellm itself. For a thread of its own.
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
    before = set(clients)
    with socket.socket() as closed, suppress(Exception):  # which of its errors does not matter
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        await litellm.acompletion(
            **call, api_base=f"http://127.0.0.1:{closed.getsockname()[1]}/v1", api_key=NO_KEY, timeout=5.0
        )
    async for _ in await litellm.acompletion(**call, api_key=NO_KEY, mock_response="hello"):
        pass
    # Only its own: other models may be in the middle of an answer.
    for key in set(clients) - before:
        with suppress(Exception):  # nobody uses it
            await clients.pop(key).close()
