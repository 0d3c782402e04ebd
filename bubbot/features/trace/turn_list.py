"""The turns of a session, newest first: what was asked, what was answered, by what, for how long and for how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.trace.entries import COMMAND_EVENT, WordPart, describe_entry
from bubbot.gateway.names import fetch_readable
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import THOUGHTS, Kind, TapeEntry, text_field
from bubbot.tape.events import STEP_EVENT, TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

PAGE_TURNS = 25
MAX_LINE_ENTRIES = 100
"""Messages, steps, commands and errors of one turn that its line is made from."""
LINE_CHARS = 300
"""Characters of what was asked, and of the answer."""
ORIGINS = ("schedule", "approval", "agent", "command")


class TurnLine(Struct, frozen=True):
    """A turn in the list.

    Attributes:
        first: the entry that began it.
        turn: its id.
        date: when it began.
        status: how it ended; empty: it has not.
        author: who asked, as shown; empty if unknown.
        origin: what began it, if not a message: one of `ORIGINS`; empty for a message.
        asked: what was asked.
        answer: what was answered, or why nothing was.
        is_erased: what was asked or answered was erased.
        command: the command that answered; empty for none.
        models: the models that answered.
        seconds: from its start to its end; None if unknown.
        record: its entries, for tokens and cost.
        is_cut: it has more entries than `record`.
        agent: the agent that answered; empty for the bot itself.
    """

    first: int
    turn: str
    date: str
    status: str
    author: str
    origin: str
    asked: tuple[WordPart, ...]
    answer: tuple[WordPart, ...]
    is_erased: bool
    command: str
    models: tuple[str, ...]
    seconds: float | None
    record: TurnRecord
    is_cut: bool
    agent: str = ""


class TurnList(Struct, frozen=True):
    """A page of turns, newest first; `older`: the entry before which the next page begins, 0 for none."""

    lines: tuple[TurnLine, ...]
    older: int


async def read_turns(reader: TapeBoundary, tape: TapeHandle, session: str, before: int | None) -> TurnList:
    """Read the newest turns, or those before an entry."""
    head = await tape.head()
    high = head if before is None else min(before - 1, head)
    query = TapeQuery(
        tape.name,
        IdRanges(((1, high),)),
        kinds=(Kind.EVENT,),
        names=(TURN_START, *TURN_ENDS),
        newest=True,
        limit=2 * PAGE_TURNS,
    )
    found = (await tape.fetch([query]))[0] if high > 0 else ()
    pairs: list[tuple[TapeEntry, TapeEntry | None]] = []
    end: TapeEntry | None = None
    after = high + 1
    spans: list[tuple[int, int]] = []
    for entry in found:
        if entry.name == TURN_START:
            pairs.append((entry, end))
            spans.append((entry.id, end.id if end else after - 1))
            end, after = None, entry.id
        else:
            end = entry
    kinds, names = (Kind.MESSAGE, Kind.EVENT, Kind.ERROR), (COMMAND_EVENT, STEP_EVENT, *TURN_ENDS)
    parts = [IdRanges((span,)) for span in spans]
    queries = [TapeQuery(tape.name, part, kinds=kinds, names=names, limit=MAX_LINE_ENTRIES) for part in parts]
    # The answer of a long turn is at its end.
    queries += [TapeQuery(tape.name, part, kinds=(Kind.MESSAGE,), newest=True, limit=3) for part in parts]
    bodies = await fetch_readable(reader, queries) if queries else []
    causes = await _read_causes(reader, session, [start for start, _ in pairs])
    lines = [
        _describe_turn(start, end, body, newest, cause)
        for (start, end), body, newest, cause in zip(
            pairs, bodies[: len(pairs)], bodies[len(pairs) :], causes, strict=True
        )
    ]
    older = pairs[-1][0].id if len(found) == 2 * PAGE_TURNS and pairs else 0
    return TurnList(tuple(lines), older)


async def _read_causes(reader: TapeBoundary, session: str, starts: Sequence[TapeEntry]) -> list[TapeEntry | None]:
    """Read what each turn was begun for: a message on the inbox, which tells who typed a command and which job fired."""
    places = [_first_inbound(start) for start in starts]
    wanted: dict[str, set[int]] = {}
    for tape, number in filter(None, places):
        if tape.startswith(INBOX_PREFIX) and reader.may_read(tape):
            wanted.setdefault(tape, set()).add(number)
    queries = [TapeQuery(tape, IdRanges(tuple((each, each) for each in sorted(ids)))) for tape, ids in wanted.items()]
    answers = await fetch_readable(reader, queries) if queries else []
    # An imported tape names the inbox of another home: what stands there under this number is about another session.
    found = {
        (tape, entry.id): entry
        for tape, entries in zip(wanted, answers, strict=True)
        for entry in entries
        if not entry.erased and session and entry.data.get("session") == session
    }
    return [found.get(place) if place else None for place in places]


def _first_inbound(start: TapeEntry) -> tuple[str, int] | None:
    inbounds = start.data.get("inbounds")
    first = inbounds[0] if isinstance(inbounds, Sequence) and inbounds else ()
    match first:
        case (str(tape), int(number)) if number > 0:
            return tape, number
    return None


def _describe_turn(
    start: TapeEntry,
    end: TapeEntry | None,
    body: Sequence[TapeEntry],
    newest: Sequence[TapeEntry],
    cause: TapeEntry | None,
) -> TurnLine:
    known = {entry.id: entry for entry in (start, *body, *newest, *([end] if end else []))}
    record = TurnRecord.of([known[number] for number in sorted(known)])
    commands = [entry for entry in body if entry.name == COMMAND_EVENT and entry.is_shown_to("")]
    asked = [describe_entry(entry, LINE_CHARS) for entry in record.asked if entry.meta.get("origin") != "system"]
    answers = [describe_entry(entry, LINE_CHARS) for entry in (record.answer, *record.errors[-1:]) if entry]
    if commands and not answers:
        row = describe_entry(commands[-1], LINE_CHARS)
        answers = [replace(row, parts=row.parts[1:])]
        asked = asked or [replace(row, parts=row.parts[:1])]
    origin = next((each.origin for each in asked if each.origin), "")
    sender = cause.data.get("sender") if cause else None
    if cause and cause.data.get("origin") != "human":
        origin = text_field(cause.data, "origin")
    elif commands:
        origin = "command"
    author = next((each.author for each in asked if each.author), "")
    return TurnLine(
        start.id,
        text_field(start.meta, "turn"),
        start.date,
        record.status,
        author or (text_field(sender, "name") if isinstance(sender, Mapping) else ""),
        origin if origin in ORIGINS else "",
        tuple(part for row in asked for part in row.parts),
        tuple(part for row in answers[:1] for part in row.parts if part.label != THOUGHTS),
        any(row.erased for row in (*asked, *answers)),
        text_field(commands[-1].data, "name") if commands and record.answer is None else "",
        tuple(dict.fromkeys(step.model for step in record.answering_steps if step.model)),
        _seconds(start.date, end.date) if end else None,
        record,
        len(body) == MAX_LINE_ENTRIES,
        record.agent,
    )


def _seconds(first: str, last: str) -> float | None:
    try:
        return max((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds(), 0)
    except (ValueError, TypeError):  # an imported tape may have any dates, or dates without a zone
        return None
