"""The undelivered messages of an outbox tape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bubbot.gateway.checkpoint import Checkpoint
from bubbot.ports.channel import MessagePart
from bubbot.ports.outbox import INTENT, OutboxMessage, intent_from, part_from
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

RECEIPT = "outbox/receipt"
DELIVERY_ABANDONED = "outbox/ended"
PREVIEW = "outbox/preview"
PREVIEW_BEGIN = "outbox/preview-begin"
PREVIEW_END = "outbox/preview-end"
OUTBOX_CHECKPOINT = "outbox/mark"
MAX_RECEIPTS_READ = 500
"""Newest receipts that are searched for a message."""
MAX_PREVIEW_FACTS_READ = 500
"""Newest facts that are searched for previews without an answer."""


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """The message that shows the answer to an inbound while it is written.

    Attributes:
        inbound: the id of the first inbound that it answers.
        session: the session of that inbound.
        message: the platform's id of the message; empty until the platform has returned it.
        chat: the chat that contains the message; empty on tapes of earlier versions, which did not store it.
        part: the first version that was sent, as it was sent; None on tapes of earlier versions.
        date: when that was about to be sent, ISO 8601.
    """

    inbound: int
    session: str
    message: str = ""
    chat: str = ""
    part: MessagePart | None = None
    date: str = ""


@dataclass(frozen=True, slots=True)
class LiveMessageView:
    """The message that shows the answer to an inbound while it is written; None if none was begun."""

    inbound: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the facts, by one indexed look-up."""
        return (TapeQuery(tape, keys=(preview_begin_key(self.inbound), preview_key(self.inbound))),)

    def fold(self, answers: QueryAnswers) -> LiveMessage | None:
        """Return the message, with its id if that is known."""
        return _live_messages(answers[0]).get(self.inbound)


@dataclass(frozen=True, slots=True)
class UnansweredLiveMessagesView:
    """The newest messages that show an answer and have no intended answer yet, oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest facts about previews and answers: an answer is always intended after its preview began."""
        names = (PREVIEW_BEGIN, PREVIEW, PREVIEW_END, INTENT)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_PREVIEW_FACTS_READ),)

    def fold(self, answers: QueryAnswers) -> tuple[LiveMessage, ...]:
        """Return those without an intent and an end. Earlier versions recorded no beginning: theirs are left out."""
        entries = [entry for entry in answers[0] if not entry.erased]
        answered = {entry.payload["data"].get("inbound", 0) for entry in entries if entry.name in (INTENT, PREVIEW_END)}
        live = sorted(_live_messages(entries).items())
        return tuple(message for inbound, message in live if inbound not in answered and message.part is not None)


def _live_messages(entries: Iterable[TapeEntry]) -> dict[int, LiveMessage]:
    """Collect the messages in these facts, by inbound."""
    messages: dict[int, LiveMessage] = {}
    for entry in entries:
        if entry.erased or entry.name not in (PREVIEW_BEGIN, PREVIEW):
            continue
        data = entry.payload["data"]
        live = messages.get(data["inbound"], LiveMessage(data["inbound"], data["session"]))
        if entry.name == PREVIEW_BEGIN:
            live = replace(live, part=part_from(data["part"]), date=entry.date or "")
        else:
            live = replace(live, message=str(data["message"]), chat=str(data.get("chat", "")))
        messages[live.inbound] = live
    return messages


@dataclass(frozen=True, slots=True)
class OtherLiveMessageView:
    """True if this platform id is among the newest messages that show answers to other inbounds."""

    message: str
    inbound: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest messages that showed an answer."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(PREVIEW,), newest=True, limit=MAX_RECEIPTS_READ),)

    def fold(self, answers: QueryAnswers) -> bool:
        """Return true if the id is among them."""
        previews = [entry.payload["data"] for entry in answers[0] if not entry.erased]
        return any(data["message"] == self.message and data["inbound"] != self.inbound for data in previews)


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """True if this platform id is among the newest receipts."""

    message: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest receipts."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIPT,), newest=True, limit=MAX_RECEIPTS_READ),)

    def fold(self, answers: QueryAnswers) -> bool:
        """Return true if the id is among them."""
        return any(entry.payload["data"]["external_id"] == self.message for entry in answers[0] if not entry.erased)


def preview_key(inbound: int) -> str:
    """Return the key of the fact that an answer is shown while it is written."""
    return f"preview:{inbound}"


def preview_begin_key(inbound: int) -> str:
    """Return the key of the fact that such a message is about to be sent."""
    return f"preview-begin:{inbound}"


def preview_end_key(inbound: int) -> str:
    """Return the key of the fact that such a message will not become an answer, and no longer looks unfinished."""
    return f"preview-end:{inbound}"


@dataclass(frozen=True, slots=True)
class OutboxView:
    """The open intents since a bookkeeping mark, oldest first."""

    mark: Checkpoint
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the open items of the mark, and everything newer."""
        names = (INTENT, RECEIPT, DELIVERY_ABANDONED)
        return (TapeQuery(tape, IdRanges(self.mark.spans()), kinds=(Kind.EVENT,), names=names),)

    def fold(self, answers: QueryAnswers) -> tuple[OutboxMessage, ...]:
        """Return the intents with a part without a receipt, except abandoned ones."""
        intents: dict[int, OutboxMessage] = {}
        sent: dict[int, set[int]] = {item["id"]: set(item["sent"]) for item in self.mark.open}
        ended: set[int] = set()
        for entry in answers[0]:
            if entry.erased:
                continue
            data = entry.payload["data"]
            if entry.name == INTENT:
                intents[entry.id] = intent_from(entry)
            elif entry.name == RECEIPT:
                sent.setdefault(data["intent"], set()).add(data["part"])
            elif entry.name == DELIVERY_ABANDONED:
                ended.add(data["intent"])
        return tuple(
            replace(message, sent=frozenset(sent.get(message.id, ())))
            for message in intents.values()
            if message.id not in ended and len(sent.get(message.id, ())) < len(message.parts)
        )
