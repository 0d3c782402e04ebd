"""Accepting: a durable append to the channel's inbox, and only then the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bubbot.channel import ChannelEvent, Inbound, Outbound, Stop, Unparsed
from bubbot.inbox import Inbox
from bubbot.runtime.app import AppRuntime
from bubbot.texts import unparsed
from bubbot.turn import Accepted, TurnResult

QUEUE_LIMIT = 64
"""Accepted inbounds of one channel that may wait for their turns; a pipe that writes faster is made to wait."""


class InboundGate:
    """What a channel calls `receive` on. `tell` says something that is no answer of a turn."""

    def __init__(self, inbox: Inbox, runtime: AppRuntime, tell: Callable[[Outbound], Awaitable[None]]) -> None:
        self._inbox = inbox
        self._runtime = runtime
        self._tell = tell
        self._room = asyncio.Semaphore(QUEUE_LIMIT)

    async def receive(self, event: ChannelEvent) -> None:
        """Returns when the event is durable (see `Receive`)."""
        if isinstance(event, Stop):
            self._runtime.stop(event.session)
            return
        if isinstance(event, Unparsed):
            await self._inbox.set_aside(event)
            await self._tell(Outbound(event.channel, event.chat, unparsed(event.reason)))
            return
        await self.accept(event)

    async def accept(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        """Makes an inbound durable and queues its turn; None where it had been accepted before.

        A caller that is cancelled is held until it is settled: what is durable has to be queued, for the
        platform's repeat of it would be taken for one that is.
        """
        await self._room.acquire()
        accepting = asyncio.ensure_future(self._accept(inbound))
        try:
            return await asyncio.shield(accepting)
        except asyncio.CancelledError:
            await asyncio.gather(accepting, return_exceptions=True)
            raise

    async def _accept(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        try:
            accepted = await self._inbox.accept(inbound)
        except BaseException:
            self._room.release()
            raise
        if accepted is None:
            self._room.release()
            return None
        result = self._queue(accepted)
        await self._inbox.mark()
        return result

    def resume(self, accepted: Accepted) -> asyncio.Future[TurnResult]:
        """Queues an inbound that an earlier process accepted."""
        return self._runtime.submit(accepted)

    def _queue(self, accepted: Accepted) -> asyncio.Future[TurnResult]:
        result = self._runtime.submit(accepted)
        result.add_done_callback(lambda _: self._room.release())
        return result
