"""The child of the daemon that speaks MCP: one process for all servers, with one connection to each.

`bubbot.features.mcp.host` starts it as `python -P -m bubbot.features.mcp.child.main PID`, with its own process id. It reads requests and
writes answers, see `messages`. It ends when its input ends, and is killed by the kernel if the daemon dies; what it has started ends
with it, because sandboxes see to that; what a killed sandbox leaves is ended here, see `orphans`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bubbot.features.mcp.child.orphans import OWN_PROCESSES
from bubbot.sandbox.confine import end_with

if TYPE_CHECKING:
    from bubbot.features.mcp.child.connection import Connection
    from bubbot.features.mcp.child.messages import ChildAnswer, ChildRequest
    from bubbot.features.mcp.child.values import ServerPlace

CLOSE_SECONDS = 6.0
"""Time for the connections to close at the end."""


def main() -> None:
    """Serve until the input ends."""
    end_with(int(sys.argv[1]), signal.SIGKILL)
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not look like an answer
    asyncio.run(_serve(output))


async def _serve(output: int) -> None:
    # Imported here: this takes a second, and the daemon may have died before.
    from bubbot.features.mcp.child.messages import MAX_LINE_BYTES, ChildRequest, read_line

    OWN_PROCESSES.end_others()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(output, "wb", buffering=0)
    )
    server = ChildServer(asyncio.StreamWriter(transport, protocol, None, loop))
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    try:
        while line := await reader.readline():
            server.take(read_line(line, ChildRequest))
    finally:
        await server.close()


class ChildServer:
    """Answers requests, each in a task of its own."""

    def __init__(self, output: asyncio.StreamWriter) -> None:
        self._output = output
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._open: dict[str, tuple[ServerPlace, Connection, AsyncExitStack]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def take(self, request: ChildRequest) -> None:
        """Begin with a request, or stop one."""
        if request.do == "cancel":
            if (running := self._tasks.get(request.id)) is not None:
                running.cancel()
            return
        task = self._tasks[request.id] = asyncio.create_task(self._answer(request))
        task.add_done_callback(lambda _: self._tasks.pop(request.id, None))

    async def close(self) -> None:
        """Stop what runs, and close the connections, in bounded time."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        closing = [asyncio.create_task(stack.aclose()) for _, _, stack in self._open.values()]
        if tasks or closing:
            await asyncio.wait([*tasks, *closing], timeout=CLOSE_SECONDS)

    async def _answer(self, request: ChildRequest) -> None:
        from bubbot.features.mcp.child.limits import shorten
        from bubbot.features.mcp.child.messages import ChildAnswer, ChildFailure, write_line
        from bubbot.features.mcp.child.values import McpFailed

        try:
            answer = await self._do(request)
        except McpFailed as error:
            failure = ChildFailure(error.reason, error.is_gone, error.needs_login)
            answer = ChildAnswer(id=request.id, failure=failure)
        except Exception as error:  # noqa: BLE001 - boundary: it costs this request alone
            failure = ChildFailure(shorten(f"{type(error).__name__}: {error}"), is_gone=True)
            answer = ChildAnswer(id=request.id, failure=failure)
        try:
            line = write_line(answer)
        except (TypeError, ValueError) as error:
            line = write_line(
                ChildAnswer(id=request.id, failure=ChildFailure(shorten(f"its answer is not JSON: {error}")))
            )
        self._output.write(line)
        await self._output.drain()

    async def _do(self, request: ChildRequest) -> ChildAnswer:
        from bubbot.features.mcp.child.messages import ChildAnswer
        from bubbot.features.mcp.child.values import McpFailed

        assert request.place is not None
        if request.do == "close":
            async with self._locks.setdefault(request.place.name, asyncio.Lock()):
                await self._close(request.place.name)
            return ChildAnswer(id=request.id)
        connection = await self._connect(request.place, request.connect_timeout)
        about: dict[str, Any] = {
            "id": request.id,
            "protocol": connection.protocol_version,
            "server": connection.server_name,
        }
        try:
            if request.do == "list":
                return ChildAnswer(**about, tools=await connection.list_tools(timeout=request.timeout))
            reply = await connection.call(
                request.tool,
                request.arguments,
                timeout=request.timeout,
                meta=request.meta,
                answers=request.answers,
                state=request.state,
            )
        except Exception as error:
            if not isinstance(error, McpFailed) or error.is_gone:
                await self._close(request.place.name, connection)
            raise
        return ChildAnswer(**about, reply=reply)

    async def _connect(self, place: ServerPlace, timeout: float) -> Connection:
        """Return the connection to a server; open one if there is none, or it is lost, or another one has the name.

        Raises:
            McpFailed: it cannot be opened within the time, the wait for other requests included: the daemon ends a child that
                takes longer.
        """
        from mcp_types import Implementation

        from bubbot.features.mcp.child.connection import connect
        from bubbot.features.mcp.child.values import McpFailed

        lock, loop = self._locks.setdefault(place.name, asyncio.Lock()), asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await lock.acquire()
        except TimeoutError:
            raise McpFailed("it did not answer in time", is_gone=True) from None
        try:
            if (found := self._open.get(place.name)) is not None:
                if found[0] == place and not found[1].is_lost:
                    return found[1]
                await self._close(place.name)
            if (seconds := deadline - loop.time()) <= 0:
                raise McpFailed("it did not answer in time", is_gone=True)
            stack = AsyncExitStack()
            client = Implementation(name="bubbot", version=version("bubbot"))
            connection = await stack.enter_async_context(connect(place, client_info=client, timeout=seconds))
            self._open[place.name] = place, connection, stack
            return connection
        finally:
            lock.release()

    async def _close(self, name: str, connection: Connection | None = None) -> None:
        """Close the connection to a server; with `connection` only if no other one has replaced it."""
        found = self._open.get(name)
        if found is not None and connection in (None, found[1]):
            del self._open[name]
            await found[2].aclose()


if __name__ == "__main__":
    main()
