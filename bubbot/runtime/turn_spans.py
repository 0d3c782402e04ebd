"""Where turns stand on their tape."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from msgspec import Struct

from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.events import TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

PAGE_EVENTS = 500
_EVENTS = (TURN_START, *TURN_ENDS)


class TurnSpan(Struct, frozen=True):
    """Where a turn stands on its tape.

    Attributes:
        id: the id of the turn.
        first: its start; the anchor that opens a tape stands before the start of the first turn.
        last: its end; of one without an end the newest entry of the tape, or the one before the next turn.
        is_open: it has no end.
    """

    id: str
    first: int
    last: int
    is_open: bool = False


class TurnAtView(Struct, frozen=True):
    """The turn that wrote an entry, or the last one before it; None without one. Its cost grows with no number of turns."""

    entry: int
    heavy: bool = False

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnSpan | None]:
        """Read the start, then what ends the turn."""
        events = TapeQuery(tape, kinds=(Kind.EVENT,), limit=1)
        part = IdRanges(((1, self.entry),))
        (starts,) = yield (replace(events, part=part, names=(TURN_START,), newest=True),)
        if not starts:
            own, starts = yield (
                TapeQuery(tape, IdRanges(((self.entry, self.entry),))),
                replace(events, names=(TURN_START,)),
            )
            if not own or not starts or not _turn_of(own[0]) or _turn_of(own[0]) != _turn_of(starts[0]):
                return None
        start = starts[0]
        (following,) = yield (replace(events, part=IdRanges(((start.id + 1, None),)), names=_EVENTS),)
        if not following:
            (newest,) = yield (TapeQuery(tape, newest=True, limit=1),)
            return TurnSpan(_turn_of(start), start.id, newest[0].id, is_open=True)
        (end,) = following
        if end.name == TURN_START or _turn_of(end) != _turn_of(start):  # the end of another one: imported
            return TurnSpan(_turn_of(start), start.id, end.id - 1, is_open=True)
        return TurnSpan(_turn_of(start), start.id, end.id)


async def find_turn_spans(tape: TapeHandle, first: int = 1, last: int | None = None) -> list[TurnSpan]:
    """Return the turns that begin and end within a range, in their order; None: to the end of the tape."""
    found: list[TurnSpan] = []
    began: TapeEntry | None = None
    while last is None or first <= last:
        query = TapeQuery(tape.name, IdRanges(((first, last),)), kinds=(Kind.EVENT,), names=_EVENTS, limit=PAGE_EVENTS)
        (page,) = await tape.fetch([query])
        for entry in page:
            if entry.name == TURN_START:
                began = entry
                continue
            if began is not None and _turn_of(began) == _turn_of(entry):
                found.append(TurnSpan(_turn_of(entry), began.id, entry.id))
            began = None
        if len(page) < PAGE_EVENTS:
            break
        first = page[-1].id + 1
    return found


def _turn_of(entry: TapeEntry) -> str:
    return text_field(entry.meta, "turn")
