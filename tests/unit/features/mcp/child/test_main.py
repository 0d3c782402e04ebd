"""The child: what one server or one request does wrong costs no other request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.mcp.child.connection import Connection
from bubbot.features.mcp.child.main import ChildServer
from bubbot.features.mcp.child.messages import ChildAnswer, ChildRequest, read_line
from bubbot.features.mcp.child.values import McpFailed, ServerPlace, ToolReply
from tests.mcp.places import ENVIRONMENT, WAIT, hostile


class Output:
    """What the child writes to the daemon."""

    def __init__(self) -> None:
        self._answers: dict[int, ChildAnswer] = {}
        self._came = asyncio.Condition()

    def write(self, line: bytes) -> None:
        answer = read_line(line, ChildAnswer)
        self._answers[answer.id] = answer

    async def drain(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def read(self, number: int) -> ChildAnswer:
        """Wait for the answer to a request."""
        async with self._came, asyncio.timeout(WAIT):
            await self._came.wait_for(lambda: number in self._answers)
            return self._answers[number]


@asynccontextmanager
async def child_server() -> AsyncIterator[tuple[ChildServer, Output]]:
    output: Any = Output()
    server = ChildServer(output)
    try:
        yield server, output
    finally:
        await server.close()


def is_running(file: Path) -> bool:
    """Return true if the process runs whose id is in a file."""
    return Path(f"/proc/{int(file.read_text())}").exists()


def ask(number: int, place: ServerPlace, do: Any = "call", *, connect_timeout: float = WAIT) -> ChildRequest:
    return ChildRequest(id=number, do=do, place=place, connect_timeout=connect_timeout, timeout=WAIT, tool="work")


async def test_a_call_that_fails_late_leaves_the_connection_that_came_after_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, place, numbers = Connection.call, hostile("dies"), iter(range(3))
    is_late, may_fail, is_running, may_end = (asyncio.Event() for _ in range(4))

    async def call_oddly(self: Connection, *args: Any, **more: Any) -> ToolReply:
        match next(numbers):
            case 0:
                is_late.set()
                await may_fail.wait()
                raise McpFailed("it ended", is_gone=True)
            case 1:
                return await call(self, *args, **more)
        is_running.set()
        await may_end.wait()
        return ToolReply("lost" if self.is_lost else "done")

    monkeypatch.setattr(Connection, "call", call_oddly)
    async with child_server() as (child, output):
        child.take(ask(1, place))
        await is_late.wait()
        child.take(ask(2, place))  # the server dies
        assert (await output.read(2)).failure is not None
        child.take(ask(3, place))
        await is_running.wait()
        may_fail.set()
        assert (await output.read(1)).failure is not None
        may_end.set()
        assert (await output.read(3)).reply == ToolReply("done")


async def test_requests_wait_for_a_server_that_hangs_no_longer_than_their_own_time(tmp_path: Path) -> None:
    script = f"echo started >> {tmp_path}/starts; exec sleep 600"
    place = ServerPlace("x", argv=("/bin/sh", "-c", script), env=ENVIRONMENT)
    async with child_server() as (child, output):
        for number in range(1, 6):
            child.take(ask(number, place, connect_timeout=0.5))
        for number in range(1, 6):
            failure = (await output.read(number)).failure
            assert failure is not None
            assert failure.reason == "it did not answer in time"
    assert (tmp_path / "starts").read_text().splitlines() == ["started"]


async def test_what_the_library_says_of_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> ToolReply:
        raise RuntimeError("a\nforged line\x1b[31m" + "x" * 1000)

    monkeypatch.setattr(Connection, "call", fail)
    async with child_server() as (child, output):
        child.take(ask(1, hostile("work")))
        failure = (await output.read(1)).failure
    assert failure is not None
    assert failure.reason.startswith("RuntimeError: a forged line")
    assert failure.reason.isprintable()
    assert len(failure.reason) <= 300


async def test_a_connection_is_closed_also_while_it_is_opened(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"echo $$ > {started}; exec {' '.join(json.dumps(each) for each in hostile('deaf').argv)}"
    place = ServerPlace("x", argv=("/bin/sh", "-c", script), env=ENVIRONMENT)
    async with child_server() as (child, output):
        child.take(ask(1, place, "list"))
        child.take(ask(2, place, "close"))
        assert (await output.read(2)).failure is None
        assert not is_running(started)
