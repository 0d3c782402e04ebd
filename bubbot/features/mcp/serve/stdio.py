"""Standard input and output as lines, for the transport of the SDK.

The SDK reads them in threads, which no signal ends, and takes lines of any length.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO

LINE_LIMIT = 2**22
"""Bytes of the longest message that is read."""
TOO_LONG = "a message that is too long"
"""What stands in the place of a longer one; it is no JSON, and is refused as such."""


class LineReader:
    """Lines of standard input, to its end."""

    def __init__(self, source: asyncio.StreamReader | BinaryIO) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each line."""
        while line := await self._read():
            yield line.decode(errors="replace")

    async def _read(self) -> bytes:
        if not isinstance(self._source, asyncio.StreamReader):  # a file, which is always ready
            return self._source.readline(LINE_LIMIT)
        try:
            return await self._source.readuntil()
        except asyncio.IncompleteReadError as end:
            return end.partial
        except asyncio.LimitOverrunError:
            await self._skip(self._source)
            return TOO_LONG.encode()

    async def _skip(self, source: asyncio.StreamReader) -> None:
        """Read to the end of a line without keeping it."""
        while True:
            try:
                await source.readuntil()
            except asyncio.LimitOverrunError as more:
                await source.readexactly(more.consumed)
            except asyncio.IncompleteReadError:
                return
            else:
                return


class OutputLines:
    """Lines of standard output."""

    def __init__(self, target: asyncio.StreamWriter | BinaryIO) -> None:
        self._target = target

    async def write(self, text: str) -> None:
        """Write a text; a reader that has gone is no error."""
        self._target.write(text.encode())

    async def flush(self) -> None:
        """Return when it is on its way; wait while the reader is slow."""
        with suppress(ConnectionError):
            if isinstance(self._target, asyncio.StreamWriter):
                await self._target.drain()
            else:
                self._target.flush()


@asynccontextmanager
async def open_lines() -> AsyncIterator[tuple[LineReader, OutputLines]]:
    """Open both until the block ends. Whatever else prints meanwhile, prints on standard error."""
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    loop, opened = asyncio.get_running_loop(), list[asyncio.BaseTransport]()
    source: asyncio.StreamReader | BinaryIO = stdin
    target: asyncio.StreamWriter | BinaryIO = stdout
    if not _is_file(stdin):
        reader = asyncio.StreamReader(LINE_LIMIT)
        opened.append((await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin))[0])
        source = reader
    if not _is_file(stdout):
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stdout
        )
        opened.append(transport)
        target = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        yield LineReader(source), OutputLines(target)
    finally:
        os.dup2(stdout.fileno(), 1)
        for each in opened:
            each.close()


def _is_file(stream: BinaryIO) -> bool:
    """Return true if the event loop cannot watch a stream, and need not: it is a file, or the null device."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(stream.fileno()))
