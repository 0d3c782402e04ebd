"""What people change on the platform after it was said: edits and deletions correct, reactions are noted."""

from __future__ import annotations

from typing import Any

from bubbot.ports.channel import Deletion, Edit, Inbound, Reaction
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.calls import clean
from bubbot.runtime.opening import message_entry, sender_data
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.query import TapeQuery

REACTED = "reaction"
REACH = 2_000
"""Newest messages of a tape among which the changed one is looked for."""


async def change_entries(tape: TapeHandle, inbox: str, changed: TapeChange) -> tuple[list[TapeEntry], str]:
    """What a change writes on the session tape, and its outcome: `applied`, `heard`, or `unknown` where the tape does
    not have the message."""
    change = changed.event
    if isinstance(change, Inbound):
        return [message_entry(inbox, AcceptedInbound(changed.id, change))], "heard"
    target = await message_id(tape, change.message)
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
    return [make.event(REACTED, _reaction(change, target), **meta)], "applied"


def _reaction(change: Reaction, target: int | None) -> dict[str, Any]:
    who = sender_data(change.sender)
    data = {"message": change.message, "emojis": [clean(one) for one in change.emojis], "sender": who}
    return data if target is None else {**data, "entry": target}


async def message_id(tape: TapeHandle, message: str) -> int | None:
    """The entry that is the message with this id of the platform; None where it is not among the newest."""
    query = TapeQuery(tape.name, kinds=(Kind.MESSAGE,), newest=True, limit=REACH)
    found = (await tape.fetch([query]))[0]
    return next((entry.id for entry in found if entry.meta.get("message") == message), None)
