"""Servers over HTTP: what one does wrong costs its own call, in words, and a header with a secret goes to no other origin."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bubbot.features.mcp.child import connection as connections
from bubbot.features.mcp.child.values import McpFailed, ServerPlace
from tests.docs.pages import ROOT
from tests.mcp.places import ENVIRONMENT, WAIT, call, connected
from tests.mcp.raw_http import Handler, RawRequest, RawServer, behave, misbehave, serving

SECRET = "Bearer a-secret"
MEGABYTE = 1_000_000
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def place(server: RawServer, **more: str) -> ServerPlace:
    """Return the place of a server, which gets a secret."""
    return ServerPlace("x", url=server.url(), headers={"Authorization": SECRET}, **more)  # type: ignore[arg-type]


async def say_nothing(request: RawRequest) -> None:
    await asyncio.Event().wait()


async def close(request: RawRequest) -> None:
    request.writer.close()


async def endless_headers(request: RawRequest) -> None:
    await request.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(1_000_000):
        await request.send(f"X-{number}: {'y' * 1000}\r\n".encode())


async def huge(request: RawRequest) -> None:
    await request.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n{")
    for _ in range(100):
        await request.send(b"x" * MEGABYTE)


async def huge_event(request: RawRequest) -> None:
    await request.send(EVENTS + b"data: {")
    for _ in range(100):
        await request.send(b"x" * MEGABYTE)


async def bomb(request: RawRequest) -> None:
    await request.answer(gzip.compress(b"x" * 50 * MEGABYTE), Content_Encoding="gzip")


async def broken(request: RawRequest) -> None:
    await request.answer(b'{"jsonrpc": ')


async def html(request: RawRequest) -> None:
    await request.answer(b"<h1>Hello</h1>", Content_Type="text/html")


async def fail(request: RawRequest) -> None:
    await request.answer(b"oops", status="503 Service Unavailable")


async def half_event(request: RawRequest) -> None:
    await request.send(EVENTS + b"data: {}\n")
    request.writer.close()


async def accepted(request: RawRequest) -> None:
    await request.answer(b"", status="202 Accepted")


async def lie(request: RawRequest) -> None:
    message = {"jsonrpc": "2.0", "id": 99_999, "result": {"resultType": "complete", "content": []}}
    await request.answer(json.dumps(message).encode())


async def wrong_shape(request: RawRequest) -> None:
    await request.result(content="text")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("handler", "reason", "is_gone"),
    [
        (close, "it cannot be reached: Server disconnected without sending a response.", True),
        (endless_headers, "it cannot be reached: ", True),
        (huge, "Failed to parse JSON response: it sent an answer of more than 4.0 MB", False),
        (huge_event, "SSE stream failed: Server-sent event exceeded the 4000000 byte limit.", False),
        (bomb, "it cannot be reached: it compressed an answer, which was not asked for", True),
        (broken, "Failed to parse JSON response", False),
        (html, "Unexpected content type: text/html", False),
        (fail, "it answered with HTTP 503: Server returned an error response", False),
        (half_event, "SSE stream ended without a response", False),
        (accepted, "server answered a request with 202 Accepted", False),
        (wrong_shape, "its answer is not as the protocol says", False),
        (say_nothing, "no answer in time", False),
        (lie, "no answer in time", False),
    ],
)
async def test_what_a_server_does_wrong_in_a_call_fails_it_in_words(
    handler: Handler, reason: str, *, is_gone: bool
) -> None:
    async with serving(misbehave(handler)) as server, connected(place(server)) as connection:
        with pytest.raises(McpFailed, match=re.escape(reason)) as failure:
            await call(connection, timeout=1.0 if "time" in reason else WAIT)

        assert failure.value.is_gone == is_gone
        if not is_gone:
            assert len(await connection.list_tools()) == 1


@pytest.mark.parametrize("handler", [say_nothing, endless_headers, huge, huge_event, close, broken, html, fail])
async def test_a_server_that_does_it_from_the_start_is_not_connected_in_bounded_time(handler: Handler) -> None:
    async with serving(handler) as server:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(McpFailed) as failure:
            async with connected(place(server), timeout=2.0):
                pass

    assert failure.value.is_gone
    assert loop.time() - began < 12


async def test_a_hanging_call_does_not_hold_up_another_one() -> None:
    async def hang_once(request: RawRequest) -> None:
        if request.message["params"]["arguments"].get("hang"):
            await say_nothing(request)
        await behave(request)

    async with serving(misbehave(hang_once)) as server, connected(place(server)) as connection:
        hanging = asyncio.create_task(call(connection, arguments={"hang": True}))
        await asyncio.sleep(0.1)

        assert (await call(connection)).text == "done"
        hanging.cancel()


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
async def test_a_redirect_to_another_origin_is_not_followed(status: str, method: str) -> None:
    async with serving(behave) as other:

        async def redirect(request: RawRequest) -> None:
            await request.answer(b"", status=status, Location=other.url())

        async with serving(misbehave(redirect, method)) as server:
            with pytest.raises(McpFailed):
                async with connected(place(server, transport="http")) as connection:
                    await call(connection)

    assert other.requests == []
    assert all(request.headers["authorization"] == SECRET for request in server.requests)


async def test_the_first_transport_may_not_send_its_messages_to_another_origin() -> None:
    async with serving(behave) as other:

        async def lead_away(request: RawRequest) -> None:
            if request.method == "GET":
                await request.send(EVENTS + f"event: endpoint\ndata: {other.url('/messages')}\n\n".encode())
                await say_nothing(request)
            await request.answer(b"", status="405 Method Not Allowed")

        async with serving(lead_away) as server:
            with pytest.raises(McpFailed):
                async with connected(place(server), timeout=5.0):
                    pass

    assert other.requests == []


async def test_a_server_that_wants_a_login_says_so_without_any_further_request() -> None:
    async def want(request: RawRequest) -> None:
        there = 'Bearer resource_metadata="http://127.0.0.1:1/x"'
        await request.answer(b"", status="401 Unauthorized", WWW_Authenticate=there)

    async with serving(want) as server:
        with pytest.raises(McpFailed, match=re.escape("it wants a login (HTTP 401)")) as failure:
            async with connected(place(server)):
                pass

    assert failure.value.needs_login
    assert {request.path for request in server.requests} == {"/mcp"}


async def test_a_result_that_does_not_say_so_is_complete() -> None:
    async def leave_out(request: RawRequest) -> None:
        result = {"content": [{"type": "text", "text": "done"}]}
        await request.answer(json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result}).encode())

    async with serving(misbehave(leave_out)) as server, connected(place(server)) as connection:
        assert (await call(connection)).text == "done"


@pytest.mark.parametrize(
    "more", [{"title": "t" * 60_000}, {"description": "😀" * 9_000}, {"annotations": {"title": "t" * 60_000}}]
)
async def test_a_list_of_tools_is_measured_as_the_daemon_gets_it(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def offer(request: RawRequest) -> None:
        tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}, **more} for number in range(2)]
        await request.result(tools=tools, ttlMs=0, cacheScope="private")

    monkeypatch.setattr(connections, "MAX_LIST_BYTES", 100_000)
    async with serving(misbehave(offer, "tools/list")) as server, connected(place(server)) as connection:
        with pytest.raises(McpFailed, match="its list of tools is longer than"):
            await connection.list_tools()


async def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(McpFailed, match="it cannot be reached: All connection attempts failed"):
        async with connected(ServerPlace("x", url="http://127.0.0.1:1/mcp")):
            pass


@asynccontextmanager
async def sdk_serving(kind: str, port: int) -> AsyncIterator[None]:
    """Run the server of `tests/mcp/servers.py` as a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.mcp.servers", kind, str(port)),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("kind", "path", "version"),
    [("http", "/mcp", "2026-07-28"), ("sse", "/sse", "2025-11-25")],
)
async def test_servers_of_the_sdk_are_reached_by_every_transport(
    kind: str, path: str, version: str, unused_tcp_port: int
) -> None:
    async with sdk_serving(kind, unused_tcp_port):
        url = f"http://127.0.0.1:{unused_tcp_port}{path}"
        async with connected(ServerPlace("x", url=url)) as connection:
            replies = await asyncio.gather(*(call(connection, "add", arguments={"a": n, "b": n}) for n in range(5)))
            echoed = await call(connection, "echo_meta", meta={"traceparent": "00-1"})

    assert (connection.protocol_version, connection.server_name) == (version, "probe 1.2.3")
    assert [reply.text for reply in replies] == ["0", "2", "4", "6", "8"]
    assert "'traceparent': '00-1'" in echoed.text
