"""Deliveries on the trace page: what was to be sent, and what the platforms answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bubbot.gateway.outbox import receipt_key
from bubbot.gateway.outbox_views import DELIVERY_ABANDONED
from bubbot.ports.outbox import INTENT, OUTBOX_PREFIX, RECEIPT
from bubbot.ports.panel import Block, Cell, Moment, Panel, PanelQuery, PanelReader, Paragraph, Table, TapeLink
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.shards import shard_tape

OUTBOXES = SharedTape(f"{OUTBOX_PREFIX}/")
PAGE_FACTS, MAX_FACTS_READ = 500, 5_000
"""Deliveries of all chats that are read at a time, and for one page, to find those of one chat."""
MAX_TEXT_CHARS = 300


async def read_deliveries(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the messages to a chat, newest first, each part with its receipt."""
    channel, texts = query.session.partition(":")[0], reader.texts
    if not channel:
        return [Paragraph(texts.say("panel_deliveries_none"))]
    name = shard_tape(f"{OUTBOX_PREFIX}/{channel}", query.session, reader.tapes.tape_shards)
    tape = reader.tapes.open_tape(name)
    intents, more = await _find_intents(tape, query)
    answers = await _read_answers(tape, intents)
    rows = tuple(row for intent in intents for row in _rows(reader, name, query.session, intent, answers))
    columns = tuple(
        map(texts.say, ("panel_message", "panel_when", "panel_turn", "panel_text", "panel_delivery", "panel_receipt"))
    )
    return [Table(texts.say("panel_deliveries"), columns, rows, texts.say("panel_deliveries_none"), more)]


async def _find_intents(tape: TapeHandle, query: PanelQuery) -> tuple[list[TapeEntry], str]:
    """Return the newest messages to the chat below the cursor; the tape holds those to all chats of a channel."""
    found: list[TapeEntry] = []
    cursor, read = query.cursor_id(), 0
    while read < MAX_FACTS_READ:
        part = IdRanges(((1, None if cursor is None else max(cursor - 1, 0)),))
        wanted = TapeQuery(tape.name, part, kinds=(Kind.EVENT,), names=(INTENT,), newest=True, limit=PAGE_FACTS)
        page = (await tape.fetch([wanted]))[0]
        for entry in page:
            if not entry.erased and entry.payload["data"]["session"] == query.session:
                if len(found) == query.limit:
                    return found, str(found[-1].id)
                found.append(entry)
        if len(page) < PAGE_FACTS:
            return found, ""
        read, cursor = read + len(page), page[-1].id
    return found, str(cursor)


async def _read_answers(tape: TapeHandle, intents: Sequence[TapeEntry]) -> Mapping[str, TapeEntry]:
    """Return the receipts and the ends of these messages, by their keys."""
    keys = [f"ended:{intent.id}" for intent in intents]
    keys += [
        receipt_key(intent.id, place) for intent in intents for place in range(len(intent.payload["data"]["parts"]))
    ]
    if not keys:
        return {}
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(RECEIPT, DELIVERY_ABANDONED), keys=tuple(keys))
    return {entry.key: entry for entry in (await tape.fetch([query]))[0] if entry.key and not entry.erased}


def _rows(
    reader: PanelReader, tape: str, session: str, intent: TapeEntry, answers: Mapping[str, TapeEntry]
) -> list[tuple[Cell, ...]]:
    """Return a row for each part of a message."""
    data, texts = intent.payload["data"], reader.texts
    turn, end = str(data["turn"]), answers.get(f"ended:{intent.id}")
    rows: list[tuple[Cell, ...]] = []
    for place, part in enumerate(data["parts"]):
        receipt = answers.get(receipt_key(intent.id, place))
        if receipt is not None:
            state = _receipt_state(reader, receipt)
            answer: Cell = TapeLink(str(receipt.payload["data"]["external_id"]), tape=tape, entry=receipt.id)
        elif end is not None:
            state = texts.say("panel_ended", reason=end.payload["data"]["reason"])
            answer = TapeLink(f"#{end.id}", tape=tape, entry=end.id)
        else:
            state, answer = texts.say("panel_waiting"), ""
        text = str(part.get("text", ""))
        rows.append(
            (
                TapeLink(f"#{intent.id}.{place}", tape=tape, entry=intent.id),
                Moment(intent.date),
                TapeLink(turn[:8], session=session, turn=turn),
                text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…",
                state,
                answer,
            )
        )
    return rows


def _receipt_state(reader: PanelReader, receipt: TapeEntry) -> str:
    """Say that a part arrived, and what is unsure about it."""
    data = receipt.payload["data"]
    doubts = {"resumed": "panel_resumed", "found": "panel_found", "missing": "panel_missing"}
    notes = ["panel_delivered", *(name for field, name in doubts.items() if data.get(field))]
    return ", ".join(map(reader.texts.say, notes))


PANELS = (Panel("deliveries", "Deliveries", "session", read_deliveries, (OUTBOXES,)),)
