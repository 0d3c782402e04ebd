"""A process of the soak: asked in JSON lines, looked at through /proc, and never left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
START = 60.0
"""Seconds that a process may take until it says something."""
END = 15.0
"""Seconds that it may take to end; then it is killed."""
LINE = 16 * 2**20
"""Bytes of the longest line."""


class ProcessFailed(Exception):
    """A process of the soak ended, or said nothing, where it should have answered."""


@dataclass(frozen=True, slots=True)
class Look:
    """A process at one moment: seconds of processor time so far, bytes in memory, open files and open connections.

    They are counted apart: a client keeps a changing number of connections for its next calls, and files stay.
    """

    processor: float
    memory: int
    files: int
    connections: int


@dataclass
class Process:
    """A running process. `progress` is the newest of what it said between answers."""

    name: str
    child: asyncio.subprocess.Process
    errors: Path
    progress: Mapping[str, Any] = field(default_factory=dict)

    async def said(self, key: str, seconds: float | None = None) -> Any:
        """What it says next under this key. Raises `ProcessFailed`."""
        assert self.child.stdout is not None
        async with asyncio.timeout(seconds):
            while line := await self.child.stdout.readline():
                message = json.loads(line)
                if key in message:
                    return message[key]
                self.progress = message
        raise ProcessFailed(f"{self.name} ended with {await self.child.wait()}; the end of its log:\n{self._tail()}")

    async def ask(self, question: Mapping[str, Any], seconds: float | None = None) -> Any:
        """Its answer."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(question).encode() + b"\n")
        await self.child.stdin.drain()
        return await self.said("reply", seconds)

    def look(self) -> Look:
        """How it stands now. Raises `ProcessFailed` where it has ended."""
        at = Path(f"/proc/{self.child.pid}")
        try:
            fields = (at / "stat").read_text().rpartition(")")[2].split()
            resident = int((at / "statm").read_text().split()[1]) * PAGE
            handles = [_target(one) for one in (at / "fd").iterdir()]
        except OSError as error:
            raise ProcessFailed(f"{self.name} cannot be looked at: {error}") from error
        connections = sum(one.startswith("socket:") for one in handles)
        return Look((int(fields[11]) + int(fields[12])) / TICKS, resident, len(handles) - connections, connections)

    async def end(self) -> int:
        """Closes its standard input and waits; a process that goes on is killed. The exit code."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            async with asyncio.timeout(END):
                return await self.child.wait()
        except TimeoutError:
            self.kill()
            return await self.child.wait()

    def kill(self) -> None:
        """Ends it at once."""
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGKILL)

    def _tail(self) -> str:
        return self.errors.read_text(errors="replace")[-2000:]


def _target(handle: Path) -> str:
    """What an open handle is; one that has just been closed counts as a connection, which come and go."""
    try:
        return str(handle.readlink())
    except OSError:
        return "socket:"


@asynccontextmanager
async def started(
    name: str, folder: Path, module: str, arguments: Sequence[str], *, python: str = sys.executable, tree: Path = ROOT
) -> AsyncIterator[Process]:
    """A process of this module for the block; it ends with the block, whatever happens. `tree` holds its code.

    It is in a session of its own, so that Ctrl-C goes to the soak alone, and ends by itself when the soak has died.
    """
    errors = folder / f"{name}.log"
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}  # noqa: TID251
    kept["PYTHONPATH"] = str(tree)  # an installed copy of the code never counts
    with errors.open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *(python, "-m", module, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=LINE,
            env=kept,
            cwd=tree,
            start_new_session=True,
        )
    process = Process(name, child, errors)
    try:
        yield process
        if child.returncode is None:
            await process.end()
    finally:
        process.kill()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - else its pipes are closed too late
