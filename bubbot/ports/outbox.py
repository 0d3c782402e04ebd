"""The outbox as a turn uses it: messages to people, staged in the fork and merged with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bubbot.ports.channel import MessagePart, OutboundFile
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry, event

INTENT = "outbox/intent"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """An intended message.

    Attributes:
        id: on the outbox tape.
        session: of the turn.
        turn: the message comes from this turn.
        parts: in sending order.
        sent: the places of the parts that have a receipt.
        inbound: the id of the first message that it answers; 0 if it answers none.
        date: when it was merged, ISO 8601.
    """

    id: int
    session: str
    turn: str
    parts: tuple[MessagePart, ...]
    sent: frozenset[int] = frozenset()
    inbound: int = 0
    date: str = ""


def intent_data(session: str, turn: str, parts: tuple[MessagePart, ...], inbound: int = 0) -> JsonObject:
    """Build the event data of an intent."""
    return {"session": session, "turn": turn, "parts": [part_data(part) for part in parts], "inbound": inbound}


def intent_from(entry: TapeEntry) -> OutboxMessage:
    """Read an intent from its event."""
    data = entry.payload["data"]
    parts = tuple(part_from(part) for part in data["parts"])
    return OutboxMessage(
        entry.id, data["session"], data["turn"], parts, inbound=data.get("inbound", 0), date=entry.date or ""
    )


def part_data(part: MessagePart) -> JsonObject:
    """Build the stored form of a part, without empty fields."""
    data: dict[str, Any] = {name: getattr(part, name) for name in MessagePart.__slots__}
    if part.file is not None:
        data["file"] = asdict(part.file)
    return {name: value for name, value in data.items() if value or name in ("chat", "text")}


def part_from(data: JsonObject) -> MessagePart:
    """Read a part of an intent's data, which has no empty fields."""
    file = data.get("file")
    return MessagePart(**{**data, "file": OutboundFile(**file) if file else None})


def intent_entry(
    session: str, turn: str, parts: tuple[MessagePart, ...], *, place: int = 0, inbound: int = 0
) -> TapeEntry:
    """Make the intent to say something, an entry to merge with its turn. `inbound`: the first one it answers."""
    return event(INTENT, intent_data(session, turn, parts, inbound), key=f"{turn}:{place}")
