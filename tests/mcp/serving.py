"""The real process of `bubbot mcp serve`, over a home with canaries."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bubbot.app.library import open_store
from mcp.client.client import Client, ConnectMode
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from tests.e2e import bot
from tests.e2e.bot import BUBBOT, environment
from tests.mcp.granted import GRANTED, granted_batches

WAIT = 60.0
"""Seconds for a process to start or to end."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
EDITOR = "my-editor"


async def write_home(home: Path) -> None:
    """Write tapes of granted and other chats; `EDITOR` may read the first."""
    async with open_store(home) as tapes:
        await tapes.store.append(granted_batches(tapes.workspace))
    await grant(home, "mcp", "client-add", EDITOR, GRANTED)


async def grant(home: Path, *words: str) -> str:
    """Run a command that has to succeed; return what it prints."""
    done = await asyncio.to_thread(bot.run, home, *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def make_token(home: Path, client: str = EDITOR) -> str:
    """Return a new token of a program."""
    return (await grant(home, "mcp", "client-token", client)).split()[-1]


@asynccontextmanager
async def by_stdio(home: Path, client: str = EDITOR, mode: ConnectMode = "auto") -> AsyncIterator[Client]:
    """Start the server as an editor does, and speak with it until the block ends."""
    command, *words = BUBBOT
    started = StdioServerParameters(
        command=command, args=[*words, "mcp", "serve", "--client", client], env=environment(home), cwd=str(home.parent)
    )
    async with Client(started, mode=mode, read_timeout_seconds=WAIT) as session:
        yield session


@dataclass
class HttpServer:
    """A server over HTTP.

    Attributes:
        process: its process.
        url: its address.
        log: the file of its log.
    """

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    async def post(
        self,
        body: bytes | str,
        token: str = "",
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        client: httpx2.AsyncClient | None = None,
    ) -> httpx2.Response:
        """Send a request as it is."""
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **(headers or {})}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        raw = [(name.encode(), value.encode()) for name, value in sent.items()]
        if client is not None:
            return await client.request(method, self.url, content=body, headers=raw)
        async with httpx2.AsyncClient(timeout=WAIT) as own:
            return await own.request(method, self.url, content=body, headers=raw)

    @asynccontextmanager
    async def connect(self, token: str, mode: ConnectMode = "auto") -> AsyncIterator[Client]:
        """Speak with it through the SDK."""
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=WAIT) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as session,
        ):
            yield session


@contextmanager
def by_http(home: Path) -> Iterator[HttpServer]:
    """Start the server over HTTP on any free port until the block ends."""
    log = home.with_suffix(".log")
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*BUBBOT, "mcp", "serve", "--http", "0"],
            env=environment(home),
            cwd=home.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            assert url.startswith("http://127.0.0.1:"), (url, log.read_text())
            yield HttpServer(process, url, log)
        finally:
            process.terminate()
            process.wait(WAIT)


def request(method: str, params: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """Return a request of the newest version."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": META, **params}}


def headers_of(method: str, name: str = "") -> dict[str, str]:
    """Return the headers that the newest version wants."""
    named = {"Mcp-Name": name} if name else {}
    return {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **named}
