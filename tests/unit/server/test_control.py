"""The control server on real sockets: nobody who connects can disturb it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from bubbot.errors import BubbotError, ConfigError, ControlError, StoreFull
from bubbot.server import client, control, peer
from bubbot.server.client import DaemonNotRunning, connect
from bubbot.server.codec import JsonObject
from bubbot.server.control import ControlServer
from bubbot.server.lines import CONTROL_LINE_BYTES
from bubbot.server.peer import PROTOCOL, ControlPeer

WAIT = 10.0
HELLO = json.dumps({"hello": PROTOCOL}).encode() + b"\n"


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
        self.done: list[str] = []
        self.left: list[ControlPeer] = []
        self.somebody_left = asyncio.Event()

    def leave(self, peer: ControlPeer) -> None:
        """Notes who has gone."""
        self.left.append(peer)
        self.somebody_left.set()

    async def say(self, _peer: ControlPeer, body: JsonObject) -> JsonObject:
        """The same again."""
        return body

    async def wait(self, _peer: ControlPeer, body: JsonObject) -> JsonObject:
        """Begins, and goes on when it may."""
        self.started.set()
        await self.go.wait()
        self.done.append(body["name"])
        return {}

    async def fail(self, _peer: ControlPeer, _body: JsonObject) -> JsonObject:
        """An error that is ours."""
        raise StoreFull("the disk is full")

    async def crash(self, _peer: ControlPeer, _body: JsonObject) -> JsonObject:
        """An error that nobody foresaw."""
        raise KeyError("secret")

    async def ask_back(self, peer: ControlPeer, body: JsonObject) -> JsonObject:
        """Asks the client."""
        return await peer.request("back", body, timeout=WAIT)


def mode(path: Path) -> int | None:
    """The permissions of a file; None where there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _put(path: Path, text: str) -> None:
    path.write_text(text)


@asynccontextmanager
async def serving(path: Path, uid: Callable[[socket.socket], int | None] | None = None) -> AsyncIterator[Served]:
    """A server with the handlers of `Served`, which still works at the end of the block."""
    served = Served()
    handlers = {
        "say": served.say,
        "wait": served.wait,
        "fail": served.fail,
        "crash": served.crash,
        "ask": served.ask_back,
    }
    server = ControlServer(handlers, served.leave, **({"uid_of": uid} if uid else {}))
    async with asyncio.timeout(WAIT), server.listen(path):
        yield served
        if uid is None:
            async with connect(str(path)) as bot:
                assert await bot.request("say", {"still": "here"}) == {"still": "here"}


async def raw(path: Path, *data: bytes) -> bytes:
    """Everything the server says to these bytes, until it or the client hangs up."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        for piece in data:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.transport.abort()


async def test_requests_are_answered_and_errors_keep_their_class(path: Path) -> None:
    async with serving(path) as _, connect(str(path)) as bot:
        assert mode(path) == 0o600
        assert await bot.request("say", {"text": "\u00e9\ud800" * 600_000}) == {"text": "\u00e9\ud800" * 600_000}
        with pytest.raises(StoreFull, match="the disk is full"):
            await bot.request("fail", {})
        with pytest.raises(BubbotError, match=r"something went wrong in the running bot \(KeyError\); see its log"):
            await bot.request("crash", {})
        with pytest.raises(ControlError, match="does not know the request 'odd'"):
            await bot.request("odd", {})
    assert mode(path) is None


async def test_the_server_can_ask_too(path: Path) -> None:
    async def answer(_peer: ControlPeer, do: str, body: JsonObject) -> JsonObject:
        return {do: body}

    async with serving(path), connect(str(path), answer) as bot:
        assert await bot.request("ask", {"x": 1}) == {"back": {"x": 1}}
    async with serving(path), connect(str(path)) as bot:
        with pytest.raises(ControlError, match="does not know 'back'"):
            await bot.request("ask", {})


@pytest.mark.parametrize(
    "data",
    [
        [b""],
        [b"\x00\xff" * 5000],
        [b"x" * (CONTROL_LINE_BYTES * 2)],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [HELLO, b"nonsense\n"],
        [HELLO, b"[]\n"],
        [HELLO, b"{}\n"],
        [HELLO, b'{"do": 7, "id": 1, "with": {}}\n'],
        [HELLO, b'{"to": 99, "ok": {}}\n', b'{"to": true}\n'],
        [HELLO, b'{"id": 1, "do": "wait"'],
        [HELLO, b"y" * (CONTROL_LINE_BYTES * 2)],
    ],
)
async def test_garbage_costs_its_sender_the_connection_and_nobody_else_anything(path: Path, data: list[bytes]) -> None:
    async with serving(path) as served, connect(str(path)) as other:
        await raw(path, *data)
        assert await other.request("say", {}) == {}
        await served.somebody_left.wait()


async def test_another_user_is_turned_away_by_the_server_and_by_the_client(path: Path) -> None:
    stranger = os.getuid() + 1
    async with serving(path, lambda _: stranger) as served:
        with pytest.raises(ConfigError, match=f"belongs to uid {os.getuid()}, and this is uid {stranger}"):
            async with connect(str(path)):
                pass
        assert b'"ok"' not in await raw(path, HELLO, b'{"id": 1, "do": "wait", "with": {"name": "x"}}\n')
        assert not served.started.is_set()
    async with serving(path):
        with pytest.raises(ConfigError, match=f"is served by uid {stranger}"):
            async with connect(str(path), uid_of=lambda _: stranger):
                pass


async def test_another_version_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(path):
        monkeypatch.setattr(client, "PROTOCOL", 99)
        with pytest.raises(ConfigError, match="speaks version 1 of the control protocol and this command 99"):
            async with connect(str(path)):
                pass
        monkeypatch.undo()


async def test_who_says_nothing_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "HELLO_TIMEOUT_SECONDS", 0.05)
    async with serving(path) as served:
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.transport.abort()
        assert len(served.left) == 1


async def test_what_a_client_began_is_done_though_it_is_gone(path: Path) -> None:
    async with serving(path) as served:
        async with connect(str(path)) as bot:
            waiting = asyncio.create_task(bot.request("wait", {"name": "x"}))
            await served.started.wait()
        with pytest.raises(ControlError, match="gone"):
            await waiting
        assert served.done == []
        served.go.set()
        await served.somebody_left.wait()
        assert served.done == ["x"]


async def test_what_a_client_said_last_arrives(path: Path) -> None:
    async with serving(path) as served:
        async with connect(str(path)) as bot:
            asking = asyncio.create_task(bot.request("wait", {"text": "x" * 3_000_000}))
            await asyncio.sleep(0)
        await asyncio.gather(asking, return_exceptions=True)
        await served.started.wait()


async def test_a_request_too_many_is_refused_and_the_others_are_answered(path: Path) -> None:
    async with serving(path) as served, connect(str(path)) as bot:
        many = [
            asyncio.create_task(bot.request("wait", {"name": str(number)}))
            for number in range(peer.MAX_CONCURRENT_REQUESTS)
        ]
        await served.started.wait()
        with pytest.raises(ControlError, match="too many requests at once"):
            await bot.request("say", {})
        served.go.set()
        assert await asyncio.gather(*many) == [{}] * peer.MAX_CONCURRENT_REQUESTS


async def test_fifty_clients_at_once(path: Path) -> None:
    async def one(number: int) -> Any:
        async with connect(str(path)) as bot:
            return await asyncio.gather(*(bot.request("say", {"n": [number, turn]}) for turn in range(5)))

    async with serving(path):
        found = await asyncio.gather(*(one(number) for number in range(50)))
    assert found == [[{"n": [number, turn]} for turn in range(5)] for number in range(50)]


async def test_more_clients_than_there_is_room_for_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_CONTROL_CLIENTS", 1)
    async with serving(path):
        async with connect(str(path)):
            with pytest.raises(ControlError, match="connected to the running bot already"):
                async with connect(str(path)):
                    pass
        monkeypatch.undo()


async def test_the_end_of_the_server_is_told_to_who_waits(path: Path) -> None:
    async with asyncio.timeout(WAIT):
        served = Served()
        server = ControlServer({"wait": served.wait, "say": served.say})
        async with server.listen(path):
            link = connect(str(path))
            bot = await link.__aenter__()
            waiting = asyncio.create_task(bot.request("wait", {"name": "x"}))
            await served.started.wait()
            server.quiesce()
            with pytest.raises(ControlError, match="the bot is shutting down"):
                await bot.request("say", {})
        with pytest.raises(ControlError, match="is gone"):
            await waiting
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
    monkeypatch.setattr(client, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(client, "DAEMON_REPLY_TIMEOUT_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(HELLO)
        await reader.read()
        writer.transport.abort()

    server = await asyncio.start_unix_server(silent, path)
    async with asyncio.timeout(WAIT), connect(str(path)) as bot:
        with pytest.raises(ControlError, match="is gone"):
            await bot.request("say", {})
    server.close()
    await server.wait_closed()


class TestSlowReaders:
    """A client that does not read."""

    @asynccontextmanager
    async def stuck(self, path: Path) -> AsyncIterator[ControlPeer]:
        """The server's view of such a client."""
        found: asyncio.Future[ControlPeer] = asyncio.get_running_loop().create_future()

        async def hold(peer: ControlPeer, _body: JsonObject) -> JsonObject:
            found.set_result(peer)
            return {}

        server = ControlServer({"hold": hold})
        async with asyncio.timeout(WAIT), server.listen(path):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(HELLO + b'{"id": 1, "do": "hold", "with": {}}\n')
            await reader.readline()
            try:
                yield await found
            finally:
                writer.transport.abort()

    async def test_what_can_be_spared_is_dropped(self, path: Path) -> None:
        async with self.stuck(path) as slow:
            for _ in range(2000):
                slow.notify("preview", {"text": "x" * 10_000}, droppable=True)
                await asyncio.sleep(0)
            assert peer.SPARE_BUFFER_BYTES < slow._bytes < peer.SPARE_BUFFER_BYTES + 20_000
            assert not slow.closed.is_set()

    async def test_what_cannot_be_spared_ends_it_at_last(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer, "MAX_BUFFER_BYTES", 2**21)
        async with self.stuck(path) as slow:
            while not slow.closed.is_set():
                slow.notify("copy", {"text": "x" * 100_000})
                await asyncio.sleep(0)
            slow.notify("copy", {})
            with pytest.raises(ControlError):
                await slow.request("part", {})

    async def test_who_reads_nothing_for_long_is_gone(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer, "STALL_TIMEOUT_SECONDS", 0.05)
        async with self.stuck(path) as slow:
            slow.notify("copy", {"text": "x" * 5_000_000})
            await slow.closed.wait()

    async def test_an_answer_that_does_not_come_is_not_waited_for(self, path: Path) -> None:
        async with self.stuck(path) as slow:
            with pytest.raises(ControlError, match="no answer within 0 seconds"):
                await slow.request("part", {}, timeout=0.01)
            assert slow._asked == {}
