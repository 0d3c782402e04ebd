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

from tests.e2e.provider_server import Answer, Asked, refusal

Part = dict[str, Any]
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
        return Answer(tuple(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in _chunks(step)), cut=step.cut)

    def _wrong(self, asked: Asked) -> str | None:
        path, _, query = asked.path.partition("?")
        if not path.endswith(f"/models/{MODEL}:streamGenerateContent") or "alt=sse" not in query:
            return f"not a request of this API: {asked.path}"
        if not asked.headers.get("x-goog-api-key"):
            return "API key not valid. Please pass a valid API key."
        contents = asked.body["contents"]
        if not contents or contents[0]["role"] != "user":
            return "Please ensure that the first content is of the role user."
        open_calls: list[str] = []
        for content in contents:
            given = [
                _of(part, "functionResponse")["name"] for part in content["parts"] if _of(part, "functionResponse")
            ]
            if given != open_calls:
                return (
                    "Please ensure that the number of function response parts is equal to that of function call parts"
                )
            made = [part for part in content["parts"] if _of(part, "functionCall")]
            open_calls = [_of(part, "functionCall")["name"] for part in made]
            if self.signs and made and made[0].get("thoughtSignature") != signed(open_calls[0]):
                return f"Function call `{open_calls[0]}` is missing a thought_signature"
        return None


def _of(part: Part, name: str) -> dict[str, Any]:
    """A field in either of the spellings that JSON of protocol buffers may have."""
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
    found: dict[str, Any] = part.get(name) or part.get(snake) or {}
    return found


def _failed(step: Fails) -> Answer:
    error = {"code": step.status, "message": step.message, "status": step.kind, "details": list(step.details)}
    return refusal(step.status, {"error": error})


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
