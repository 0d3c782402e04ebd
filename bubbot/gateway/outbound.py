"""Delivering: every intent's parts in order, each with its receipt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bubbot.channel import Channel, Outbound, Part, Receipt
from bubbot.errors import DeliveryFailed
from bubbot.outbox import Outbox
from bubbot.views.outbox import Intent

log = logging.getLogger(__name__)


class Deliverer:
    """Delivers the intents of one channel, one after another. `waits`: seconds before each further try."""

    def __init__(self, channel: Channel, outbox: Outbox, *, waits: Sequence[float]) -> None:
        self._waits = waits
        self._channel = channel
        self._outbox = outbox
        self._busy = asyncio.Lock()

    async def deliver(self, intent: Intent, *, resumed: bool = False) -> None:
        """Sends the parts that have no receipt. What cannot be sent now stays open and is told to the operator."""
        async with self._busy:
            for place, part in enumerate(intent.parts):
                if place in intent.sent:
                    continue
                try:
                    receipt = await self._send(part)
                except DeliveryFailed as error:
                    log.warning("a message was not delivered: %s", error, extra={"action": "deliver.failed"})
                    if error.permanent:
                        await self._outbox.end(intent, str(error))
                    return
                await self._outbox.receipt(intent, place, receipt, resumed=resumed)

    async def resume(self, session: str | None = None) -> int:
        """Delivers what an earlier process left open, of one session or of all; says how many intents that were."""
        owed = [one for one in await self._outbox.open() if session is None or one.session == session]
        for intent in owed:
            await self.deliver(intent, resumed=True)
        return len(owed)

    async def tell(self, outbound: Outbound) -> None:
        """Says something at once that no turn said; nothing is owed for it, so a failure is only told the operator."""
        async with self._busy:
            try:
                for part in self._channel.parts(outbound):
                    await self._channel.send(part)
            except DeliveryFailed as error:
                log.warning("a notice was not delivered: %s", error, extra={"action": "tell.failed"})

    async def _send(self, part: Part) -> Receipt:
        for wait in self._waits:
            try:
                return await self._channel.send(part)
            except DeliveryFailed as error:
                if error.permanent:
                    raise
                await asyncio.sleep(wait)
        return await self._channel.send(part)
