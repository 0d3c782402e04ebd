"""Web servers on the loopback address, and a client that may reach this one and no other."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bubbot.features.web.client import WebClient
from tests.fakes.connections import accepting

HERE = "127.0.0.1"
"""The address that counts as public in these tests."""
ELSEWHERE = "127.0.0.2"
"""An address that does not, on which a server really listens."""


class FakeClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Names:
    """A resolver: each name has lists of addresses, one for each time it is asked; the last stays."""

    known: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        answers = self.known.get(host, [[HERE]])
        answer = answers[min(self.asked.count(host), len(answers) - 1)]
        self.asked.append(host)
        if not answer:
            raise OSError("no such host")
        return answer


@dataclass
class Site:
    """A running server."""

    port: int
    requests: list[web.Request] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "site.test") -> str:
        return f"http://{host}:{self.port}{path}"


def client(names: Names | None = None, *, clock: Any = None, is_allowed: Any = None, **limits: Any) -> WebClient:
    """A client to which `HERE` alone is public."""
    given: dict[str, Any] = {"timeout": 5.0, "ports": (), **limits}
    return WebClient(
        **given,
        clock=clock or FakeClock(),
        is_allowed=is_allowed or (lambda address: address == HERE),
        resolve=names or Names(),
        tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # trusts nobody, and takes no time to make
    )


@asynccontextmanager
async def serving(handler: Any, host: str = HERE, port: int = 0) -> AsyncIterator[Site]:
    """Run a server whose every path goes to the handler; its requests are kept."""
    site = Site(0)

    async def handle(request: web.Request) -> web.StreamResponse:
        site.requests.append(request)
        await request.read()
        answer: web.StreamResponse = await handler(request)
        return answer

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    tcp = web.TCPSite(runner, host, port)
    await tcp.start()
    assert tcp._server is not None
    site.port = tcp._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield site
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(*pieces: bytes, endless: bytes = b"", stays_open: bool = False) -> AsyncIterator[Site]:
    """Run a server that answers with these bytes, whatever it is asked, then with more of the same without an end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while endless:
                writer.write(endless)
                await writer.drain()
            if stays_open:
                await asyncio.Event().wait()

    async with accepting(answer) as port:
        yield Site(port)


def zlib_bomb(size: int) -> bytes:
    """Zeros, compressed to a thousandth."""
    return zlib.compress(bytes(size), 9)


def gzip_bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)
