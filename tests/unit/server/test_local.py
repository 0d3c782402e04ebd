"""The server on the home's socket: nobody who connects can disturb it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from bubbot.errors import BubbotError, ConfigError, ControlError, StoreFull
from bubbot.server import routes
from bubbot.server.api import Api
from bubbot.server.client import DaemonNotRunning, connect, connect_chat
from bubbot.server.local import serve_socket
from bubbot.server.peer import ChatPeer, ignore_notice
from bubbot.server.routes import RemoteTerminal
from tests.docs.pages import ROOT

WAIT = 60.0
HELLO = b"GET /api/hello HTTP/1.1\r\nHost: x\r\nBubbot-Protocol: 3\r\n\r\n"
GREETING = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"protocol":2}'


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket in a private folder with a short name."""
    folder = Path(tempfile.mkdtemp())
    yield folder / "s"
    rmtree(folder)


class Served:
    """What the handlers of a test saw."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.finished = asyncio.Event()
        self.done: list[str] = []
        self.left: list[Any] = []
        self.somebody_left = asyncio.Event()

    def leave(self, client: Any) -> None:
        """Notes who has gone."""
        self.left.append(client)
        self.somebody_left.set()

    async def say(self, body: dict[str, Any]) -> dict[str, Any]:
        """The same again."""
        return body

    async def wait(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begins, and goes on when it may."""
        self.started.set()
        await self.go.wait()
        self.done.append(body["name"])
        self.finished.set()
        return {}

    async def fail(self, _body: dict[str, Any]) -> dict[str, Any]:
        """An error that is ours."""
        raise StoreFull("the disk is full")

    async def crash(self, _body: dict[str, Any]) -> dict[str, Any]:
        """An error that nobody foresaw."""
        raise KeyError("secret")

    async def ask_back(self, client: Any, body: dict[str, Any]) -> dict[str, Any]:
        """Asks the client."""
        assert isinstance(client, RemoteTerminal)
        return await client.peer.request("back", body, timeout=WAIT)

    @property
    def api(self) -> Api:
        """The handlers as queries, and again as requests of a chat."""
        queries = {"say": self.say, "wait": self.wait, "fail": self.fail, "crash": self.crash}

        def of_chat(query: Callable[[dict[str, Any]], Any]) -> Callable[[Any, dict[str, Any]], Any]:
            return lambda _client, body: query(body)

        chat = {name: of_chat(query) for name, query in queries.items()} | {"ask": self.ask_back}
        return Api(queries, chat, self.leave)


@asynccontextmanager
async def chat_socket(path: Path) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A connection to the server over which anything can be sent."""
    connector = aiohttp.UnixConnector(str(path))
    async with (
        aiohttp.ClientSession(connector=connector, headers={"Bubbot-Protocol": "3"}) as session,
        session.ws_connect("http://x/api/chat") as found,
    ):
        yield found


def mode(path: Path) -> int | None:
    """The permissions of a file; None where there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _put(path: Path, text: str) -> None:
    path.write_text(text)


@asynccontextmanager
async def serving(path: Path, uid: Callable[[socket.socket], int | None] | None = None) -> AsyncIterator[Served]:
    """A server with the handlers of `Served`, which still works at the end of the block."""
    served = Served()
    async with asyncio.timeout(WAIT), serve_socket(served.api, path, **({"uid_of": uid} if uid else {})):
        yield served
        if uid is None:
            async with connect(str(path)) as bot:
                assert await bot.request("say", {"still": "here"}) == {"still": "here"}


async def refuse(name: str, _body: dict[str, Any]) -> dict[str, Any]:
    """A client that does nothing."""
    raise ControlError(f"this chat does not know {name!r}")


def chatting(path: Path, on_request: Callable[..., Any] = refuse) -> Any:
    """A chat with the server."""
    return connect_chat(str(path), on_request, ignore_notice)


async def test_requests_are_answered_and_errors_keep_their_class(path: Path) -> None:
    async with serving(path) as _, connect(str(path)) as bot, chatting(path) as chat:
        assert mode(path) == 0o600
        for one in (bot, chat):
            assert await one.request("say", {"text": "\u00e9\ud800" * 600_000}) == {"text": "\u00e9\ud800" * 600_000}
            with pytest.raises(StoreFull, match="the disk is full"):
                await one.request("fail", {})
            with pytest.raises(BubbotError, match=r"something went wrong in the running bot \(KeyError\); see its log"):
                await one.request("crash", {})
            with pytest.raises(ControlError, match="does not know the request 'odd'"):
                await one.request("odd", {})
    assert mode(path) is None


async def test_the_server_can_ask_too(path: Path) -> None:
    async def answer(name: str, body: dict[str, Any]) -> dict[str, Any]:
        return {name: body}

    async with serving(path), chatting(path, answer) as bot:
        assert await bot.request("ask", {"x": 1}) == {"back": {"x": 1}}
    async with serving(path), chatting(path) as bot:
        with pytest.raises(ControlError, match="does not know 'back'"):
            await bot.request("ask", {})


@pytest.mark.parametrize("text", ["nonsense", "[]", "{}", '{"do": 7, "id": 1, "with": {}}', "\x00" * 5_000_000])
async def test_garbage_in_a_chat_costs_its_sender_the_connection_and_nobody_else_anything(
    path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.server.routes.MESSAGE_LIMIT", 2**22)
    async with serving(path) as served, chatting(path) as other, chat_socket(path) as garbled:
        await garbled.send_str('{"to": 99, "ok": {}}')
        await garbled.send_str('{"id": 1, "do": "say", "with": {}}')
        assert await garbled.receive_json() == {"to": 1, "ok": {}}, "an answer to nothing is no harm"
        with suppress(ConnectionError):
            await garbled.send_str(text)
        while (await garbled.receive()).type != aiohttp.WSMsgType.CLOSED:
            pass
        await served.somebody_left.wait()
        assert await other.request("say", {}) == {}


async def test_another_user_is_turned_away_by_the_server_and_by_the_client(path: Path) -> None:
    stranger = os.getuid() + 1
    async with serving(path, lambda _: stranger) as served:
        for link in (connect(str(path)), chatting(path)):
            with pytest.raises(ConfigError, match=f"belongs to uid {os.getuid()}, and this is uid {stranger}"):
                async with link:
                    pass
        assert not served.started.is_set()
    async with serving(path):
        with pytest.raises(ConfigError, match=f"is served by uid {stranger}"):
            async with connect(str(path), uid_of=lambda _: stranger):
                pass


async def test_another_version_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(path):
        monkeypatch.setattr("bubbot.server.client.PROTOCOL", 99)
        with pytest.raises(ConfigError, match="speaks version 3 of the control protocol and this command '99'"):
            async with connect(str(path)):
                pass
        monkeypatch.undo()


async def test_who_says_nothing_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bubbot.server.routes.SOCKET_LIMITS", structs.replace(routes.SOCKET_LIMITS, request_seconds=0.05)
    )
    async with serving(path):
        for data in (b"", b"GET /api", HELLO[:-2]):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(data)
            assert await reader.read() == b""
            writer.transport.abort()


async def test_what_a_client_began_is_done_though_it_is_gone(path: Path) -> None:
    async with serving(path) as served:
        for link in (connect(str(path)), chatting(path)):
            served.started.clear()
            served.go.clear()
            served.done.clear()
            async with link as bot:
                waiting = asyncio.create_task(bot.request("wait", {"name": "x"}))
                await served.started.wait()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert served.done == []
            served.go.set()
            await served.finished.wait()
            served.finished.clear()
            assert served.done == ["x"]
        await served.somebody_left.wait()


async def test_what_a_client_said_last_arrives(path: Path) -> None:
    async with serving(path) as served:
        async with chatting(path) as bot:
            asking = asyncio.create_task(bot.request("wait", {"text": "x" * 3_000_000}))
            await asyncio.sleep(0)
        await asyncio.gather(asking, return_exceptions=True)
        await served.started.wait()


async def test_a_request_too_many_is_refused_and_the_others_are_answered(path: Path) -> None:
    async with serving(path) as served, chatting(path) as bot:
        many = [asyncio.create_task(bot.request("wait", {"name": str(number)})) for number in range(64)]
        await served.started.wait()
        with pytest.raises(ControlError, match="too many requests at once"):
            await bot.request("say", {})
        served.go.set()
        assert await asyncio.gather(*many) == [{}] * 64


async def test_fifty_clients_at_once(path: Path) -> None:
    async def one(number: int) -> Any:
        async with connect(str(path)) as bot:
            return [await bot.request("say", {"n": [number, turn]}) for turn in range(5)]

    async with serving(path):
        found = await asyncio.gather(*(one(number) for number in range(50)))
    assert found == [[{"n": [number, turn]} for turn in range(5)] for number in range(50)]


async def test_more_clients_than_there_is_room_for_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.server.routes.MAX_CHATS", 1)
    async with serving(path), chatting(path):
        with pytest.raises(ControlError, match="takes no further chat"):
            async with chatting(path):
                pass


async def test_the_end_of_the_server_is_told_to_who_waits(path: Path) -> None:
    async with asyncio.timeout(WAIT):
        served = Served()
        api = served.api
        async with serve_socket(api, path):
            links = [connect(str(path)), chatting(path)]
            bots = [await link.__aenter__() for link in links]
            waiting = [asyncio.create_task(bot.request("wait", {"name": "x"})) for bot in bots]
            await served.started.wait()
            api.is_stopping = True
            with pytest.raises(ControlError, match="the bot is shutting down"):
                await bots[1].request("say", {})
            with pytest.raises(ControlError, match="the bot is shutting down"):
                async with connect(str(path)):
                    pass
        for one in waiting:
            with pytest.raises(ControlError, match="is gone"):
                await one
        for link in links:
            await link.__aexit__(None, None, None)
        with pytest.raises(DaemonNotRunning):
            async with connect(str(path)):
                pass


async def test_a_socket_that_was_left_behind_is_replaced_and_anything_else_is_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(DaemonNotRunning):
        async with connect(str(path)):
            pass
    async with serving(path):
        pass
    _put(path, "precious")
    with pytest.raises(ConfigError, match="is not a socket"):
        async with serving(path):
            pass
    assert mode(path) is not None
    path.parent.chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        async with serving(path):
            pass


async def test_a_bot_that_does_not_answer_any_more_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.server.client.PING_SECONDS", 0.01)
    monkeypatch.setattr("bubbot.server.client.DAEMON_REPLY_TIMEOUT_SECONDS", 0.2)
    greetings = iter([GREETING])

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(next(greetings, b""))
            await reader.read()
        finally:  # also if the test ends first
            writer.transport.abort()

    server = await asyncio.start_unix_server(silent, path)
    async with asyncio.timeout(WAIT), connect(str(path)) as bot:
        with pytest.raises(ControlError, match="is gone"):
            await bot.request("say", {})
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_who_greets_in_another_way_is_no_bot(path: Path, answer: bytes) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(odd, path)
    async with asyncio.timeout(WAIT):
        with pytest.raises(DaemonNotRunning):
            async with connect(str(path)):
                pass
    server.close()
    await server.wait_closed()


async def test_an_answer_that_does_not_come_is_not_waited_for(path: Path) -> None:
    async with serving(path), connect(str(path)) as bot:
        with pytest.raises(ControlError, match="no answer within 0 seconds"):
            await bot.request("wait", {"name": "x"}, timeout=0.01)


def test_an_idle_bot_has_not_loaded_the_http_library() -> None:
    """It is loaded when the first client connects."""
    code = """
import asyncio, pathlib, sys, tempfile
from bubbot.server.api import Api
from bubbot.server.client import connect
from bubbot.server.local import serve_socket
async def main():
    path = pathlib.Path(tempfile.mkdtemp()) / "s"
    async def say(body):
        return body
    async with serve_socket(Api({"say": say}), path):
        await asyncio.sleep(0.1)
        before = "aiohttp" in sys.modules
        async with connect(str(path)) as bot:
            assert await bot.request("say", {"x": 1}) == {"x": 1}
        return before, "aiohttp" in sys.modules
assert asyncio.run(main()) == (False, True)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0


class TestSlowReaders:
    """A client that does not read."""

    @asynccontextmanager
    async def stuck(self, path: Path) -> AsyncIterator[ChatPeer]:
        """The server's view of such a client."""
        found: asyncio.Future[ChatPeer] = asyncio.get_running_loop().create_future()

        async def hold(client: Any, _body: dict[str, Any]) -> dict[str, Any]:
            assert isinstance(client, RemoteTerminal)
            found.set_result(client.peer)
            return {}

        async with asyncio.timeout(WAIT), serve_socket(Api({}, {"hold": hold}), path):
            async with connect(str(path)):  # loads the library
                pass
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(
                b"GET /api/chat HTTP/1.1\r\nHost: x\r\nBubbot-Protocol: 3\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            text = b'{"id": 1, "do": "hold", "with": {}}'
            writer.write(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)
            await reader.read(3)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            try:
                yield await found
            finally:
                writer.transport.abort()

    async def test_what_can_be_spared_is_dropped(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.server.peer.MAX_BUFFER_BYTES", 2**21)
        async with self.stuck(path) as slow:
            for _ in range(2000):
                slow.notify("preview", {"text": "x" * 10_000}, droppable=True)
                await asyncio.sleep(0)
            assert not slow.closed.is_set()

    async def test_what_cannot_be_spared_ends_it_at_last(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.server.peer.MAX_BUFFER_BYTES", 2**21)
        async with self.stuck(path) as slow:
            while not slow.closed.is_set():
                slow.notify("copy", {"text": "x" * 100_000})
                await asyncio.sleep(0)
            slow.notify("copy", {})
            with pytest.raises(ControlError):
                await slow.request("part", {})

    async def test_who_reads_nothing_for_long_is_gone(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.server.peer.STALL_TIMEOUT_SECONDS", 0.05)
        async with self.stuck(path) as slow:
            slow.notify("copy", {"text": "x" * 5_000_000})
            await slow.closed.wait()

    async def test_an_answer_that_does_not_come_is_not_waited_for(self, path: Path) -> None:
        async with self.stuck(path) as slow:
            with pytest.raises(ControlError, match="no answer within 0 seconds"):
                await slow.request("part", {}, timeout=0.01)
