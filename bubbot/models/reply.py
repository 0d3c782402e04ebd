"""A model's reply, assembled from the pieces of a stream. No I/O."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from bubbot.errors import ModelRefused, ModelUnavailable
from bubbot.formatting import clean
from bubbot.models.messages import PROTOCOLS, SERVER_KEYS, provider_of
from bubbot.ports.model import Finish, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.entry import JsonObject

log = logging.getLogger(__name__)

_ENDS: Mapping[Finish, tuple[str, ...]] = MappingProxyType(
    {
        "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "finish_reason_unspecified"),
        "tool_calls": ("tool_calls", "function_call", "tool_use"),
        "length": ("length", "max_tokens", "model_length", "model_context_window_exceeded", "compaction"),
        "content_filter": (
            "content_filter", "content_filtered", "refusal", "sensitive", "guardrail_intervened", "error_toxic", "safety",
            "recitation", "language", "blocklist", "prohibited_content", "spii", "escalation", "image_safety",
            "image_prohibited_content", "image_recitation",
        ),
    }
)  # fmt: skip
"""What single providers call the ends of an answer, in small letters; some write capitals."""
_FINISHES: Mapping[str, Finish] = {word: finish for finish, words in _ENDS.items() for word in words}
_FAILED = frozenset({"error", "insufficient_system_resource", "network_error", "abort"})
"""Finish reasons of an answer that failed; a retry may succeed."""
_INVALID = frozenset(
    {
        "malformed_function_call",
        "malformed_response",
        "missing_thought_signature",
        "too_many_tool_calls",
        "unexpected_tool_call",
    }
)
"""Finish reasons for which the output is not an answer; a retry often succeeds."""
_WORD = re.compile(r"[\w.:-]{1,60}")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class FinishReader:
    """Reads why the answers of a model ended. `model`: its name, `provider/model`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._told: set[str] = set()

    def read(self, reason: str, answer: ReplyAssembler, reported: str = "") -> Finish:
        """Return why an answer ended; note the provider's word for it if it is not a usual end.

        Args:
            reason: the provider's own finish reason.
            reported: the library's reading of the reason; empty without a library.

        Raises:
            ModelUnavailable: the answer failed or is empty.
            ModelRefused: a filter removed the whole answer.
        """
        word = reason.lower()
        if word in _FAILED:
            raise ModelUnavailable(f"{self._model} failed in the middle of its answer")
        if word in _INVALID:
            failure = ModelUnavailable(f"{self._model} wrote something that is not an answer: {reason}")
            failure.is_malformed = True
            raise failure
        finish = _FINISHES.get(word, "unknown")
        if finish in ("stop", "tool_calls", "unknown"):
            others = ("length", "content_filter") if finish == "unknown" else ("stop", "tool_calls")
            known = _FINISHES.get(reported, "unknown")
            finish = known if known in others else finish
        if finish == "content_filter" and (answer.has_calls or not answer.text):
            raise ModelRefused(f"{self._model} stopped its answer: its content filter stepped in")
        if finish in ("content_filter", "unknown"):
            found = _WORD.search(reason)
            answer.reason = found[0] if found else ""
        if finish == "unknown":
            self._tell(answer.reason)
        return finish

    def _tell(self, word: str) -> None:
        if word not in self._told:
            self._told.add(word)
            text = "unknown finish reason: %s ended its answer with %r, which people are told"
            log.warning(text, self._model, word, extra={"action": "model.unknown_finish"})


@dataclass
class _PartialToolCall:
    id: str
    name: str = ""
    arguments: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if the arguments are a whole object."""
        if not self.arguments.rstrip().endswith("}"):
            return False
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True

    def is_other(self, call_id: str, name: str, arguments: str) -> bool:
        """Return true if a piece is of another call: some providers number all of them 0, some give all of them one id."""
        has_arguments = bool(arguments.strip())
        if call_id and self.id and call_id != self.id:  # a few give each piece of a call another id
            is_torn = name == self.name and bool(self.arguments) and not self.is_complete
            return not is_torn if name else has_arguments and self.is_complete
        if not name:
            return False
        if self.is_complete:
            return name != self.name or has_arguments
        return name != self.name and bool(self.arguments) and not (call_id and self.id)

    def repeats(self, call_id: str, name: str, arguments: str) -> bool:
        """Return true if a piece says a whole call once more, as the last piece of some providers does."""
        return (call_id or self.id, name, arguments) == (self.id, self.name, self.arguments) and self.is_complete

    def is_placeholder(self, call_id: str, name: str, arguments: str) -> bool:
        """Return true if the arguments so far are the empty object with which some providers begin; a piece follows it."""
        is_same = call_id == self.id and name == self.name if name else call_id in ("", self.id)
        return is_same and bool(self.id) and self.arguments.strip() == "{}" and bool(arguments.strip())


@dataclass
class ReplyAssembler:
    """A reply while it arrives.

    Attributes:
        response_id: the provider's id of the reply; None until it has sent one.
        reason: the provider's word for its end, if that is not a usual one.
        server: host and port of the address of the settings; empty for the usual one of the provider.
    """

    model: str
    text: str = ""
    reasoning: str = ""
    response_id: str | None = None
    reason: str = ""
    server: str = ""
    _calls: list[_PartialToolCall] = field(default_factory=list)
    _open: dict[object, _PartialToolCall] = field(default_factory=dict)
    _blocks: list[dict[str, Any]] = field(default_factory=list)
    _details: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_output(self) -> bool:
        """True if any part of the reply has arrived."""
        return bool(self.text or self.reasoning or self._calls or self._blocks)

    @property
    def has_calls(self) -> bool:
        """True if any part of a call has arrived."""
        return bool(self._calls)

    @property
    def natural_end(self) -> str | None:
        """The finish reason of an answer that ended without one; None if it looks cut."""
        if any(call.arguments.strip() and not call.is_complete for call in self._calls):
            return None
        return "tool_calls" if self._calls else "stop" if self.text else None

    def collect_text(self) -> str:
        """Return text, reasoning and calls joined, to estimate their tokens."""
        return self.text + self.reasoning + "".join(call.name + call.arguments for call in self._calls)

    def build_reply(self, finish: Finish, request: ModelRequest, usage: Usage | None) -> ModelReply:
        """Build the complete reply.

        Args:
            finish: why it ended, see `FinishReader`.
            request: used to estimate the tokens if `usage` is None.
            usage: counted by the provider or a tokenizer; None if neither did.
        """
        calls: dict[str, ToolCall] = {}
        for index, call in enumerate(self._calls):
            name = call.id or self._make_call_id(index)
            while name in calls:
                name = f"{name}_{index}"
            calls[name] = ToolCall(name, call.name, call.arguments)
        return ModelReply(
            self.text,
            tuple(calls.values()),
            finish,
            self._estimate_usage(request) if usage is None else usage,
            self.model,
            self.response_id,
            self.reasoning or None,
            self._build_replay() if calls else None,
            reason=self.reason,
        )

    def add_call(
        self, index: object, call_id: str, name: str, arguments: str, extra: Mapping[str, Any] = NOTHING
    ) -> None:
        """Add a piece of a tool call. Empty texts stand for what the piece does not say.

        Args:
            index: the call's number within the answer, if the provider sends one.
            name: the tool, or a part of its name.
            extra: values that the provider wants back with the call.
        """
        call = self._open.get(index)
        if call is not None and call_id not in ("", call.id):
            call = next((one for one in self._calls if one.id == call_id), call)
        if call is not None and call.repeats(call_id, name, arguments):
            arguments = ""
        elif call is not None and call.is_placeholder(call_id, name, arguments):
            call.arguments = ""
        elif call is None or call.is_other(call_id, name, arguments):
            call = _PartialToolCall(call_id)
            self._calls.append(call)
        self._open[index] = call
        call.id = call.id or call_id
        call.name += "" if name == call.name else name  # some providers repeat the whole name with every piece
        call.arguments += arguments
        call.extra.update(extra)

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

    def add_details(self, pieces: object) -> None:
        """Join the pieces of reasoning as OpenRouter writes them: those of one number follow each other."""
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, Mapping):
                continue
            last = self._details[-1] if self._details else {}
            if not last or any(last.get(key) != piece.get(key) for key in ("index", "type")) or "data" in piece:
                self._details.append(dict(piece))
                continue
            for key, value in piece.items():
                is_text = key in ("text", "summary") and isinstance(value, str) and isinstance(last.get(key), str)
                last[key] = last[key] + value if is_text else last.get(key) if value is None else value

    def _build_replay(self) -> JsonObject | None:
        replay: dict[str, Any] = {}
        if self.reasoning:
            replay["reasoning_content"] = clean(self.reasoning)
        if self._blocks:
            replay["thinking_blocks"] = [
                {key: clean(value) if isinstance(value, str) else value for key, value in block.items()}
                for block in self._blocks
            ]
        if self._details:
            replay["reasoning_details"] = self._details
        if any(call.extra for call in self._calls):
            replay["calls"] = [call.extra for call in self._calls]
        if self.server and replay.keys() & SERVER_KEYS:
            replay["server"] = self.server
        provider = provider_of(self.model)
        if replay and provider in PROTOCOLS:
            replay["model"] = self.model
        return {"provider": provider, **replay} if replay else None

    def _make_call_id(self, index: int) -> str:
        return f"call_{self.response_id or 'own'}_{index}"

    def _estimate_usage(self, request: ModelRequest) -> Usage:
        read = replace(request, parameters={})  # a model reads no parameters
        return Usage(estimate_tokens(read.as_bytes().decode()), estimate_tokens(self.collect_text()))


def make_usage(read: int | None, written: int | None, cached: int | None, cost: float | None = None) -> Usage:
    """Make a usage of a provider's counts: no more was cached than was read. `cost`: US dollars; None if unknown."""
    read = read or 0
    return Usage(read, written or 0, min(max(cached or 0, 0), read), cost)
