"""The model port: what the runtime asks a model, and what comes back.

An implementation lives in `models/` and is loaded through the entry-point group `bubbot.models`, whose
objects are factories `(ModelOptions) -> Model`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from bubbot.tape.entry import JsonObject, thaw

Finish = Literal["stop", "tool_calls", "length", "content_filter", "unknown"]


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a model accepts, so that no request it would refuse is ever built.

    `tools`: takes tool schemas. `first_assistant`: takes a conversation that opens with an assistant message.
    `short_prompt`: wants the persona and memory only, without the runtime contract. `context_tokens`: the size
    of its context, where it is known. `notice`: a sentence people are shown when they open a chat with it. `images`:
    sees images.
    """

    tools: bool = True
    first_assistant: bool = True
    short_prompt: bool = False
    context_tokens: int | None = None
    notice: str | None = None
    images: bool = False


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
    """`as_json` in its canonical form: made once, for it is part of every request."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _canonical(self.as_json()))

    def as_json(self) -> JsonObject:
        """The provider's form, `{"type": "function", "function": {...}}`."""
        function = {"name": self.name, "description": self.description, "parameters": thaw(self.parameters)}
        return {"type": "function", "function": function}


def tools_text(tools: tuple[ToolSpec, ...]) -> str:
    """The tool schemas as one canonical JSON list."""
    return f"[{','.join(tool.text for tool in tools)}]"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `messages` are chat messages without the system prompt; `parameters` are sampling settings.

    `texts`: the messages as canonical JSON, where somebody has them already; they go with these messages alone.
    """

    system: str
    messages: tuple[JsonObject, ...]
    tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = field(default_factory=dict)
    texts: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    def as_bytes(self) -> bytes:
        """The canonical bytes of the whole request; equal bytes mean an equal request."""
        said = self.texts or [_canonical(message).encode() for message in self.messages]
        messages = b",".join((_canonical({"role": "system", "content": self.system}).encode(), *said))
        end = f'],"parameters":{_canonical(self.parameters)},"tools":{tools_text(self.tools)}}}'
        return b'{"messages":[' + messages + end.encode()

    def digest(self) -> str:
        """SHA-256 of `as_bytes`, in hex."""
        return sha256(self.as_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asks for. `arguments` is the text the model wrote: JSON, or not."""

    id: str
    name: str
    arguments: str


MOST_TOKENS = 100_000_000
"""More than any model reads or writes in one call."""
MOST_DOLLARS = 10_000.0
"""More than any call costs."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call as the provider (or the tokenizer) counted them; `cost` in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None

    def is_plausible(self, *, most_input: int = MOST_TOKENS, most_output: int = MOST_TOKENS) -> bool:
        """Return false if these numbers cannot be of one call: below zero, or more than it can have had."""
        cost_fits = self.cost is None or 0 <= self.cost <= MOST_DOLLARS  # false for nan, too
        return (
            0 <= self.input_tokens <= most_input
            and 0 <= self.output_tokens <= most_output
            and 0 <= self.cached_tokens <= most_input
            and cost_fits
        )


NANO = 10**9
"""Of these a US dollar has: amounts are whole numbers of them, so that sums do not depend on their order."""


class PriceTier(NamedTuple):
    """What tokens cost, as in `ModelPrice`, in a call that reads more than `above` tokens."""

    above: int
    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars for a million tokens; `cached` for those that the provider had in its cache, like `input` where not
    known. `tiers`: other prices of calls that read much, the lowest first."""

    input: float
    output: float
    cached: float | None = None
    tiers: tuple[PriceTier, ...] = ()

    def nano(self, usage: Usage) -> int:
        """What these tokens cost, in billionths of a dollar."""
        at: ModelPrice | PriceTier = self
        for tier in self.tiers:
            if usage.input_tokens > tier.above:
                at = tier
        cached = min(usage.cached_tokens, usage.input_tokens)
        reading = at.input if at.cached is None else at.cached
        dollars = (usage.input_tokens - cached) * at.input + cached * reading + usage.output_tokens * at.output
        return round(dollars * (NANO // 1_000_000))


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of a request that was not sent yet. `by` names the tokenizer that counted them.

    `approximate`: a part of it has a form that only the provider knows, such as the tool schemas.
    """

    tokens: int
    by: str
    approximate: bool = False

    def as_json(self) -> JsonObject:
        """The count as a step records it."""
        return {"tokens": self.tokens, "by": self.by} | ({"approximate": True} if self.approximate else {})


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, in order."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The end of a stream: the whole answer. `response_id` is the provider's own name for it.

    `replay` comes back as the key `replay` of the assistant message that asks for these `calls`: reasoning that the
    provider wants to see again with their results. A model takes what it knows of it and ignores the rest.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    response_id: str | None = None
    reasoning: str | None = None
    replay: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One call to a provider that failed, for a model that asks again or asks another one.

    Attributes:
        model: the name of the model that was asked.
        kind: the error's kind, such as `model_unavailable`.
        error: what went wrong, without secrets.
        elapsed: seconds the call took.
        wait: seconds until the next call.
        next_model: the model that is asked then; empty if this was the last call.
    """

    model: str
    kind: str
    error: str
    elapsed: float
    wait: float = 0.0
    next_model: str = ""


ModelEvent: TypeAlias = TextDelta | FailedAttempt | ModelReply


class Model(Protocol):
    """A model that answers. One instance serves many turns at once."""

    @property
    def name(self) -> str:
        """The configured name, as people type it."""
        ...

    @property
    def traits(self) -> ModelTraits:
        """What it accepts; constant for the life of the instance."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yields text deltas, then exactly one `ModelReply`, then ends. One that asks again, or asks another model,
        yields a `FailedAttempt` for each call that failed; the runner records them.

        Raises a `ModelError` where the provider failed; a stream that ends without a reply is the same as
        `ModelUnavailable`. Closing the iterator early cancels the call. Never writes to a tape.
        """
        ...

    async def aclose(self) -> None:
        """Frees processes and connections; calling it twice is fine."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A `Model` that can count with its own tokenizer, without a network."""

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """The tokens of the request; None where the model's own tokenizer is not at hand.

        Asked only where a call follows, so it may wait for what the call needs too. Never stops the event loop.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in a recording, and what writing it down took; a provider may count seconds and no tokens."""

    text: str
    usage: Usage = field(default_factory=Usage)


@runtime_checkable
class TranscribesAudio(Protocol):
    """A `Model` that writes down what somebody says in a recording."""

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """What is said. `name` is a file name whose suffix fits the bytes.

        Raises a `ModelError` where it cannot, like `stream`; every wait within has its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a model factory is given: the configured name (`provider/model`), the home folder and its settings."""

    name: str
    home: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
