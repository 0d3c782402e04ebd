"""The outbox as a turn uses it: messages to people, staged in the fork and merged with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from bubbot.errors import TapeCorrupt
from bubbot.ports.channel import MAX_BUTTON_ID_BYTES, ButtonSet, MessagePart, OutboundFile
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry
from bubbot.tape.fact import Fact
from bubbot.tape.references import EntryId, SessionId

log = logging.getLogger(__name__)

OUTBOX_PREFIX = "bubbot/outbox"
_MAX_BUTTON_KEY_BYTES = MAX_BUTTON_ID_BYTES - len("/") - 3
"""The most bytes of a button set's key: a button's number has up to three digits."""


class OutboxIntent(Fact):
    """A message is to be sent."""

    EVENTS = ("outbox/intent",)
    session: SessionId
    turn: str
    parts: tuple[MessagePart, ...]
    inbound: int = 0


class PartReceipt(Fact, kw_only=True):
    """A part arrived. At most one of `resumed`, `found` and `missing` is there, and it is true."""

    EVENTS = ("outbox/receipt",)
    intent: EntryId
    part: int
    external_id: str
    resumed: bool | UnsetType = UNSET
    found: bool | UnsetType = UNSET
    missing: bool | UnsetType = UNSET
    epoch: int | UnsetType = UNSET


(INTENT,) = OutboxIntent.EVENTS
(RECEIPT,) = PartReceipt.EVENTS


class OutboxMessage(Struct, frozen=True):
    """An intended message.

    Attributes:
        id: on the outbox tape.
        session: of the turn.
        turn: the turn that wrote it, or the cause of another message.
        parts: in sending order.
        sent: the indexes of the parts with a receipt.
        inbound: the id of the first answered inbound; 0 for none.
        date: the time of its merge, ISO 8601.
    """

    id: int
    session: str
    turn: str
    parts: tuple[MessagePart, ...]
    sent: frozenset[int] = frozenset()
    inbound: int = 0
    date: str = ""


def intent_from(entry: TapeEntry) -> OutboxMessage:
    """Read an intent from its event. Raise `TapeCorrupt` if it is not one.

    A part with values of wrong types, from a third-party adapter, is read unchanged: its channel sends it.
    """
    intent = OutboxIntent.try_of(entry)
    if intent is None:
        return _read_loosely(entry)
    return OutboxMessage(
        entry.id, intent.session, intent.turn, intent.parts, inbound=intent.inbound, date=entry.date or ""
    )


def try_intent_from(entry: TapeEntry) -> OutboxMessage | None:
    """Read an intent that an adapter of somebody else's may have filled; None if it cannot be read, or was erased."""
    try:
        return None if entry.erased else intent_from(entry)
    except TapeCorrupt:
        return None


def _read_loosely(entry: TapeEntry) -> OutboxMessage:
    data = entry.data
    try:
        if not isinstance(data["session"], str) or not isinstance(data["turn"], str):
            raise TypeError("session or turn is no text")
        parts = tuple(build_part(part) for part in data["parts"])
        return OutboxMessage(
            entry.id, data["session"], data["turn"], parts, inbound=data.get("inbound", 0), date=entry.date or ""
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TapeCorrupt(f"entry #{entry.id} is not an {entry.name} that can be read: {error!r}") from error


def build_part(data: Mapping[str, Any]) -> MessagePart:
    """Build a stored part without checking types. Raise `TypeError` or `ValueError` if it is not one."""
    file, buttons = data.get("file"), data.get("buttons")
    return MessagePart(
        **{
            **data,
            "file": OutboundFile(**file) if file else None,
            "buttons": msgspec.convert(buttons, ButtonSet) if buttons else None,
        }
    )


def read_intents(entries: Iterable[TapeEntry]) -> Iterator[OutboxMessage]:
    """Read the intents among these entries; log and skip unreadable ones."""
    for entry in entries:
        if entry.name == INTENT and not entry.erased:
            try:
                yield intent_from(entry)
            except TapeCorrupt as error:  # a third-party adapter may put anything into its parts
                log.warning("message not readable, left out: %s", error, extra={"action": "outbox.unreadable"})


def intent_key(turn: str, place: int = 0) -> str:
    """Return the key of an intent without buttons."""
    return f"{turn}:{place}"


def buttons_key(turn: str) -> str:
    """Return the key of an intent with buttons. It also names the buttons, so it is short: platforms limit their ids."""
    key = intent_key(turn)
    if len(key.encode()) > _MAX_BUTTON_KEY_BYTES or not key.isascii():
        return f"b{sha256(key.encode()).hexdigest()[:40]}"
    return key


def outbox_channel(tape: str) -> str:
    """Return the channel of an outbox tape, such as `bubbot/outbox/telegram` or a shard of it; empty for other tapes."""
    head, _, rest = tape.partition(f"{OUTBOX_PREFIX}/")
    return "" if head else rest.partition("/")[0]


def intent_entry(
    session: str, turn: str, parts: tuple[MessagePart, ...], *, inbound: int = 0, meta: JsonObject = EMPTY_OBJECT
) -> TapeEntry:
    """Make the entry of an intent, to merge with its turn. `inbound`: the first answered one."""
    key = intent_key(turn)
    if any(part.buttons for part in parts):
        key = buttons_key(turn)
        parts = tuple(
            structs.replace(part, buttons=part.buttons and structs.replace(part.buttons, key=key)) for part in parts
        )
    return OutboxIntent(session, turn, parts, inbound).to_entry(key=key, **meta)
