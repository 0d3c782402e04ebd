"""The provider's own end of a stream, read from the wire below litellm. No I/O of its own.

litellm turns every end into a finish reason, even if there was none: a stream of Gemini that breaks off, or an
Anthropic stop reason it does not know, reads as `stop`. This module reads the server-sent events of the protocols that
have their own; for the others there is only what litellm reports.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

INVALID_OUTPUT_REASONS = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
"""Finish reasons for which the output is not an answer; a retry often succeeds."""
_LENGTH = frozenset({"model_context_window_exceeded"})
"""Finish reasons that litellm reports as `stop` although the answer is cut."""


class StreamEnding:
    """A listener on one stream: `stop_reason` is the provider's finish reason, `message_id` its id of the answer."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.message_id: str | None = None
        self._has_events = False
        self._is_complete = False
        self._data: list[str] = []
        self._wire: AsyncGenerator[str | bytes, None] | None = None

    def resolve_finish(self, reported: str | None) -> str | None:
        """Return the finish reason; None if the provider never said that it is done.

        `reported`: the finish reason that litellm reports.
        """
        if not self._has_events:
            return reported
        if self.stop_reason is None or not self._is_complete:
            return None
        return "length" if self.stop_reason in _LENGTH else reported

    async def read_rest(self) -> None:
        """Read to the provider's last event: litellm stops at the finish reason, and a cut may come after it."""
        while self._wire is not None and self._has_events and not self._is_complete:
            if await anext(self._wire, None) is None:
                return

    async def aclose(self) -> None:
        """Release the connection; litellm forgets it if a reader stops early."""
        if self._wire is not None:
            await self._wire.aclose()

    def listen(self, chunks: Any) -> None:
        """Insert this listener between litellm's stream and the lines below it; do nothing if there are none."""
        if getattr(chunks, "completion_stream", None) is not None:
            self._attach(chunks.completion_stream)
            return
        make_call = getattr(chunks, "make_call", None)
        if make_call is None:
            return

        async def make_attached_call(**options: Any) -> Any:
            stream = await make_call(**options)
            self._attach(stream)
            return stream

        chunks.make_call = make_attached_call

    def _attach(self, stream: Any) -> None:
        lines: Any = getattr(stream, "streaming_response", None)
        if hasattr(lines, "__aiter__"):
            stream.streaming_response = self._wire = self.pass_through(lines)

    async def pass_through(self, lines: AsyncIterator[str | bytes]) -> AsyncGenerator[str | bytes, None]:
        """Pass the lines through unchanged. Closing this closes their source."""
        try:
            async for line in lines:
                self._read_line(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
                yield line
            self._read_line("")
        finally:
            if hasattr(lines, "aclose"):
                await lines.aclose()

    def _read_line(self, line: str) -> None:
        """Read one line of server-sent events; an empty line ends an event."""
        if line.startswith("data:"):
            self._data.append(line[5:])
        elif not line.strip() and self._data:
            text, self._data = "\n".join(self._data), []
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                return  # litellm reports invalid events, and half an event says nothing
            if isinstance(event, dict):
                self._read_event(event)

    def _read_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": {"id": str(name)}}:  # Anthropic, here and below
                self._has_events, self.message_id = True, name
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self._has_events, self.stop_reason = True, reason
            case {"type": "message_stop"}:
                self._has_events = self._is_complete = True
            case {"candidates": [{"finishReason": str(reason)}, *_]}:  # Gemini, here and below
                self._has_events = self._is_complete = True
                self.stop_reason = reason
            case {"promptFeedback": {"blockReason": str(reason)}}:
                self._has_events = self._is_complete = True
                self.stop_reason = reason
            case {"candidates": _}:
                self._has_events = True
