"""Requests as litellm takes them, and replies assembled from the chunks of a stream. No I/O, no litellm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bubbot.ports.model import Finish, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.text import clean
from bubbot.runtime.context.compact import estimate_tokens
from bubbot.tape.entry import JsonObject, thaw

_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
"""The keys of a message that a provider is sent; strict providers refuse a request with other keys."""
_NO_EMPTY_TEXT = frozenset({"anthropic", "bedrock", "gemini", "vertex_ai"})
"""Providers whose protocols take no empty text: litellm would write a placeholder into the model's own text."""
_ADDRESSES = frozenset({"url", "uri", "image_url", "video_url", "audio_url", "file_url", "file_uri", "file_id"})
"""Keys whose text is an address that litellm or the provider would fetch."""
MAX_ADDRESS_CHARS = 500
"""Characters of an address that its description shows."""
_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


def provider_of(name: str) -> str:
    """Return the provider of `provider/model`."""
    return name.partition("/")[0]


def build_messages(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    """Build the chat messages, system prompt first, with the reasoning that this provider wants back."""
    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *(_message(message, provider) for message in request.messages)]


def _message(message: JsonObject, provider: str) -> dict[str, Any]:
    sent = {key: thaw(message[key]) for key in _KEYS if key in message}
    if isinstance(sent.get("content"), list):
        sent["content"] = [_describe_address(part) for part in sent["content"]]
    if sent.get("tool_calls") and not sent.get("content") and provider in _NO_EMPTY_TEXT:
        sent["content"] = None
    replay = message.get("replay")
    if isinstance(replay, Mapping) and replay.get("provider") == provider:
        # No other provider can read it: the blocks are signed by the provider that sent them.
        sent |= {key: thaw(replay[key]) for key in ("reasoning_content", "thinking_blocks") if key in replay}
    return sent


def _describe_address(part: Any) -> Any:
    """Replace a part that holds an address by a text about it: else litellm or the provider would fetch it."""
    address = _find_address(part) if isinstance(part, Mapping) and part.get("type") != "text" else None
    if address is None:
        return part
    kind = str(part.get("type", "file")).removesuffix("_url")
    return {"type": "text", "text": f"[{kind}, not fetched: {' '.join(address.split())[:MAX_ADDRESS_CHARS]}]"}


def _find_address(value: Any, key: str = "") -> str | None:
    """Return the first text under an address key that is not a `data:` URL; None if there is none."""
    if isinstance(value, str):
        return value if key in _ADDRESSES and not value.startswith("data:") else None
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inner = ((str(name), item) for name, item in value.items())
    elif isinstance(value, list | tuple):
        inner = ((key, item) for item in value)
    return next((address for name, item in inner if (address := _find_address(item, name)) is not None), None)


@dataclass
class _PartialToolCall:
    id: str
    name: str = ""
    arguments: str = ""


@dataclass
class ReplyAssembler:
    """A reply while it arrives.

    Attributes:
        model: the `provider/model` that was called.
        text: the text so far.
        reasoning: the reasoning so far.
        response_id: the provider's id of the reply; None until it has sent one.
        usage: the usage as litellm passes it on; None until the provider has sent it.
    """

    model: str
    text: str = ""
    reasoning: str = ""
    response_id: str | None = None
    usage: Any = None
    _calls: list[_PartialToolCall] = field(default_factory=list)
    _open: dict[int, _PartialToolCall] = field(default_factory=dict)
    _blocks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, chunk: Any) -> str:
        """Add one chunk and return its text."""
        self.response_id = self.response_id or getattr(chunk, "id", None)
        self.usage = getattr(chunk, "usage", None) or self.usage
        if not chunk.choices:
            return ""
        delta = chunk.choices[0].delta
        self.reasoning += getattr(delta, "reasoning_content", None) or ""
        for block in getattr(delta, "thinking_blocks", None) or ():
            self._add_thinking(block)
        for call in getattr(delta, "tool_calls", None) or ():
            self._add_call(call)
        text = getattr(delta, "content", None) or ""
        self.text += text
        return text

    @property
    def has_output(self) -> bool:
        """True if any part of the reply has arrived."""
        return bool(self.text or self.reasoning or self._calls or self._blocks)

    def collect_text(self) -> str:
        """Return everything that the model wrote."""
        return self.text + self.reasoning + "".join(call.name + call.arguments for call in self._calls)

    def build_reply(
        self, finish: str, request: ModelRequest, cost: float | None, counted_usage: Usage | None = None
    ) -> ModelReply:
        """Build the complete reply.

        Args:
            finish: the finish reason as litellm spells it.
            request: the request, whose tokens are estimated if nobody counted them.
            cost: the cost in US dollars; None if unknown.
            counted_usage: the usage as we counted it, for a provider that sent none.
        """
        calls = tuple(
            ToolCall(call.id or self._make_call_id(index), call.name, call.arguments)
            for index, call in enumerate(self._calls)
        )
        return ModelReply(
            self.text,
            calls,
            _FINISH.get(finish, "unknown"),
            self._build_usage(request, cost, counted_usage),
            self.model,
            self.response_id,
            self.reasoning or None,
            self._build_replay() if calls else None,
        )

    def _add_call(self, delta: Any) -> None:
        index, call_id = getattr(delta, "index", None) or 0, getattr(delta, "id", None) or ""
        call = self._open.get(index)
        # Some providers number every parallel call 0 and tell them apart by their ids.
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._open[index] = _PartialToolCall(call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        function = getattr(delta, "function", None)
        name = getattr(function, "name", None) or ""
        call.name += "" if name == call.name else name  # some providers repeat the whole name with every piece
        call.arguments += getattr(function, "arguments", None) or ""

    def _add_thinking(self, block: Any) -> None:
        """Join the pieces of a thinking block; a signature, or another kind of block, ends it."""
        piece = {key: value for key, value in dict(block).items() if value}
        last = self._blocks[-1] if self._blocks else None
        is_new = (
            last is None or last.get("type") != "thinking" or piece.get("type") != "thinking" or "signature" in last
        )
        if last is None or is_new:
            self._blocks.append(piece)
            return
        last["thinking"] = last.get("thinking", "") + piece.get("thinking", "")
        if "signature" in piece:
            last["signature"] = piece["signature"]

    def _build_replay(self) -> JsonObject | None:
        replay: dict[str, Any] = {}
        if self.reasoning:
            replay["reasoning_content"] = clean(self.reasoning)
        if self._blocks:
            replay["thinking_blocks"] = [
                {key: clean(value) if isinstance(value, str) else value for key, value in block.items()}
                for block in self._blocks
            ]
        return {"provider": provider_of(self.model), **replay} if replay else None

    def _make_call_id(self, index: int) -> str:
        return f"call_{self.response_id or 'own'}_{index}"

    def _build_usage(self, request: ModelRequest, cost: float | None, own: Usage | None) -> Usage:
        if self.usage is None:
            return own or Usage(estimate_tokens(request.as_bytes().decode()), estimate_tokens(self.collect_text()))
        details = getattr(self.usage, "prompt_tokens_details", None)
        read, cached = self.usage.prompt_tokens or 0, getattr(details, "cached_tokens", None) or 0
        return Usage(read, self.usage.completion_tokens or 0, min(max(cached, 0), read), cost)
