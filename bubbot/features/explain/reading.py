"""What an explanation may read besides the conversation: turns step by step, model calls, and deliveries.

Each entry stands on one line that begins with its id, since only entries that were shown may be cited.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Annotated, Any

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.errors import ToolRetry
from bubbot.ports.outbox import INTENT, OUTBOX_PREFIX, RECEIPT
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_json
from bubbot.runtime.turn_spans import TurnAtView
from bubbot.tape.entry import Kind, TapeEntry, encode, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery, format_date
from bubbot.tool import READS_PEOPLE, Tool, tool

TURN_TOOL, CALLS_TOOL, DELIVERIES_TOOL = "explain.turn", "explain.calls", "explain.deliveries"
EXPLAIN_TOOL = "session.explain"
UNKNOWN = "UNKNOWN"
"""The whole answer of a model that finds nothing."""
CONCLUSION = "=>"
"""The beginning of the one line in the words of the model."""
MAX_TURN_ENTRIES = 200
MAX_LINE_CHARS = 500
MAX_DELIVERIES_READ = 400
DELIVERY_ABANDONED = "outbox/ended"
_STEP_FIELDS = (
    "purpose", "model", "answered", "status", "finish", "usage", "cost", "elapsed_ms", "shown", "error", "request",
)  # fmt: skip


class ExplainTask(Struct, frozen=True):
    """An explanation; metadata of its turn. `head`: the newest entry before the question."""

    head: int


class TurnArgs(Args, frozen=True):
    """A turn."""

    entry: Annotated[
        int, Meta(description="any entry of the turn; default: the last turn before the question", ge=0)
    ] = 0


class NumberArgs(Args, frozen=True):
    """How many."""

    number: Annotated[int, Meta(description="how many of the newest", ge=1, le=100)] = 20


def explaining_tools() -> list[Tool]:
    """Return the tools that only explanations have."""

    @tool(TURN_TOOL, effect=READS_PEOPLE, is_reserved=True)
    async def explain_turn(turn: Turn, args: TurnArgs) -> str:
        """List what happened in a turn: its messages, model calls (what was shown, tokens, cost, time), tool calls and
        their results, checks and errors, each with its id."""
        task = turn.find_metadata(ExplainTask)
        before = args.entry or (task.head if task else turn.tape.base)
        entries = await read_turn(turn.tape, before)
        if not entries:
            raise ToolRetry(turn.result_texts.say("explain_no_turn", entry=before))
        lines = [format_entry(entry, turn.zone) for entry in entries[:MAX_TURN_ENTRIES]]
        return "\n".join([turn.result_texts.say("explain_quoted"), *lines])

    @tool(CALLS_TOOL, effect=READS_PEOPLE, is_reserved=True)
    async def explain_calls(turn: Turn, args: NumberArgs) -> str:
        """List the newest model calls of this chat with their tokens, cost and time, each with its id."""
        query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=args.number)
        steps = [entry for entry in (await turn.tape.fetch([query]))[0][::-1] if not entry.erased]
        lines = [format_entry(entry, turn.zone) for entry in steps]
        return "\n".join([turn.result_texts.say("explain_quoted"), *lines])

    @tool(DELIVERIES_TOOL, effect=READS_PEOPLE, is_reserved=True)
    async def explain_deliveries(turn: Turn, args: NumberArgs) -> str:
        """List the newest messages to this chat, and when the platform took them, each with its id and tape."""
        lines: list[str] = []
        for name, entries in (await read_deliveries(turn.tape)).items():
            lines.append(turn.result_texts.english.say("read_head", session=name))
            lines += [format_entry(entry, turn.zone) for entry in entries[-args.number :]]
        return "\n".join(lines) or turn.result_texts.say("explain_no_deliveries")

    return [explain_turn, explain_calls, explain_deliveries]


async def read_turn(tape: TapeHandle, entry: int) -> list[TapeEntry]:
    """Read the entries of the turn that an entry is part of, or of the last one before it."""
    span = await tape.read(TurnAtView(entry))
    if span is None:
        return []
    (entries,) = await tape.fetch([TapeQuery(tape.name, IdRanges(((span.first, span.last),)))])
    return [each for each in entries if text_field(each.meta, "turn") == span.id and not each.erased]


async def read_deliveries(tape: TapeHandle) -> dict[str, list[TapeEntry]]:
    """Read the newest facts about messages to the session of a tape, by the outbox tape, oldest first."""
    channel = tape.session.partition(":")[0]
    names = (INTENT, RECEIPT, DELIVERY_ABANDONED)
    outboxes = tape.shards_of(f"{OUTBOX_PREFIX}/{channel}") if channel else ()
    queries = [
        TapeQuery(name, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_DELIVERIES_READ) for name in outboxes
    ]
    found: dict[str, list[TapeEntry]] = {}
    for name, entries in zip(outboxes, await tape.fetch(queries), strict=True):
        own: set[object] = set()
        kept = []
        for entry in reversed(entries):
            data = entry.data
            if entry.name == INTENT and data.get("session") == tape.session:
                own.add(entry.id)
            if entry.id in own or data.get("intent") in own:
                kept.append(entry)
        if kept:
            found[name] = kept
    return found


def format_entry(entry: TapeEntry, zone: tzinfo) -> str:
    """Write an entry on one line: its id, date, kind and content as JSON."""
    name = f" {entry.name}" if entry.name else ""
    content = escape_json(encode(read_content(entry)))
    if len(content) > MAX_LINE_CHARS:
        content = f"{content[:MAX_LINE_CHARS]}…"
    return f"#{entry.id} {format_date(entry.date, zone, undated='-')} {entry.kind}{name}: {content}"


def read_content(entry: TapeEntry) -> Mapping[str, Any]:
    """Return what an entry holds that is shown as JSON."""
    if data := entry.data:
        return {key: data[key] for key in _STEP_FIELDS if key in data} if entry.name == STEP_EVENT else data
    sender = entry.meta.get("sender")
    return {**entry.payload, **({"by": sender} if isinstance(sender, Mapping) else {})}
