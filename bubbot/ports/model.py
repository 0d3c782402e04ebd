"""The model port: requests of the runtime to a model, and the events that come back.

An implementation lives in `models/` and is loaded through the entry-point group `bubbot.models`, whose
objects are factories `(ModelOptions) -> Model`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct

from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import JsonObject, canonical, thaw

CallHeaders: TypeAlias = Callable[[str], Mapping[str, str]]
"""Return headers for a call of a model over HTTP by the host that is called, such as a trace context."""
CALL_HEADERS: ContextVar[CallHeaders | None] = ContextVar("call_headers", default=None)
"""What the calls of models in this context carry besides their own headers. A model reads it with `read_call_headers`."""


def read_call_headers(host: str) -> Mapping[str, str]:
    """Return the further headers of a call to this host; empty if it is not known."""
    find = CALL_HEADERS.get()
    return find(host) if find is not None else {}


Finish = Literal["stop", "tool_calls", "length", "content_filter", "unknown"]


class ModelTraits(Struct, frozen=True):
    """The features of a model, so that requests fit it.

    Attributes:
        tools: it accepts tool schemas.
        first_assistant: it accepts a conversation that opens with an assistant message.
        short_prompt: it gets only the persona and memory, without the runtime contract.
        context_tokens: the size of its context; None if unknown.
        assumes_size: the size is a conservative guess.
        server: host and port of its configured address; empty for the usual address of its provider.
        notice: a sentence to show when a chat with it opens; None for none.
        images: it sees images.
    """

    tools: bool = True
    first_assistant: bool = True
    short_prompt: bool = False
    context_tokens: int | None = None
    notice: str | None = None
    images: bool = False
    assumes_size: bool = False
    server: str = ""


_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=dict)


def _canonical(value: object) -> str:
    return _ENCODER.encode(value)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a provider sees it: `name` without dots, `parameters` as JSON Schema."""

    name: str
    description: str
    parameters: JsonObject
    text: str = field(init=False, repr=False, compare=False)
    """Canonical JSON of `as_json`, built once, since every request contains it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _canonical(self.as_json()))

    def as_json(self) -> JsonObject:
        """Return the provider's form, `{"type": "function", "function": {...}}`."""
        function = {"name": self.name, "description": self.description, "parameters": thaw(self.parameters)}
        return {"type": "function", "function": function}


class ToolSpecs(tuple[ToolSpec, ...]):
    """The tools of a request with the forms of their schemas that requests need; built once per list."""

    @cached_property
    def encoded(self) -> bytes:
        """The schemas as one canonical JSON list."""
        return f"[{','.join([tool.text for tool in self])}]".encode()

    @cached_property
    def digest(self) -> str:
        """The digest of `encoded` as a blob."""
        return blob_digest(self.encoded)

    @cached_property
    def described(self) -> list[JsonObject]:
        """The provider's forms of the tools."""
        return [tool.as_json() for tool in self]

    @staticmethod
    def of(tools: tuple[ToolSpec, ...]) -> ToolSpecs:
        return tools if isinstance(tools, ToolSpecs) else ToolSpecs(tools)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call.

    Attributes:
        system: the system prompt.
        messages: chat messages without the system prompt.
        tools: schemas of the tools that the model may call.
        parameters: sampling settings.
        texts: the messages as canonical JSON, if known already; must match `messages`. Empty if not.
    """

    system: str
    messages: tuple[JsonObject, ...]
    tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = field(default_factory=dict)
    texts: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    def as_bytes(self) -> bytes:
        """Encode the request canonically; equal bytes mean an equal request."""
        texts = self.texts or [_canonical(message).encode() for message in self.messages]
        messages = b",".join((canonical({"role": "system", "content": self.system}).encode(), *texts))
        parameters = _canonical(self.parameters).encode() if self.parameters else b"{}"
        tools = ToolSpecs.of(self.tools).encoded
        return b"".join((b'{"messages":[', messages, b'],"parameters":', parameters, b',"tools":', tools, b"}"))

    def digest(self) -> str:
        """Return the SHA-256 of `as_bytes`, in hex."""
        return sha256(self.as_bytes()).hexdigest()


class ToolCall(Struct, frozen=True):
    """A tool call by a model. `arguments` is the model's text, which may not be JSON."""

    id: str
    name: str
    arguments: str


MAX_CALL_TOKENS = 100_000_000
"""More than any model reads or writes in one call."""
MAX_CALL_DOLLARS = 10_000.0
"""More than any call costs."""


class Usage(Struct, frozen=True):
    """Tokens of one model call as the provider (or the tokenizer) counted them.

    Attributes:
        input_tokens: tokens that the model read.
        output_tokens: tokens that the model wrote.
        cached_tokens: the part of `input_tokens` that the provider had cached.
        cost: US dollars; None if unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None

    def is_plausible(self, *, max_input: int = MAX_CALL_TOKENS, max_output: int = MAX_CALL_TOKENS) -> bool:
        """Return false if one call cannot have these numbers: negative or above the limits."""
        cost_fits = self.cost is None or 0 <= self.cost <= MAX_CALL_DOLLARS  # false for nan, too
        return (
            0 <= self.input_tokens <= max_input
            and 0 <= self.output_tokens <= max_output
            and 0 <= self.cached_tokens <= max_input
            and cost_fits
        )


NANOS_PER_USD = 10**9
"""Units per US dollar: amounts are whole numbers, so that sums do not depend on their order."""


class PriceTier(NamedTuple):
    """The prices, as in `ModelPrice`, of a call that reads more than `above` tokens."""

    above: int
    input: float
    output: float
    cached: float | None = None


class ListedModel(Struct, frozen=True):
    """A model that a provider offers. `created`: seconds since 1970; 0 if unknown."""

    name: str
    created: int = 0


class ModelPrice(Struct, frozen=True):
    """Prices of a model, in US dollars for a million tokens.

    Attributes:
        input: for tokens that it reads.
        output: for tokens that it writes.
        cached: for cached input; None if unknown, then `input` applies.
        tiers: other prices for calls with much input, lowest threshold first.
    """

    input: float
    output: float
    cached: float | None = None
    tiers: tuple[PriceTier, ...] = ()

    def cost_nanousd(self, usage: Usage) -> int:
        """Compute the cost of these tokens, in billionths of a dollar."""
        rates: ModelPrice | PriceTier = self
        for tier in self.tiers:
            if usage.input_tokens > tier.above:
                rates = tier
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_rate = rates.input if rates.cached is None else rates.cached
        uncached = usage.input_tokens - cached
        dollars = uncached * rates.input + cached * cached_rate + usage.output_tokens * rates.output
        return round(dollars * (NANOS_PER_USD // 1_000_000))


class TokenCount(Struct, frozen=True):
    """The token count of a request that was not sent yet.

    Attributes:
        is_approximate: only the provider knows the exact form of some part, such as the tool schemas.
    """

    tokens: int
    tokenizer: str
    is_approximate: bool = False

    def as_json(self) -> JsonObject:
        """Return the count as a step records it."""
        return {"tokens": self.tokens, "by": self.tokenizer} | ({"approximate": True} if self.is_approximate else {})


class TextDelta(Struct, frozen=True):
    """A piece of the answer, in order."""

    text: str


SIZE_RULES = ("context", "assumed", "unread")
"""Sources of a context's size: the server named it in a refusal; people were told an assumption; the server counted fewer
tokens than a longer request has."""


class Lesson(Struct, frozen=True):
    """A lesson from a model's refusal: a rule for its later requests.

    Attributes:
        model: the model that refused, `provider/model`.
        server: host and port of its configured address; empty for the usual address of the provider.
        rule: a rule of `bubbot.runtime.request_rules`, such as `no_tools@1`; or one of `SIZE_RULES` with a number of
            tokens, such as `context:8192@1`.
        fact: the entry that stores it; None before that.
    """

    model: str
    server: str
    rule: str
    fact: tuple[str, int] | None = None

    @classmethod
    def of_size(cls, model: str, server: str, name: str, tokens: int) -> Self:
        """Build a lesson about the size of a context; `name` is one of `SIZE_RULES`."""
        return cls(model, server, f"{name}:{tokens}@1")

    def find_tokens(self, name: str) -> int:
        """Return the tokens if the rule has this name, one of `SIZE_RULES`; 0 otherwise."""
        own, _, tokens = self.rule.partition("@")[0].partition(":")
        return int(tokens) if own == name and tokens.isdecimal() else 0

    @property
    def is_about_size(self) -> bool:
        """True if its rule is one of `SIZE_RULES`, which change no request."""
        return self.rule.partition(":")[0] in SIZE_RULES


class RequestFit(Struct, frozen=True):
    """The changes of a request so that its model accepts it.

    Attributes:
        rules: the rules that changed something, in order, each with the fact from which it was learned, if any.
        parameters: of the request that was sent.
        digest: of the request that was sent, see `ModelRequest.digest`.
    """

    rules: tuple[tuple[str, tuple[str, int] | None], ...]
    parameters: JsonObject
    digest: str

    def as_json(self) -> JsonObject:
        """Return the record for an attempt."""
        rules = [{"rule": rule} | ({"learned": list(fact)} if fact else {}) for rule, fact in self.rules]
        return {"rules": rules, "parameters": self.parameters, "request": self.digest}


class ModelReply(Struct, frozen=True):
    """The end of a stream: the complete answer.

    Attributes:
        finish: the reason why the answer ended.
        model: the model that answered.
        response_id: the provider's id of the answer, if any.
        reasoning: the model's reasoning as text, if any.
        replay: data to send back to the provider with the results of `calls`, such as its reasoning; None for none. It
            comes back as the key `replay` of the assistant message with these calls; a model uses the parts that it
            knows.
        fit: the changes of the request; None for none.
        reason: the provider's own finish reason if it is unusual; else empty.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str = ""
    response_id: str | None = None
    reasoning: str | None = None
    replay: JsonObject | None = None
    fit: RequestFit | None = None
    reason: str = ""


class FailedAttempt(Struct, frozen=True):
    """A failed call to a provider by a model that retries or calls another model.

    Attributes:
        model: the name of the model that was called.
        kind: the error's kind, such as `model_unavailable`.
        error: the error message, without secrets.
        elapsed: seconds the call took.
        wait: seconds until the next call.
        next_model: the model to call next; empty if this was the last call.
        fit: the changes of the request; None for none.
        lesson: the lesson of the refusal: the same model may be asked again with it. None for none.
    """

    model: str
    kind: str
    error: str
    elapsed: float
    wait: float = 0.0
    next_model: str = ""
    fit: RequestFit | None = None
    lesson: Lesson | None = None


ModelEvent: TypeAlias = TextDelta | FailedAttempt | ModelReply


class KnowsLessons(Protocol):
    """The lessons from refusals of models."""

    def find(self, model: str, server: str) -> Sequence[Lesson]:
        """Return the lessons about a model at a server, oldest first."""
        ...


class Model(Protocol):
    """A model. One instance serves many concurrent turns."""

    @property
    def name(self) -> str:
        """The configured name, as people type it."""
        ...

    @property
    def traits(self) -> ModelTraits:
        """Its features; constant for the life of the instance."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield text deltas, then exactly one `ModelReply`, then end.

        A model that retries, or calls another model, also yields a `FailedAttempt` for each failed call; the runner
        records them. Closing the iterator early cancels the call. It never writes to a tape.

        Raises:
            ModelError: the provider failed. A stream that ends without a reply counts as `ModelUnavailable`.
        """
        ...

    async def aclose(self) -> None:
        """Free processes and connections. Repeated calls do nothing."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A `Model` that can count with its own tokenizer, without a network."""

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """Count the tokens of the request; return None if the model's own tokenizer is not available.

        Called only if a call follows, so it may wait for things that the call also needs. It must not block the event
        loop.
        """
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """A `Model` whose first answer comes sooner after preparation."""

    def warm(self) -> None:
        """Begin to load and connect in the background."""
        ...


@runtime_checkable
class ListsMessages(Protocol):
    """A `Model` that tells which chat messages it sends."""

    async def list_messages(self, request: ModelRequest) -> list[JsonObject]:
        """Return the messages of a request as the server gets them, system prompt first.

        Raises:
            ModelError: the model cannot be loaded.
        """
        ...


@runtime_checkable
class LoadsLater(Protocol):
    """A `Model` that loads on first use."""

    @property
    def is_loading(self) -> bool:
        """True while it is loading; requests wait until then."""
        ...


class Transcript(Struct, frozen=True):
    """The text of a recording, and the usage of its transcription; a provider may count seconds instead of tokens."""

    text: str
    usage: Usage = msgspec.field(default_factory=Usage)


@runtime_checkable
class TranscribesAudio(Protocol):
    """A `Model` that transcribes recordings."""

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """Convert the recording to text. `name` is a file name whose suffix fits the bytes.

        Raises:
            ModelError: the provider failed, as in `stream`. Every wait has a time limit.
        """
        ...


class ModelOptions(Struct, frozen=True):
    """The options of a model factory. `name` is `provider/model`."""

    name: str
    home: Path
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    lessons: KnowsLessons | None = None
