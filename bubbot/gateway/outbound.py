"""Delivering: every intent's parts in order, each with its receipt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from bubbot.errors import DeliveryFailed
from bubbot.log import bind
from bubbot.outbox import Outbox
from bubbot.ports.channel import Channel, FindsMessages, MessagePart, Outbound, Receipt, SupportsEditing
from bubbot.tape.handle import Clock
from bubbot.tape.query import moment
from bubbot.views.outbox import LiveMessage, OutboxMessage

log = logging.getLogger(__name__)


SENDING = 120.0
"""Seconds that one call of an adapter may take; a file can be large and a line slow."""

CONTINUED_BELOW = "↓"
"""What a half answer says in a group that became a supergroup, where the platform lets it be changed."""

Given = TypeVar("Given")

How: TypeAlias = Literal["", "resumed", "found", "missing"]
"""How a part arrived: sent; sent again, and it may repeat; found where it had arrived; looked for in vain, and sent."""

Became: TypeAlias = Literal["sent", "retried", "failed"]
"""What became of a part: it arrived; it is tried again; it was left open, or given up."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs work in the background."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a delivery is tried. `waits`: seconds before each further try; where `goes_on`, the last of them is
    repeated until the intent is older than `age` seconds, and is then given up with a fact. `sending`: seconds that
    one call of the channel may take."""

    waits: Sequence[float] = ()
    goes_on: bool = False
    age: float = 86_400.0
    sending: float = SENDING
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def parts_of(channel: Channel, outbound: Outbound) -> tuple[MessagePart, ...]:
    """The parts of an outbound; whole as it is, where the channel cuts it into nothing or fails at it."""
    try:
        parts = tuple(channel.parts(outbound))
    except Exception:  # the adapter is someone else's code; its defect must not cost the answer
        log.exception("a channel could not cut a message into parts", extra={"action": "parts.defect"})
        parts = ()
    return parts or whole_parts(outbound)


def whole_parts(outbound: Outbound) -> tuple[MessagePart, ...]:
    """One part for the text, however long, and one for each file."""
    whole = MessagePart(outbound.chat, outbound.text, outbound.thread, outbound.reply_to)
    return (
        *((whole,) if outbound.text or not outbound.files else ()),
        *(replace(whole, text="", file=file) for file in outbound.files),
    )


async def answered(call: Awaitable[Given], within: float) -> Given:
    """What a call of an adapter gives. Whatever else goes wrong in it, or takes longer, is a `DeliveryFailed`."""
    try:
        async with asyncio.timeout(within):
            return await call
    except DeliveryFailed:
        raise
    except TimeoutError as error:
        raise DeliveryFailed(f"the channel gave no answer within {within:g} seconds", maybe=True) from error
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise DeliveryFailed("the channel gave the call up", maybe=True) from error
    except Exception as error:  # the adapter is someone else's code; its defect must not end the bot
        log.exception("a channel failed in an unforeseen way", extra={"action": "deliver.defect"})
        raise DeliveryFailed(f"the channel failed: {type(error).__name__}", maybe=True) from error


async def settle_live(
    channel: Channel, outbox: Outbox, live: LiveMessage, within: float, *, send: bool = True
) -> LiveMessage:
    """Find out the platform's id of a live message that was sent first, or may have been, and record it.

    The channel's history is searched for what was sent first. If it is not there, that is sent again under its key,
    so that a request which is still on its way makes no second message.

    Args:
        live: returned as it is if its id is known, or cannot be found out on this platform.
        within: seconds that one call of the channel may take.
        send: False if a message that is not there yet is not wanted any more.

    Raises:
        DeliveryFailed: the platform cannot be asked at present.
    """
    if live.message or live.part is None or not isinstance(channel, FindsMessages):
        return live
    part, receipt = replace(live.part, key=live_key(live)), Receipt()
    try:
        for message in await answered(channel.find(part, live.date), within):
            if not await outbox.belongs_elsewhere(message, live.inbound):
                receipt = Receipt(message)
                break
    except DeliveryFailed as error:
        if not error.permanent:
            raise
        log.debug("a live answer was not looked for: %s", error, extra={"action": "deliver.not_found"})
    try:
        if not receipt.external_id and send:
            receipt = receipt_of(await answered(channel.send(part), within))
    except DeliveryFailed as error:
        if not error.permanent:
            raise
    if not receipt.external_id:
        return live
    chat = receipt.chat or part.chat
    await outbox.live(live.inbound, live.session, receipt.external_id, chat)
    return replace(live, message=receipt.external_id, chat=chat)


async def nobody_minds(_chat: str, _reason: str) -> None:
    """For deliveries that nothing depends on."""


async def always_room() -> None:
    """For outboxes that are on no disk."""


class Deliverer:
    """Delivers the intents of one channel, those of one chat one after another.

    `now` is asked how old an intent is; `spawn` runs what `queue` was given; `where` says which chat a chat is now;
    `settled` returns when nothing is shown of a session's turn any more. `one_lane`: all chats share one output.
    `has_room` waits while the disk is full: what is sent could not be written down.
    """

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        patience: RetryPolicy,
        *,
        now: Clock,
        spawn: Spawn = asyncio.create_task,
        where: Callable[[str], str] = lambda chat: chat,
        settled: Callable[[str], Awaitable[None]] | None = None,
        one_lane: bool = False,
        has_room: Callable[[], Awaitable[None]] = always_room,
    ) -> None:
        self.gone: Callable[[str, str], Awaitable[None]] = nobody_minds
        """Told of a chat that cannot be reached any more, by the id its session began with, and why."""
        self.became: Callable[[Became], None] = lambda _: None
        """Told what becomes of each part."""
        self._settled = settled
        self._one_lane = one_lane
        self._has_room = has_room
        self._channel = channel
        self._outbox = outbox
        self._patience = patience
        self._now = now
        self._spawn = spawn
        self._where = where
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[str, list[tuple[OutboxMessage, bool]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._none_waits = asyncio.Event()
        self._none_waits.set()

    async def deliver(self, intent: OutboxMessage, *, resumed: bool = False) -> None:
        """Sends the parts that have no receipt. What cannot be sent stays open and is told to the operator."""
        if not intent.parts:
            return
        with bind(session=intent.session, turn=intent.turn):  # one task delivers what several turns said
            await self._delivered(intent, resumed=resumed)

    async def _delivered(self, intent: OutboxMessage, *, resumed: bool) -> None:
        if self._settled is not None:
            await self._settled(intent.session)
        async with self._turn_of(intent.parts[0].chat):
            if resumed:  # it may have been delivered while this waited
                intent = next(
                    (one for one in await self._outbox.open() if one.id == intent.id), replace(intent, parts=())
                )
            for place in range(len(intent.parts)):
                if place not in intent.sent and not await self._part(intent, place, resumed=resumed):
                    return

    def queue(self, intent: OutboxMessage, *, resumed: bool = False) -> None:
        """Delivers it in the background, after what its chat already waits for."""
        chat = intent.parts[0].chat if intent.parts else ""
        waiting = self._waiting.get(chat)
        if waiting is not None:
            waiting.append((intent, resumed))
            return
        self._waiting[chat] = [(intent, resumed)]
        self._none_waits.clear()
        self._tasks[chat] = self._spawn(self._drain(chat))

    def owes(self, chat: str) -> bool:
        """Whether something for this chat is being delivered in the background."""
        return chat in self._waiting

    def cancel(self) -> None:
        """Gives up what is being delivered in the background; it stays open for the next start."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def idle(self) -> None:
        """Returns when nothing is being delivered in the background."""
        await self._none_waits.wait()

    async def delivered(self, chat: str) -> None:
        """Returns when nothing for this chat is being delivered in the background."""
        while (task := self._tasks.get(chat)) is not None and not task.done():
            await asyncio.wait([task])

    async def resume(self, session: str | None = None, *, queued: bool = False) -> int:
        """Delivers what an earlier process left open, of one session or of all; says how many intents that were."""
        owed = [one for one in await self._outbox.open() if session is None or one.session == session]
        if owed:
            await self._outbox.mark()  # a store that takes no receipts is found out before anything is sent again
        for intent in owed:
            if queued:
                self.queue(intent, resumed=True)
            else:
                await self.deliver(intent, resumed=True)
        return len(owed)

    async def tell(self, outbound: Outbound) -> None:
        """Says something at once that no turn said; nothing is owed for it, so a failure is only told the operator."""
        async with self._turn_of(outbound.chat):
            try:
                for part in parts_of(self._channel, outbound):
                    await self._send(self._placed(part))
            except DeliveryFailed as error:
                log.warning("a notice was not delivered: %s", error, extra={"action": "tell.failed"})

    async def _drain(self, chat: str) -> None:
        try:
            while waiting := self._waiting[chat]:
                intent, resumed = waiting[0]
                await self.deliver(intent, resumed=resumed)
                waiting.pop(0)
        finally:
            del self._waiting[chat]
            self._tasks.pop(chat, None)
            if not self._waiting:
                self._none_waits.set()

    def _turn_of(self, chat: str) -> asyncio.Lock:
        """The lock of a chat's deliveries, by the id its session began with; kept while somebody has it."""
        return self._locks.setdefault("" if self._one_lane else chat, asyncio.Lock())

    def _placed(self, part: MessagePart) -> MessagePart:
        return replace(part, chat=self._where(part.chat))

    async def _part(self, intent: OutboxMessage, place: int, *, resumed: bool) -> bool:
        """Sends one part and records that it arrived; False where it did not."""
        live = await self._outbox.live_message(intent.inbound) if place == _shown_at(intent) else None
        try:
            receipt, how = await self._tried(intent, place, live, again=resumed)
        except DeliveryFailed as error:
            log.warning("a message was not delivered: %s", error, extra={"action": "deliver.failed"})
            self.became("failed")
            if error.permanent or self._too_old(intent):
                await self._outbox.end(intent, str(error))
            if error.gone:
                await self.gone(intent.parts[place].chat, str(error))
            return False
        await self._outbox.receipt(intent, place, receipt, how=how)
        self.became("sent")
        return True

    async def _tried(
        self, intent: OutboxMessage, place: int, live: LiveMessage | None, *, again: bool
    ) -> tuple[Receipt, How]:
        """Sends a part until it arrives, or it is no use. `again`: it may have been sent before."""
        part, tries = self._placed(replace(intent.parts[place], key=part_key(intent, place))), 0
        while True:
            await self._has_room()
            try:
                if live is not None:
                    live = await settle_live(self._channel, self._outbox, live, self._patience.sending)
                    if live.message and (changed := await self._changed(part, live)):
                        return changed, ""  # the same change twice is one
                if again:
                    return await self._found_or_sent(part, intent)
                return await self._send(part), ""
            except DeliveryFailed as error:
                again = again or error.maybe
                wait = self._wait(error, tries, intent)
                if wait is None:
                    raise
            tries += 1
            self.became("retried")
            await self._patience.sleep(wait)

    async def _changed(self, part: MessagePart, live: LiveMessage) -> Receipt | None:
        """Put the part in the place of the message that showed the answer while it was written, where that can be."""
        if not isinstance(self._channel, SupportsEditing):
            return None
        chat = live.chat or part.chat
        if self._where(chat) != chat:
            await self._leave_behind(live)
            return None
        named = replace(part, text=part.file.name, file=None, markup={}) if part.file else part
        try:
            await answered(self._channel.edit(live.message, replace(named, chat=chat)), self._patience.sending)
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            return None
        return None if part.file else Receipt(live.message)

    async def _leave_behind(self, live: LiveMessage) -> None:
        """Take the half answer out of a chat that the platform has moved: the whole one goes to the new chat.

        Ids of messages name others there, so the old message can only be changed where it stands, if at all.
        """
        if not isinstance(self._channel, SupportsEditing) or live.part is None:
            return
        try:
            part = replace(live.part, chat=live.chat, text=CONTINUED_BELOW, markup={})
            await answered(self._channel.edit(live.message, part), self._patience.sending)
        except DeliveryFailed as error:
            log.debug("a live answer stays in the chat that moved: %s", error, extra={"action": "live.moved"})

    async def _found_or_sent(self, part: MessagePart, intent: OutboxMessage) -> tuple[Receipt, How]:
        """Looks for a part that may have been sent, where the platform can be asked, and sends it where it is not."""
        if not isinstance(self._channel, FindsMessages):
            return await self._send(part), "resumed"
        try:
            for message in await answered(self._channel.find(part, intent.date), self._patience.sending):
                if not await self._outbox.knows(message):
                    return Receipt(message), "found"
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            log.debug("it was not looked for what was sent: %s", error, extra={"action": "deliver.not_found"})
            return await self._send(part), "resumed"
        return await self._send(part), "missing"

    async def _send(self, part: MessagePart) -> Receipt:
        return receipt_of(await answered(self._channel.send(part), self._patience.sending))

    def _wait(self, error: DeliveryFailed, tries: int, intent: OutboxMessage) -> float | None:
        """Seconds until the next try; None where there is none."""
        waits = self._patience.waits
        if error.permanent or not waits or (tries >= len(waits) and not self._patience.goes_on):
            return None
        if tries >= len(waits) and self._too_old(intent):
            return None
        return max(waits[min(tries, len(waits) - 1)], error.retry_after or 0.0)

    def _too_old(self, intent: OutboxMessage) -> bool:
        merged = moment(intent.date)
        return (
            self._patience.goes_on
            and merged is not None
            and (self._now() - merged).total_seconds() > self._patience.age
        )


def receipt_of(given: object) -> Receipt:
    """What a sending gave: an adapter of somebody else's may give anything."""
    return given if isinstance(given, Receipt) else Receipt()


def part_key(intent: OutboxMessage, place: int) -> str:
    """The `key` of a part: the same in every process that sends it."""
    return f"p{sha256(f'{intent.session}:{intent.turn}:{intent.id}:{intent.date}:{place}'.encode()).hexdigest()[:20]}"


def live_key(live: LiveMessage) -> str:
    """Return the `key` under which a live answer is sent first: the same in every process that sends it."""
    return f"l{sha256(f'{live.session}:{live.inbound}:{live.date}'.encode()).hexdigest()[:20]}"


def _shown_at(intent: OutboxMessage) -> int:
    """The place of the part that takes the place of a live message: the first with text."""
    return next((place for place, part in enumerate(intent.parts) if part.file is None), 0)
