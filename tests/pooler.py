"""A pooler before PostgreSQL, as PgBouncer is: it gives each transaction, or each client, one of few sessions of the server.

Run as a program: SOCKET-OF-SERVER FOLDER transaction|session. It listens at `FOLDER/.s.PGSQL.5432` and prints `ready`.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IDLE = b"I"
_KEY = struct.pack("!ciII", b"K", 12, 4_000_000, 1)
"""What a pooler says of a session: a number that is no process of the server."""


@contextmanager
def pooler(server: str, folder: Path, mode: str) -> Iterator[str]:
    """Run one before the server with a socket in this folder; yield the folder of its own socket."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{server}/.s.PGSQL.5432", folder, mode], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield str(folder)
        finally:
            process.kill()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


class _Pooler:
    """The idle sessions, the newest last."""

    def __init__(self, server: str, mode: str) -> None:
        self._server, self._keeps = server, mode == "session"
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _open(self, startup: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """Open a session; return it with what the server says at its beginning, except for its key."""
        reader, writer = await asyncio.open_unix_connection(self._server)
        writer.write(startup)
        said = b""
        while True:
            kind, message = await _message(reader)
            said += _KEY if kind == b"K" else message
            if kind in b"ZE":
                return reader, writer, said

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        length = await reader.readexactly(4)
        startup = length + await reader.readexactly(struct.unpack("!i", length)[0] - 4)
        answers, questions, said = await self._open(startup)
        writer.write(said)
        held = (answers, questions)
        if not self._keeps:
            self._idle.append(held)
        try:
            while True:
                waiting = [await _message(reader)]
                if not self._keeps:
                    held = self._idle.pop()
                while True:
                    while waiting[-1][0] not in (b"Q", b"S"):
                        waiting.append(await _message(reader))
                    held[1].write(b"".join(message for _, message in waiting))
                    kind, state = b"", b""
                    while kind != b"Z":
                        kind, message = await _message(held[0])
                        writer.write(message)
                        state = message[5:6]
                    if state == _IDLE:
                        break
                    waiting = [await _message(reader)]
                if not self._keeps:
                    self._idle.append(held)
        except (asyncio.IncompleteReadError, ConnectionError):
            held[1].close()
            writer.close()


async def _main(server: str, folder: str, mode: str) -> None:
    found = await asyncio.start_unix_server(_Pooler(server, mode).serve, f"{folder}/.s.PGSQL.5432")
    print("ready", flush=True)
    async with found:
        await found.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
