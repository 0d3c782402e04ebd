"""Deliveries on the trace page: the intended messages and the platforms' answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from bubbot.gateway.outbox import receipt_key
from bubbot.gateway.outbox_views import DELIVERY_ABANDONED
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.ports.outbox import INTENT, OUTBOX_PREFIX, RECEIPT, intent_key, try_intent_from
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.shards import shard_tape

OUTBOXES = SharedTape(f"{OUTBOX_PREFIX}/")
MESSAGES_PER_TURN = 8
"""Messages of one turn to look for."""
NEWEST_FACTS = 1_000
"""Newest facts of the tape to search for messages from outside any turn."""
TURN_ID = re.compile(r"[0-9a-f]{32}")


class DeliveredPart(Struct, frozen=True):
    """A part of a message and its outcome.

    Attributes:
        message: the entry of the message.
        turn: the id of the turn that wrote it, or the key of a message that no turn wrote.
        answer: the platform's id of the part, or the number of the entry that ended the message; empty while it waits.
        answer_entry: the entry of the answer; 0 while it waits.
    """

    message: int
    place: int
    date: str
    turn: str
    is_of_turn: bool
    text: str
    state: str
    answer: str = ""
    answer_entry: int = 0


class Deliveries(Struct, frozen=True):
    """The messages to a chat, newest first, in parts; `outbox` is their tape, `more` the cursor of the next page."""

    session: str
    outbox: str = ""
    parts: tuple[DeliveredPart, ...] = ()
    more: str = ""


async def read_deliveries(reader: PanelReader, query: PanelQuery) -> Deliveries:
    """Read the messages to a chat, newest first, each part with its receipt."""
    channel = query.session.partition(":")[0]
    if not channel:
        return Deliveries("")
    name = shard_tape(f"{OUTBOX_PREFIX}/{channel}", query.session, reader.tapes.tape_shards)
    tape = reader.tapes.open_tape(name)
    intents, more = await _find_intents(reader, tape, query)
    answers = await _read_answers(tape, intents)
    parts = tuple(part for intent in intents for part in _read_parts(reader, intent, answers))
    return Deliveries(query.session, name, parts, more)


async def _find_intents(reader: PanelReader, tape: TapeHandle, query: PanelQuery) -> tuple[list[TapeEntry], str]:
    """Return the messages of the newest turns below the cursor, by key; on the first page also the newest others.

    The tape has the messages to all chats of a channel: only keys find those of one chat without reading the rest.
    """
    starts, more = await query.read_page(reader.tapes.open_tape(query.tape, query.session), TURN_START)
    turns = [str(start.meta["turn"]) for start in starts if "turn" in start.meta]
    keys = tuple(intent_key(turn, place) for turn in turns for place in range(MESSAGES_PER_TURN))
    named = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(INTENT,), keys=keys or ("none",))
    newest = IdRanges(((max(await tape.head() - NEWEST_FACTS, 0) + 1, None),))
    recent = TapeQuery(tape.name, newest, kinds=(Kind.EVENT,), names=(INTENT,))
    by_turn, others = await tape.fetch([named, recent])
    found = {entry.id: entry for entry in by_turn if _belongs(entry, query.session)}
    if query.cursor_id() is None:
        found |= {
            entry.id: entry
            for entry in others
            if _belongs(entry, query.session) and not TURN_ID.fullmatch(str(entry.data["turn"]))
        }
    return [found[number] for number in sorted(found, reverse=True)], more


def _belongs(entry: TapeEntry, session: str) -> bool:
    return entry.data.get("session") == session and try_intent_from(entry) is not None


async def _read_answers(tape: TapeHandle, intents: Sequence[TapeEntry]) -> Mapping[str, TapeEntry]:
    """Return the receipts and ends of these messages by key."""
    keys = [f"ended:{intent.id}" for intent in intents]
    keys += [receipt_key(intent.id, place) for intent in intents for place in range(len(intent.data["parts"]))]
    if not keys:
        return {}
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(RECEIPT, DELIVERY_ABANDONED), keys=tuple(keys))
    return {entry.key: entry for entry in (await tape.fetch([query]))[0] if entry.key and not entry.erased}


def _read_parts(reader: PanelReader, intent: TapeEntry, answers: Mapping[str, TapeEntry]) -> Iterator[DeliveredPart]:
    turn, end = str(intent.data["turn"]), answers.get(f"ended:{intent.id}")
    for place, part in enumerate(intent.data["parts"]):
        receipt = answers.get(receipt_key(intent.id, place))
        if receipt is not None:
            state, answer, entry = _receipt_state(reader, receipt), str(receipt.data["external_id"]), receipt.id
        elif end is not None:
            state, answer, entry = reader.texts.say("panel_ended", reason=end.data["reason"]), f"#{end.id}", end.id
        else:
            state, answer, entry = reader.texts.say("panel_waiting"), "", 0
        is_of_turn = TURN_ID.fullmatch(turn) is not None
        text = str(part.get("text", ""))
        yield DeliveredPart(intent.id, place, intent.date, turn, is_of_turn, text, state, answer, entry)


def _receipt_state(reader: PanelReader, receipt: TapeEntry) -> str:
    """Describe the arrival of a part, with doubts about it."""
    data = receipt.data
    doubts = {"resumed": "panel_resumed", "found": "panel_found", "missing": "panel_missing"}
    notes = ["panel_delivered", *(name for field, name in doubts.items() if data.get(field))]
    return ", ".join(map(reader.texts.say, notes))


PANELS = (Panel("deliveries", "Deliveries", "session", read_deliveries, "bubbot.gateway:deliveries.html", (OUTBOXES,)),)
