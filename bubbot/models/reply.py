"""A model's reply, assembled from the pieces of a stream. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from bubbot.models.messages import provider_of
from bubbot.ports.model import Finish, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.text import clean
from bubbot.records import dataclass
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.entry import JsonObject

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass
class _PartialToolCall:
    id: str
    name: str = ""
    arguments: str = ""

    def is_other(self, call_id: str, name: str) -> bool:
        """Return true if a piece is of another call: some providers number all of them 0, and some without an id."""
        if call_id and self.id:
            return call_id != self.id
        return bool(name and self.arguments) and name != self.name


@dataclass
class ReplyAssembler:
    """A reply while it arrives.

    Attributes:
        model: the `provider/model` that was called.
        text: the text so far.
        reasoning: the reasoning so far.
        response_id: the provider's id of the reply; None until it has sent one.
    """

    model: str
    text: str = ""
    reasoning: str = ""
    response_id: str | None = None
    _calls: list[_PartialToolCall] = field(default_factory=list)
    _open: dict[int, _PartialToolCall] = field(default_factory=dict)
    _blocks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_output(self) -> bool:
        """True if any part of the reply has arrived."""
        return bool(self.text or self.reasoning or self._calls or self._blocks)

    def collect_text(self) -> str:
        """Return everything that the model wrote."""
        return self.text + self.reasoning + "".join(call.name + call.arguments for call in self._calls)

    def build_reply(self, finish: str, request: ModelRequest, usage: Usage | None) -> ModelReply:
        """Build the complete reply.

        Args:
            finish: the finish reason as OpenAI spells it.
            request: the request, whose tokens are estimated if nobody counted them.
            usage: the usage as the provider or a tokenizer counted it; None if nobody did.
        """
        calls = tuple(
            ToolCall(call.id or self._make_call_id(index), call.name, call.arguments)
            for index, call in enumerate(self._calls)
        )
        return ModelReply(
            self.text,
            calls,
            _FINISH.get(finish, "unknown"),
            self._estimate_usage(request) if usage is None else usage,
            self.model,
            self.response_id,
            self.reasoning or None,
            self._build_replay() if calls else None,
        )

    def add_call(self, index: int, call_id: str, name: str, arguments: str) -> None:
        """Add a piece of a tool call. Empty texts stand for what the piece does not say."""
        call = self._open.get(index)
        if call is None or call.is_other(call_id, name):
            call = self._open[index] = _PartialToolCall(call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name += "" if name == call.name else name  # some providers repeat the whole name with every piece
        call.arguments += arguments

    def add_thinking(self, block: Mapping[str, Any]) -> None:
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

    def _estimate_usage(self, request: ModelRequest) -> Usage:
        read = replace(request, parameters={})  # a model reads no parameters
        return Usage(estimate_tokens(read.as_bytes().decode()), estimate_tokens(self.collect_text()))


def make_usage(read: int | None, written: int | None, cached: int | None, cost: float | None = None) -> Usage:
    """Make a usage of a provider's counts: no more was cached than was read. `cost`: US dollars; None if unknown."""
    read = read or 0
    return Usage(read, written or 0, min(max(cached or 0, 0), read), cost)
