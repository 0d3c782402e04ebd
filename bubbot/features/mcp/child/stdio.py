"""The transport of servers that we start: JSON lines over their pipes.

That of the SDK (2.3.0) reads lines of any length, takes four seconds to end a server that ignores it, and has no limit for what
is written on standard error. Here a line has a limit, an end is bounded, and the last words on standard error are kept: they say
why a server did not start.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bubbot.features.mcp.child.limits import MAX_MESSAGE_BYTES, shorten
from bubbot.features.mcp.child.orphans import OWN_PROCESSES
from bubbot.features.mcp.child.values import McpFailed, ServerPlace
from bubbot.formatting import format_bytes
from bubbot.sandbox.confine import STARTER_VARIABLE
from bubbot.sandbox.sandbox import end_program

LEAVE_SECONDS = 1.0
"""Time for a server to leave after its input is closed, and again after SIGTERM."""
ERROR_LINES = 20
ERROR_LINE_BYTES = 4_096

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def start_server(place: ServerPlace, on_lost: Callable[[str], None]) -> AsyncIterator[Streams]:
    """Start the server of a place, and yield the streams of its messages. It is gone at the end of the block.

    Args:
        on_lost: called with words for people when no message can come any more.

    Raises:
        McpFailed: it cannot be started.
    """
    async with _StartedServer(place, on_lost) as server:
        yield server.streams


class _StartedServer:
    def __init__(self, place: ServerPlace, on_lost: Callable[[str], None]) -> None:
        self._place = place
        self._on_lost = on_lost
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _StartedServer:
        starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            if starting.exception() is None:
                await self._end()
            raise
        return self

    async def _start(self) -> None:
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        our_errors, their_errors = os.pipe()
        try:
            with OWN_PROCESSES.starting() as own:
                self._process = await asyncio.create_subprocess_exec(
                    *self._place.argv,
                    stdin=their_input,
                    stdout=their_output,
                    stderr=their_errors,
                    env={**self._place.env, STARTER_VARIABLE: str(os.getpid())},
                    cwd=self._place.folder or None,
                    start_new_session=True,
                )
                own.add(self._process.pid)
        except (OSError, ValueError) as error:
            for number in (our_output, our_input, our_errors):
                os.close(number)
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise McpFailed(f"{self._place.argv[0]} cannot be started: {said}", is_gone=True) from error
        finally:
            for number in (their_input, their_output, their_errors):
                os.close(number)
        self._output, output_pipe = await _open_reader(our_input, MAX_MESSAGE_BYTES)
        self._error_output, error_pipe = await _open_reader(our_errors, ERROR_LINE_BYTES)
        self._input = await _open_writer(our_output)
        self._pipes = (output_pipe, error_pipe)
        self._to_session, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self.streams: Streams = received, sent
        self._tasks = [asyncio.create_task(work()) for work in (self._read, self._write, self._read_errors)]

    async def __aexit__(self, *_: object) -> None:
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})
            raise

    async def _end(self) -> None:
        """Let the server leave, else end it, with all that it has started."""
        self._on_lost = lambda _: None
        self._input.close()
        await self._has_left(LEAVE_SECONDS)
        await end_program(self._process, LEAVE_SECONDS)
        OWN_PROCESSES.has_ended(self._process.pid)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._input.transport.get_write_buffer_size():
            self._input.transport.abort()  # nobody reads it any more
        for pipe in self._pipes:
            pipe.close()
        for stream in (self._to_session, self._from_session, *self.streams):
            stream.close()

    async def _has_left(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def _read(self) -> None:
        reason = ""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session has ended
            try:
                reason = await self._read_messages()
            except asyncio.LimitOverrunError:
                reason = f"it sent a message of more than {format_bytes(MAX_MESSAGE_BYTES)}"
            except OSError as error:
                reason = f"its output cannot be read: {error.strerror}"
        self._on_lost(reason or await self._describe_end())
        self._to_session.close()

    async def _read_messages(self) -> str:
        """Pass messages on to the end of the output. Return why no more can be read; empty if it has ended."""
        while True:
            try:
                line = await self._output.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return ""
            line = line.strip()
            if not line.startswith((b"{", b"[")):
                continue  # programs greet and log where only messages should stand
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                return f"it sent a line that is not a message: {shorten(line[:200].decode(errors='replace'))}"
            await self._to_session.send(SessionMessage(message))

    async def _describe_end(self) -> str:
        if not await self._has_left(LEAVE_SECONDS):
            return "it closed its output"
        await asyncio.wait({self._tasks[-1]}, timeout=LEAVE_SECONDS)
        code = self._process.returncode or 0
        ended = f"it ended with status {code}" if code >= 0 else f"it was ended by signal {-code}"
        return f"{ended}: {shorten(self._errors[-1])}" if self._errors else ended

    async def _write(self) -> None:
        with suppress(OSError):  # it has closed its input: its output says how it ended
            async for sent in self._from_session:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._input.write(line.encode() + b"\n")
                await self._input.drain()
        self._from_session.close()

    async def _read_errors(self) -> None:
        """Keep the last lines: a server whose standard error is full would stop."""
        while True:
            try:
                line = await self._error_output.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                line = await self._error_output.read(max(error.consumed, 1))
            except asyncio.IncompleteReadError as error:
                line = error.partial
            except OSError:
                return
            if text := line.decode(errors="replace").strip():
                self._errors.append(text)
            if self._error_output.at_eof():
                return


async def _open_reader(number: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Open the reading end of a pipe; a line may have `limit` bytes."""
    reader = asyncio.StreamReader(limit)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(number, "rb", buffering=0)
    )
    return reader, transport


async def _open_writer(number: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(number, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
