"""An application of ASGI on our listener: who may ask, and what passes between the two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from bubbot.ports.asgi import CLIENT_KEY, Message, Receive, Send
from bubbot.server.asgi import serve_asgi
from bubbot.server.listener import HttpLimits
from tests.virtual import virtual

TOKEN = "the-token"


async def find_client(token: str) -> str:
    return "editor" if token == TOKEN else ""


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Answer with what came."""
    message = await receive()
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    told = {
        "method": scope["method"], "path": scope["path"], "query": scope["query_string"].decode(), "client": scope[CLIENT_KEY],
        "body": message["body"].decode(), "more": message["more_body"], "x": headers.get("x-sent", ""),
    }  # fmt: skip
    await send(
        {"type": "http.response.start", "status": 201, "headers": [(b"x-echo", b"1"), (b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": json.dumps(told).encode(), "more_body": False})


@asynccontextmanager
async def asking(app: Any = echo, *, limits: HttpLimits | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    more = {} if limits is None else {"limits": limits}
    async with (
        serve_asgi(app, "127.0.0.1", 0, find_client, **more) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}) as client,
    ):
        yield client


async def test_a_request_and_its_response_pass_whole() -> None:
    async with asking() as client, client.post("/mcp?a=b", data=b"words", headers={"X-Sent": "1"}) as answer:
        assert (answer.status, answer.headers["x-echo"]) == (201, "1")
        assert await answer.json(content_type=None) == {
            "method": "POST", "path": "/mcp", "query": "a=b", "client": "editor", "body": "words", "more": False, "x": "1",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"Authorization": ""}, 401, "the token is missing"),
        ({"Authorization": "Bearer wrong"}, 401, "the token is missing"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "the token is missing"),
        ({"Authorization": f"Bearer {'x' * 600}"}, 401, "the token is missing"),
        ({"Host": "evil.example"}, 421, "'evil.example' is not this machine"),
        ({"Host": "10.0.0.1"}, 421, "is not this machine"),
        ({"Host": "localhost.evil.example:1"}, 421, "is not this machine"),
        ({"Host": "[::1].evil.example"}, 421, "is not this machine"),
        ({"Origin": "https://evil.example"}, 403, "pages of other sites"),
        ({"Origin": "null"}, 403, "pages of other sites"),
        ({"Content-Encoding": "gzip"}, 415, "compressed"),
    ],
)
async def test_who_may_not_ask_is_told_in_words_and_the_application_is_not_asked(
    headers: Mapping[str, str], status: int, reason: str
) -> None:
    async def unasked(*_: object) -> None:
        pytest.fail("asked")

    async with asking(unasked) as client, client.post("/mcp", data=b"{}", headers=headers) as answer:
        assert answer.status == status
        assert reason in (await answer.json())["error"]["message"]
        assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:99", "LOCALHOST", "[::1]:8765", "[::1]"])
async def test_names_of_this_machine_are_taken(host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    async with asking() as client, client.post("/mcp", data=b"", headers=headers) as answer:
        assert answer.status == 201


@virtual
async def test_a_request_waits_as_long_as_its_token_is_looked_up_among_many_others() -> None:
    async def find_slowly(token: str) -> str:
        await asyncio.sleep(900)
        return await find_client(token)

    async with (
        serve_asgi(echo, "127.0.0.1", 0, find_slowly) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        client.post("/mcp", data=b"words", timeout=aiohttp.ClientTimeout(total=None)) as answer,
    ):
        assert answer.status == 201


async def test_a_body_that_is_too_large_and_another_path_are_refused() -> None:
    async with asking(limits=HttpLimits(body_bytes=10)) as client:
        async with client.post("/mcp", data=b"x" * 11) as answer:
            assert (answer.status, (await answer.json())["error"]["message"]) == (
                413, "the request is larger than 10 bytes",
            )  # fmt: skip
        async with client.get("/other") as answer:
            assert (answer.status, "programs ask at /mcp" in await answer.text()) == (404, True)


async def test_a_stream_comes_as_it_is_written_and_its_end_is_noticed() -> None:
    gone = asyncio.Event()

    async def stream(_: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        if (await receive())["type"] == "http.disconnect":
            gone.set()

    async with asking(stream) as client:
        async with client.post("/mcp", data=b"{}") as answer:
            assert await answer.content.readline() == b"data: 1\n"
            answer.close()
        async with asyncio.timeout(60):
            await gone.wait()


async def test_a_failure_of_the_application_is_told_without_its_words() -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("secret inside")

    async with asking(fail) as client, client.post("/mcp", data=b"{}") as answer:
        text = await answer.text()
        assert (answer.status, "RuntimeError" in text, "secret inside" in text) == (500, True, False)
