"""What a provider really said at the end of its stream, heard on the wire below litellm. No I/O of its own.

litellm turns every end into a finish reason, also where there was none: a stream of Gemini that breaks off, or an
Anthropic stop reason it does not know, reads as `stop`. Protocols with server-sent events of their own are listened to;
of others only what litellm makes of them is known.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

BROKEN = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
"""Ends at which the model wrote something that is no answer; asked again, it often does better."""
_LENGTH = frozenset({"model_context_window_exceeded"})
"""Ends that litellm takes for `stop` and that cut the answer."""


class StreamEnding:
    """Listens to one stream. `reason` is the provider's own word; `message` its own name for the answer."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.message: str | None = None
        self._heard = False
        self._closed = False
        self._data: list[str] = []
        self._wire: AsyncGenerator[str | bytes, None] | None = None

    def finish(self, found: str | None) -> str | None:
        """The finish reason where litellm `found` this one; None where the provider never said that it is done."""
        if not self._heard:
            return found
        if self.reason is None or not self._closed:
            return None
        return "length" if self.reason in _LENGTH else found

    async def rest(self) -> None:
        """Reads on to the provider's last event: litellm stops at the finish reason, and a cut may come after it."""
        while self._wire is not None and self._heard and not self._closed:
            if await anext(self._wire, None) is None:
                return

    async def aclose(self) -> None:
        """Lets go of the connection; litellm forgets it where a reader leaves early."""
        if self._wire is not None:
            await self._wire.aclose()

    def listen(self, chunks: Any) -> None:
        """Puts itself between litellm's stream and the lines below it; nothing happens where there are none."""
        if getattr(chunks, "completion_stream", None) is not None:
            self._between(chunks.completion_stream)
            return
        make = getattr(chunks, "make_call", None)
        if make is None:
            return

        async def made(**given: Any) -> Any:
            stream = await make(**given)
            self._between(stream)
            return stream

        chunks.make_call = made

    def _between(self, stream: Any) -> None:
        lines: Any = getattr(stream, "streaming_response", None)
        if hasattr(lines, "__aiter__"):
            stream.streaming_response = self._wire = self.through(lines)

    async def through(self, lines: AsyncIterator[str | bytes]) -> AsyncGenerator[str | bytes, None]:
        """The same lines. Closing this closes what they come from."""
        try:
            async for line in lines:
                self._hear(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
                yield line
            self._hear("")
        finally:
            if hasattr(lines, "aclose"):
                await lines.aclose()

    def _hear(self, line: str) -> None:
        """One line of server-sent events; an empty one ends an event."""
        if line.startswith("data:"):
            self._data.append(line[5:])
        elif not line.strip() and self._data:
            text, self._data = "\n".join(self._data), []
            try:
                event = json.loads(text)
            except ValueError:
                return  # litellm reports what it cannot read, and half an event says nothing
            if isinstance(event, dict):
                self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": {"id": str(name)}}:  # Anthropic, here and below
                self._heard, self.message = True, name
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self._heard, self.reason = True, reason
            case {"type": "message_stop"}:
                self._heard = self._closed = True
            case {"candidates": [{"finishReason": str(reason)}, *_]}:  # Gemini, here and below
                self._heard = self._closed = True
                self.reason = reason
            case {"promptFeedback": {"blockReason": str(reason)}}:
                self._heard = self._closed = True
                self.reason = reason
            case {"candidates": _}:
                self._heard = True
