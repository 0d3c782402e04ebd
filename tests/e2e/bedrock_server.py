"""Bedrock's `converse-stream` as a server: AWS event streams, whose frames carry lengths and checksums.

It knows nothing of bubbot. Each request takes the next step of the script, the last one stands for all later ones.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.provider_server import Answer, Asked, refusal

MODEL = "anthropic.claude-3-haiku-20240307-v1:0"
COUNTED = {"inputTokens": 12, "outputTokens": 9, "totalTokens": 26, "cacheReadInputTokens": 5}


@dataclass(frozen=True, slots=True)
class Says:
    """A stream: its blocks as (start, deltas), `exception` (type, message) in place of its end, `stop` None for none."""

    blocks: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...]
    stop: str | None = "end_turn"
    exception: tuple[str, str] | None = None
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Fails:
    """An HTTP error in Amazon's form."""

    status: int
    kind: str
    message: str


def text(*pieces: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """A block of text."""
    return {}, tuple({"text": piece} for piece in pieces)


def uses(given: str, name: str, *pieces: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """A call of a tool, its arguments in pieces."""
    return {"toolUse": {"toolUseId": given, "name": name}}, tuple({"toolUse": {"input": piece}} for piece in pieces)


@dataclass
class BedrockServer:
    """See the module."""

    steps: Sequence[Says | Fails]
    requests: list[Asked] = field(default_factory=list)
    address: str = ""

    def answer(self, asked: Asked) -> Answer:
        """See `Speaks`."""
        step = self.steps[min(len(self.requests), len(self.steps)) - 1]
        if not asked.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
            return refusal(403, {"message": "Missing Authentication Token"})
        if isinstance(step, Fails):
            return refusal(step.status, {"message": step.message}, ("x-amzn-errortype", step.kind))
        frames = _frames(step)
        if step.torn:
            frames[-1] = frames[-1][:-7]
        return Answer(tuple(frames), media="application/vnd.amazon.eventstream")


def _frames(step: Says) -> list[bytes]:
    frames = [_frame("event", "messageStart", {"role": "assistant"})]
    for place, (start, deltas) in enumerate(step.blocks):
        at = {"contentBlockIndex": place}
        if start:
            frames.append(_frame("event", "contentBlockStart", {**at, "start": start}))
        frames += [_frame("event", "contentBlockDelta", {**at, "delta": delta}) for delta in deltas]
        frames.append(_frame("event", "contentBlockStop", at))
    if step.exception:
        return [*frames, _frame("exception", step.exception[0], {"message": step.exception[1]})]
    if step.stop:
        frames.append(_frame("event", "messageStop", {"stopReason": step.stop}))
        frames.append(_frame("event", "metadata", {"usage": COUNTED, "metrics": {"latencyMs": 1}}))
    return frames


def _frame(kind: str, name: str, payload: Any) -> bytes:
    """One message: a prelude of two lengths and its checksum, headers, the payload, a checksum of it all."""
    named = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))
