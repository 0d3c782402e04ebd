"""The channel port over real pipes: the terminal adapter in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import ChannelOptions, Inbound, MessagePart, Outbound
from channels.terminal.stdin import create

WAIT = 60.0
ROOT = Path(__file__).parents[2]
CHILD = """
import asyncio, json, os, sys
from msgspec import to_builtins
from pathlib import Path
from bubbot.ports.channel import ChannelOptions, Inbound, MessagePart
from bubbot.errors import DeliveryFailed
from channels.terminal.stdin import create

async def main():
    channel = create(ChannelOptions("stdin", Path("."), lambda: "2026-11-21T20:21:00+00:00", lambda: "p", {}))
    async def receive(event):
        seen = to_builtins(event)
        if not isinstance(event, Inbound):
            seen["raw"] = len(event.raw)
        elif len(event.text) > 1000:
            seen["text"] = len(event.text)
        print(json.dumps(seen), file=sys.stderr, flush=True)
        if isinstance(event, Inbound) and event.text.startswith("say "):
            try:
                await channel.send(MessagePart(event.chat, event.text.removeprefix("say ")))
            except DeliveryFailed as error:
                print(json.dumps({"failed": str(error)}), file=sys.stderr, flush=True)
    await channel.run(receive)
    print(json.dumps({"ended": True}), file=sys.stderr, flush=True)

asyncio.run(main())
os._exit(0)  # what Python says of its own streams at its end is not the adapter's
"""


@asynccontextmanager
async def child() -> AsyncIterator[asyncio.subprocess.Process]:
    """The adapter in a process whose three streams are pipes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()


async def talk(data: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """What the adapter received of this input, and what it printed."""
    async with child() as process, asyncio.timeout(30):
        out, err = await process.communicate(data)
        return [json.loads(line) for line in err.splitlines()], out


async def test_every_line_is_a_message_with_an_id_of_its_own() -> None:
    seen, _ = await talk("one\ntwo é漢👍\r\n\n   \n  three\nlast without an end".encode())
    assert [event["text"] for event in seen[:-1]] == ["one", "two é漢👍", "  three", "last without an end"]
    ids = [event["external_id"] for event in seen[:-1]]
    assert ids == ["p-1", "p-2", "p-5", "p-6"]
    assert {(event["channel"], event["chat"], event["sender"]["id"]) for event in seen[:-1]} == {
        ("stdin", "default", "0")
    }
    assert seen[-1] == {"ended": True}


async def test_it_ends_with_its_input_or_with_quit() -> None:
    assert (await talk(b""))[0] == [{"ended": True}]
    seen, _ = await talk(b"one\n,quit\nnever read\n")
    assert [event.get("text") for event in seen] == ["one", ",quit", None]


async def test_bytes_that_are_no_text_are_set_aside_and_the_next_line_is_read() -> None:
    seen, _ = await talk(b"caf\xe9\nfine\n")
    assert (seen[0]["reason"], seen[0]["raw"]) == ("line 1 is not valid UTF-8 (byte 4)", 5)
    assert seen[1]["text"] == "fine"


async def test_a_line_beyond_the_limit_is_set_aside_with_its_beginning() -> None:
    seen, _ = await talk(b"x" * 16_777_226 + b"\nfine\n" + b"y" * 2_000_000 + b"\n")
    assert ("longer than 16 MiB" in seen[0]["reason"], seen[0]["raw"]) == (True, 65_536)
    assert (seen[1]["text"], seen[2]["text"]) == ("fine", 2_000_000)


async def test_answers_are_printed_into_a_pipe_without_what_a_terminal_would_obey() -> None:
    _, out = await talk("say first\nsay é漢👍👨\u200d👩 \x1b[31mred\u202e\u009b2J\n".encode())
    assert out.decode() == "first\né漢👍👨\u200d👩 \ufffd[31mred\ufffd\ufffd2J\n"


async def test_a_line_is_received_before_the_next_one_is_written() -> None:
    async with child() as process, asyncio.timeout(30):
        assert process.stdin is not None
        assert process.stdout is not None
        for word in (b"one", b"two"):
            process.stdin.write(b"say " + word + b"\n")
            await process.stdin.drain()
            assert await process.stdout.readline() == word + b"\n"


async def test_an_output_that_is_gone_is_a_failure_and_not_the_end() -> None:
    async with child() as process, asyncio.timeout(30):
        assert process.stdin is not None
        assert process.stderr is not None
        transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.close()
        process.stdin.write(b"say hello\nand on\n")
        process.stdin.close()
        seen = [json.loads(line) for line in (await process.stderr.read()).splitlines()]
    assert seen[1]["failed"].startswith("standard output is gone")
    assert [event["text"] for event in (seen[0], seen[2])] == ["say hello", "and on"]
    assert seen[3] == {"ended": True}


class TestInProcess:
    @pytest.fixture
    def options(self, tmp_path: Path) -> ChannelOptions:
        return ChannelOptions("stdin", tmp_path, lambda: "now", lambda: "p", {"chat": "work"})

    @pytest.fixture(autouse=True)
    def pipes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FileIO]:
        """Standard input is a real pipe, whose writing end is given; standard output a real file."""
        others = set(threading.enumerate())
        read, write = os.pipe()
        with os.fdopen(read) as stdin, (tmp_path / "out").open("w", encoding="utf-8") as stdout:
            monkeypatch.setattr(sys, "stdin", stdin)
            monkeypatch.setattr(sys, "stdout", stdout)
            with os.fdopen(write, "wb", buffering=0) as writing:
                yield writing
            for thread in set(threading.enumerate()) - others:
                thread.join(WAIT)  # nobody closes what it still reads

    async def test_the_chat_is_the_configured_one(self, options: ChannelOptions, pipes: FileIO) -> None:
        seen: list[Inbound] = []

        async def receive(event: object) -> None:
            assert isinstance(event, Inbound)
            seen.append(event)

        pipes.write(b"hello\n")
        pipes.close()
        async with asyncio.timeout(WAIT):
            await create(options).run(receive)
        assert [(event.session, event.text, event.time) for event in seen] == [("stdin:work", "hello", "now")]

    async def test_a_pipe_is_read_no_faster_than_its_lines_are_received(
        self, options: ChannelOptions, pipes: FileIO
    ) -> None:
        enough = asyncio.Event()

        async def receive(event: object) -> None:
            await enough.wait()

        running = asyncio.create_task(create(options).run(receive))
        os.set_blocking(pipes.fileno(), False)
        written = full = 0
        while full < 20 and written < 4_000_000:  # full: no room for 0.1 s
            found = pipes.write(b"line\n" * 800)
            written, full = written + (found or 0), 0 if found else full + 1
            await asyncio.sleep(0 if found else 0.005)
        enough.set()
        pipes.close()
        async with asyncio.timeout(WAIT):
            await running
        assert written < 1_000_000

    async def test_it_runs_until_it_is_cancelled(self, options: ChannelOptions, pipes: FileIO) -> None:
        async def receive(event: object) -> None:
            raise AssertionError("nothing was written")

        running = asyncio.create_task(create(options).run(receive))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    @pytest.mark.parametrize("text", ["", "short", "x" * 1_000_000, "a\n\nb", "\x00"])
    def test_parts_lose_nothing_of_the_text(self, options: ChannelOptions, text: str) -> None:
        parts: Sequence[MessagePart] = create(options).parts(Outbound("stdin", "work", text, "t", "m1"))
        assert "".join(part.text for part in parts) == text
        assert {(part.chat, part.thread, part.reply_to) for part in parts} == {("work", "t", "m1")}

    async def test_a_part_goes_to_whoever_the_settings_name(self, options: ChannelOptions) -> None:
        written: list[str] = []
        channel = create(ChannelOptions("stdin", options.home, options.now, options.new_id, {"write": written.append}))
        await channel.send(MessagePart("default", "hello"))
        assert written == ["hello"]

    async def test_what_cannot_be_written_is_a_delivery_failure(self, options: ChannelOptions) -> None:
        def broken(text: str) -> None:
            raise BrokenPipeError("broken pipe")

        channel = create(ChannelOptions("stdin", options.home, options.now, options.new_id, {"write": broken}))
        with pytest.raises(DeliveryFailed, match="standard output is gone"):
            await channel.send(MessagePart("default", "hello"))
