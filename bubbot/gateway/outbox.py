"""The outbox: messages to people, durable together with their turn.

One tape per channel instance, `bubbot/outbox/<channel>`, or one of its shards. `docs/reference/tape-format.md` lists
its events.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import UNSET, structs

from bubbot.gateway.facts import DeliveryEnded, PreviewBegun, PreviewEnded, PreviewShown
from bubbot.gateway.outbox_views import (
    OUTBOX_PROJECTION,
    LiveMessage,
    LiveMessageView,
    OtherLiveMessageView,
    ReceiptView,
    UnansweredLiveMessagesView,
    preview_begin_key,
    preview_end_key,
    preview_key,
)
from bubbot.ports.agents import writer_of
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.ports.lease import SessionLease
from bubbot.ports.outbox import (
    INTENT,
    OUTBOX_PREFIX,
    OutboxMessage,
    PartReceipt,
    intent_entry,
    intent_from,
    try_intent_from,
)
from bubbot.runtime.messages import find_sent
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import spans_of
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.shards import chat_of

log = logging.getLogger(__name__)

UNREADABLE = "unreadable"
"""The reason for which a message ends that nobody can read."""
PendingIntent: TypeAlias = tuple[TapeService, TapeEntry, OutboxMessage | None]
"""The tape and the entry of a pending intent, and its message; None if that cannot be read."""


def outbox_tape(channel: str) -> str:
    return f"{OUTBOX_PREFIX}/{channel}"


class Outbox:
    """The record of one channel's deliveries."""

    def __init__(
        self, tape: TapeService, projections: ProjectionRunner | None = None, leases: SessionLease | None = None
    ) -> None:
        """Read nothing yet. `leases` are those under which receipts are written; None if nothing is sent."""
        self._tape = tape
        self._leases = leases
        projections = projections or ProjectionRunner()
        self._pending = {
            shard.name: projections.project(OUTBOX_PROJECTION, shard, reads_on=False) for shard in tape.shards()
        }

    @property
    def name(self) -> str:
        return self._tape.name

    @property
    def tapes(self) -> tuple[str, ...]:
        return self._tape.shards_of(self.name)

    def tape_of(self, session: str) -> str:
        """Return the tape with the messages of a session."""
        return self._tape.shard(session).name

    async def record_receipt(self, intent: OutboxMessage, place: int, receipt: Receipt, *, outcome: str = "") -> None:
        """Record that a part arrived.

        Args:
            place: the part's index.
            outcome: `resumed`: sent again, possibly a duplicate; `found`: had arrived already; `missing`: a search did
                not find it, so it was sent again.

        Raises:
            LeaseLost: another holder has taken up the session and delivers the pending messages.
        """
        lease = await self._leases.hold(intent.session) if self._leases and intent.session else None
        fact = PartReceipt(
            intent=intent.id,
            part=place,
            external_id=receipt.external_id,
            **({outcome: True} if outcome else {}),
            epoch=lease.epoch if lease else UNSET,
        )
        tape = self._tape.shard(intent.session)
        entry = fact.to_entry(key=receipt_key(intent.id, place))
        (stored,) = await tape.append([entry], if_absent=True, lease=lease)
        await self._pending[tape.name].write_checkpoint(stored.id)

    async def abandon(self, intent: OutboxMessage, reason: str) -> None:
        """Record that an intent is abandoned. Raise `LeaseLost` as `record_receipt` does."""
        lease = await self._leases.hold(intent.session) if self._leases and intent.session else None
        entry = abandoned_entry(intent.id, reason)
        await self._tape.shard(intent.session).append([entry], if_absent=True, lease=lease)

    async def enqueue(
        self,
        session: str,
        key: str,
        parts: tuple[MessagePart, ...],
        also: Mapping[str, Sequence[TapeEntry]],
        *,
        inbound: int = 0,
    ) -> OutboxMessage:
        """Record an intent from outside any turn, in one transaction with entries of other tapes.

        `key` names its cause, `inbound` the answered inbound.
        """
        entry = intent_entry(session, key, parts, inbound=inbound)
        tape = self._tape.shard(session)
        return intent_from((await tape.append([entry], if_absent=True, other_tapes=also, wakes=session))[0])

    async def find_intent(self, key: str) -> OutboxMessage | None:
        """Return the intent with this key, all parts included; None if there is none that can be read."""
        for tape in self._tape.shards():
            entries = (await tape.fetch([TapeQuery(tape.name, keys=(key,))]))[0]
            if entries and entries[0].name == INTENT:
                return try_intent_from(entries[0])
        return None

    async def receipt_of(self, intent: OutboxMessage, place: int) -> str | None:
        """Return the platform's id of a delivered part; None without a receipt."""
        tape = self._tape.shard(intent.session)
        entries = (await tape.fetch([TapeQuery(tape.name, keys=(receipt_key(intent.id, place),))]))[0]
        return str(entries[0].payload["data"]["external_id"]) if entries and not entries[0].erased else None

    async def has_receipt(self, message: str) -> bool:
        """Return true if one of the newest receipts is for the message with this platform id."""
        return any([await tape.read(ReceiptView(message)) for tape in self._tape.shards()])

    async def may_have_sent(self, session: str, message: str) -> bool:
        """Return true if the message with this platform id is one of the bot's, as far as is known yet.

        A platform shows a message before the bot has its id, or has noted that it became an answer: while one is being sent or
        shown in the session, it may be that one.
        """
        sessions = {each.session for each in await self.pending()} | {
            each.session for each in await self.unanswered_live()
        }
        # Receipts are read last: one that is stored in between settles what was pending.
        return session in sessions or await self.has_receipt(message)

    async def find_writer(self, session: str, message: str) -> str | None:
        """Return the agent that wrote a delivered message (empty: the bot itself); None if it is not among the newest."""
        tape = self._tape.shard(session)
        intent = (await find_sent(tape, tape.name, {message}, session)).get(message)
        return None if intent is None else writer_of(intent)

    async def begin_live(self, inbound: int, session: str, part: MessagePart) -> LiveMessage:
        """Record that `part` is about to be sent, to show the answer to an inbound while the model writes it.

        The first record stays: each inbound has one such message, even in a later process. Raise `LeaseLost` if another
        process has the session by now.
        """
        lease = await self._leases.hold(session) if self._leases else None
        fact = PreviewBegun(inbound, session, structs.replace(part, key=""))
        entry = fact.to_entry(key=preview_begin_key(inbound))
        await self._tape.shard(session).append([entry], if_absent=True, lease=lease)
        return await self.live_message(inbound, session) or LiveMessage(inbound, session, part=part)

    async def record_live(self, inbound: int, session: str, message: str, chat: str = "") -> None:
        """Record the platform's id of a live message, and its chat."""
        fact = PreviewShown(inbound, session, message, chat or UNSET)
        await self._tape.shard(session).append([fact.to_entry(key=preview_key(inbound))], if_absent=True)

    async def end_live(self, live: LiveMessage) -> None:
        """Record that a live message does not become an answer, since its turn said nothing."""
        await self._tape.shard(live.session).append([live_end_entry(live.inbound)], if_absent=True)

    async def live_message(self, inbound: int, session: str) -> LiveMessage | None:
        """Return the live message for an inbound of a session; None if none was begun."""
        return await self._tape.shard(session).read(LiveMessageView(inbound)) if inbound else None

    async def unanswered_live(self) -> tuple[LiveMessage, ...]:
        """Return the newest live messages without an intended answer, those of a chat oldest first."""
        return tuple([live for tape in self._tape.shards() for live in await tape.read(UnansweredLiveMessagesView())])

    async def belongs_elsewhere(self, message: str, live: LiveMessage) -> bool:
        """Return true if the message with this id is a delivered part or another inbound's live message."""
        if await self.has_receipt(message):
            return True
        own = self.tape_of(live.session)
        views = [
            (tape, OtherLiveMessageView(message, live.inbound if tape.name == own else 0))
            for tape in self._tape.shards()
        ]
        return any([await tape.read(view) for tape, view in views])

    async def pending(self) -> tuple[OutboxMessage, ...]:
        """Return the intents with parts that lack a receipt, oldest first, without those that cannot be read."""
        return _list_messages(await self._read_pending())

    async def pending_of(self, chat: str) -> tuple[OutboxMessage, ...]:
        """Return the pending messages of one chat's sessions, oldest first."""
        found = await self._read_pending(self._tape.shard(chat).name)
        return tuple(each for each in _list_messages(found) if chat_of(each.session) == chat)

    async def settle_pending(self) -> tuple[OutboxMessage, ...]:
        """Return what `pending` does, and record the end of the intents that cannot be read: nobody can deliver them.

        Log each of those once.
        """
        found = await self._read_pending()
        for tape, entry, message in found:
            if message is None:
                log.error(
                    "entry #%d of %s is a message that cannot be read; it is not sent",
                    entry.id,
                    tape.name,
                    extra={"action": "outbox.unreadable"},
                )
                await tape.append([abandoned_entry(entry.id, UNREADABLE)], if_absent=True)
        return _list_messages(found)

    async def _read_pending(self, only: str = "") -> list[PendingIntent]:
        """Read the pending intents, those of a tape oldest first, each with its message; None if that cannot be read.

        `only`: of this tape; empty: of all.
        """
        found: list[PendingIntent] = []
        for tape, projected in zip(self._tape.shards(), self._pending.values(), strict=True):
            if only not in ("", tape.name):
                continue
            if messages := await projected.catch_up():
                (entries,) = await tape.fetch([TapeQuery(tape.name, IdRanges(tuple(spans_of(list(messages)))))])
                for entry in entries:
                    message = try_intent_from(entry)
                    sent = message and structs.replace(message, sent=messages[entry.id].sent)
                    found += [] if entry.erased else [(tape, entry, sent)]
        return found

    async def refresh(self, message: OutboxMessage) -> OutboxMessage:
        """Update which parts of a message have a receipt; return it without parts if it is no longer pending."""
        projected = self._pending[self.tape_of(message.session)]
        found = (await projected.catch_up()).get(message.id)
        return structs.replace(message, sent=found.sent) if found else structs.replace(message, parts=())

    async def sessions_with_file(self, digest: str) -> tuple[str, ...]:
        """Return the sessions of the open intents with a file of this digest."""
        messages = [
            message
            for message in await self.pending()
            if any(part.file and part.file.digest == digest for part in message.parts)
        ]
        return tuple(dict.fromkeys(message.session for message in messages))

    async def write_checkpoint(self) -> None:
        """Write a checkpoint, so that the next start reads only later entries."""
        for projected in self._pending.values():
            await projected.write_checkpoint(force=len(self._pending) == 1 or projected.position > 0)


def _list_messages(pending: Sequence[PendingIntent]) -> tuple[OutboxMessage, ...]:
    """List the messages that can be read, of all tapes the oldest first."""
    by_tape: dict[str, list[OutboxMessage]] = {}
    for tape, _, message in pending:
        if message is not None:
            by_tape.setdefault(tape.name, []).append(message)
    return tuple(heapq.merge(*by_tape.values(), key=lambda message: message.date))


def receipt_key(intent_id: int, place: int) -> str:
    return f"receipt:{intent_id}:{place}"


def abandoned_entry(intent_id: int, reason: str) -> TapeEntry:
    return DeliveryEnded(intent_id, reason).to_entry(key=f"ended:{intent_id}")


def live_end_entry(inbound: int) -> TapeEntry:
    """Make the fact that the live message for an inbound stays unchanged from now on."""
    return PreviewEnded(inbound).to_entry(key=preview_end_key(inbound))
