"""What an outbox tape holds that has not reached the platform."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from bubbot.channel import File, Part
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import Spans, TapeQuery
from bubbot.tape.view import Found
from bubbot.views.bookkeeping import Mark

INTENT = "outbox/intent"
RECEIPT = "outbox/receipt"
ENDED = "outbox/ended"
PREVIEW = "outbox/preview"
MARK = "outbox/mark"
SENT_LIMIT = 500
"""Receipts among which a message is looked for."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An intended message: its id on the outbox tape, its session, the turn it comes from, its parts.

    `sent` are the places of the parts that have a receipt; `inbound` the id of the first message it answers, 0 where
    it answers none; `date` when it was merged, ISO 8601.
    """

    id: int
    session: str
    turn: str
    parts: tuple[Part, ...]
    sent: frozenset[int] = frozenset()
    inbound: int = 0
    date: str = ""


def intent_data(session: str, turn: str, parts: tuple[Part, ...], inbound: int = 0) -> JsonObject:
    """An intent as the data of its event."""
    return {"session": session, "turn": turn, "parts": [part_data(part) for part in parts], "inbound": inbound}


def intent_from(entry: TapeEntry) -> Intent:
    """The intent of an event."""
    data = entry.payload["data"]
    parts = tuple(part_from(part) for part in data["parts"])
    return Intent(entry.id, data["session"], data["turn"], parts, inbound=data.get("inbound", 0), date=entry.date or "")


def part_data(part: Part) -> JsonObject:
    """A part as it is stored; what it does not have is left out."""
    return {key: value for key, value in asdict(part).items() if value or key in ("chat", "text")}


def part_from(data: JsonObject) -> Part:
    """A part of an intent's data; what it does not have is left out there."""
    file = data.get("file")
    return Part(**{**data, "file": File(**file) if file else None})


@dataclass(frozen=True, slots=True)
class LiveView:
    """The platform's id of the message that shows the answer to an inbound while it is written; empty: none."""

    inbound: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """One indexed look-up."""
        return (TapeQuery(tape, keys=(preview_key(self.inbound),)),)

    def fold(self, found: Found) -> str:
        """The id."""
        return next((str(entry.payload["data"]["message"]) for entry in found[0] if not entry.erased), "")


@dataclass(frozen=True, slots=True)
class SentView:
    """Whether the platform's id of a message is among the newest receipts."""

    message: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The newest receipts."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIPT,), newest=True, limit=SENT_LIMIT),)

    def fold(self, found: Found) -> bool:
        """Whether it is there."""
        return any(entry.payload["data"]["external_id"] == self.message for entry in found[0] if not entry.erased)


def preview_key(inbound: int) -> str:
    """The key of the fact that an answer is shown while it is written."""
    return f"preview:{inbound}"


@dataclass(frozen=True, slots=True)
class OutboxView:
    """The open intents since a bookkeeping mark, oldest first."""

    mark: Mark
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """What the mark left open, and everything newer."""
        names = (INTENT, RECEIPT, ENDED)
        return (TapeQuery(tape, Spans(self.mark.spans()), kinds=(Kind.EVENT,), names=names),)

    def fold(self, found: Found) -> tuple[Intent, ...]:
        """Intents that have a part without a receipt and were not ended."""
        intents: dict[int, Intent] = {}
        sent: dict[int, set[int]] = {item["id"]: set(item["sent"]) for item in self.mark.open}
        ended: set[int] = set()
        for entry in found[0]:
            if entry.erased:
                continue
            data = entry.payload["data"]
            if entry.name == INTENT:
                intents[entry.id] = intent_from(entry)
            elif entry.name == RECEIPT:
                sent.setdefault(data["intent"], set()).add(data["part"])
            elif entry.name == ENDED:
                ended.add(data["intent"])
        return tuple(
            replace(one, sent=frozenset(sent.get(one.id, ())))
            for one in intents.values()
            if one.id not in ended and len(sent.get(one.id, ())) < len(one.parts)
        )
