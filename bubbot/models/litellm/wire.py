"""The provider's own end of a stream, read from the wire below litellm. No I/O of its own.

litellm turns every end into a finish reason, even if there was none: a stream of Gemini that breaks off, or an
Anthropic stop reason it does not know, reads as `stop`. It also drops what it does not know of OpenAI's protocol: the
model's refusal, the end without a reason, errors in older forms, an answer that is no stream. This module reads the
server-sent events themselves; for protocols without them there is only what litellm reports.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from bubbot.models.failures import find_error
from bubbot.models.openai.answer import StreamedAnswer

_MAX_BODY_BYTES = 16 * 1024 * 1024
"""Bytes at most of an answer that is no stream."""


class StreamEnding:
    """A listener on one stream.

    Attributes:
        stop_reason: the provider's finish reason; None before it.
        message_id: the provider's id of the answer, if litellm gives it another one.
        is_done: the last event of OpenAI's protocol has arrived.
        refusal: the model's refusal, which has its own field.
        error: the provider's error in the middle of the stream; None without one.
    """

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.message_id: str | None = None
        self.is_done = False
        self.refusal = ""
        self.error: Mapping[str, Any] | None = None
        self._body: bytearray | None = bytearray()
        self._whole: Mapping[str, Any] | None = None
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
        return reported

    def read_body(self, answer: StreamedAnswer) -> bool:
        """Read an answer in one piece, which some servers send in place of a stream; return false if there was none."""
        with suppress(ValueError, TypeError, AttributeError, LookupError, RecursionError):
            body = self._whole or json.loads(self._body or b"")
            self.error = find_error(body)
            answer.add(body)
        return answer.has_output or answer.finish is not None

    async def read_rest(self) -> None:
        """Read to the provider's last event: litellm stops at the finish reason, but the stream may be cut after it."""
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
            return
        response: Any = getattr(stream, "response", None)
        if response is not None and hasattr(response, "aiter_bytes"):  # of OpenAI's own library
            read_bytes, response.aiter_bytes = response.aiter_bytes, lambda: self._pass_bytes(read_bytes())

    async def _pass_bytes(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Pass the bytes of a stream through unchanged, and read their lines."""
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._read_line(line.decode("utf-8", "replace").rstrip("\r"))
            yield chunk
        self._read_line(rest.decode("utf-8", "replace"))
        self._read_line("")

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
            self._body = None
        elif not line.strip() and self._data:
            text, self._data = "\n".join(self._data), []
            if text.strip() == "[DONE]":
                self.is_done = True
                return
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                return  # litellm reports invalid events, and half an event says nothing
            if isinstance(event, dict):
                self._read_event(event)
        elif self._body is not None and len(self._body) < _MAX_BODY_BYTES:
            self._body += line.encode() + b"\n"

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
            case {"choices": [{"message": {}}, *_]}:  # OpenAI, here and below
                self._whole = event
            case {"choices": [{"finish_reason": reason, **choice}, *_]}:
                self.stop_reason = str(reason) if reason else self.stop_reason
                self._read_delta(choice.get("delta"))
            case {"choices": [{"delta": delta}, *_]}:
                self._read_delta(delta)
            case _:
                self.error = self.error or find_error(event)

    def _read_delta(self, delta: object) -> None:
        match delta:
            case {"refusal": str(words)}:
                self.refusal += words
