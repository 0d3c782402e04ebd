"""Replies assembled from the chunks of litellm's streams. litellm itself is not needed."""

from __future__ import annotations

from typing import Any

from bubbot.models.reply import ReplyAssembler, make_usage
from bubbot.ports.model import Usage
from bubbot.records import dataclass


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
        for call in getattr(delta, "tool_calls", None) or ():
            function = getattr(call, "function", None)
            name, arguments = (getattr(function, key, None) or "" for key in ("name", "arguments"))
            self.add_call(getattr(call, "index", None) or 0, getattr(call, "id", None) or "", name, arguments)
        text = getattr(delta, "content", None) or ""
        self.text += text
        return text


def convert_usage(usage: Any, cost: float | None = None) -> Usage:
    """Convert litellm's usage of a call. `cost`: US dollars; None if unknown."""
    details = getattr(usage, "prompt_tokens_details", None)
    return make_usage(usage.prompt_tokens, usage.completion_tokens, getattr(details, "cached_tokens", None), cost)
