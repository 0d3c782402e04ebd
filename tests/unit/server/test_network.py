"""The server on TCP, on real sockets: which names and pages it answers, and what a stranger's request costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from bubbot.server.api import Api
from bubbot.server.network import NetworkSettings, serve_network
from tests.unit.server.test_listener import answered, connected, rest, status
from tests.virtual import virtual

TOKEN = "0123456789abcdef"


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server that is also called `bot.example`."""
    settings = NetworkSettings("127.0.0.1", 0, TOKEN, ["Bot.example"])
    async with serve_network(Api({}), settings) as port:
        yield port


def hello(headers: str, token: str = TOKEN) -> bytes:
    """The smallest request."""
    head = f"GET /api/hello HTTP/1.1\r\nBubbot-Protocol: 3\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    return head.encode("latin-1")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("LOCALHOST", 200),
        ("bot.example:443", 200),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("localhost:8765@evil.example", 421),
        ("evil@localhost:8765", 421),
        ("localhost/.evil.example", 421),
        ("localhost#.evil.example", 421),
        ("localhost?.evil.example", 421),
        ("localhost\\.evil.example", 421),
        ("localhost evil.example", 421),
        ("localhost:8765:1", 421),
        ("2130706433", 421),
        ("[::1", 421),
        ("[localhost.evil.example]", 421),
        ("\xe9", 421),
        ("", 421),
    ],
)
async def test_only_a_name_of_this_bot_or_an_address_is_answered(host: str, expected: int) -> None:
    async with served() as port:
        assert await answered(port, hello(f"Host: {host}\r\n")) == expected


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        (["http://localhost:8765"], 200),
        (["https://localhost:8765"], 200),
        (["http://localhost:3000"], 403),
        (["http://evil.example"], 403),
        (["null"], 403),
        ([""], 403),
        (["//localhost:8765"], 403),
        (["http://["], 403),
        (["http://localhost:8765", "http://evil.example"], 403),
    ],
)
async def test_only_a_page_of_the_same_address_is_answered(
    origins: list[str], expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    headers = "".join(f"Origin: {origin}\r\n" for origin in origins)
    async with served() as port:
        assert await answered(port, hello(f"Host: localhost:8765\r\n{headers}")) == expected
    assert not [one for one in caplog.records if one.levelno > logging.WARNING]


async def test_an_unknown_path_or_method_is_an_error_in_the_form_of_the_others() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with served() as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
        async with session.post("/v1/embeddings", json={}) as unknown:
            assert (unknown.status, (await unknown.json())["error"]["message"]) == (404, "404: Not Found")
        async with session.post("/api/hello", json={}) as wrong:
            assert (wrong.status, wrong.headers["Allow"], (await wrong.json())["error"]["kind"]) == (
                405,
                "GET,HEAD",
                "control",
            )
        async with session.get("/api/chat", headers={"Bubbot-Protocol": "3"}) as plain:
            assert (plain.status, (await plain.json())["error"]["kind"]) == (400, "control")


async def test_a_stranger_cannot_make_the_bot_unpack_a_body(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as port:
        for encoding in ("gzip", "deflate", "br", "zstd"):
            headers = f"Host: localhost\r\nContent-Encoding: {encoding}\r\nContent-Length: 60\r\n"
            request = hello(headers, token="wrong").replace(b"GET /api/hello", b"POST /api/do/x") + b"not packed" * 6
            assert await answered(port, request) == 401
            assert await answered(port, request.replace(b"wrong", TOKEN.encode())) == 415
    assert not [one for one in caplog.records if one.levelno > logging.WARNING]


@virtual
async def test_a_connection_may_rest_after_any_answer_and_the_next_request_has_its_own_time() -> None:
    clock = asyncio.get_running_loop().time
    request = hello("Host: localhost\r\n")
    for first, code in ((request, 200), (request.replace(b"/api/hello", b"/none"), 404)):
        async with served() as port:
            streams = await connected(port, first)
            assert await status(streams) == code
            await asyncio.sleep(9)
            streams[1].write(request[:20])
            await asyncio.sleep(5)
            streams[1].write(request[20:])
            assert await status(streams) == 200
            began = clock()
            assert await rest(streams) == b""
            assert 74 < clock() - began < 76
