"""A server on loopback whose handlers read and write bytes, for answers that no library for servers would give."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

HERE = "127.0.0.1"
BUFFER_BYTES = 2**24

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def accepting(handle: Handle, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Handle each connection in a task of its own until the block ends, which closes them all; yield the port.

    A connection that arrives at that moment is closed too, though its handler never begins: else it would be found
    unclosed by the garbage collector, in the middle of another test.
    """
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handle(reader, writer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(run(reader, writer))
        tasks[task] = writer
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        tasks.pop(task).close()

    server = await asyncio.start_server(connected, HERE, 0, limit=BUFFER_BYTES, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(3):  # what was accepted before arrives
            await asyncio.sleep(0)
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
