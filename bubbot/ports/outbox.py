"""The outbox as a turn uses it: messages to people, staged in the fork and merged with it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import structs

from bubbot.ports.channel import MAX_BUTTON_ID_BYTES, Button, ButtonSet, MessagePart, OutboundFile, Role
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry, event, thaw

INTENT = "outbox/intent"
RECEIPT = "outbox/receipt"
OUTBOX_PREFIX = "bubbot/outbox"
_MAX_BUTTON_KEY_BYTES = MAX_BUTTON_ID_BYTES - len("/") - 3
"""Bytes of the key of a button set: the number of a button has three digits at most."""


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
    data = entry.data
    parts = tuple(part_from(part) for part in data["parts"])
    return OutboxMessage(
        entry.id, data["session"], data["turn"], parts, inbound=data.get("inbound", 0), date=entry.date or ""
    )


def part_data(part: MessagePart) -> JsonObject:
    """Build the stored form of a part, without empty fields."""
    data: dict[str, Any] = msgspec.to_builtins(part, enc_hook=thaw)
    return {name: value for name, value in data.items() if value or name in ("chat", "text")}


def part_from(data: JsonObject) -> MessagePart:
    """Read a part of an intent's data, which has no empty fields."""
    file, buttons = data.get("file"), data.get("buttons")
    return MessagePart(
        **{
            **data,
            "file": OutboundFile(**file) if file else None,
            "buttons": _buttons_from(buttons) if buttons else None,
        }
    )


def _buttons_from(data: JsonObject) -> ButtonSet:
    buttons = tuple(Button(**button) for button in data["buttons"])
    return ButtonSet(**{**data, "buttons": buttons, "role": Role(data["role"])})


def intent_key(turn: str, place: int = 0) -> str:
    """Return the key of an intent without buttons."""
    return f"{turn}:{place}"


def buttons_key(turn: str) -> str:
    """Return the key of an intent with buttons, which names them, too: platforms return short ids only."""
    key = intent_key(turn)
    if len(key.encode()) > _MAX_BUTTON_KEY_BYTES or not key.isascii():
        return f"b{sha256(key.encode()).hexdigest()[:40]}"
    return key


def outbox_channel(tape: str) -> str:
    """Return the channel of an outbox tape, such as `bubbot/outbox/telegram` or a shard of it; empty for another tape."""
    head, _, rest = tape.partition(f"{OUTBOX_PREFIX}/")
    return "" if head else rest.partition("/")[0]


def intent_entry(session: str, turn: str, parts: tuple[MessagePart, ...], *, inbound: int = 0) -> TapeEntry:
    """Make the intent to say something, an entry to merge with its turn. `inbound`: the first one it answers."""
    key = intent_key(turn)
    if any(part.buttons for part in parts):
        key = buttons_key(turn)
        parts = tuple(
            structs.replace(part, buttons=part.buttons and structs.replace(part.buttons, key=key)) for part in parts
        )
    return event(INTENT, intent_data(session, turn, parts, inbound), key=key)
