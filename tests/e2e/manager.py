"""A service manager's end of the notify protocol: a socket that keeps what processes tell it, with the time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Told:
    """One datagram: its `NAME=value` lines, and when it came."""

    lines: tuple[str, ...]
    at: float


@dataclass
class Manager:
    """`address` is what NOTIFY_SOCKET is to be."""

    address: str
    told: list[Told] = field(default_factory=list)
    _come: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, listener: socket.socket) -> None:
        """Takes what has come."""
        lines = tuple(listener.recv(65536).decode().split("\n"))
        self.told.append(Told(lines, asyncio.get_running_loop().time()))
        self._come.set()

    def times(self, line: str) -> list[float]:
        """When this line came."""
        return [one.at for one in self.told if line in one.lines]

    def values(self, name: str) -> list[str]:
        """The values that came under a name, oldest first."""
        found = (line.partition("=") for one in self.told for line in one.lines)
        return [value for key, _, value in found if key == name]

    @property
    def status(self) -> str:
        """The newest one."""
        return ["", *self.values("STATUS")][-1]

    async def until(self, true: Callable[[], object], seconds: float = 60.0) -> None:
        """Waits until something holds about what was told."""
        async with asyncio.timeout(seconds):
            while not true():
                self._come.clear()
                await self._come.wait()


@asynccontextmanager
async def listening(address: Path | str) -> AsyncIterator[Manager]:
    """Listens on a path, or on `@` and a name."""
    text = str(address)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        listener.bind("\0" + text[1:] if text.startswith("@") else text)
        manager = Manager(text)
        loop.add_reader(listener, manager.take, listener)
        try:
            yield manager
        finally:
            loop.remove_reader(listener)
