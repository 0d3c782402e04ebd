"""The projections and views of an inbox tape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bubbot.formatting import clean
from bubbot.gateway.facts import (
    GATEWAY_REFERENCES,
    BotAddedToGroup,
    ButtonPressed,
    ChannelBegan,
    GroupCalled,
    InboundReceived,
    InboundWaiting,
    InboxState,
    MessageChanged,
    MovesState,
    OpenInbound,
    PreviewBegun,
    PreviewShown,
    UpdateUnparsed,
)
from bubbot.gateway.outbox_views import DELIVERY_ABANDONED, OUTBOX_PROJECTION
from bubbot.ports.channel import (
    OWN_WORDS,
    AgentCall,
    Attachment,
    BackfillCursor,
    Deletion,
    Edit,
    Inbound,
    PressedButton,
    Quote,
    Reaction,
    Sender,
)
from bubbot.ports.inbox import InboundsDone, InboundsInterrupted
from bubbot.ports.outbox import INTENT, RECEIPT
from bubbot.ports.session_names import ChatMoved, add_move
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, event
from bubbot.tape.fact import encode_state
from bubbot.tape.projection import LegacyAnchor, Projection
from bubbot.tape.provenance import PROVENANCE
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.view import QueryAnswers

S = TypeVar("S", bound=Struct)

(RECEIVED,) = InboundReceived.EVENTS
(MESSAGE_CHANGED,) = MessageChanged.EVENTS
_TEXT_EVENTS = (
    RECEIVED,
    *InboundWaiting.EVENTS,
    *ButtonPressed.EVENTS,
    *UpdateUnparsed.EVENTS,
    MESSAGE_CHANGED,
    INTENT,
    *PreviewShown.EVENTS,
    *PreviewBegun.EVENTS,
)
"""Events of inbox and outbox that contain texts of people."""
INBOX_CHECKPOINT_INTERVAL = 50
"""Inbounds between two checkpoints; a start reads about twice that many facts."""
MAX_WAITING_READ = 500
"""Newest messages of strangers to search for people who were let in since."""
ATTACHMENTS = "attachments"
LANGUAGE = "language"
"""The field of a sender with the person's language tag."""
MAX_LANGUAGES_READ = 500
"""Newest messages to search for the languages of people."""
MAX_MESSAGES_READ = 2_000
"""Newest messages to search for the newest one of each chat."""


def inbound_data(inbound: Inbound) -> JsonObject:
    """Build the event data of an inbound. Replace half surrogate pairs, which no tape accepts."""
    data: dict[str, Any] = {**_storable(inbound), "session": clean(inbound.session)}
    del data["chat_title"]  # for notices only
    # few have them, and every message is stored
    for name in ("model", "instructions", "press", "is_one_shot", "is_plain_text", "agents", "call"):
        if not data[name]:
            del data[name]
    return data


def inbound_entry(
    inbound: Inbound, kind: type[InboundReceived] = InboundReceived, *, key: str = "", **meta: Any
) -> TapeEntry:
    """Make the fact about an inbound. `key` defaults to the external id."""
    return event(kind.EVENTS[0], inbound_data(inbound), key=key or inbound.external_id, **meta)


def _storable(value: Any) -> Any:
    """Build the JSON value of an event or a part of it."""
    return _clean_all(msgspec.to_builtins(value))


def _clean_all(value: Any) -> Any:
    """Clean the texts of a JSON value and drop rare fields that are empty."""
    if isinstance(value, str):
        return value if value.isascii() else clean(value)
    if isinstance(value, (list, tuple)):
        return [_clean_all(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _clean_all(item)
        for name, item in value.items()
        if not (name == PROVENANCE and item == OWN_WORDS) and not (name == LANGUAGE and item == "")
    }


def inbound_from(data: JsonObject) -> Inbound:
    """Read an inbound from the data of its event; older entries lack the later fields.

    Types are not checked: if a third-party adapter stored wrong values, only that turn fails, not its inbox or session.
    """
    return _build(Inbound, data)


def _build(kind: type[S], data: JsonObject) -> S:
    """Build an adapter's event from its stored fields."""
    values = {name: data[name] for name in kind.__struct_fields__ if name in data}
    for name, part in _PARTS.items():
        if name in values:
            values[name] = _build(part, values[name]) if values[name] else None
    for name in _LISTS & values.keys():
        values[name] = tuple(values[name])
    if ATTACHMENTS in values:
        values[ATTACHMENTS] = tuple([_build(Attachment, each) for each in values[ATTACHMENTS]])
    return kind(**values)


_PARTS: Mapping[str, type[Struct]] = {"sender": Sender, "quote": Quote, "press": PressedButton, "call": AgentCall}
_LISTS = frozenset({"roles", "emojis", "agents"})
_CHANGES: Mapping[str, type[Edit | Deletion | Reaction | Inbound]] = {
    kind.__name__.lower(): kind for kind in (Edit, Deletion, Reaction, Inbound)
}


def change_entry(change: Edit | Deletion | Reaction | Inbound, **meta: Any) -> TapeEntry:
    """Make the fact about a change; `what` names its kind."""
    data = {"what": type(change).__name__.lower(), **_storable(change), "session": clean(change.session)}
    return event(MESSAGE_CHANGED, data, key=change.external_id, **meta)


def change_from(data: JsonObject) -> Edit | Deletion | Reaction | Inbound:
    """Read a change from the data of its event, like `inbound_from`."""
    return _build(_CHANGES[data["what"]], data)


def _apply_items(items: Mapping[int, OpenInbound], entries: Sequence[TapeEntry]) -> Mapping[int, OpenInbound]:
    result = dict(items)
    for entry in entries:
        if entry.name in (RECEIVED, MESSAGE_CHANGED):
            result[entry.id] = OpenInbound(entry.id, 0)
        elif entry.name in InboundsDone.EVENTS:
            for number in InboundsDone.of(entry).inbounds:
                result.pop(number, None)
        else:
            interrupted = InboundsInterrupted.of(entry)
            for number in result.keys() & interrupted.inbounds:
                result[number] = OpenInbound(number, result[number].attempts + 1, interrupted.turn)
    return result


def _decode_items(saved: JsonObject, _cited: Sequence[TapeEntry]) -> Mapping[int, OpenInbound]:
    return {item.id: item for item in msgspec.convert(saved, InboxState).open}


def _cited_items(saved: JsonObject) -> list[int]:
    return [item["id"] for item in saved["open"]]


INBOX_PROJECTION = Projection[Mapping[int, OpenInbound]](
    name="inbox",
    version=1,
    tapes="bubbot/inbox/",
    events=(RECEIVED, MESSAGE_CHANGED, *InboundsInterrupted.EVENTS, *InboundsDone.EVENTS),
    initial=dict,
    apply=_apply_items,
    encode=lambda items: encode_state(InboxState(tuple(items.values()))),
    decode=_decode_items,
    cited_ids=_cited_items,
    interval=2 * INBOX_CHECKPOINT_INTERVAL,  # each inbound is received and done
    size=len,
    legacy=LegacyAnchor(name="inbox/mark", decode=_decode_items, cited_ids=_cited_items),
)
"""The inbounds and changes that are not done, by id, oldest first; their content is read on demand."""


def _apply_moves(moves: Mapping[str, str], entries: Sequence[TapeEntry]) -> Mapping[str, str]:
    return reduce(add_move, entries, moves)


MIGRATIONS_PROJECTION = Projection[Mapping[str, str]](
    name="moves",
    version=2,
    tapes="bubbot/inbox/",
    events=ChatMoved.EVENTS,
    initial=dict,
    apply=_apply_moves,
    encode=lambda moves: encode_state(MovesState(tuple(moves.items()))),
    decode=lambda saved, _cited: dict(msgspec.convert(saved, MovesState).chats),
    interval=50,
    size=len,
)
"""The current id of each chat that moved, by its earlier ids."""


class BackfillCursorView(Struct, frozen=True):
    """The `BackfillCursor` of the newest accepted messages, without the people."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query the beginning of the channel, and the newest messages and changes."""
        newest = TapeQuery(
            tape, kinds=(Kind.EVENT,), names=(RECEIVED, MESSAGE_CHANGED), newest=True, limit=MAX_MESSAGES_READ
        )
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=ChannelBegan.EVENTS, newest=True, limit=1), newest)

    def fold(self, answers: QueryAnswers) -> BackfillCursor:
        newest: dict[tuple[str, str], str] = {}
        began = next((ChannelBegan.of(entry) for entry in answers[0] if not entry.erased), ChannelBegan(""))
        newest_time = began.time
        for entry in sorted(answers[1], key=lambda item: item.id):
            data = {} if entry.erased else entry.payload["data"]
            if data.get("what", "inbound") == "inbound" and data.get("message"):
                newest[data["chat"], data["thread"]] = data["message"]
                newest_time = max(newest_time, data["time"], key=_seconds_of)
        return BackfillCursor(newest, newest_time, handled_until=began.time if began.restored else "")


def combine_cursors(cursors: Sequence[BackfillCursor]) -> BackfillCursor:
    """Combine the cursors of an inbox's shards; each chat is in one shard."""
    newest_ids = {place: message for cursor in cursors for place, message in cursor.newest_ids.items()}
    handled_until = next((cursor.handled_until for cursor in cursors if cursor.handled_until), "")
    last_message_at = max((cursor.last_message_at for cursor in cursors), key=_seconds_of, default="")
    return BackfillCursor(newest_ids, last_message_at, handled_until=handled_until)


def sent_at(inbound: Inbound) -> float:
    """Return the sending time of an inbound in seconds since 1970; 0 if unreadable."""
    return _seconds_of(inbound.time)


class DirectChatView(Struct, frozen=True):
    """The newest message of one of these people in a direct chat; None without a recent one."""

    people: frozenset[str]
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_MESSAGES_READ),)

    def fold(self, answers: QueryAnswers) -> Inbound | None:
        for entry in answers[0]:
            if not entry.erased:
                inbound = inbound_from(entry.payload["data"])
                if inbound.direct and inbound.sender.id in self.people:
                    return inbound
        return None


class WaitingMessagesView(Struct, frozen=True):
    """The newest message of each stranger who waits or was let in, newest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=InboundWaiting.EVENTS, newest=True, limit=MAX_WAITING_READ),)

    def fold(self, answers: QueryAnswers) -> tuple[Inbound, ...]:
        newest: dict[str, Inbound] = {}
        for entry in answers[0]:
            if not entry.erased:
                inbound = inbound_from(entry.payload["data"])
                newest.setdefault(inbound.sender.id, inbound)
        return tuple(newest.values())


class GroupIdsView(Struct, frozen=True):
    """The ids of the groups and spaces in which the bot was recently called or answered."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        names = (RECEIVED, *GroupCalled.EVENTS, *BotAddedToGroup.EVENTS)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_MESSAGES_READ),)

    def fold(self, answers: QueryAnswers) -> frozenset[str]:
        """Return the ids of chats with several people and of their spaces."""
        facts = [entry.payload["data"] for entry in answers[0] if not entry.erased]
        places = [(data["chat"], data.get("space", "")) for data in facts if not data.get("direct", "sender" in data)]
        return frozenset(number for place in places for number in place if number)


class LanguagesView(Struct, frozen=True):
    """The language of each person and of the last writer in each chat, by the newest messages."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_LANGUAGES_READ),)

    def fold(self, answers: QueryAnswers) -> Mapping[str, str]:
        """Return the languages by the ids of people and by `place_of` chats."""
        found: dict[str, str] = {}
        for entry in sorted((entry for entry in answers[0] if not entry.erased), key=lambda entry: entry.id):
            data = entry.payload["data"]
            if language := data["sender"].get(LANGUAGE):
                found[data["sender"]["id"]] = found[place_of(data["chat"])] = language
        return found


def place_of(chat: str) -> str:
    """Return a key for a chat that differs from its person's id: on some platforms both are equal."""
    return f"in {chat}"


class RecentMessagesView(Struct, frozen=True):
    """The newest messages accepted since a moment, oldest first."""

    since: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        kinds = (Kind.EVENT,)
        return (
            TapeQuery(tape, kinds=kinds, names=(RECEIVED,), since=self.since, newest=True, limit=MAX_MESSAGES_READ),
        )

    def fold(self, answers: QueryAnswers) -> tuple[Inbound, ...]:
        """Return the messages of people."""
        entries = sorted((item for item in answers[0] if not item.erased), key=lambda item: item.id)
        inbounds = (inbound_from(entry.payload["data"]) for entry in entries)
        return tuple(item for item in inbounds if item.origin == "human")


def _seconds_of(time: str) -> float:
    instant = parse_moment(time)
    return instant.timestamp() if instant else 0.0


class SessionTraceView(Struct, frozen=True):
    """The entries of a tape with text of one session, by declared references, for an erasure.

    An erasure covers what existed when it was requested: it excludes messages and changes that still wait, and
    everything after the request, such as its answers. An erasure by age also excludes undelivered messages.

    Attributes:
        events: the names of features' events, in addition to those of inbox and outbox.
        references: the fields of these events that name sessions.
        asking: the inbounds that request the erasure; empty for an erasure by age.
    """

    session: str
    events: tuple[str, ...] = ()
    references: ReferenceRegistry = GATEWAY_REFERENCES
    asking: Collection[int] = ()
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query all events with a session id, and the facts that close them."""
        ends = (*InboundsDone.EVENTS, RECEIPT, DELIVERY_ABANDONED)
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(*_TEXT_EVENTS, *self.events)),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=ends),
        )

    def fold(self, answers: QueryAnswers) -> tuple[int, ...]:
        open_ids = _open_ids(answers)
        return tuple(
            entry.id
            for entry in answers[0]
            if not entry.erased
            and self.session in self.references.find_sessions(entry)
            and not self._is_left_out(entry, is_open=entry.id in open_ids)
        )

    def fold_undelivered(self, answers: QueryAnswers) -> tuple[int, ...]:
        """Return the ids of those intents that will not be delivered any more."""
        intents = {entry.id for entry in answers[0] if entry.name == INTENT}
        return tuple(sorted(_open_ids(answers) & intents & set(self.fold(answers))))

    def _is_left_out(self, entry: TapeEntry, *, is_open: bool) -> bool:
        newest = max(self.asking, default=None)
        if entry.name == INTENT:
            return is_open if newest is None else entry.data.get("inbound", 0) > newest
        if entry.name in (RECEIVED, MESSAGE_CHANGED):
            return entry.id not in self.asking and (is_open or (newest is not None and entry.id > newest))
        return False


def _open_ids(answers: QueryAnswers) -> set[int]:
    facts = sorted((entry for found in answers for entry in found if not entry.erased), key=attrgetter("id"))
    waiting = INBOX_PROJECTION.apply({}, [entry for entry in facts if INBOX_PROJECTION.selects(entry)])
    undelivered = OUTBOX_PROJECTION.apply({}, [entry for entry in facts if OUTBOX_PROJECTION.selects(entry)])
    return {*waiting, *undelivered}
