"""Delivery: send the parts of every message in order and record a receipt for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from bubbot.errors import DeliveryFailed, LeaseLost
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.outbox_views import LiveMessage
from bubbot.log import bind
from bubbot.middleware import AroundDelivery, CallNext, PartDelivery, wrap
from bubbot.ports.channel import (
    Channel,
    FindsMessages,
    MarksRepeats,
    MessagePart,
    Outbound,
    Receipt,
    SupportsEditing,
)
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.store import no_wait_for_room
from bubbot.tape.handle import Clock
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts

log = logging.getLogger(__name__)


SEND_TIMEOUT_SECONDS = 120.0
"""Seconds that one call of an adapter may take; files can be large and connections slow."""

CONTINUED_BELOW = "↓"
"""The final text of a half answer in a group that became a supergroup, if the platform allows the edit."""

T = TypeVar("T")

ArrivalKind: TypeAlias = Literal["", "resumed", "found", "missing"]
"""How a part arrived: sent (empty); sent again, possibly a duplicate; found in the chat; searched for in vain and
sent."""

DeliveryOutcome: TypeAlias = Literal["sent", "retried", "failed"]
"""The outcome of an attempt: the part arrived; it will be retried; it stays open or is abandoned."""

CreateTask: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs work in the background."""


class RetryPolicy(Struct, frozen=True):
    """The retries of a delivery.

    Attributes:
        delays: seconds before each retry.
        repeat_last: repeat the last delay until the message is older than `max_age_seconds`, then abandon it with a
            fact.
        call_timeout_seconds: seconds that one call of the channel may take.
    """

    delays: Sequence[float] = ()
    repeat_last: bool = False
    max_age_seconds: float = 86_400.0
    call_timeout_seconds: float = SEND_TIMEOUT_SECONDS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def split_outbound(channel: Channel, outbound: Outbound) -> tuple[MessagePart, ...]:
    """Return the parts of an outbound; unsplit if the channel fails or returns no parts."""
    try:
        parts = tuple(channel.parts(outbound))
    except Exception:  # the adapter may be third-party code; its defect must not cost the answer
        log.exception("channel failed to split a message", extra={"action": "parts.defect"})
        parts = ()
    return _place_extras(parts or unsplit_parts(outbound), outbound)


def _place_extras(parts: tuple[MessagePart, ...], outbound: Outbound) -> tuple[MessagePart, ...]:
    """Let the first text replace the message that the outbound edits; put the buttons below the last text.

    All parts go without link previews if the outbound does.
    """
    if outbound.has_no_link_previews:
        parts = tuple([structs.replace(part, has_no_link_previews=True) for part in parts])
    texts = [index for index, part in enumerate(parts) if part.file is None]
    if not texts or not (outbound.edits or outbound.buttons):
        return parts
    placed = list(parts)
    placed[texts[0]] = structs.replace(placed[texts[0]], edits=outbound.edits)
    placed[texts[-1]] = structs.replace(placed[texts[-1]], buttons=outbound.buttons)
    return tuple(placed)


def unsplit_parts(outbound: Outbound) -> tuple[MessagePart, ...]:
    """Return one part for the whole text and one for each file."""
    text_part = MessagePart(outbound.chat, outbound.text, outbound.thread, outbound.reply_to)
    return (
        *((text_part,) if outbound.text or not outbound.files else ()),
        *(structs.replace(text_part, text="", file=file) for file in outbound.files),
    )


async def call_adapter(call: Awaitable[T], timeout: float) -> T:
    """Return the result of an adapter's call.

    Raises:
        DeliveryFailed: the call failed for any reason, or took longer than `timeout` seconds.
        LeaseLost: this process may send nothing more there.
    """
    try:
        async with asyncio.timeout(timeout):
            return await call
    except (DeliveryFailed, LeaseLost):
        raise
    except TimeoutError as error:
        raise DeliveryFailed(f"the channel gave no answer within {timeout:g} seconds", maybe=True) from error
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise DeliveryFailed("the channel cancelled the call", maybe=True) from error
    except Exception as error:  # the adapter may be third-party code; its defect must not end the bot
        log.exception("channel failed unexpectedly", extra={"action": "deliver.defect"})
        raise DeliveryFailed(f"the channel failed: {type(error).__name__}", maybe=True) from error


async def settle_live(
    channel: Channel, outbox: Outbox, live: LiveMessage, timeout: float, *, send: bool = True
) -> LiveMessage:
    """Determine and record the platform's id of a live message that was sent, or may have been.

    Search the channel's history for the first text. If it is not there, send the text again under its key, so that a
    request which is still on its way makes no second message.

    Args:
        live: returned unchanged if its id is known, or cannot be determined on this platform.
        timeout: seconds that one call of the channel may take.
        send: false if a missing message is not needed any more.

    Raises:
        DeliveryFailed: the platform does not answer at present.
    """
    if live.message or live.part is None or not isinstance(channel, FindsMessages):
        return live
    part, receipt = structs.replace(live.part, key=live_key(live)), Receipt()
    try:
        for message in await call_adapter(channel.find(part, live.date), timeout):
            if not await outbox.belongs_elsewhere(message, live):
                receipt = Receipt(message)
                break
    except DeliveryFailed as error:
        if not error.permanent:
            raise
        log.debug("live answer not searched for: %s", error, extra={"action": "deliver.not_found"})
    try:
        if not receipt.external_id and send:
            receipt = receipt_of(await call_adapter(channel.send(part), timeout))
    except DeliveryFailed as error:
        if not error.permanent:
            raise
    if not receipt.external_id:
        return live
    chat = receipt.chat or part.chat
    await outbox.record_live(live.inbound, live.session, receipt.external_id, chat)
    return structs.replace(live, message=receipt.external_id, chat=chat)


async def ignore_unreachable_chat(_chat: str, _reason: str) -> None:
    """Do nothing, for deliveries on which nothing depends."""


async def read_english(_chat: str) -> Texts:
    """Return the English sentences, for a deliverer whose channel has no gate."""
    return Texts()


class Deliverer:
    """Delivers the messages of one channel, those of a chat one after another.

    Args:
        retry_policy: the retries of failures.
        now: the clock, for the age of messages.
        create_task: runs the tasks of `enqueue`.
        current_chat: returns the current id of a chat.
        wait_until_settled: waits until the previews of a session's turn have ended; None if the channel has none.
        take_unshown: returns true if certainly no live message was begun for an inbound of a session.
        one_lane: all chats share one output, so send one message after another.
        wait_for_room: waits while the disk is full, since a receipt could not be written; raises `LeaseLost` if another process
            sends by now.
        around_delivery: wraps each attempt to send a part or to replace a live answer by it.

    Attributes:
        on_chat_unreachable: called for an unreachable chat with the id with which its session began, and the reason.
        on_delivery: called with the outcome of each attempt.
        find_texts: returns the bot's own sentences in the language of a chat's readers.
    """

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        retry_policy: RetryPolicy,
        *,
        now: Clock,
        create_task: CreateTask = asyncio.create_task,
        current_chat: Callable[[str], str] = lambda chat: chat,
        wait_until_settled: Callable[[str], Awaitable[None]] | None = None,
        take_unshown: Callable[[str, int], bool] = lambda _session, _inbound: False,
        one_lane: bool = False,
        wait_for_room: Callable[[], Awaitable[None]] = no_wait_for_room,
        around_delivery: Sequence[AroundDelivery] = (),
    ) -> None:
        self.on_chat_unreachable: Callable[[str, str], Awaitable[None]] = ignore_unreachable_chat
        self.on_delivery: Callable[[DeliveryOutcome], None] = lambda _: None
        self.find_texts: Callable[[str], Awaitable[Texts]] = read_english
        self._settled = wait_until_settled
        self._take_unshown = take_unshown
        self._one_lane = one_lane
        self._has_room = wait_for_room
        self._around_delivery = tuple(around_delivery)
        self._channel = channel
        self._outbox = outbox
        self._retry_policy = retry_policy
        self._now = now
        self._spawn = create_task
        self._where = current_chat
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def deliver(
        self, message: OutboxMessage, *, resumed: bool = False, is_first: bool = True, has_waited: bool = False
    ) -> None:
        """Send the parts without a receipt. Log parts that cannot be sent; they stay open.

        Args:
            resumed: an earlier process left it open; its parts may have been sent.
            is_first: it is the first open message of its chat. Only that one may have been begun, since messages are
                sent one after another.
            has_waited: it waited behind others and may have been erased meanwhile.
        """
        if not message.parts:
            return
        with bind(session=message.session, turn=message.turn):  # one task delivers the messages of several turns
            is_begun = resumed and is_first
            await self._deliver_parts(message, resumed=resumed, is_begun=is_begun, has_waited=has_waited)

    async def _deliver_parts(self, message: OutboxMessage, *, resumed: bool, is_begun: bool, has_waited: bool) -> None:
        if self._settled is not None:
            await self._settled(message.session)
        async with self._chat_lock(message.parts[0].chat):
            if resumed or has_waited:  # it may have been delivered or erased meanwhile
                message = await self._outbox.refresh(message)
            for index in range(len(message.parts)):
                if index in message.sent:
                    continue
                if not await self._deliver_part(message, index, resumed=resumed, is_begun=is_begun):
                    return
                is_begun = False

    def enqueue(self, message: OutboxMessage, *, resumed: bool = False, is_first: bool = True) -> None:
        """Deliver a message in the background, after earlier ones for its chat; see `deliver`."""
        chat = message.parts[0].chat if message.parts else ""
        has_waited = self.has_pending(chat)
        self._enqueue(chat, partial(self.deliver, message, resumed=resumed, is_first=is_first, has_waited=has_waited))

    def enqueue_notice(self, outbound: Outbound) -> None:
        """Send a notice that is not in the outbox in the background, after earlier messages for its chat."""
        self._enqueue(outbound.chat, partial(self.notify, outbound))

    def _enqueue(self, chat: str, send: Callable[[], Awaitable[None]]) -> None:
        waiting = self._waiting.get(chat)
        if waiting is not None:
            waiting.append(send)
            return
        self._waiting[chat] = [send]
        self._is_idle.clear()
        self._tasks[chat] = self._spawn(self._drain(chat))

    def has_pending(self, chat: str) -> bool:
        """Return true if background deliveries for this chat are pending."""
        return chat in self._waiting

    def cancel(self) -> None:
        """Cancel the deliveries in the background; the messages stay open for the next start."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait for all background deliveries."""
        await self._is_idle.wait()

    async def wait_until_delivered(self, chat: str) -> None:
        """Wait for the background deliveries of this chat."""
        while (task := self._tasks.get(chat)) is not None and not task.done():
            await asyncio.wait([task])

    async def resume(self, session: str | None = None, *, queued: bool = False) -> int:
        """Deliver messages that an earlier process left open, of one session or of all; return their number."""
        open_messages = await self._outbox.settle_pending()
        pending = [each for each in open_messages if session is None or each.session == session]
        if pending:
            await self._outbox.write_checkpoint()  # fails before anything is sent again if the store takes no receipts
        places: set[tuple[str, str]] = set()
        for message in pending:
            place = (message.parts[0].chat, message.session)  # turns of a session end one after another
            if queued:
                self.enqueue(message, resumed=True, is_first=place not in places)
            else:
                await self.deliver(message, resumed=True, is_first=place not in places)
            places.add(place)
        return len(pending)

    async def notify(self, outbound: Outbound) -> None:
        """Send a notice at once without the outbox; only log a failure."""
        async with self._chat_lock(outbound.chat):
            try:
                for part in split_outbound(self._channel, outbound):
                    await self._send(self._at_current_chat(part), outbound.session)
            except (DeliveryFailed, LeaseLost) as error:
                log.warning("notice not delivered: %s", error, extra={"action": "tell.failed"})

    async def _drain(self, chat: str) -> None:
        try:
            while waiting := self._waiting[chat]:
                await waiting[0]()
                waiting.pop(0)
        finally:
            del self._waiting[chat]
            self._tasks.pop(chat, None)
            if not self._waiting:
                self._is_idle.set()

    def _chat_lock(self, chat: str) -> asyncio.Lock:
        """Return the lock of a chat's deliveries, by the chat's first id; it lives only while it is held."""
        return self._locks.setdefault("" if self._one_lane else chat, asyncio.Lock())

    def _at_current_chat(self, part: MessagePart) -> MessagePart:
        chat = self._where(part.chat)
        return part if chat == part.chat else structs.replace(part, chat=chat)

    async def _deliver_part(self, message: OutboxMessage, index: int, *, resumed: bool, is_begun: bool) -> bool:
        """Send one part and record its receipt; return false if it did not arrive, or another process delivers it."""
        try:
            return await self._deliver_under_lease(message, index, resumed=resumed, is_begun=is_begun)
        except LeaseLost as error:
            log.warning("message left to another process: %s", error, extra={"action": "deliver.lost"})
            self.on_delivery("failed")
            return False

    async def _deliver_under_lease(self, message: OutboxMessage, index: int, *, resumed: bool, is_begun: bool) -> bool:
        """See `_deliver_part`. Raise `LeaseLost` if another process has the session."""
        live = None
        if index == _live_part_index(message) and not self._take_unshown(message.session, message.inbound):
            live = await self._outbox.live_message(message.inbound, message.session)
        try:
            receipt, how = await self._send_until_arrived(message, index, live, again=resumed, is_begun=is_begun)
        except DeliveryFailed as error:
            log.warning("message not delivered: %s", error, extra={"action": "deliver.failed"})
            self.on_delivery("failed")
            if error.permanent or self._too_old(message):
                await self._outbox.abandon(message, str(error))
            if error.gone:
                await self.on_chat_unreachable(message.parts[index].chat, str(error))
            return False
        await self._outbox.record_receipt(message, index, receipt, outcome=how)
        self.on_delivery("sent")
        return True

    async def _send_until_arrived(
        self, message: OutboxMessage, index: int, live: LiveMessage | None, *, again: bool, is_begun: bool
    ) -> tuple[Receipt, ArrivalKind]:
        """Send a part until it arrives or further attempts are useless.

        Args:
            live: the live message that the part replaces, if any.
            again: the part may have been sent before.
            is_begun: an attempt to send it began and its outcome is unknown; only then the part gets a mark.
        """
        part, tries = self._at_current_chat(structs.replace(message.parts[index], key=part_key(message, index))), 0
        while True:
            await self._has_room()
            try:
                if live is not None:
                    live = await settle_live(self._channel, self._outbox, live, self._retry_policy.call_timeout_seconds)
                    if live.message and (receipt := await self._edit_live(part, live, message.session)):
                        return receipt, ""  # editing twice does no harm
                if part.edits:
                    return await self._edit(part, message.session), ""  # editing twice does no harm
                if again:
                    return await self._find_or_send(part, message, is_begun=is_begun)
                return await self._send(part, message.session), ""
            except DeliveryFailed as error:
                again, is_begun = again or error.maybe, is_begun or error.maybe
                wait = self._retry_wait(error, tries, message)
                if wait is None:
                    raise
                if tries == len(self._retry_policy.delays) - 1:  # once: from here on the last delay repeats
                    log.warning(
                        "message not delivered yet, tried again every %g s: %s", wait, error,
                        extra={"action": "deliver.waits"},
                    )  # fmt: skip
            tries += 1
            self.on_delivery("retried")
            await self._retry_policy.sleep(wait)
            if not (await self._outbox.refresh(message)).parts:
                raise DeliveryFailed("it was erased, or given up, before it arrived")

    async def _edit_live(self, part: MessagePart, live: LiveMessage, session: str) -> Receipt | None:
        """Replace the live message with this part; return None if that is impossible."""
        channel = self._channel
        if not isinstance(channel, SupportsEditing):
            return None
        chat = live.chat or part.chat
        if self._where(chat) != chat:
            await self._mark_moved(live)
            return None

        async def edit(delivery: PartDelivery) -> Receipt:
            await channel.edit(live.message, delivery.part)
            return Receipt(live.message)

        try:
            if part.file:  # the file follows as its own message
                named = structs.replace(part, text=part.file.name, file=None, markup={}, chat=chat)
                await call_adapter(channel.edit(live.message, named), self._retry_policy.call_timeout_seconds)
                return None
            return await self._call_wrapped(edit, structs.replace(part, chat=chat), session)
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            return None

    async def _edit(self, part: MessagePart, session: str) -> Receipt:
        """Replace a message by the part; the message stays if the channel cannot edit."""
        channel = self._channel
        if not isinstance(channel, SupportsEditing):
            return Receipt()

        async def edit(delivery: PartDelivery) -> Receipt:
            await channel.edit(delivery.part.edits, delivery.part)
            return Receipt(delivery.part.edits)

        return await self._call_wrapped(edit, part, session)

    async def _mark_moved(self, live: LiveMessage) -> None:
        """Replace the half answer in a chat that has moved: the complete one goes to the new chat.

        The new chat uses the ids for other messages, so the old message can be edited only in the old chat, if at all.
        """
        if not isinstance(self._channel, SupportsEditing) or live.part is None:
            return
        try:
            part = structs.replace(live.part, chat=live.chat, text=CONTINUED_BELOW, markup={})
            await call_adapter(self._channel.edit(live.message, part), self._retry_policy.call_timeout_seconds)
        except DeliveryFailed as error:
            log.debug("live answer stays in the old chat: %s", error, extra={"action": "live.moved"})

    async def _find_or_send(
        self, part: MessagePart, message: OutboxMessage, *, is_begun: bool
    ) -> tuple[Receipt, ArrivalKind]:
        """Search for a part that may have been sent, if the platform can; send it if it is not there.

        If the platform cannot search, mark a part whose sending had begun: otherwise it looks like a second answer.
        """
        channel, marked = self._channel, part
        if is_begun and isinstance(channel, MarksRepeats):
            texts = await self.find_texts(message.parts[0].chat)
            marked = channel.mark_repeat(part, texts.say("sent_again"))
        if not isinstance(channel, FindsMessages):
            return await self._send(marked, message.session), "resumed"
        try:
            for message_id in await call_adapter(
                channel.find(part, message.date), self._retry_policy.call_timeout_seconds
            ):
                if not await self._outbox.has_receipt(message_id):
                    return Receipt(message_id), "found"
        except DeliveryFailed as error:
            if not error.permanent:
                raise
            log.debug("sent part not searched for: %s", error, extra={"action": "deliver.not_found"})
            return await self._send(marked, message.session), "resumed"
        return await self._send(part, message.session), "missing"

    async def _send(self, part: MessagePart, session: str) -> Receipt:
        async def send(delivery: PartDelivery) -> Receipt:
            return receipt_of(await self._channel.send(delivery.part))

        return await self._call_wrapped(send, part, session)

    async def _call_wrapped(self, call: CallNext[PartDelivery, Receipt], part: MessagePart, session: str) -> Receipt:
        """Call the adapter within the middleware; an error of either fails the attempt."""
        wrapped = wrap(self._around_delivery, call)
        delivery = PartDelivery(self._channel.name, session, part)
        return receipt_of(await call_adapter(wrapped(delivery), self._retry_policy.call_timeout_seconds))

    def _retry_wait(self, error: DeliveryFailed, tries: int, message: OutboxMessage) -> float | None:
        """Return the seconds until the next attempt; None to stop."""
        waits = self._retry_policy.delays
        if error.permanent or not waits or (tries >= len(waits) and not self._retry_policy.repeat_last):
            return None
        if tries >= len(waits) and self._too_old(message):
            return None
        return max(waits[min(tries, len(waits) - 1)], error.retry_after or 0.0)

    def _too_old(self, message: OutboxMessage) -> bool:
        merged = parse_moment(message.date)
        return (
            self._retry_policy.repeat_last
            and merged is not None
            and (self._now() - merged).total_seconds() > self._retry_policy.max_age_seconds
        )


def receipt_of(result: object) -> Receipt:
    """Return the result of an adapter's `send` if it is a receipt, else an empty receipt."""
    return result if isinstance(result, Receipt) else Receipt()


def part_key(message: OutboxMessage, index: int) -> str:
    """Return the `key` of a part, the same in every process."""
    return (
        f"p{sha256(f'{message.session}:{message.turn}:{message.id}:{message.date}:{index}'.encode()).hexdigest()[:20]}"
    )


def live_key(live: LiveMessage) -> str:
    """Return the `key` of a live answer's first message, the same in every process."""
    return f"l{sha256(f'{live.session}:{live.inbound}:{live.date}'.encode()).hexdigest()[:20]}"


def _live_part_index(message: OutboxMessage) -> int:
    """Return the index of the part that replaces a live message: the first with text."""
    return next((index for index, part in enumerate(message.parts) if part.file is None), 0)
