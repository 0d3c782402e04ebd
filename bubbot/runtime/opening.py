"""What a turn begins with: its start, and the messages it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.ports.channel import Edit, Inbound, Sender
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.calls import clean
from bubbot.runtime.intake import AttachmentResult, attachments_of, unfetched
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import CORRECTION
from bubbot.texts import Texts

QUOTE_LIMIT = 2_000
"""Characters of a quoted message that are kept with the one that quotes it."""


def turn_start(session: str, inbox: str, batch: Sequence[AcceptedInbound], cited: Sequence[int] = ()) -> TapeEntry:
    """Build the event that names every inbound the turn answers.

    Args:
        cited: message entries that an interrupted attempt left on the tape; the turn answers these.
    """
    data: dict[str, Any] = {
        "attempt": max(one.attempts for one in batch) + 1,
        "session": session,
        "inbounds": [[inbox, one.id] for one in batch],
    }
    if cited:
        data["messages"] = list(cited)
    if interrupted := next((one.interrupted_turn for one in batch if one.interrupted_turn), ""):
        data["again"] = interrupted
    return make.event("turn/start", data)


def turn_joined(inbox: str, batch: Sequence[AcceptedInbound]) -> TapeEntry:
    """The event that names the inbounds that joined a turn under way."""
    return make.event("turn/joined", {"inbounds": [[inbox, one.id] for one in batch]})


def message_entry(
    inbox: str, accepted: AcceptedInbound, edits: Sequence[TapeChange] = (), parts: Sequence[JsonObject] | None = None
) -> TapeEntry:
    """An inbound as a message of the session tape; an edit that came before its turn replaces the text.

    `parts` are its attachments as content parts; None where they were not fetched.
    """
    inbound = accepted.inbound
    texts = [one.event.text for one in edits if isinstance(one.event, Edit)]
    meta: dict[str, Any] = {
        "inbound": [inbox, accepted.id],
        "origin": inbound.origin,
        "sender": sender_data(inbound.sender),
    }
    if inbound.message:
        meta["message"] = inbound.message
    if not inbound.direct:
        meta["group"] = True
    if texts:
        meta["edited"] = [one.id for one in edits]
    if quote := _quote(inbound):
        meta["quote"] = quote
    text = clean(texts[-1] if texts else inbound.text)
    if parts is None:
        parts = [unfetched(attachment) for attachment, _ in attachments_of(inbound)]
    if parts:
        said: list[JsonObject] = [{"type": "text", "text": text}] if text.strip() else []
        return make.message("user", [*said, *parts], **meta)
    return make.message("user", text or " ", **meta)


def message_entries(
    inbox: str, accepted: AcceptedInbound, taken: AttachmentResult | None, edits: Sequence[TapeChange] = ()
) -> list[TapeEntry]:
    """The message, and the facts of what became of its attachments."""
    if taken is None:
        return [message_entry(inbox, accepted, edits)]
    return [message_entry(inbox, accepted, edits, taken.parts), *taken.facts]


def notices_of(taken: Mapping[int, AttachmentResult | None]) -> list[str]:
    """What people are told of the attachments of these messages."""
    return [notice for one in taken.values() if one for notice in one.notices]


def too_old_text(texts: Texts, batch: Sequence[AcceptedInbound]) -> str:
    """What a chat is told whose messages came while the bot was away for long."""
    first, last = (one.inbound.time[:16].replace("T", " ") for one in (batch[0], batch[-1]))
    when = texts.say("from_to", first=first, last=last) if len(batch) > 1 else first
    return texts.say("too_old", count=len(batch), when=when)


def edits_since(inbox: str, message: TapeEntry, edits: Sequence[TapeChange]) -> list[TapeEntry]:
    """The corrections of a message that an interrupted attempt has left on the tape, less those it was written with."""
    known = message.meta.get("edited", ())
    return [
        make.event(
            CORRECTION,
            {"corrects": message.id, "content": clean(one.event.text)},
            inbound=[inbox, one.id],
            sender=sender_data(one.event.sender),
        )
        for one in edits
        if isinstance(one.event, Edit) and one.id not in known
    ]


def sender_data(sender: Sender) -> dict[str, Any]:
    """Build what an entry's meta keeps of a person."""
    found: dict[str, Any] = {"id": sender.id, "name": clean(sender.name)}
    return found | {"bot": True} if sender.bot else found


def _quote(inbound: Inbound) -> dict[str, Any] | None:
    quote = inbound.quote
    if quote is None or not (quote.text or quote.attachments):
        return None
    found = {"message": quote.message, "sender": sender_data(quote.sender), "text": clean(quote.text)[:QUOTE_LIMIT]}
    return found | {"own": True} if quote.own else found
