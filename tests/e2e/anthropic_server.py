"""The Messages protocol of Anthropic as a server: streams, thinking that is signed, and refusals of broken requests.

It knows nothing of bubbot. Each well-formed request takes the next step of the script, the last one stands for all later
ones; a request the real one would refuse is refused with 400 and takes no step.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.provider_server import Answer, Asked, Held, refusal
from tests.provider_rules import ANTHROPIC_RULES, THINKING_BLOCKS, Block, blocks_of, first_broken, thinks_first

MODEL = "claude-sonnet-4-5"
COUNTED = {"input_tokens": 12, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 1}
"""What `message_start` counts: 20 tokens of input in all."""


def signed(thinking: str) -> str:
    """The signature of a thinking block; it fits this text alone."""
    return hmac.new(b"only the server knows", thinking.encode(), "sha256").hexdigest()


def thinks(text: str) -> Block:
    """A block of extended thinking."""
    return {"type": "thinking", "thinking": text, "signature": signed(text)}


def hides(data: str) -> Block:
    """A block of thinking that only the provider can read."""
    return {"type": "redacted_thinking", "data": data}


def text(said: str) -> Block:
    """A block of text."""
    return {"type": "text", "text": said}


def uses(given: str, name: str, **arguments: Any) -> Block:
    """A call of a tool."""
    return {"type": "tool_use", "id": given, "name": name, "input": arguments}


@dataclass(frozen=True, slots=True)
class Says:
    """A streamed message. `events` sends only so many of its events and ends there, orderly or with a `cut`.

    `error` is an error event at the end; `held` keeps the connection open, see `Answer`.
    """

    blocks: tuple[Block, ...]
    stop: str | None = "end_turn"
    events: int | None = None
    cut: bool = False
    error: tuple[str, str] | None = None
    held: Held | None = None
    counted: int = 9
    """Tokens of the answer, as the server counts them."""


@dataclass(frozen=True, slots=True)
class Fails:
    """An HTTP error in Anthropic's form."""

    status: int
    kind: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()


def says(*blocks: Block, **options: Any) -> Says:
    """A message of these blocks, which stops for its calls where it has any."""
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    return Says(blocks, **{"stop": stop, **options})


@dataclass
class AnthropicServer:
    """`thinking` refuses what a model that always thinks refuses, also where the request does not ask for thinking."""

    steps: Sequence[Says | Fails]
    thinking: bool = False
    requests: list[Asked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    address: str = ""
    _taken: int = 0
    _sent: dict[str, tuple[Block, ...]] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Answer:
        """See `Speaks`."""
        wrong = self._wrong(asked)
        if wrong:
            self.refused.append(wrong)
            return _failed(Fails(400, "invalid_request_error", wrong))
        step = self.steps[min(self._taken, len(self.steps) - 1)]
        self._taken += 1
        if isinstance(step, Fails):
            return _failed(step)
        for block in step.blocks:
            if block["type"] == "tool_use":
                self._sent[block["id"]] = step.blocks
        return stream(step)

    def _wrong(self, asked: Asked) -> str | None:
        body = asked.body
        if asked.path != "/v1/messages" or "x-api-key" not in asked.headers or "anthropic-version" not in asked.headers:
            return f"not a request of this API: {asked.path}"
        if not isinstance(body.get("max_tokens"), int) or body.get("stream") is not True:
            return "max_tokens: Field required"
        if broken := first_broken(ANTHROPIC_RULES, body):
            return broken[1]
        messages = [(one["role"], _blocks(one["content"])) for one in body["messages"]]
        thinks = self.thinking or body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        return self._forged(messages) or (thinks_first(body) if thinks else None)

    def _forged(self, messages: list[tuple[str, list[Block]]]) -> str | None:
        """Thinking that is not what was sent, word for word and in its order."""
        for place, (role, blocks) in enumerate(messages):
            for at, block in enumerate(blocks):
                if block["type"] == "thinking" and block.get("signature") != signed(block["thinking"]):
                    return f"messages.{place}.content.{at}: Invalid `signature` in `thinking` block"
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if role != "assistant" or not calls or calls[0] not in self._sent:
                continue
            if any(block["type"] in THINKING_BLOCKS for block in blocks) and blocks != list(self._sent[calls[0]]):
                return f"messages.{place}: `thinking` blocks in the latest assistant message cannot be modified"
        return None


def _blocks(content: Any) -> list[Block]:
    return [_plain(block) for block in blocks_of(content)]


def _plain(block: Block) -> Block:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _failed(step: Fails) -> Answer:
    body = {"type": "error", "error": {"type": step.kind, "message": step.message}, "request_id": "req_1"}
    return refusal(step.status, body, *step.headers)


def stream(step: Says) -> Answer:
    """The message as it goes over the wire."""
    events = list(_events(step))[: step.events]
    if step.error:
        events.append({"type": "error", "error": {"type": step.error[0], "message": step.error[1]}})
    return Answer(tuple(_sse(event) for event in events), cut=step.cut, held=step.held)


def _sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _events(step: Says) -> Iterator[dict[str, Any]]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    opening = {**message, "stop_reason": None, "stop_sequence": None, "usage": COUNTED}
    yield {"type": "message_start", "message": opening}
    for place, block in enumerate(step.blocks):
        begun, *deltas = _pieces(block)
        yield {"type": "content_block_start", "index": place, "content_block": begun}
        if place == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": place, "delta": delta}
        yield {"type": "content_block_stop", "index": place}
    ended = {"stop_reason": step.stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": step.counted}}
    yield {"type": "message_stop"}


def _pieces(block: Block) -> Iterator[Block]:
    """The block as it begins, then its deltas."""
    match block["type"]:
        case "text":
            yield {**block, "text": ""}
            yield from ({"type": "text_delta", "text": part} for part in _cut(block["text"]))
        case "thinking":
            yield {"type": "thinking", "thinking": "", "signature": ""}
            yield from ({"type": "thinking_delta", "thinking": part} for part in _cut(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            yield {**block, "input": {}}
            written = json.dumps(block["input"]) if block["input"] else ""
            yield from ({"type": "input_json_delta", "partial_json": part} for part in ("", *_cut(written)))
        case _:
            yield block


def _cut(whole: str) -> Iterator[str]:
    yield from (whole[at : at + 7] for at in range(0, len(whole), 7))
