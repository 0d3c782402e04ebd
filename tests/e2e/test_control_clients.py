"""Clients of a real daemon that fail in every way: whatever they send or leave out, the daemon goes on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot import errors
from bubbot.errors import BubbotError
from bubbot.ports.channel import Inbound, Sender
from bubbot.server.codec import encode
from bubbot.server.lines import CONTROL_LINE_BYTES, encode_lines, read_message
from bubbot.server.peer import PROTOCOL
from tests.e2e import bot, forked, inside
from tests.e2e.bot import environment, sentence
from tests.e2e.test_control import daemon, entries, receipts
from tests.e2e.test_control import sockets as sockets  # noqa: PLC0414 - a fixture

FULL = Path("/dev/full")
OWNER = Sender("0", "owner")
WAIT = 30.0
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
    """A client that speaks the protocol by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        self.writer.writelines(encode_lines(message))
        await self.writer.drain()

    async def until(self, name: str, value: object) -> dict[str, Any] | None:
        """The next message that says this; None at the end of the connection."""
        while (message := await read_message(self.reader)) is not None:
            if message.get(name) == value:
                return message
        return None


@asynccontextmanager
async def client(home: Path) -> AsyncIterator[Client]:
    """A connection to the daemon of this home."""
    address = json.loads((home / "daemon.lock").read_bytes())["address"]
    reader, writer = await asyncio.open_unix_connection(address, limit=CONTROL_LINE_BYTES)
    one = Client(reader, writer)
    try:
        await one.send({"hello": PROTOCOL, "pid": os.getpid()})
        assert await one.until("hello", PROTOCOL)
        yield one
    finally:
        writer.transport.abort()


@pytest.fixture
def home(tmp_path: Path, sockets: Path) -> Iterator[Path]:
    """The home of a daemon that has to live to the end of the test."""
    path = tmp_path / "home"
    with daemon(path, sockets) as process:
        yield path
        assert process.returncode is None, "the daemon has ended"
        assert inside.run(path, "ask", "still there?").stdout == b"You said: still there?\n"


def test_no_answer_of_a_client_to_a_part_ends_the_daemon(home: Path) -> None:
    async def odd(number: int, answer: dict[str, Any]) -> None:
        inbound = Inbound("stdin", f"odd-{number}", f"chat{number}", OWNER, "hi", "2026-11-22T10:00:00Z")
        async with asyncio.timeout(WAIT), client(home) as one:
            await one.send({"id": 1, "do": "ask", "with": {"inbound": encode(inbound)}})
            part = await one.until("do", "part")
            assert part is not None
            await one.send({"to": part["id"], **answer})
            told = await one.until("to", 1)
            assert told is None or told["ok"]["status"] == "answered", answer
        async with asyncio.timeout(WAIT), client(home) as other:
            await other.send({"id": 1, "do": "status", "with": {}})
            assert await other.until("to", 1), answer

    async def each() -> None:
        for number, answer in enumerate(ANSWERS):
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
                one.writer.write(b"\xff\n")
            elif how == "cut":
                one.writer.write(b'{"more": "{"}\n{"to": 1}\n')
            elif how == "half":
                one.writer.write_eof()

    ways = ("abort", "half", "garbage", "cut")
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
        assert enough or told[0].startswith("bubbot: The output could not be written: "), told


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
        assert inside.run(home, "ask", "hello").stdout == b"You said: hello\n"
        assert inside.run(home, "status", "--json").returncode == 0
        assert slow.stdout.read() == f"You said: {large[:100_000]}\n".encode()
        assert slow.process.wait(WAIT) == 0
