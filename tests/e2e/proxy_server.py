"""A proxy on loopback: HTTP requests, HTTP tunnels and SOCKS 5, each over plain or encrypted connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes.connections import accepting

SOCKS_HELLO, SOCKS_GRANTED = b"\x05\x00", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


@dataclass
class ProxyServer:
    """`targets` are what it was asked for: a URL, or `CONNECT host:port`, or `SOCKS host:port`."""

    refuses: bool = False
    port: int = 0
    targets: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            first = await reader.readexactly(1)
            await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # one end went away

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *fields = (first + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, version = line.split(" ")
        self.targets.append(f"CONNECT {target}" if method == "CONNECT" else target)
        self.credentials += [each for each in fields if each.lower().startswith("proxy-authorization")]
        if self.refuses:
            writer.write(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")
        elif method == "CONNECT":
            await self._join(target, reader, writer, answer=b"HTTP/1.1 200 Fine\r\n\r\n")
        else:
            host, _, path = target.removeprefix("http://").partition("/")
            head = "\r\n".join((f"{method} /{path} {version}", *fields)).encode()
            await self._join(host, reader, writer, request=head)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(SOCKS_HELLO)
        kind = (await reader.readexactly(4))[3]
        size = 4 if kind == 1 else (await reader.readexactly(1))[0]
        name = await reader.readexactly(size)
        host = ".".join(map(str, name)) if kind == 1 else name.decode()
        target = f"{host}:{int.from_bytes(await reader.readexactly(2), 'big')}"
        self.targets.append(f"SOCKS {target}")
        if self.refuses:
            writer.write(b"\x05\x02" + SOCKS_GRANTED[2:])
        else:
            await self._join(target, reader, writer, answer=SOCKS_GRANTED)

    @staticmethod
    async def _join(
        target: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answer: bytes = b"",
        request: bytes = b"",
    ) -> None:
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(answer)
        far_writer.write(request)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def proxying(context: ssl.SSLContext | None = None, *, refuses: bool = False) -> AsyncIterator[ProxyServer]:
    """The proxy, until the block ends."""
    ours = ProxyServer(refuses)
    async with accepting(ours.serve, context) as ours.port:
        yield ours
