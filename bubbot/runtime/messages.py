"""The entries of platform messages: the start of a turn, what it answers, and later changes of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.ports.channel import Deletion, Edit, Inbound, Reaction, Sender
from bubbot.ports.text import clean
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.attachments import AttachmentResult, list_attachments, unfetched_part
from bubbot.runtime.model_choice import CHOSEN
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

MAX_QUOTE_CHARS = 2_000
"""Characters of a quoted message that are stored with the message that quotes it."""
REACTION = "reaction"
CHANGE_SEARCH_LIMIT = 2_000
"""Newest messages of a tape that are searched for the changed one."""


def turn_start_entry(
    session: str, inbox: str, batch: Sequence[AcceptedInbound], cited: Sequence[int] = ()
) -> TapeEntry:
    """Build the event that names every inbound the turn answers.

    Args:
        session: the session id.
        inbox: the name of the inbox tape.
        batch: the inbounds.
        cited: message entries that an interrupted attempt left on the tape; the turn answers these.
    """
    data: dict[str, Any] = {
        "attempt": max(accepted.attempts for accepted in batch) + 1,
        "session": session,
        "inbounds": [[inbox, accepted.id] for accepted in batch],
    }
    if cited:
        data["messages"] = list(cited)
    if interrupted := next((accepted.interrupted_turn for accepted in batch if accepted.interrupted_turn), ""):
        data["again"] = interrupted
    return make.event("turn/start", data)


def turn_joined_entry(inbox: str, batch: Sequence[AcceptedInbound]) -> TapeEntry:
    """Build the event that names the inbounds that joined a running turn."""
    return make.event("turn/joined", {"inbounds": [[inbox, accepted.id] for accepted in batch]})


def message_entry(
    inbox: str, accepted: AcceptedInbound, edits: Sequence[TapeChange] = (), parts: Sequence[JsonObject] | None = None
) -> TapeEntry:
    """Build the session-tape message of an inbound.

    Args:
        inbox: the name of the inbox tape.
        accepted: the inbound.
        edits: corrections that came before its turn; the last one replaces the text.
        parts: its attachments as content parts; None if they were not fetched.
    """
    inbound = accepted.inbound
    texts = [edit.event.text for edit in edits if isinstance(edit.event, Edit)]
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
        meta["edited"] = [edit.id for edit in edits]
    if quote := _quote(inbound):
        meta["quote"] = quote
    text = clean(texts[-1] if texts else inbound.text)
    if parts is None:
        parts = [unfetched_part(attachment) for attachment, _ in list_attachments(inbound)]
    if parts:
        body: list[JsonObject] = [{"type": "text", "text": text}] if text.strip() else []
        return make.message("user", [*body, *parts], **meta)
    return make.message("user", text or " ", **meta)


def message_entries(
    inbox: str, accepted: AcceptedInbound, attachments: AttachmentResult | None, edits: Sequence[TapeChange] = ()
) -> list[TapeEntry]:
    """Build the message entry, the choice of a model for it alone, and the facts about its attachments."""
    model = accepted.inbound.model
    choice = [make.event(CHOSEN, {"model": clean(model)})] if model else []
    if attachments is None:
        return [message_entry(inbox, accepted, edits), *choice]
    return [message_entry(inbox, accepted, edits, attachments.parts), *choice, *attachments.facts]


def collect_notices(results: Mapping[int, AttachmentResult | None]) -> list[str]:
    """Collect the notices about the attachments of these messages."""
    return [notice for attachments in results.values() if attachments for notice in attachments.notices]


def too_old_text(texts: Texts, batch: Sequence[AcceptedInbound]) -> str:
    """Build the notice for messages that came while the bot was away for long."""
    first, last = (accepted.inbound.time[:16].replace("T", " ") for accepted in (batch[0], batch[-1]))
    when = texts.say("from_to", first=first, last=last) if len(batch) > 1 else first
    return texts.say("too_old", count=len(batch), when=when)


def missing_edit_entries(inbox: str, message: TapeEntry, edits: Sequence[TapeChange]) -> list[TapeEntry]:
    """Build corrections for a message that an interrupted attempt left, without those it already includes."""
    included = message.meta.get("edited", ())
    return [
        make.event(
            CORRECTION,
            {"corrects": message.id, "content": clean(edit.event.text)},
            inbound=[inbox, edit.id],
            sender=sender_data(edit.event.sender),
        )
        for edit in edits
        if isinstance(edit.event, Edit) and edit.id not in included
    ]


def sender_data(sender: Sender) -> dict[str, Any]:
    """Build what an entry's meta stores about a person."""
    data: dict[str, Any] = {"id": sender.id, "name": clean(sender.name)}
    return data | {"bot": True} if sender.bot else data


def _quote(inbound: Inbound) -> dict[str, Any] | None:
    quote = inbound.quote
    if quote is None or not (quote.text or quote.attachments):
        return None
    data = {"message": quote.message, "sender": sender_data(quote.sender), "text": clean(quote.text)[:MAX_QUOTE_CHARS]}
    return data | {"own": True} if quote.own else data


async def build_change_entries(tape: TapeHandle, inbox: str, changed: TapeChange) -> tuple[list[TapeEntry], str]:
    """Build the entries that a change writes on the session tape, and its outcome.

    The outcome is `applied`, `heard`, or `unknown` if the tape does not have the message.
    """
    change = changed.event
    if isinstance(change, Inbound):
        return [message_entry(inbox, AcceptedInbound(changed.id, change))], "heard"
    target = await find_message_id(tape, change.message)
    meta: dict[str, Any] = {"inbound": [inbox, changed.id]}
    if isinstance(change, Edit):
        if target is None:
            return [], "unknown"
        meta["sender"] = sender_data(change.sender)
        return [make.event(CORRECTION, {"corrects": target, "content": clean(change.text)}, **meta)], "applied"
    if isinstance(change, Deletion):
        if target is None:
            return [], "unknown"
        return [make.event(CORRECTION, {"corrects": target, "hide": True}, **meta)], "applied"
    return [make.event(REACTION, _reaction(change, target), **meta)], "applied"


def _reaction(change: Reaction, target: int | None) -> dict[str, Any]:
    sender = sender_data(change.sender)
    data = {"message": change.message, "emojis": [clean(emoji) for emoji in change.emojis], "sender": sender}
    return data if target is None else {**data, "entry": target}


async def find_message_id(tape: TapeHandle, message: str) -> int | None:
    """Find the entry of the message with this platform id; None if it is not among the newest."""
    query = TapeQuery(tape.name, kinds=(Kind.MESSAGE,), newest=True, limit=CHANGE_SEARCH_LIMIT)
    messages = (await tape.fetch([query]))[0]
    return next((entry.id for entry in messages if entry.meta.get("message") == message), None)
