"""Requests as the model `local` reads them: plain text messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bubbot.ports.model import ModelRequest
from bubbot.tape.entry import JsonObject

_MARKERS = r"<\|(im_start|im_end|endoftext)\|>"


def build_messages(request: ModelRequest) -> list[dict[str, str]]:
    """Convert the request to plain text messages: describe what this model cannot read, refuse nothing."""
    texts = [("system", request.system), *(_to_text(message) for message in request.messages)]
    return [{"role": role, "content": _neutralize(text)} for role, text in texts if text.strip()]


def _to_text(message: JsonObject) -> tuple[str, str]:
    role, text = message.get("role"), _text(message.get("content"))
    if role == "tool":
        return "user", f"[result of a tool] {text}"
    if role == "assistant":
        return "assistant", "\n".join(filter(None, (text, *map(_call, message.get("tool_calls") or ()))))
    return "system" if role in ("system", "developer") else "user", text


def _text(content: object) -> str:
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, map(_part, content)))
    return "" if content is None else str(content)


def _part(part: object) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'something')} that cannot be shown]"


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "[called a tool]"
    return f"[called the tool {function.get('name')} with {function.get('arguments')}]"


def _neutralize(text: str) -> str:
    """Make the text valid UTF-8 without markers that could end its message and open another."""
    return re.sub(_MARKERS, r"<\1>", text.encode(errors="replace").decode())
