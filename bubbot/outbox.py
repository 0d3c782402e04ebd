"""The outbox: what people are to be told, durable with the turn it comes from.

One tape per channel instance, `bubbot/outbox/<channel>`. `docs/reference/tape-format.md` lists its events.
"""

from __future__ import annotations

from bubbot.channel import Part, Receipt
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.service import TapeService
from bubbot.views.bookkeeping import MarkView, mark_anchor
from bubbot.views.outbox import ENDED, INTENT, MARK, RECEIPT, Intent, OutboxView, intent_data

MARK_EVERY = 50
"""Receipts between two bookkeeping anchors."""


def outbox_tape(channel: str) -> str:
    """The name of a channel's outbox tape."""
    return f"bubbot/outbox/{channel}"


class Outbox:
    """Records what became of the intents of one channel."""

    def __init__(self, tape: TapeService) -> None:
        self._tape = tape
        self._unmarked: int | None = None

    async def receipt(self, intent: Intent, place: int, receipt: Receipt, *, resumed: bool) -> None:
        """The fact that a part arrived. `resumed`: an earlier process may have sent it already, so it may repeat."""
        data = {"intent": intent.id, "part": place, "external_id": receipt.external_id}
        if resumed:
            data["resumed"] = True
        await self._tape.append([event(RECEIPT, data, key=f"receipt:{intent.id}:{place}")], keep_first=True)
        await self._mark()

    async def end(self, intent: Intent, reason: str) -> None:
        """The fact that an intent is given up, and why."""
        await self._tape.append(
            [event(ENDED, {"intent": intent.id, "reason": reason}, key=f"ended:{intent.id}")], keep_first=True
        )

    async def open(self) -> tuple[Intent, ...]:
        """The intents with parts that have no receipt, oldest first."""
        mark = await self._tape.read(MarkView(MARK))
        return await self._tape.read(OutboxView(mark))

    async def _mark(self) -> None:
        if self._unmarked is None:  # earlier processes may have lived for one message only
            last, head = await self._tape.read(MarkView(MARK)), await self._tape.head()
            self._unmarked = last.passed(head)
        else:
            self._unmarked += 1
        if self._unmarked < MARK_EVERY:
            return
        self._unmarked = 0
        head = await self._tape.head()
        still = [{"id": one.id, "sent": sorted(one.sent)} for one in await self.open() if one.id <= head]
        await self._tape.append([mark_anchor(MARK, head, still)])


def intent(session: str, turn: str, parts: tuple[Part, ...], *, place: int = 0) -> TapeEntry:
    """The intent to say something, as the entry that is merged with its turn."""
    return event(INTENT, intent_data(session, turn, parts), key=f"{turn}:{place}")
