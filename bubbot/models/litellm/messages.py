"""A request as litellm takes it, and an answer put together from the pieces of its stream. No I/O, no litellm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bubbot.ports.model import Finish, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.runtime.calls import clean
from bubbot.tape.entry import JsonObject, thaw
from bubbot.views.compact import estimate_tokens

_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
"""What a provider is sent of a message; strict ones refuse a request with other keys."""
_NO_EMPTY_TEXT = frozenset({"anthropic", "bedrock", "gemini", "vertex_ai"})
"""Providers whose protocols take no empty text: litellm would write a placeholder into the model's own words."""
_ADDRESSES = frozenset({"url", "uri", "image_url", "video_url", "audio_url", "file_url", "file_uri", "file_id"})
"""Keys whose text names something that somebody would fetch."""
LONGEST_ADDRESS = 500
"""Characters of an address that are put in words."""
_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


def provider_of(name: str) -> str:
    """The provider in `provider/model`."""
    return name.partition("/")[0]


def messages_for(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    """The chat messages with the system prompt in front, and the reasoning this provider wants back."""
    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *(_message(message, provider) for message in request.messages)]


def _message(message: JsonObject, provider: str) -> dict[str, Any]:
    sent = {key: thaw(message[key]) for key in _KEYS if key in message}
    if isinstance(sent.get("content"), list):
        sent["content"] = [_unfetched(part) for part in sent["content"]]
    if sent.get("tool_calls") and not sent.get("content") and provider in _NO_EMPTY_TEXT:
        sent["content"] = None
    replay = message.get("replay")
    if isinstance(replay, Mapping) and replay.get("provider") == provider:
        # Nobody else can read it: the blocks are signed by the provider they came from.
        sent |= {key: thaw(replay[key]) for key in ("reasoning_content", "thinking_blocks") if key in replay}
    return sent


def _unfetched(part: Any) -> Any:
    """A part of a message; one that names an address is put in words, or litellm or the provider would fetch it."""
    address = _address(part) if isinstance(part, Mapping) and part.get("type") != "text" else None
    if address is None:
        return part
    kind = str(part.get("type", "file")).removesuffix("_url")
    return {"type": "text", "text": f"[{kind}, not fetched: {' '.join(address.split())[:LONGEST_ADDRESS]}]"}


def _address(value: Any, key: str = "") -> str | None:
    """The first text under a key for addresses that is no data of its own; None if there is none."""
    if isinstance(value, str):
        return value if key in _ADDRESSES and not value.startswith("data:") else None
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inner = ((str(name), one) for name, one in value.items())
    elif isinstance(value, list | tuple):
        inner = ((key, one) for one in value)
    return next((found for name, one in inner if (found := _address(one, name)) is not None), None)


@dataclass
class _PartialToolCall:
    id: str
    name: str = ""
    arguments: str = ""


@dataclass
class ReplyAssembler:
    """An answer while it arrives. `provider` and `model` are what was asked."""

    model: str
    text: str = ""
    reasoning: str = ""
    response_id: str | None = None
    usage: Any = None
    _calls: list[_PartialToolCall] = field(default_factory=list)
    _open: dict[int, _PartialToolCall] = field(default_factory=dict)
    _blocks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, chunk: Any) -> str:
        """Takes in one chunk and returns the text that is new."""
        self.response_id = self.response_id or getattr(chunk, "id", None)
        self.usage = getattr(chunk, "usage", None) or self.usage
        if not chunk.choices:
            return ""
        delta = chunk.choices[0].delta
        self.reasoning += getattr(delta, "reasoning_content", None) or ""
        for block in getattr(delta, "thinking_blocks", None) or ():
            self._think(block)
        for call in getattr(delta, "tool_calls", None) or ():
            self._call(call)
        text = getattr(delta, "content", None) or ""
        self.text += text
        return text

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has arrived."""
        return bool(self.text or self.reasoning or self._calls or self._blocks)

    def said(self) -> str:
        """All that the model wrote."""
        return self.text + self.reasoning + "".join(call.name + call.arguments for call in self._calls)

    def reply(self, finish: str, request: ModelRequest, cost: float | None, own: Usage | None = None) -> ModelReply:
        """The whole answer. `own` is the usage as we counted it, for where the provider sent none."""
        calls = tuple(
            ToolCall(call.id or self._own_id(place), call.name, call.arguments)
            for place, call in enumerate(self._calls)
        )
        return ModelReply(
            self.text,
            calls,
            _FINISH.get(finish, "unknown"),
            self._usage(request, cost, own),
            self.model,
            self.response_id,
            self.reasoning or None,
            self._replay() if calls else None,
        )

    def _call(self, delta: Any) -> None:
        place, given = getattr(delta, "index", None) or 0, getattr(delta, "id", None) or ""
        call = self._open.get(place)
        # Some providers number every parallel call 0 and tell them apart by their ids.
        if call is None or (given and call.id and given != call.id):
            call = self._open[place] = _PartialToolCall(given)
            self._calls.append(call)
        call.id = call.id or given
        function = getattr(delta, "function", None)
        name = getattr(function, "name", None) or ""
        call.name += "" if name == call.name else name  # some providers repeat the whole name with every piece
        call.arguments += getattr(function, "arguments", None) or ""

    def _think(self, block: Any) -> None:
        """Thinking comes in pieces; a signature, or another kind of block, ends one."""
        piece = {key: value for key, value in dict(block).items() if value}
        last = self._blocks[-1] if self._blocks else None
        whole = last is None or last.get("type") != "thinking" or piece.get("type") != "thinking" or "signature" in last
        if last is None or whole:
            self._blocks.append(piece)
            return
        last["thinking"] = last.get("thinking", "") + piece.get("thinking", "")
        if "signature" in piece:
            last["signature"] = piece["signature"]

    def _replay(self) -> JsonObject | None:
        kept: dict[str, Any] = {}
        if self.reasoning:
            kept["reasoning_content"] = clean(self.reasoning)
        if self._blocks:
            kept["thinking_blocks"] = [
                {key: clean(value) if isinstance(value, str) else value for key, value in block.items()}
                for block in self._blocks
            ]
        return {"provider": provider_of(self.model), **kept} if kept else None

    def _own_id(self, place: int) -> str:
        return f"call_{self.response_id or 'own'}_{place}"

    def _usage(self, request: ModelRequest, cost: float | None, own: Usage | None) -> Usage:
        if self.usage is None:
            return own or Usage(estimate_tokens(request.as_bytes().decode()), estimate_tokens(self.said()))
        details = getattr(self.usage, "prompt_tokens_details", None)
        read, cached = self.usage.prompt_tokens or 0, getattr(details, "cached_tokens", None) or 0
        return Usage(read, self.usage.completion_tokens or 0, min(max(cached, 0), read), cost)
