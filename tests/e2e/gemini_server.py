"""The Gemini protocol as a server: `streamGenerateContent` as server-sent events, calls with thought signatures.

It knows nothing of bubbot. Each well-formed request takes the next step of the script, the last one stands for all later
ones; a request the real one would refuse is refused with 400 and takes no step.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.provider_server import Answer, Asked, Held, refusal
from tests.provider_rules import GEMINI_RULES, Part, first_broken, part_field

MODEL = "gemini-2.5-flash"
COUNTED = {"promptTokenCount": 20, "cachedContentTokenCount": 5, "candidatesTokenCount": 9, "totalTokenCount": 29}


def signed(name: str) -> str:
    """The thought signature of a call of this tool."""
    return base64.b64encode(f"thought of {name}".encode()).decode()


def calls(name: str, **arguments: Any) -> Part:
    """A function call with its thought signature."""
    return {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": signed(name)}


@dataclass(frozen=True, slots=True)
class Says:
    """A streamed answer, a chunk for each part; `finish` None ends it without a word, `blocked` refuses the prompt."""

    parts: tuple[Part, ...]
    finish: str | None = "STOP"
    blocked: str | None = None
    error: dict[str, Any] | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Fails:
    """An HTTP error in Google's form. `details` are such as `RetryInfo`."""

    status: int
    kind: str
    message: str
    details: tuple[dict[str, Any], ...] = ()


def says(*parts: str | Part, **options: Any) -> Says:
    """An answer of these parts; a string is a part of text."""
    return Says(tuple({"text": part} if isinstance(part, str) else part for part in parts), **options)


@dataclass
class GeminiServer:
    """`signs` refuses a call that comes back without its thought signature, as the newer models do."""

    steps: Sequence[Says | Fails]
    signs: bool = False
    requests: list[Asked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    address: str = ""
    _taken: int = 0

    def answer(self, asked: Asked) -> Answer:
        """See `Speaks`."""
        wrong = self._wrong(asked)
        if wrong:
            self.refused.append(wrong)
            return _failed(Fails(400, "INVALID_ARGUMENT", wrong))
        step = self.steps[min(self._taken, len(self.steps) - 1)]
        self._taken += 1
        if isinstance(step, Fails):
            return _failed(step)
        return stream(step)

    def _wrong(self, asked: Asked) -> str | None:
        path, _, query = asked.path.partition("?")
        if not path.endswith(":streamGenerateContent") or "/models/gemini-" not in path or "alt=sse" not in query:
            return f"not a request of this API: {asked.path}"
        if not asked.headers.get("x-goog-api-key"):
            return "API key not valid. Please pass a valid API key."
        if broken := first_broken(GEMINI_RULES, asked.body):
            return broken[1]
        for content in asked.body["contents"]:
            made = [part for part in content["parts"] if part_field(part, "functionCall")]
            name = part_field(made[0], "functionCall")["name"] if made else ""
            if self.signs and made and made[0].get("thoughtSignature") != signed(name):
                return f"Function call `{name}` is missing a thought_signature"
        return None


def _failed(step: Fails) -> Answer:
    error = {"code": step.status, "message": step.message, "status": step.kind, "details": list(step.details)}
    return refusal(step.status, {"error": error})


def stream(step: Says, held: Held | None = None) -> Answer:
    """The answer as it goes over the wire."""
    events = tuple(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in _chunks(step))
    return Answer(events, cut=step.cut, held=held)


def _chunks(step: Says) -> list[dict[str, Any]]:
    named = {"modelVersion": MODEL, "responseId": "resp-g"}
    if step.blocked:
        return [{"promptFeedback": {"blockReason": step.blocked}, "usageMetadata": COUNTED, **named}]
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], **named} for part in step.parts
    ]
    if step.finish:
        last = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": step.finish, "index": 0}
        chunks.append({"candidates": [last], "usageMetadata": COUNTED, **named})
    if step.error:
        chunks.append({"error": step.error})
    return chunks
