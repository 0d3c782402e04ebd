"""A turn as its page shows it: its entries, and the turns around it."""

from __future__ import annotations

from msgspec import Struct

from bubbot.errors import EntryNotFound
from bubbot.runtime.turn_spans import TurnAtView, TurnSpan
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.events import STEP_EVENT, TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

MAX_TURN_ENTRIES = 1000
"""Entries of one turn on its page; the timeline shows the others."""
MAX_STARTS_SEARCHED = 5000
"""The newest turns among which one is looked for by its id alone."""


class TurnPage(Struct, frozen=True):
    """A turn.

    Attributes:
        span: where it stands.
        record: what its entries say.
        before: an entry of the turn before; 0 for none.
        after: an entry of the turn after; 0 for none.
        left_out: entries that are not read here.
    """

    span: TurnSpan
    record: TurnRecord
    before: int
    after: int
    left_out: int

    @property
    def facts(self) -> tuple[TapeEntry, ...]:
        """The events that belong to no call shown here, besides its steps, its start and its end."""
        shown = {fact.id for step in self.record.steps for call in step.calls for fact in call.facts}
        return tuple(
            entry
            for entry in self.record.entries
            if entry.kind == Kind.EVENT
            and entry.id not in shown
            and entry.name not in (STEP_EVENT, TURN_START, *TURN_ENDS)
            and not entry.erased
        )


async def find_turn(tape: TapeHandle, reference: str) -> TurnSpan:
    """Find a turn by its id, or by one of its entries as a number. Raise `EntryNotFound`."""
    if reference.isascii() and reference.isdigit() and len(reference) < 19:
        return await _find_at(tape, int(reference))
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=MAX_STARTS_SEARCHED)
    for start in (await tape.fetch([query]))[0]:
        if reference and text_field(start.meta, "turn").startswith(reference):
            return await _find_at(tape, start.id)
    raise EntryNotFound(f"there is no turn {reference!r} among the newest {MAX_STARTS_SEARCHED} of this tape")


async def _find_at(tape: TapeHandle, entry: int) -> TurnSpan:
    span = await tape.read(TurnAtView(entry))
    if span is None or span.last < entry:
        raise EntryNotFound(f"the entry {entry} belongs to no turn of this tape")
    return span


async def read_turn(tape: TapeHandle, span: TurnSpan) -> TurnPage:
    """Read a turn."""
    ahead = TapeQuery(
        tape.name, IdRanges(((1, span.first - 1),)), kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1
    )
    behind = TapeQuery(tape.name, IdRanges(((span.last + 1, None),)), kinds=(Kind.EVENT,), names=(TURN_START,), limit=1)
    own = TapeQuery(tape.name, IdRanges(((span.first, span.last),)), limit=MAX_TURN_ENTRIES)
    before, after, entries = await tape.fetch([ahead, behind, own])
    left_out = max(span.last - span.first + 1 - MAX_TURN_ENTRIES, 0)
    return TurnPage(span, TurnRecord.of(entries), before[0].id if before else 0, after[0].id if after else 0, left_out)
