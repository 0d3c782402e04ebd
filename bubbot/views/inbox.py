"""What an inbox tape holds that no turn has finished."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bubbot.channel import Attachment, Inbound, Sender
from bubbot.tape.entry import JsonObject, Kind
from bubbot.tape.query import Spans, TapeQuery
from bubbot.tape.view import Found
from bubbot.turn import Accepted
from bubbot.views.bookkeeping import Mark

RECEIVED = "inbox/received"
UNPARSED = "inbox/unparsed"
INTERRUPTED = "inbox/interrupted"
DONE = "inbox/done"
MARK = "inbox/mark"


def inbound_data(inbound: Inbound) -> JsonObject:
    """An inbound as the data of its event. Half a surrogate pair, which no tape takes, is replaced."""
    data: JsonObject = _storable({**asdict(inbound), "session": inbound.session})
    return data


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {name: _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, (list, tuple)) else value


def inbound_from(data: JsonObject) -> Inbound:
    """The inbound of an event's data."""
    return Inbound(
        channel=data["channel"],
        external_id=data["external_id"],
        chat=data["chat"],
        sender=Sender(data["sender"]["id"], data["sender"]["name"]),
        text=data["text"],
        time=data["time"],
        thread=data["thread"],
        reply_to=data["reply_to"],
        attachments=tuple(Attachment(**item) for item in data["attachments"]),
    )


@dataclass(frozen=True, slots=True)
class InboxView:
    """The open inbounds since a bookkeeping mark, oldest first."""

    mark: Mark
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """What the mark left open, and everything newer."""
        names = (RECEIVED, INTERRUPTED, DONE)
        return (TapeQuery(tape, Spans(self.mark.spans()), kinds=(Kind.EVENT,), names=names),)

    def fold(self, found: Found) -> tuple[Accepted, ...]:
        """Received, less what is done; each with the number of turns that were begun for it."""
        received: dict[int, Inbound] = {}
        attempts = {item["id"]: int(item["attempts"]) for item in self.mark.open}
        for entry in found[0]:
            if entry.erased:
                continue
            data = entry.payload["data"]
            if entry.name == RECEIVED:
                received[entry.id] = inbound_from(data)
                continue
            for inbound_id in data["inbounds"]:
                if entry.name == DONE:
                    received.pop(inbound_id, None)
                else:
                    attempts[inbound_id] = attempts.get(inbound_id, 0) + 1
        return tuple(Accepted(key, inbound, attempts.get(key, 0)) for key, inbound in sorted(received.items()))


@dataclass(frozen=True, slots=True)
class SessionTraceView:
    """The entries of an inbox or outbox tape that hold text of one session: what an erasure has to reach."""

    session: str
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Every event that carries a session id."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIVED, UNPARSED, "outbox/intent")),)

    def fold(self, found: Found) -> tuple[int, ...]:
        """Their ids."""
        return tuple(
            entry.id for entry in found[0] if not entry.erased and entry.payload["data"].get("session") == self.session
        )
