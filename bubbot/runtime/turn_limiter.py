"""Places for turns: so many at once, and who waits comes in order and is told so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

QUIET_WAIT_SECONDS = 5.0
"""Seconds somebody waits for a place before being told how many are before them."""


class TurnLimiter:
    """Gives a place to whoever came first."""

    def __init__(self, at_once: int, patience: float = QUIET_WAIT_SECONDS) -> None:
        self._free = at_once
        self._patience = patience
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._line)

    @asynccontextmanager
    async def place(self, tell: Callable[[int], Awaitable[None]]) -> AsyncIterator[None]:
        """A place for the block. Who has to wait for long is told once, with the number of those before them."""
        await self._enter(tell)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, tell: Callable[[int], Awaitable[None]]) -> None:
        if self._free:
            self._free -= 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        try:
            await asyncio.wait([ticket], timeout=self._patience)
            if not ticket.done():
                telling = asyncio.ensure_future(tell(self._line.index(ticket)))
                try:
                    await ticket  # a chat that is slow to take the notice keeps nobody waiting
                finally:
                    await _ended(telling)
        except BaseException:
            if ticket.done() and not ticket.cancelled():
                self._leave()  # it came at the last moment, and is passed on
            elif ticket in self._line:
                self._line.remove(ticket)
            raise

    def _leave(self) -> None:
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)  # the place itself is handed over: nobody who comes now gets before
                return
        self._free += 1


async def _ended(telling: asyncio.Future[None]) -> None:
    """Gives up a notice that has not gone out yet: its reason is gone. One that failed, failed."""
    telling.cancel()
    await asyncio.wait([telling])
    if not telling.cancelled() and (error := telling.exception()) is not None:
        raise error
