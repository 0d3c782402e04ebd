"""The open inbounds and changes of an inbox tape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from bubbot.gateway.checkpoint import Checkpoint
from bubbot.ports.channel import Attachment, BackfillCursor, Deletion, Edit, Inbound, Quote, Reaction, Sender
from bubbot.ports.inbox import INBOUND_DONE, INBOUND_INTERRUPTED
from bubbot.ports.text import clean
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import JsonObject, Kind
from bubbot.tape.query import IdRanges, TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

BEGAN = "inbox/began"
RECEIVED = "inbox/received"
UNPARSED = "inbox/unparsed"
MESSAGE_CHANGED = "inbox/changed"
INBOUND_REFUSED = "inbox/refused"
MOVED = "inbox/moved"
INBOX_CHECKPOINT = "inbox/mark"
JOB_TEXT_EVENTS = ("schedule/added", "schedule/changed")
"""Events of schedules that contain texts of people."""
MAX_MESSAGES_READ = 2_000
"""Newest messages that are searched for the newest one of each chat."""


def inbound_data(inbound: Inbound) -> JsonObject:
    """Build the event data of an inbound. Half a surrogate pair, which no tape accepts, is replaced."""
    data: JsonObject = _storable({**asdict(inbound), "session": inbound.session})
    return data


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, (list, tuple)) else value


def inbound_from(data: JsonObject) -> Inbound:
    """Read an inbound from the data of its event; older entries lack the later fields."""
    quote = data.get("quote")
    return Inbound(
        channel=data["channel"],
        external_id=data["external_id"],
        chat=data["chat"],
        sender=_sender(data["sender"]),
        text=data["text"],
        time=data["time"],
        thread=data["thread"],
        reply_to=data["reply_to"],
        attachments=_attachments(data["attachments"]),
        message=data.get("message", ""),
        direct=data.get("direct", True),
        addressed=data.get("addressed", True),
        quote=_quote(quote) if quote else None,
        group=data.get("group", ""),
        space=data.get("space", ""),
        origin=data.get("origin", "human"),
    )


def _sender(data: JsonObject) -> Sender:
    return Sender(**{**data, "roles": tuple(data.get("roles", ()))})


def _attachments(items: Sequence[JsonObject]) -> tuple[Attachment, ...]:
    return tuple(Attachment(**item) for item in items)


def _quote(data: JsonObject) -> Quote:
    values = {**data, "sender": _sender(data["sender"]), "attachments": _attachments(data["attachments"])}
    return Quote(**values)


_CHANGES: Mapping[str, type[Edit | Deletion | Reaction]] = {"edit": Edit, "deletion": Deletion, "reaction": Reaction}
_INBOUND_CHANGE = "inbound"


def change_data(change: Edit | Deletion | Reaction | Inbound) -> JsonObject:
    """Build the event data of a change; `what` names its kind."""
    data: JsonObject = _storable({"what": type(change).__name__.lower(), **asdict(change), "session": change.session})
    return data


def change_from(data: JsonObject) -> Edit | Deletion | Reaction | Inbound:
    """Read a change from the data of its event."""
    if data["what"] == _INBOUND_CHANGE:
        return inbound_from(data)
    kind = _CHANGES[data["what"]]
    values = {item.name: data[item.name] for item in fields(kind) if item.name in data}
    if "sender" in values:
        values["sender"] = _sender(values["sender"])
    return kind(**values)


@dataclass(frozen=True, slots=True)
class OpenChangesView:
    """The changes since a bookkeeping mark that are not done, oldest first."""

    mark: Checkpoint
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the open items of the mark, and everything newer."""
        return (
            TapeQuery(tape, IdRanges(self.mark.spans()), kinds=(Kind.EVENT,), names=(MESSAGE_CHANGED, INBOUND_DONE)),
        )

    def fold(self, answers: QueryAnswers) -> tuple[TapeChange, ...]:
        """Return the noted changes that are not done."""
        done_ids = {
            inbound_id
            for entry in answers[0]
            if entry.name == INBOUND_DONE
            for inbound_id in entry.payload["data"]["inbounds"]
        }
        return tuple(
            TapeChange(entry.id, change_from(entry.payload["data"]))
            for entry in answers[0]
            if entry.name == MESSAGE_CHANGED and not entry.erased and entry.id not in done_ids
        )


@dataclass(frozen=True, slots=True)
class ChatMigrationsView:
    """The moves of chats to other ids."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read all moves; there are few."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(MOVED,)),)

    def fold(self, answers: QueryAnswers) -> dict[str, str]:
        """Map each earlier id of a chat to its current one."""
        moves: dict[str, str] = {}
        for entry in answers[0]:
            if entry.erased:
                continue
            old, new = entry.payload["data"]["chat"], entry.payload["data"]["to"]
            moves = {chat: new if to == old else to for chat, to in moves.items()} | {old: new}
            moves.pop(new, None)  # a chat that came back
        return moves


@dataclass(frozen=True, slots=True)
class BackfillCursorView:
    """The newest accepted messages: see `BackfillCursor`, here without the people."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read when the channel began, and the newest messages and changes."""
        newest = TapeQuery(
            tape, kinds=(Kind.EVENT,), names=(RECEIVED, MESSAGE_CHANGED), newest=True, limit=MAX_MESSAGES_READ
        )
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(BEGAN,), newest=True, limit=1), newest)

    def fold(self, answers: QueryAnswers) -> BackfillCursor:
        """Select the newest message of each chat and thread."""
        newest: dict[tuple[str, str], str] = {}
        began: JsonObject = next((entry.payload["data"] for entry in answers[0] if not entry.erased), {})
        newest_time = str(began.get("time", ""))
        for entry in sorted(answers[1], key=lambda item: item.id):
            data = {} if entry.erased else entry.payload["data"]
            if data.get("what", _INBOUND_CHANGE) == _INBOUND_CHANGE and data.get("message"):
                newest[data["chat"], data["thread"]] = data["message"]
                newest_time = max(newest_time, data["time"], key=_seconds_of)
        return BackfillCursor(newest, newest_time, handled_until=restored_since(began))


@dataclass(frozen=True, slots=True)
class DirectChatView:
    """The newest message of one of these people in a direct chat; None if no recent one exists."""

    people: frozenset[str]
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest messages."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_MESSAGES_READ),)

    def fold(self, answers: QueryAnswers) -> Inbound | None:
        """Return the first message that matches."""
        for entry in answers[0]:
            if not entry.erased:
                inbound = inbound_from(entry.payload["data"])
                if inbound.direct and inbound.sender.id in self.people:
                    return inbound
        return None


@dataclass(frozen=True, slots=True)
class RecentMessagesView:
    """The newest messages that were accepted from a moment on, oldest first."""

    since: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest messages, up to a limit."""
        kinds = (Kind.EVENT,)
        return (
            TapeQuery(tape, kinds=kinds, names=(RECEIVED,), since=self.since, newest=True, limit=MAX_MESSAGES_READ),
        )

    def fold(self, answers: QueryAnswers) -> tuple[Inbound, ...]:
        """Return the messages that people sent."""
        entries = sorted((item for item in answers[0] if not item.erased), key=lambda item: item.id)
        inbounds = (inbound_from(entry.payload["data"]) for entry in entries)
        return tuple(item for item in inbounds if item.origin == "human")


def restored_since(began: JsonObject) -> str:
    """Return the time from which on a restored channel listens; empty for one that was never restored."""
    return str(began["time"]) if began.get("restored") else ""


def _seconds_of(time: str) -> float:
    instant = parse_moment(time)
    return instant.timestamp() if instant else 0.0


@dataclass(frozen=True, slots=True)
class InboxView:
    """The open inbounds since a bookkeeping mark, oldest first."""

    mark: Checkpoint
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the open items of the mark, and everything newer."""
        names = (RECEIVED, INBOUND_INTERRUPTED, INBOUND_DONE)
        return (TapeQuery(tape, IdRanges(self.mark.spans()), kinds=(Kind.EVENT,), names=names),)

    def fold(self, answers: QueryAnswers) -> tuple[AcceptedInbound, ...]:
        """Return the inbounds that are not done, each with its number of interrupted turns and the last of them."""
        received: dict[int, Inbound] = {}
        attempts = {item["id"]: int(item["attempts"]) for item in self.mark.open}
        turns = {item["id"]: str(item.get("turn", "")) for item in self.mark.open}
        for entry in answers[0]:
            if entry.erased:
                continue
            data = entry.payload["data"]
            if entry.name == RECEIVED:
                received[entry.id] = inbound_from(data)
                continue
            for inbound_id in data["inbounds"]:
                if entry.name == INBOUND_DONE:
                    received.pop(inbound_id, None)
                else:
                    attempts[inbound_id] = attempts.get(inbound_id, 0) + 1
                    turns[inbound_id] = str(data.get("turn", ""))
        return tuple(
            AcceptedInbound(key, inbound, attempts.get(key, 0), turns.get(key, ""))
            for key, inbound in sorted(received.items())
        )


@dataclass(frozen=True, slots=True)
class SessionTraceView:
    """The entries of an inbox or outbox tape with text of one session: those that an erasure has to reach."""

    session: str
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read every event with a session id."""
        return (
            TapeQuery(
                tape,
                kinds=(Kind.EVENT,),
                names=(
                    RECEIVED,
                    UNPARSED,
                    MESSAGE_CHANGED,
                    "outbox/intent",
                    "outbox/preview",
                    "outbox/preview-begin",
                    *JOB_TEXT_EVENTS,
                ),
            ),
        )

    def fold(self, answers: QueryAnswers) -> tuple[int, ...]:
        """Return the ids of the session's entries."""
        return tuple(
            entry.id
            for entry in answers[0]
            if not entry.erased and entry.payload["data"].get("session") == self.session
        )
