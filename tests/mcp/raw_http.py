"""Servers of MCP over HTTP, written by hand on sockets: they answer what a test wants, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
VERSION = "2026-07-28"


@dataclass
class RawRequest:
    """A request, and the way to answer it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def message(self) -> JsonObject:
        """Return the message in it; empty if there is none."""
        message: JsonObject = json.loads(self.body) if self.body else {}
        return message

    async def send(self, data: bytes) -> None:
        """Write bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes, *, status: str = "200 OK", **headers: str) -> None:
        """Answer; underscores in the names of headers stand for hyphens."""
        lines = {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)

    async def result(self, **result: Any) -> None:
        """Answer with a result."""
        message = {"jsonrpc": "2.0", "id": self.message["id"], "result": {"resultType": "complete", **result}}
        await self.answer(json.dumps(message).encode())


Handler: TypeAlias = Callable[[RawRequest], Awaitable[None]]


@dataclass
class RawServer:
    """A running server."""

    port: int
    requests: list[RawRequest] = field(default_factory=list)

    def url(self, path: str = "/mcp") -> str:
        """Return an address of it."""
        return f"http://127.0.0.1:{self.port}{path}"


async def behave(request: RawRequest) -> None:
    """Answer as a server of 2026-07-28 with a tool `work`."""
    match request.message.get("method"):
        case "server/discover":
            await request.result(supportedVersions=[VERSION], capabilities={"tools": {}}, ttlMs=0, cacheScope="private")
        case "tools/list":
            tool = {"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}
            await request.result(tools=[tool], ttlMs=0, cacheScope="private")
        case "tools/call":
            await request.result(content=[{"type": "text", "text": "done"}])
        case _:
            await request.answer(b"", status="405 Method Not Allowed")


def misbehave(handler: Handler, method: str = "tools/call") -> Handler:
    """Answer one method otherwise."""

    async def handle(request: RawRequest) -> None:
        await (handler if request.message.get("method") == method else behave)(request)

    return handle


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[RawServer]:
    """Run a server on 127.0.0.1."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    request = await _read(reader, writer)
                    raw.requests.append(request)
                    await handler(request)
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    raw = RawServer(server.sockets[0].getsockname()[1])
    try:
        yield raw
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RawRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return RawRequest(method, path, headers, body, writer)
