"""The limit of concurrent turns: waiting turns proceed in order and get a notice."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from bubbot.errors import BubbotError

log = logging.getLogger(__name__)

QUIET_WAIT_SECONDS = 5.0
"""Seconds before the chat of a waiting turn gets a notice."""


class TurnLimiter:
    """Lets at most `max_turns` turns run, in order of arrival."""

    def __init__(self, max_turns: int, quiet_wait: float = QUIET_WAIT_SECONDS) -> None:
        self._free = max_turns
        self._patience = quiet_wait
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting_turns(self) -> int:
        """The number of turns that wait for a place."""
        return len(self._queue)

    def acquire(self, on_wait: Callable[[int], Awaitable[None]]) -> TurnPlace:
        """Hold a place for the block; after a long wait call `on_wait` once, with the number of turns ahead."""
        return TurnPlace(self, on_wait)

    async def enter(self, tell: Callable[[int], Awaitable[None]]) -> None:
        """Wait for a place; see `acquire`."""
        if self._free:
            self._free -= 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(ticket)
        try:
            await asyncio.wait([ticket], timeout=self._patience)
            if not ticket.done():
                notice = asyncio.ensure_future(tell(self._queue.index(ticket)))
                try:
                    await ticket  # a slow delivery of the notice must not delay the turn
                finally:
                    await _end_notice(notice)
        except BaseException:
            if ticket.done() and not ticket.cancelled():
                self.leave()  # cancelled just as the place came: pass it on
            elif ticket in self._queue:
                self._queue.remove(ticket)
            raise

    def leave(self) -> None:
        """Release the place."""
        while self._queue:
            ticket = self._queue.popleft()
            if not ticket.done():
                ticket.set_result(None)  # hand over the place itself, so that no newcomer overtakes
                return
        self._free += 1


class TurnPlace:
    """The context manager of a turn's place."""

    def __init__(self, limiter: TurnLimiter, on_wait: Callable[[int], Awaitable[None]]) -> None:
        self._limiter = limiter
        self._on_wait = on_wait

    async def __aenter__(self) -> None:
        await self._limiter.enter(self._on_wait)

    async def __aexit__(self, *_: object) -> None:
        self._limiter.leave()


async def _end_notice(notice: asyncio.Future[None]) -> None:
    """Cancel a notice that is not sent yet; log one that failed, since the turn does not need it."""
    notice.cancel()
    await asyncio.wait([notice])
    if not notice.cancelled() and (error := notice.exception()) is not None:
        log.warning(
            "notice not delivered: %s: %s",
            type(error).__name__,
            error,
            exc_info=None if isinstance(error, BubbotError) else error,
            extra={"action": "tell.failed"},
        )
