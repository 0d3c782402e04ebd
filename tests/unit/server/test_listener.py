"""The ports of webhooks and health on real sockets: limits of time, number and size, and what clients leave in the log."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bubbot.gateway.metrics import Metrics
from bubbot.server.health import HealthProbe, serve_health
from bubbot.server.listener import HttpAddress, HttpLimits
from bubbot.server.webhooks import WebhookSettings, serve_webhooks
from tests.unit.server.test_health import _never
from tests.virtual import virtual

SERVER_BODY_BYTES = 1_100_000


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CALL = b"POST /hook HTTP/1.1\r\nHost: x\r\nX-Secret: yes\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Hook:
    """A channel that is called; `work`: seconds it takes for a call."""

    path: str = "/hook"
    work: float = 0.0
    bodies: list[bytes] = field(default_factory=list)
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def verify(self, headers: Mapping[str, str]) -> bool:
        """See `WebhookVerifier`."""
        return headers.get("x-secret") == "yes"

    async def handle(self, headers: Mapping[str, str], body: bytes) -> int:
        """See `SupportsWebhook`."""
        self.begun.release()
        await asyncio.sleep(self.work)
        self.bodies.append(body)
        return 200


@asynccontextmanager
async def hooked(hook: Hook, limits: HttpLimits | None = None) -> AsyncIterator[int]:
    """The port at which the channel is called."""
    settings = WebhookSettings(port=0, limits=limits or HttpLimits())
    async with serve_webhooks(lambda: {"hook": hook}, settings) as port:
        yield port


@asynccontextmanager
async def healthy() -> AsyncIterator[int]:
    """The port that says how the bot is."""
    asked = HealthProbe(lambda: (), lambda: None, _never, lambda: 0)
    async with serve_health(HttpAddress("health", "127.0.0.1", 0), asked, Metrics()) as port:
        yield port


async def connected(port: int, data: bytes = b"") -> Streams:
    """A connection that has sent this much."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def rest(streams: Streams) -> bytes:
    """What still comes until the other side ends it."""
    reader, writer = streams
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def status(streams: Streams) -> int:
    """The status of the next answer; its body is read away."""
    reader, _ = streams
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
    return int(head.split()[1])


async def answered(port: int, data: bytes) -> int:
    """The status of the answer to this, on a connection of its own."""
    streams = await connected(port, data)
    try:
        return await status(streams)
    finally:
        streams[1].close()


HALF = (b"", b"POST /hook HT", CALL[:-30], CALL[:-1], b"GET /live HTTP/1.1\r\nHost: x\r\n")


@virtual
async def test_a_request_that_never_becomes_whole_is_ended_after_ten_seconds() -> None:
    clock = asyncio.get_running_loop().time
    for door in (hooked(Hook()), healthy()):
        async with door as port:
            for data in HALF:
                if door.gen.__name__ == "healthy" and data.startswith(b"POST /hook"):  # type: ignore[attr-defined]
                    continue
                began = clock()
                assert await rest(await connected(port, data)) == b"", data
                assert 9.5 < clock() - began < 10.5, data


@virtual
async def test_a_request_that_comes_in_drops_has_no_longer_time() -> None:
    clock = asyncio.get_running_loop().time
    async with hooked(Hook()) as port:
        streams = await connected(port, CALL[:40])
        began = clock()
        for byte in CALL[40:52]:
            streams[1].write(bytes([byte]))
            await asyncio.sleep(1)
        assert await rest(streams) == b""
        assert clock() - began < 13


@virtual
async def test_a_connection_may_rest_between_requests_and_not_for_ever() -> None:
    clock, hook = asyncio.get_running_loop().time, Hook()
    async with hooked(hook) as port:
        streams = await connected(port, CALL)
        assert await status(streams) == 200
        await asyncio.sleep(60)
        streams[1].write(CALL)
        assert await status(streams) == 200
        began = clock()
        assert await rest(streams) == b""
        assert 74 < clock() - began < 76
        streams = await connected(port, CALL)
        assert await status(streams) == 200
        streams[1].write(CALL[:50])
        began = clock()
        assert await rest(streams) == b""
        assert clock() - began < 11
    assert hook.bodies == [b"{}"] * 3


@virtual
async def test_a_whole_request_may_take_the_bot_as_long_as_it_needs() -> None:
    async with hooked(Hook(work=900)) as port:
        assert await answered(port, CALL) == 200


async def test_connections_that_wait_make_room_for_one_that_calls() -> None:
    hook = Hook()
    async with hooked(hook, HttpLimits(connections=20)) as port, AsyncExitStack() as stack:
        waiting = [await connected(port, CALL[:40]) for _ in range(60)]
        for _, writer in waiting:
            stack.callback(writer.close)
        caller = await connected(port, CALL)
        assert await status(caller) == 200
        ended = await asyncio.gather(*(rest(streams) for streams in waiting[:41]))
        assert ended == [b""] * 41
        assert not any(reader.at_eof() for reader, _ in waiting[41:])
        caller[1].close()


async def test_no_more_calls_are_worked_on_at_once_than_connections_are_allowed() -> None:
    hook, enough = Hook(work=3600), HttpLimits(connections=3, shutdown_seconds=0.01)
    async with hooked(hook, enough) as port:
        working = [await connected(port, CALL) for _ in range(3)]
        for _ in working:
            await hook.begun.acquire()
        assert await rest(await connected(port, CALL)) == b""
        for _, writer in working:
            writer.close()


async def test_the_secret_is_asked_for_before_the_body_comes() -> None:
    hook = Hook()
    async with hooked(hook) as port:
        head = b"POST /hook HTTP/1.1\r\nHost: x\r\nX-Secret: %s\r\nContent-Length: %d\r\n\r\n"
        assert await answered(port, head % (b"no", 1_000_000)) == 401
        assert await answered(port, head % (b"yes", SERVER_BODY_BYTES + 1)) == 413
        assert await answered(port, b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n") == 404
    assert hook.bodies == []


async def test_a_body_whose_length_is_not_said_is_read_up_to_the_limit() -> None:
    """What is too long is not handed on, and not read to its end either."""
    hook = Hook()
    head = CALL[:-2].replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")
    async with hooked(hook) as port:
        assert (
            await answered(port, b"%s%x\r\n%s\r\n0\r\n\r\n" % (head, SERVER_BODY_BYTES, b"x" * SERVER_BODY_BYTES))
            == 200
        )
        endless = await connected(port, b"%s%x\r\n%s" % (head, SERVER_BODY_BYTES * 4, b"x" * (SERVER_BODY_BYTES + 1)))
        assert await status(endless) == 413
        endless[1].close()
    assert [len(body) for body in hook.bodies] == [SERVER_BODY_BYTES]


async def test_clients_that_go_away_or_speak_no_http_leave_a_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hook = Hook()
    async with hooked(hook) as port:
        for data in (CALL[:40], CALL[:-1]):
            _, writer = await connected(port, data)
            writer.transport.abort()
        for data in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"NONSENSE\r\n\r\n",
            b"GET /a b c\r\n\r\n",
        ):
            await rest(await connected(port, data))
        chunked = CALL.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")
        await rest(await connected(port, chunked.replace(b"{}", b"zz\r\n")))
        assert await answered(port, CALL) == 200
    assert [one for one in caplog.records if one.levelno > logging.INFO] == []
    assert not any(one.exc_info for one in caplog.records if one.name.startswith(("bubbot", "aiohttp")))
    assert any("not HTTP" in one.getMessage() for one in caplog.records)


@contextmanager
def no_open_files() -> Iterator[None]:
    """Leave this process no further open file for the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_bot_without_open_files_says_so_once_and_answers_when_it_has_some_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with healthy() as port:
        clients = [socket.socket() for _ in range(5)]
        for client in clients:
            client.setblocking(False)
        with no_open_files():
            for client in clients:
                with suppress(BlockingIOError):
                    client.connect(("127.0.0.1", port))
            async with asyncio.timeout(60):
                while not caplog.records:  # noqa: ASYNC110 - the loop reports it, to nobody who waits
                    await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [(record.name, record.exc_info) for record in errors] == [("bubbot.server.listener", None)]
        loop = asyncio.get_running_loop()
        for client in clients:
            async with asyncio.timeout(30):
                await loop.sock_sendall(client, b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b" 200 " in await loop.sock_recv(client, 100)
            client.close()


async def test_other_errors_of_the_loop_are_reported_as_usual(caplog: pytest.LogCaptureFixture) -> None:
    async with healthy():
        asyncio.get_running_loop().call_exception_handler({"message": "odd", "exception": OSError(5, "broken")})
    assert [(record.name, record.message) for record in caplog.records][-1] == ("asyncio", "odd")
