"""A server that speaks the OpenAI protocol on loopback, with faults that a script plays one after the other.

It knows nothing of bubbot and counts what it is asked. Each request takes the next step of the script, and the last
step stands for all later ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.provider_server import listening, read_request

Chunk = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One answer: a JSON `body` with `status` and `headers`, or a stream of `chunks` and then of `events` as they are.

    `first` and `between` are seconds of waiting; `cut` drops the connection after the chunks. With a `finish` the stream
    ends as the protocol wants it: that reason, the usage and [DONE]; `done` sends [DONE] without a reason.
    """

    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    chunks: tuple[Chunk, ...] = ()
    events: tuple[Chunk, ...] = ()
    finish: str | None = "stop"
    done: bool = False
    usage: bool = True
    first: float = 0.0
    between: float = 0.0
    cut: bool = False
    drop: bool = False
    counted: tuple[int, int, int] = (11, 7, 5)
    """The tokens of `usage`: read, written, and of those read the ones from the cache."""


def says(text: str, **options: Any) -> Step:
    """An answer in words, a chunk each."""
    words = text.split(" ")
    pieces = [word + " " * (place + 1 < len(words)) for place, word in enumerate(words)]
    return Step(chunks=tuple({"content": piece} for piece in pieces), **options)


def calls(*asked: tuple[str | None, str, str], **options: Any) -> Step:
    """Parallel calls (id, name, arguments), their arguments torn into pieces that arrive in turns."""
    begun = [
        {"tool_calls": [{"index": place, "id": given, "type": "function", "function": {"name": name, "arguments": ""}}]}
        for place, (given, name, _) in enumerate(asked)
    ]
    pieces = [
        {"tool_calls": [{"index": place, "function": {"arguments": arguments[at : at + 3]}}]}
        for at in range(0, max(len(arguments) for *_, arguments in asked), 3)
        for place, (*_, arguments) in enumerate(asked)
        if arguments[at : at + 3]
    ]
    return Step(chunks=(*begun, *pieces), finish="tool_calls", **options)


def fails(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Step:
    """An error in OpenAI's form; headers are written with `_` for `-`."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return Step(status, body, tuple((name.replace("_", "-"), value) for name, value in headers.items()))


@dataclass
class OpenaiServer:
    """`requests` are the bodies it was sent, `keys` the authorization headers, `traces` the headers `traceparent`."""

    steps: Sequence[Step]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    address: str = ""

    def _step(self) -> Step:
        return self.steps[min(len(self.requests), len(self.steps)) - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request: it closes afterwards, so that each attempt is seen."""
        step = Step(cut=True)
        try:
            asked = await read_request(reader)
            self.requests.append(asked.body)
            self.keys.append(asked.headers.get("authorization", ""))
            self.traces.append(asked.headers.get("traceparent", ""))
            step = self._step()
            if not step.drop:
                await self._answer(step, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as clients do
        finally:
            if step.cut:
                writer.transport.abort()
            else:
                writer.close()

    async def _answer(self, step: Step, writer: asyncio.StreamWriter) -> None:
        headers = "".join(f"{name}: {value}\r\n" for name, value in step.headers)
        if step.status != 200 or step.body is not None:
            body = json.dumps(step.body).encode()
            head = f"HTTP/1.1 {step.status} Error\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}{headers}connection: close\r\n\r\n".encode() + body)
            await writer.drain()
            return
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        writer.write(f"{head}{headers}connection: close\r\n\r\n".encode())
        await writer.drain()
        await asyncio.sleep(step.first)
        for delta in step.chunks:
            await self._send(writer, [{"index": 0, "delta": delta, "finish_reason": None}])
            await asyncio.sleep(step.between)
        for event in step.events:
            await self._data(writer, json.dumps(event))
        if step.cut:
            await asyncio.sleep(0.05)  # what was sent has to arrive before the reset
            return
        if step.finish:
            await self._send(writer, [{"index": 0, "delta": {}, "finish_reason": step.finish}])
            if step.usage:
                read, wrote, cached = step.counted
                counted = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
                await self._send(writer, [], usage={**counted, "prompt_tokens_details": {"cached_tokens": cached}})
        if step.finish or step.done:
            await self._data(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _send(self, writer: asyncio.StreamWriter, choices: list[Any], **more: Any) -> None:
        chunk = {"id": "resp-1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": choices}
        await self._data(writer, json.dumps({**chunk, **more}))

    async def _data(self, writer: asyncio.StreamWriter, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()


@asynccontextmanager
async def serving(*steps: Step) -> AsyncIterator[OpenaiServer]:
    """The server, until the block ends."""
    ours = OpenaiServer(steps)
    async with listening(ours.serve) as address:
        ours.address = f"{address}/v1"
        yield ours
