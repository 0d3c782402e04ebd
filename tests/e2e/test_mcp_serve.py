"""Programs read granted chats through the real `bubbot mcp serve`, with the client of the SDK, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp.client.client import Client, ConnectMode
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from bubbot.features.mcp.serve.tools import TOOLS
from tests.e2e import bot
from tests.e2e.bot import BUBBOT, environment
from tests.mcp.granted import ALSO_GRANTED, CANARY, GRANTED, REFUSED
from tests.mcp.serving import (
    EDITOR,
    WAIT,
    HttpServer,
    by_http,
    by_stdio,
    grant,
    headers_of,
    make_token,
    request,
    write_home,
)

pytestmark = pytest.mark.timeout(120)
MODES: tuple[ConnectMode, ...] = ("auto", "2026-07-28", "legacy")


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    await write_home(path)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """One server for all tests, which have programs of their own."""
    path = tmp_path_factory.mktemp("served") / "home"
    asyncio.run(write_home(path))
    with by_http(path) as started:
        yield started


@pytest.fixture
def served(server: HttpServer) -> Path:
    """The home of that server."""
    return server.log.with_suffix("")


def told(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, told(result)
    assert json.loads(told(result)) == result.structured_content
    return result.structured_content


async def look(client: Client) -> None:
    """Use every tool as an assistant does."""
    listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == [tool.name for tool in TOOLS]
    for tool in listed.tools:
        assert tool.annotations is not None
        assert (tool.annotations.read_only_hint, tool.annotations.destructive_hint) == (True, False)
        assert tool.output_schema is not None
    hits = (await ask(client, "search", query="green"))["hits"]
    assert [(hit["session"], hit["id"]) for hit in hits] == [(GRANTED, 3)]
    assert (await ask(client, "read", before=4))["messages"][0]["text"] == "the pine is green"
    assert "phase/four" in [anchor["name"] for anchor in (await ask(client, "anchors"))["anchors"]]
    assert (await ask(client, "memory"))["long_term"] == "the pine of memory"
    assert (await ask(client, "why"))["answer"] == 7
    assert (await ask(client, "topics"))["topics"][0]["name"] == "Trip"


class TestStdio:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("mode", MODES)
    async def test_an_editor_reads_a_granted_chat(self, home: Path, mode: ConnectMode) -> None:
        async with by_stdio(home, mode=mode) as client:
            await look(client)
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")

    async def test_the_list_of_tools_is_kept_for_this_program_alone(self, home: Path) -> None:
        async with by_stdio(home, mode="2026-07-28") as client:
            listed = await client.list_tools()
            assert (listed.ttl_ms, listed.cache_scope) == (60_000, "private")

    async def test_no_canary_reaches_a_program_by_any_tool(self, home: Path) -> None:
        await grant(home, "mcp", "client-add", EDITOR, ALSO_GRANTED)
        seen, errors = list[str](), 0
        async with by_stdio(home) as client:
            for tool in TOOLS:
                for session in ("", GRANTED, ALSO_GRANTED, REFUSED, "bubbot/access", "../../x"):
                    for more in ({}, {"query": CANARY}, {"query": "pine"}, {"turn": "a1b2"}, {"cursor": "9"}):
                        try:
                            result = await client.call_tool(tool.name, {"session": session, **more})
                        except MCPError as error:
                            seen.append(str(error))
                        else:
                            errors += result.is_error
                            seen.append(told(result).replace(f"'{session}'", ""))
        text = "\n".join(seen).replace("canary-free/model", "")
        assert CANARY not in text
        assert REFUSED not in text
        assert "a pine in the second chat" in text
        assert errors

    async def test_what_is_taken_back_holds_at_the_next_request(self, home: Path) -> None:
        await grant(home, "mcp", "client-add", EDITOR, ALSO_GRANTED)
        async with by_stdio(home) as client:
            assert await ask(client, "read", session=ALSO_GRANTED)
            await grant(home, "mcp", "client-remove", EDITOR, ALSO_GRANTED)
            refused = await client.call_tool("read", {"session": ALSO_GRANTED})
            assert refused.is_error
            assert "not one of the chats that this program may read" in told(refused)
            await grant(home, "mcp", "client-remove", EDITOR)
            with pytest.raises(MCPError, match="may read no chat: bubbot mcp client-add my-editor"):
                await client.call_tool("read", {})
            with pytest.raises(MCPError, match="may read no chat"):
                await client.session.list_tools()

    async def test_what_a_bot_writes_meanwhile_is_read(self, home: Path) -> None:
        await grant(home, "mcp", "client-add", EDITOR, "stdin:default")
        async with by_stdio(home) as client:
            assert (await asyncio.to_thread(bot.run, home, "ask", "a linden, please")).returncode == 0
            found = await ask(client, "search", query="linden", session="default")
            assert [hit["snippet"] for hit in found["hits"]][-1:] == ["a linden, please"]

    async def test_wrong_calls_are_told_in_words(self, home: Path) -> None:
        async with by_stdio(home) as client:
            with pytest.raises(MCPError, match="unknown tool 'rm': there are search, read"):
                await client.call_tool("rm", {})
            for arguments, reason in (
                ({"limit": -1}, "limit is -1, but must be at least 1"),
                ({"limit": 10**18}, "limit is 1000000000000000000, but must be at most 100"),
                ({"before": -7}, "before is -7"),
                ({"cursor": "nonsense"}, "cursor is 'nonsense'"),
                ({"lmit": 1}, "there is no lmit"),
            ):
                result = await client.call_tool("read", arguments)
                assert result.is_error
                assert reason in told(result)

    async def test_lines_that_are_no_requests_cost_nothing(self, home: Path) -> None:
        process = await _start(home, "--client", EDITOR)
        assert process.stdin is not None
        assert process.stdout is not None
        hostile = [
            b"not json\n", b"[]\n", b"{}\n", b'{"jsonrpc":"2.0","id":1}\n', b"\xff\xfe\n", b"\n", b"[" * 100_000 + b"\n",
            b'{"jsonrpc":"2.0","id":2,"method":"rm","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}\n',
            json.dumps(request("tools/call", {"name": "read", "arguments": {"session": "x" * 200_000}}, 3)).encode() + b"\n",
        ]  # fmt: skip
        for line in hostile:
            process.stdin.write(line)
        process.stdin.write(json.dumps(request("tools/call", {"name": "memory", "arguments": {}}, 99)).encode() + b"\n")
        await process.stdin.drain()
        async with asyncio.timeout(WAIT):
            while (answer := json.loads(await process.stdout.readline())).get("id") != 99:
                assert len(json.dumps(answer)) < 5_000
        assert answer["result"]["structuredContent"]["long_term"] == "the pine of memory"
        process.stdin.close()
        async with asyncio.timeout(WAIT):
            assert await process.wait() == 0

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_the_process_ends_when_it_is_asked_to(self, home: Path, number: signal.Signals) -> None:
        process = await _start(home, "--client", EDITOR)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request("server/discover", {})).encode() + b"\n")
        async with asyncio.timeout(WAIT):
            assert json.loads(await process.stdout.readline())["id"] == 1
            process.send_signal(number)
            assert await process.wait() == 0

    async def test_who_may_read_nothing_is_told_at_the_start(self, home: Path) -> None:
        done = await asyncio.to_thread(bot.run, home, "mcp", "serve", "--client", "nobody")
        assert done.returncode == 1
        assert bot.sentence(done) == (
            "bubbot: the program 'nobody' may read no chat: bubbot mcp client-add nobody SESSION lets it read one"
        )


class TestHttp:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_program_with_a_token_reads_a_granted_chat(
        self, served: Path, server: HttpServer, mode: ConnectMode
    ) -> None:
        async with server.connect(await make_token(served), mode) as client:
            await look(client)

    async def test_each_program_reads_its_own_chats(self, served: Path, server: HttpServer) -> None:
        await grant(served, "mcp", "client-add", "other", ALSO_GRANTED)
        first, second = await make_token(served), await make_token(served, "other")
        async with server.connect(first) as one, server.connect(second) as other:
            texts = [str(await ask(client, "read")) for client in (one, other)]
        assert "is green" in texts[0]
        assert "is green" not in texts[1]
        assert "second chat" in texts[1]

    async def test_without_a_token_that_counts_nothing_is_answered(self, served: Path, server: HttpServer) -> None:
        body, headers = json.dumps(request("tools/list", {})), headers_of("tools/list")
        await grant(served, "mcp", "client-add", "short", GRANTED)
        old = await make_token(served, "short")
        token = await make_token(served, "short")
        for sent in ("", "x", old, f"{token}x", "ü", "x" * 5_000):
            refused = await server.post(body, sent, headers)
            assert refused.status_code == 401, sent
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert "the token is missing, wrong, or was taken back" in refused.json()["error"]["message"]
        assert (await server.post(body, token, headers)).status_code == 200
        await grant(served, "mcp", "client-remove", "short")
        assert (await server.post(body, token, headers)).status_code == 401
        logged = server.log.read_text()
        assert old not in logged
        assert token not in logged

    @pytest.mark.parametrize(
        ("headers", "status", "reason"),
        [
            ({"Host": "evil.example"}, 421, "the host 'evil.example' is not this machine"),
            ({"Host": "evil.example:80"}, 421, "is not this machine"),
            ({"Host": "127.0.0.1.evil.example"}, 421, "is not this machine"),
            ({"Origin": "http://evil.example"}, 403, "pages of other sites may not ask here"),
            ({"Origin": "null"}, 403, "pages of other sites may not ask here"),
            ({"MCP-Protocol-Version": "2031-01-01"}, 400, "protocol"),
            ({"Mcp-Method": "tools/call"}, 400, "does not match"),
        ],
    )
    async def test_a_wrong_header_is_refused_in_words(
        self, served: Path, server: HttpServer, headers: Mapping[str, str], status: int, reason: str
    ) -> None:
        sent = {**headers_of("tools/list"), **headers}
        refused = await server.post(json.dumps(request("tools/list", {})), await make_token(served), sent)
        assert (refused.status_code, reason in refused.json()["error"]["message"]) == (status, True), refused.text

    async def test_a_wrong_body_is_refused_in_words(self, served: Path, server: HttpServer) -> None:
        token, headers = await make_token(served), headers_of("tools/list")
        for body, status in (
            (b"x" * 3_000_000, 413),
            (b"not json", 400),
            (b"[]", 400),
            (b"\xff", 400),
            (json.dumps({**request("tools/list", {}), "params": {"_meta": {"x" * 9: [1] * 9}}}).encode(), 400),
            (json.dumps({**request("tools/list", {}), "params": {"_meta": "hostile"}}).encode(), 400),
        ):
            refused = await server.post(body, token, headers)
            assert refused.status_code == status, (body[:80], refused.text)
            assert refused.json()["error"]["message"]
        for method in ("GET", "DELETE", "PUT"):
            assert (await server.post(b"", token, method=method)).status_code == 405
        assert (await server.post(json.dumps(request("tools/list", {})), token, headers)).status_code == 200

    @pytest.mark.parametrize("many", [100, pytest.param(1_000, marks=pytest.mark.proof)])
    async def test_many_requests_at_once_are_all_answered(self, served: Path, server: HttpServer, many: int) -> None:
        token, headers = await make_token(served), headers_of("tools/call", "memory")

        async def call(number: int, client: httpx2.AsyncClient) -> Any:
            body = json.dumps(request("tools/call", {"name": "memory", "arguments": {}}, number))
            return (await server.post(body, token, headers, client=client)).json()

        limits = httpx2.Limits(max_connections=many)
        async with httpx2.AsyncClient(timeout=100.0, limits=limits) as client:
            answers = await asyncio.gather(*[call(number, client) for number in range(many)])
        assert [answer["id"] for answer in answers] == [*range(many)]
        assert {answer["result"]["structuredContent"]["long_term"] for answer in answers} == {"the pine of memory"}

    async def test_clients_that_hang_up_cost_others_nothing(self, served: Path, server: HttpServer) -> None:
        token, port = await make_token(served), urlsplit(server.url).port
        body = json.dumps(request("tools/call", {"name": "search", "arguments": {"query": "pine"}})).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        assert port
        for sent in (b"", head[:40], head, head + body[:10], head + body, b"\x16\x03\x01" * 30) * 20:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(sent)
        async with server.connect(token) as client:
            await look(client)

    async def test_it_ends_when_it_is_asked_to_with_requests_open(self, home: Path) -> None:
        with by_http(home) as started, socket.create_connection(_address(started)) as connection:
            connection.sendall(b"POST /mcp HTTP/1.1\r\n")
            started.process.terminate()
            assert await asyncio.to_thread(started.process.wait, WAIT) == 0

    async def test_a_port_that_is_taken_is_named(self, served: Path, server: HttpServer) -> None:
        done = await asyncio.to_thread(bot.run, served, "mcp", "serve", "--http", str(urlsplit(server.url).port))
        assert done.returncode == 1
        assert "cannot be listened on" in bot.sentence(done)


async def test_nothing_is_written_by_serving(home: Path) -> None:
    await make_token(home)
    before = await grant(home, "tape", "list", "--json")
    async with by_stdio(home) as client:
        await look(client)
    assert await grant(home, "tape", "list", "--json") == before
    await grant(home, "tape", "verify")


def _address(server: HttpServer) -> tuple[str, int]:
    parts = urlsplit(server.url)
    return parts.hostname or "", parts.port or 0


async def _start(home: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *BUBBOT,
        "mcp",
        "serve",
        *words,
        env=environment(home),
        cwd=home.parent,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**22,
    )
