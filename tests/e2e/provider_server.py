"""The HTTP below a provider's protocol: one request a connection, an answer in pieces, faults where they are wanted.

What is said is up to the `Protocol` behind it; it sees each request and returns what the wire carries.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tests.fakes.connections import accepting


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its path with the query, its headers by lower-case names, its JSON body."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """A connection that stays open after the pieces: `begun` once they are sent, `gone` once the client has left."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answer:
    """Pieces that are sent one by one; `cut` drops the connection after them, where it would be closed in order."""

    pieces: tuple[bytes, ...]
    status: int = 200
    media: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    held: Held | None = None


def refusal(status: int, body: Any, *headers: tuple[str, str]) -> Answer:
    """An error as JSON."""
    return Answer((json.dumps(body).encode(),), status, "application/json", headers)


class Speaks(Protocol):
    """A provider's protocol. `address` is set once the server listens; `requests` are those it was asked."""

    address: str
    requests: list[Asked]

    def answer(self, asked: Asked) -> Answer:
        """What this request is answered."""
        ...


S = TypeVar("S", bound=Speaks)


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """Read one request; the client may go away meanwhile, as clients do."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(fields.get("content-length", "0"))
    body = json.loads(await reader.readexactly(length)) if length else {}
    return Asked(first.split(" ")[1], fields, body)


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Serve each connection on loopback in its own task, until the block ends; yields the address."""
    async with accepting(serve) as port:
        yield f"http://127.0.0.1:{port}"


@dataclass(frozen=True)
class _Connections:
    speaks: Speaks

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = Answer((), cut=True)
        try:
            asked = await read_request(reader)
            self.speaks.requests.append(asked)
            answer = self.speaks.answer(asked)
            await self.send(answer, writer)
            if answer.held:
                answer.held.begun.set()
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as clients do
        finally:
            if answer.held:
                answer.held.gone.set()
            if answer.cut:
                writer.transport.abort()
            else:
                writer.close()

    async def send(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        writer.write(
            f"HTTP/1.1 {answer.status} Said\r\ncontent-type: {answer.media}\r\ntransfer-encoding: chunked\r\n"
            f"{headers}connection: close\r\n\r\n".encode()
        )
        for piece in filter(None, answer.pieces):  # an empty one would end the answer
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            for _ in range(10):  # a client on this loop reads each piece by itself
                await asyncio.sleep(0)
        if answer.cut:
            await asyncio.sleep(0.02)  # what was sent has to arrive before the reset
        if answer.cut or answer.held:
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def serving(speaks: S) -> AsyncIterator[S]:
    """The server on loopback, until the block ends."""
    async with listening(_Connections(speaks).serve) as address:
        speaks.address = address
        yield speaks


@contextmanager
def serving_apart(speaks: S) -> Iterator[S]:
    """The same in a thread of its own: litellm asks Ollama what a model can do, and stops the loop of the bot until it knows."""
    loop, begun, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(speaks):
            begun.set()
            await end.wait()

    with ThreadPoolExecutor(1) as pool, asyncio.Runner(loop_factory=lambda: loop) as runner:
        served = pool.submit(runner.run, serve())
        try:
            while not begun.wait(0.1) and not served.done():
                pass
            yield speaks
        finally:
            loop.call_soon_threadsafe(end.set)
            served.result()
