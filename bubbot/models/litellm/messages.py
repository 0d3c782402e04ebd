"""Replies assembled from the chunks of litellm's streams. litellm itself is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bubbot.models.messages import CALL_KEYS
from bubbot.models.reply import ReplyAssembler, make_usage
from bubbot.ports.model import Usage


@dataclass
class LitellmReply(ReplyAssembler):
    """A reply while it arrives from litellm."""

    def add(self, chunk: Any) -> str:
        """Add one chunk and return its text."""
        self.response_id = self.response_id or getattr(chunk, "id", None)
        if not chunk.choices:
            return ""
        delta = chunk.choices[0].delta
        reasoning = getattr(delta, "reasoning_content", None)
        self.reasoning += reasoning if isinstance(reasoning, str) else ""
        for block in getattr(delta, "thinking_blocks", None) or ():
            self.add_thinking(block)
        self.add_details(getattr(delta, "reasoning_details", None))
        for place, call in enumerate(getattr(delta, "tool_calls", None) or ()):
            function, index = getattr(call, "function", None), getattr(call, "index", None)
            name, arguments = (getattr(function, key, None) or "" for key in ("name", "arguments"))
            extra = {
                key: value for key in CALL_KEYS if isinstance(value := getattr(call, key, None), Mapping) and value
            }
            call_id = getattr(call, "id", None) or ""
            self.add_call(place if index is None else index, call_id, name, arguments, extra)
        text = getattr(delta, "content", None) or ""
        self.text += text
        return text


def convert_usage(usage: Any, cost: float | None = None) -> Usage:
    """Convert litellm's usage of a call. `cost`: US dollars; None if unknown."""
    details = getattr(usage, "prompt_tokens_details", None)
    return make_usage(usage.prompt_tokens, usage.completion_tokens, getattr(details, "cached_tokens", None), cost)
