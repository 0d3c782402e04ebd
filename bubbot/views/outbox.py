"""What an outbox tape holds that has not reached the platform."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bubbot.channel import Part
from bubbot.tape.entry import JsonObject, Kind
from bubbot.tape.query import Spans, TapeQuery
from bubbot.tape.view import Found
from bubbot.views.bookkeeping import Mark

INTENT = "outbox/intent"
RECEIPT = "outbox/receipt"
ENDED = "outbox/ended"
MARK = "outbox/mark"


@dataclass(frozen=True, slots=True)
class Intent:
    """An intended message: its id on the outbox tape, its session, the turn it comes from, its parts.

    `sent` are the places of the parts that have a receipt.
    """

    id: int
    session: str
    turn: str
    parts: tuple[Part, ...]
    sent: frozenset[int] = frozenset()


def intent_data(session: str, turn: str, parts: tuple[Part, ...]) -> JsonObject:
    """An intent as the data of its event."""
    return {"session": session, "turn": turn, "parts": [asdict(part) for part in parts]}


def intent_from(entry_id: int, data: JsonObject) -> Intent:
    """The intent of an event's data."""
    return Intent(entry_id, data["session"], data["turn"], tuple(Part(**part) for part in data["parts"]))


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
                intents[entry.id] = intent_from(entry.id, data)
            elif entry.name == RECEIPT:
                sent.setdefault(data["intent"], set()).add(data["part"])
            else:
                ended.add(data["intent"])
        return tuple(
            Intent(one.id, one.session, one.turn, one.parts, frozenset(sent.get(one.id, ())))
            for one in intents.values()
            if one.id not in ended and len(sent.get(one.id, ())) < len(one.parts)
        )
