"""Answers of the OpenAI chat protocol, from the events of a stream or from one body. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bubbot.models.messages import CALL_KEYS
from bubbot.models.openai.events import EventParser
from bubbot.models.reply import ReplyAssembler
from bubbot.ports.model import Usage


class StreamedAnswer(ReplyAssembler):
    """A reply while its events arrive.

    `finish` is the provider's finish reason, None before it; `usage` what it counted, None before it; `is_done`: no
    more events follow; `plain`: the beginning of a body without events, None from the first event on.
    """

    def __init__(self, model: str, *, server: str = "") -> None:
        super().__init__(model, server=server)
        self.parser = EventParser()
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.is_done = False
        self.plain: bytearray | None = bytearray()

    def add(self, event: Mapping[str, Any]) -> str:
        """Add one event and return its text."""
        if self.response_id is None:
            self.response_id = str(event.get("id") or "") or None
        if "usage" in event or "x_groq" in event:
            self.usage = read_usage(event.get("usage") or _get(event.get("x_groq"), "usage")) or self.usage
        choices = event.get("choices")
        if not choices:
            return ""
        if reason := choices[0].get("finish_reason"):
            self.finish = str(reason)
        delta = choices[0].get("delta")
        if not delta:
            # A server that does not stream sends the whole message; some end a stream with it.
            delta = None if self.has_output else choices[0].get("message")
        if not delta:
            return ""
        for place, call in enumerate(delta["tool_calls"] or ()) if "tool_calls" in delta else ():
            function, index = call.get("function") or {}, call.get("index")
            self.add_call(
                place if index is None else index,
                str(call.get("id") or ""),
                function.get("name") or "",
                _as_text(function.get("arguments")),
                {key: call[key] for key in CALL_KEYS if call.get(key)},
            )
        content = delta.get("content")
        text = content if isinstance(content, str) else self._add_parts(content or ())
        if "reasoning_content" in delta or "reasoning" in delta:
            reasoning = delta.get("reasoning_content") or delta.get("reasoning")
            self.reasoning += reasoning if isinstance(reasoning, str) else ""
        if "reasoning_details" in delta:
            self.add_details(delta["reasoning_details"])
        if "refusal" in delta and isinstance(delta["refusal"], str):
            text += delta["refusal"]  # the model's own words, in their own field
        self.text += text
        return text

    def _add_parts(self, parts: Iterable[Mapping[str, Any]]) -> str:
        """Add the parts of a content of Mistral's reasoning models; return those that are text."""
        text = ""
        for part in parts:
            if part.get("type") == "thinking":
                self.reasoning += "".join(piece.get("text") or "" for piece in part.get("thinking") or ())
            else:
                text += part.get("text") or ""
        return text


def _as_text(arguments: object) -> str:
    """Return the arguments of a call as text: some servers send them as an object, in one piece."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


def read_usage(counts: object) -> Usage | None:
    """Read the counts of a call; None if there are none.

    xAI counts the tokens of its reasoning beside those of its answer, which the total shows; others count them among
    them. DeepSeek has its own name for what its cache held.
    """
    read, written = _read_count(counts, "prompt_tokens"), _read_count(counts, "completion_tokens")
    if not read and not written:
        return None
    thought = _read_count(_get(counts, "completion_tokens_details"), "reasoning_tokens")
    if thought and _read_count(counts, "total_tokens") == read + written + thought:
        written += thought
    cached = _read_count(_get(counts, "prompt_tokens_details"), "cached_tokens")
    return Usage(read, written, cached or _read_count(counts, "prompt_cache_hit_tokens"))


def _read_count(counts: object, key: str) -> int:
    """Return a count; 0 if absent, and -1, which the check refuses, if it is not a whole number."""
    count = _get(counts, key)
    if isinstance(count, float) and count.is_integer():
        return int(count)
    return (count if type(count) is int else -1) if count else 0


def _get(value: object, key: str) -> object:
    """Return a value of an object; None if there is none, or no object."""
    return value.get(key) if isinstance(value, Mapping) else None
