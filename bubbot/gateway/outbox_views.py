"""The projection and views of an outbox tape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from bubbot.gateway.facts import (
    DeliveryEnded,
    OpenIntent,
    OutboxState,
    PreviewBegun,
    PreviewEnded,
    PreviewShown,
)
from bubbot.ports.channel import MessagePart
from bubbot.ports.outbox import INTENT, RECEIPT, build_part
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.fact import encode_state
from bubbot.tape.projection import LegacyAnchor, Projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

(DELIVERY_ABANDONED,) = DeliveryEnded.EVENTS
(PREVIEW,) = PreviewShown.EVENTS
(PREVIEW_BEGIN,) = PreviewBegun.EVENTS
(PREVIEW_END,) = PreviewEnded.EVENTS
OUTBOX_CHECKPOINT_INTERVAL = 50
"""Receipts between two checkpoints; a start reads about twice that many facts."""
MAX_RECEIPTS_READ = 500
"""Newest receipts to search for a message."""
MAX_PREVIEW_FACTS_READ = 500
"""Newest facts to search for previews without an answer."""


class LiveMessage(Struct, frozen=True):
    """The message that shows the answer to an inbound while the model writes it.

    Attributes:
        inbound: the id of the first answered inbound.
        session: the session of the inbound.
        message: the platform's id of the message; empty until known.
        chat: the chat of the message; empty on tapes of earlier versions.
        part: the first part that was sent; None on tapes of earlier versions.
        date: when `part` was about to be sent, ISO 8601.
    """

    inbound: int
    session: str
    message: str = ""
    chat: str = ""
    part: MessagePart | None = None
    date: str = ""


class LiveMessageView(Struct, frozen=True):
    """The live message for an inbound; None if none was begun."""

    inbound: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query its facts in one indexed look-up."""
        return (TapeQuery(tape, keys=(preview_begin_key(self.inbound), preview_key(self.inbound))),)

    def fold(self, answers: QueryAnswers) -> LiveMessage | None:
        return _live_messages(answers[0]).get(self.inbound)


class UnansweredLiveMessagesView(Struct, frozen=True):
    """The newest live messages without an intended answer, oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query the newest facts about previews and answers: an answer is always intended after its preview began."""
        names = (PREVIEW_BEGIN, PREVIEW, PREVIEW_END, INTENT)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_PREVIEW_FACTS_READ),)

    def fold(self, answers: QueryAnswers) -> tuple[LiveMessage, ...]:
        """Return those with neither an intent nor an end, except those of earlier versions, which recorded no
        beginning.
        """
        entries = [entry for entry in answers[0] if not entry.erased]
        answered = {entry.payload["data"].get("inbound", 0) for entry in entries if entry.name in (INTENT, PREVIEW_END)}
        live = sorted(_live_messages(entries).items())
        return tuple(message for inbound, message in live if inbound not in answered and message.part is not None)


def _read_loosely(entry: TapeEntry) -> PreviewBegun | None:
    """Read the begin of a preview whose part has values of other types, like `intent_from`; None for other entries."""
    try:
        data = entry.data
        return PreviewBegun(data["inbound"], data["session"], build_part(data["part"]))
    except (KeyError, TypeError, ValueError):
        return None


def _live_messages(entries: Iterable[TapeEntry]) -> dict[int, LiveMessage]:
    """Collect the live messages in these facts, by inbound."""
    messages: dict[int, LiveMessage] = {}
    for entry in entries:
        if entry.erased or entry.name not in (PREVIEW_BEGIN, PREVIEW):
            continue
        fact = (PreviewBegun if entry.name == PREVIEW_BEGIN else PreviewShown).try_of(entry) or _read_loosely(entry)
        if fact is None:
            continue
        live = messages.get(fact.inbound, LiveMessage(fact.inbound, fact.session))
        if isinstance(fact, PreviewBegun):
            messages[fact.inbound] = structs.replace(live, part=fact.part, date=entry.date or "")
        else:
            messages[fact.inbound] = structs.replace(live, message=fact.message, chat=fact.chat or "")
    return messages


class OtherLiveMessageView(Struct, frozen=True):
    """True if this platform id is among the newest live messages for other inbounds."""

    message: str
    inbound: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(PREVIEW,), newest=True, limit=MAX_RECEIPTS_READ),)

    def fold(self, answers: QueryAnswers) -> bool:
        previews = [entry.payload["data"] for entry in answers[0] if not entry.erased]
        return any(data["message"] == self.message and data["inbound"] != self.inbound for data in previews)


class ReceiptView(Struct, frozen=True):
    """True if this platform id is among the newest receipts."""

    message: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIPT,), newest=True, limit=MAX_RECEIPTS_READ),)

    def fold(self, answers: QueryAnswers) -> bool:
        return any(entry.payload["data"]["external_id"] == self.message for entry in answers[0] if not entry.erased)


def preview_key(inbound: int) -> str:
    """Return the key of the fact with a live message's id."""
    return f"preview:{inbound}"


def preview_begin_key(inbound: int) -> str:
    """Return the key of the fact that a live message is about to be sent."""
    return f"preview-begin:{inbound}"


def preview_end_key(inbound: int) -> str:
    """Return the key of the fact that a live message does not become an answer."""
    return f"preview-end:{inbound}"


class OpenMessage(Struct, frozen=True):
    """An intent with parts that lack a receipt: the number of its parts, and the indexes of delivered ones."""

    parts: int
    sent: frozenset[int] = frozenset()


def _apply_messages(messages: Mapping[int, OpenMessage], entries: Sequence[TapeEntry]) -> Mapping[int, OpenMessage]:
    result = dict(messages)
    for entry in entries:
        data = entry.payload["data"]
        if entry.name == INTENT:
            if count := _count_parts(entry):
                result[entry.id] = OpenMessage(count)
        elif entry.name == DELIVERY_ABANDONED:
            result.pop(data["intent"], None)
        elif (message := result.get(data["intent"])) is not None:
            sent = message.sent | {data["part"]}
            if len(sent) < message.parts:
                result[data["intent"]] = OpenMessage(message.parts, sent)
            else:
                del result[data["intent"]]
    return result


def _count_parts(intent: TapeEntry) -> int:
    """Count the parts of an intent: one for what cannot be read, so that it is pending until somebody ends it."""
    parts = intent.data.get("parts")
    return len(parts) if isinstance(parts, (list, tuple)) else 1


def _encode_messages(messages: Mapping[int, OpenMessage]) -> JsonObject:
    found = [OpenIntent(intent, tuple(sorted(message.sent))) for intent, message in messages.items()]
    return encode_state(OutboxState(tuple(found)))


def _decode_messages(saved: JsonObject, cited: Sequence[TapeEntry]) -> Mapping[int, OpenMessage]:
    parts = {entry.id: _count_parts(entry) for entry in cited}
    return {
        item.id: OpenMessage(parts[item.id], frozenset(item.sent)) for item in msgspec.convert(saved, OutboxState).open
    }


def _cited_messages(saved: JsonObject) -> list[int]:
    return [item["id"] for item in saved["open"]]


OUTBOX_PROJECTION = Projection[Mapping[int, OpenMessage]](
    name="outbox",
    version=1,
    tapes="bubbot/outbox/",
    events=(INTENT, RECEIPT, DELIVERY_ABANDONED),
    initial=dict,
    apply=_apply_messages,
    encode=_encode_messages,
    decode=_decode_messages,
    cited_ids=_cited_messages,
    interval=2 * OUTBOX_CHECKPOINT_INTERVAL,  # an intent and a receipt for each part
    size=len,
    legacy=LegacyAnchor(name="outbox/mark", decode=_decode_messages, cited_ids=_cited_messages),
)
"""The undelivered intents by id, oldest first; their content is read on demand."""
