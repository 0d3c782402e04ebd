"""Later changes of platform messages: edits and deletions correct an entry, reactions are recorded."""

from __future__ import annotations

from typing import Any

from bubbot.ports.channel import Deletion, Edit, Inbound, Reaction
from bubbot.ports.text import clean
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.opening import message_entry, sender_data
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.query import TapeQuery

REACTION = "reaction"
CHANGE_SEARCH_LIMIT = 2_000
"""Newest messages of a tape that are searched for the changed one."""


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
