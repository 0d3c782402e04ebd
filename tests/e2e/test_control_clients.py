"""Clients of a real daemon that fail in every way: whatever they send or leave out, the daemon goes on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bubbot import errors
from bubbot.errors import BubbotError
from bubbot.home import Home, WriterLock
from bubbot.ports.channel import Inbound, Sender
from bubbot.server.protocol import encode
from tests.e2e import bot, forked, inside
from tests.e2e.bot import environment, sentence
from tests.e2e.test_control import daemon, entries, receipts
from tests.e2e.test_control import sockets as sockets  # noqa: PLC0414 - a fixture

FULL = Path("/dev/full")
OWNER = Sender("0", "owner")
WAIT = 60.0
KINDS = sorted({one.kind for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BubbotError)})
ATTRIBUTES = ("permanent", "retry_after", "maybe", "gone", "told", "reason", "values")
ODD: list[Any] = ["\x1b", -1, 1e308, [], {"a": 1}]
ERRORS: list[Any] = [
    *({"kind": kind} for kind in KINDS),
    *({"kind": "delivery_failed", "text": "no", name: True} for name in ATTRIBUTES),
    *({"kind": "delivery_failed", name: value} for name in ATTRIBUTES for value in ODD),
    {"kind": "delivery_failed", "text": "\ud800\x1b]52;c;eA==\x07" * 1000},
    {"kind": "nobody_knows", "text": 7},
    {"kind": []},
    {},
    None,
    "no",
    7,
]
ANSWERS: list[dict[str, Any]] = [
    *({"error": error} for error in ERRORS),
    *({"ok": {"external_id": odd}} for odd in (*ODD, None, 7, "\ud800", "x" * 100_000, "a\nb")),
    {"ok": None},
    {},
]


class Client:
    """A chat client that speaks the protocol by hand."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        await self.socket.send_str(json.dumps(message))

    async def until(self, name: str, value: object) -> dict[str, Any] | None:
        """The next message that says this; None at the end of the connection."""
        async for message in self.socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                return None
            found: dict[str, Any] = json.loads(message.data)
            if found.get(name) == value:
                return found
        return None


def address(home: Path) -> str:
    """The socket of the daemon of this home."""
    found: str = json.loads((home / "daemon.lock").read_bytes())["address"]
    return found


@asynccontextmanager
async def client(home: Path) -> AsyncIterator[Client]:
    """A chat with the daemon of this home, which ends without a word."""
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(address(home))) as session:
        headers = {"Bubbot-Protocol": "3"}
        socket = await session.ws_connect("http://x/api/chat", headers=headers, max_msg_size=0)
        yield Client(socket)
    # Sends nothing more. Without it aiohttp complains as soon as the collector comes to the connection before the response.
    await socket.close()


@pytest.fixture
def home(tmp_path: Path, sockets: Path) -> Iterator[Path]:
    """The home of a daemon that has to live to the end of the test."""
    path = tmp_path / "home"
    with daemon(path, sockets) as process:
        yield path
        assert process.returncode is None, "the daemon has ended"
        assert inside.run(path, "ask", "still there?").stdout == b"You said: still there?\n"


@pytest.mark.parametrize("answers", [ANSWERS[::3], pytest.param(ANSWERS, marks=pytest.mark.proof)], ids=["some", "all"])
def test_no_answer_of_a_client_to_a_part_ends_the_daemon(home: Path, answers: Sequence[dict[str, Any]]) -> None:
    async def odd(number: int, answer: dict[str, Any]) -> None:
        inbound = Inbound("stdin", f"odd-{number}", f"chat{number}", OWNER, "hi", "2026-11-22T10:00:00Z")
        async with asyncio.timeout(WAIT), client(home) as one:
            await one.send({"id": 1, "do": "ask", "with": {"inbound": encode(inbound)}})
            part = await one.until("do", "part")
            assert part is not None
            await one.send({"to": part["id"], **answer})
            told = await one.until("to", 1)
            assert told is None or told["ok"]["result"]["status"] == "answered", answer
        async with asyncio.timeout(WAIT), client(home) as other:
            await other.send({"id": 1, "do": "owed", "with": {"session": "stdin:nobody"}})
            assert await other.until("to", 1), answer

    async def each() -> None:
        for number, answer in enumerate(answers):
            await odd(number, answer)

    asyncio.run(each())
    assert inside.run(home, "tape", "verify").returncode == 0


def test_a_client_that_leaves_while_it_is_shown_a_part_ends_nothing_and_is_owed_the_part(home: Path) -> None:
    async def leave(how: str) -> None:
        inbound = Inbound("stdin", how, "default", OWNER, how, "2026-11-22T10:00:00Z")
        async with asyncio.timeout(WAIT), client(home) as one:
            await one.send({"id": 1, "do": "ask", "with": {"inbound": encode(inbound)}})
            assert await one.until("do", "part")
            if how == "garbage":
                await one.socket.send_str("\x00nonsense")
            elif how == "binary":
                await one.socket.send_bytes(b"{}")
            elif how == "polite":
                await one.socket.close()

    ways = ("abort", "polite", "garbage", "binary")
    for how in ways:
        asyncio.run(leave(how))
    assert sorted(bot.said(home)) == sorted(f"You said: {how}" for how in ways)


CLIENTS: list[tuple[tuple[str, ...], bytes]] = [
    (("ask", "hello"), b""),
    (("ask", "--json", "hello"), b""),
    (("chat",), b"hello\n,tape.info\nand on\n"),
    (("status",), b""),
    (("reload",), b""),
    (("memory", "save", "default", "Likes tea."), b""),
    (("schedule", "list"), b""),
]


@pytest.mark.sampled(2)
@pytest.mark.skipif(not FULL.exists(), reason="has no disk that is always full")
@pytest.mark.parametrize("output", ["closed", "full", "left"])
def test_a_client_without_an_output_fails_in_one_sentence_and_the_daemon_goes_on(home: Path, output: str) -> None:
    inside.run(home, "ask", "before")
    for arguments, given in CLIENTS:
        done = without_output(home, output, *arguments, given=given)
        told = [line for line in done.stderr.decode().splitlines() if "level=warning" not in line]
        enough = output == "left" and arguments[0] not in ("ask", "chat")  # as `bubbot tape list | head`
        expected = (0, 0) if enough else (1, 1)
        assert (done.returncode, len(told)) == expected, (arguments, done.returncode, done.stderr.decode())
        beginning = '{"error": {"message": "' if "--json" in arguments else "bubbot: "
        assert enough or told[0].startswith(f"{beginning}The output could not be written: "), told


def without_output(home: Path, output: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command whose standard output is closed, full, or a pipe that nobody reads."""
    if output == "full":
        out = os.open(FULL, os.O_WRONLY)
    else:
        read, out = os.pipe()
        os.close(read)
    try:
        stdout = None if output == "closed" else out
        return forked.run(forked.BOT, arguments, given, env=environment(home), cwd=home.parent, stdout=stdout)
    finally:
        os.close(out)


@pytest.mark.sampled(2)
@pytest.mark.skipif(not FULL.exists(), reason="has no disk that is always full")
@pytest.mark.parametrize("beside", [True, False])
def test_a_lost_answer_does_not_come_first_in_the_next_script(tmp_path: Path, sockets: Path, beside: bool) -> None:
    home = tmp_path / "home"

    def talk() -> None:
        assert without_output(home, "full", "ask", "lost").returncode == 1
        assert without_output(home, "full", "chat", given=b"lost too\n").returncode == 1
        left = without_output(home, "left", "ask", "lost as well")
        assert left.returncode == 1
        assert "bubbot tape show stdin:default --last 5" in sentence(left)
        assert bot.said(home, "hello") == ["You said: hello"]
        assert [one["payload"]["content"] for one in entries(home) if one["payload"].get("role") == "assistant"][
            -2:
        ] == [
            "You said: lost as well",
            "You said: hello",
        ]

    if not beside:
        home.mkdir(mode=0o700)
        talk()
        return
    with daemon(home, sockets) as process:
        talk()
        assert process.returncode is None
        assert len(receipts(home)) == 1


def test_a_client_that_does_not_read_keeps_nobody_waiting(home: Path) -> None:
    large = "x" * 300_000  # more than a pipe holds
    with bot.opened(home, "ask", "--session", "slow", large[:100_000]) as slow:
        slow.stdin.close()
        assert inside.run(home, "ask", "hello").stdout == b"You said: hello\n"
        assert inside.run(home, "status", "--json").returncode == 0
        assert slow.stdout.read() == f"You said: {large[:100_000]}\n".encode()
        assert slow.process.wait(WAIT) == 0


async def told(home: Path, pieces: Sequence[bytes], expected: bytes) -> bytes:
    """What the daemon says to these bytes, until it has said what is expected or hangs up."""
    reader, writer = await asyncio.open_unix_connection(address(home))
    answer = b""
    try:
        async with asyncio.timeout(WAIT):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while expected not in answer:
                data = await reader.read(2**16)
                if not data:
                    break
                answer += data
        return answer
    except OSError:
        return answer
    finally:
        writer.transport.abort()


HEAD = b"POST /api/do/status HTTP/1.1\r\nHost: x\r\nBubbot-Protocol: 3\r\n"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b""], b""),
        ([b"\x00\xff" * 5000], b"400 Bad Request"),
        ([b"x" * 2_000_000], b""),
        ([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], b"404 Not Found"),
        ([b"GET /api/hello HTTP/1.1\r\nHost: x\r\n\r\n"], b"restart the bot after an update"),
        ([HEAD, b"Content-Length: 2\r\n\r\n[]"], b"a message was not a JSON object"),
        ([HEAD, b"Content-Length: 4\r\n\r\n\xff\xff\xff\xff"], b"a message was not JSON"),
        ([HEAD, b"Content-Length: 200000\r\n\r\n", b"[" * 200_000], b"a message was not JSON"),
        ([HEAD, b"Content-Length: 300000000\r\n\r\n"], b"413"),
        ([HEAD, b"Content-Length: 20\r\n\r\n{}"], b""),
        ([HEAD, b"X-Long: ", b"y" * 100_000, b"\r\n\r\n"], b"400 Bad Request"),
        ([HEAD, b"X-More: z\r\n" * 5000, b"\r\n"], b"400 Bad Request"),
        ([HEAD.replace(b"status", b"nothing"), b"Content-Length: 2\r\n\r\n{}"], b"does not know the request 'nothing'"),
        ([b'{"hello": 1, "pid": 7}\n'], b"restart the bot after an update"),
        ([b'{"hello": 1, "pid": 7}\n', b'{"id": 1, "do": "status", "with": {}}\n'], b'"kind":"config"'),
    ],
)
async def test_garbage_costs_its_sender_the_connection_and_nobody_else_anything(
    home: Path, pieces: list[bytes], expected: bytes
) -> None:
    assert expected in await told(home, pieces, expected)
    assert (await asyncio.to_thread(inside.run, home, "status")).returncode == 0


async def test_sixty_four_requests_at_once_are_answered_and_one_more_is_refused(home: Path) -> None:
    async with asyncio.timeout(WAIT), client(home) as one:
        for number in range(65):
            inbound = Inbound("stdin", f"many-{number}", "many", OWNER, "hi", "2026-11-22T10:00:00Z")
            await one.send({"id": number, "do": "ask", "with": {"inbound": encode(inbound)}})
        answers: dict[int, dict[str, Any]] = {}
        async for message in one.socket:
            found = json.loads(message.data)
            if found.get("do") == "part":
                await one.send({"to": found["id"], "ok": {}})
            elif "to" in found:
                answers[found["to"]] = found
            if len(answers) == 65:
                break
    assert "too many requests at once" in answers.pop(64)["error"]["text"]
    assert {answer["ok"]["result"]["text"] for answer in answers.values()} == {"You said: hi"}


async def test_a_bot_of_an_older_version_is_told_apart(tmp_path: Path, sockets: Path) -> None:
    """It hangs up on HTTP, and refuses another version in a line of JSON."""

    async def older(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readline()).startswith(b"{"):
            text = "the running bot speaks version 1 of the control protocol and this command 2: restart the bot after an update"
            writer.write(json.dumps({"error": {"kind": "config", "text": text}}).encode() + b"\n")
            await writer.drain()
        writer.close()

    home, path = tmp_path / "home", sockets / "old.sock"
    home.mkdir(mode=0o700)
    server = await asyncio.start_unix_server(older, path)
    with WriterLock(Home(home), str(path)):
        for arguments in (("status",), ("ask", "hi"), ("chat",), ("memory", "save", "default", "x")):
            done = await asyncio.to_thread(inside.run, home, *arguments)
            assert (done.returncode, "restart the bot after an update" in sentence(done)) == (2, True), arguments
    server.close()
