"""The turns that an answer is explained from."""

from __future__ import annotations

from bubbot.records import dataclass
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape
from bubbot.tape.view import QueryAnswers

MAX_TURNS_SEARCHED = 20
"""The newest turns that are searched for one with a model call."""


@dataclass(frozen=True, slots=True)
class TurnSpansView:
    """The newest turns as (first, last) entry ids, newest first, without the running one.

    `turn`: only those whose id begins so, of the whole tape.
    """

    turn: str = ""
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest starts and ends, through the name index."""
        names = (TURN_START, *TURN_ENDS)
        limit = None if self.turn else 2 * MAX_TURNS_SEARCHED + 1
        return (TapeQuery(tape, WholeTape(), kinds=(Kind.EVENT,), names=names, newest=True, limit=limit),)

    def fold(self, answers: QueryAnswers) -> tuple[tuple[int, int], ...]:
        """Pair each end with the start just before it."""
        spans = []
        end: TapeEntry | None = None
        for entry in answers[0]:
            if entry.name == TURN_START:
                if end is not None and str(entry.meta.get("turn", "")).startswith(self.turn):
                    spans.append((entry.id, end.id))
                end = None
            else:
                end = entry
        return tuple(spans)


@dataclass(frozen=True, slots=True)
class WhyView:
    """One finished turn, read back from its own entries; None if it called no model, unless `without_model`."""

    span: tuple[int, int]
    without_model: bool = False
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the entries of the turn."""
        return (TapeQuery(tape, IdRanges((self.span,))),)

    def fold(self, answers: QueryAnswers) -> TurnRecord | None:
        """Build the record."""
        record = TurnRecord.of(answers[0])
        return record if record.steps or self.without_model else None


async def find_explained(tape: TapeHandle, trace: str = "") -> TurnRecord | None:
    """Find the newest turn that called a model, or with a trace the newest one whose id begins so; None without one."""
    for span in await tape.read(TurnSpansView(trace)):
        record = await tape.read(WhyView(span, without_model=bool(trace)))
        if record is not None:
            return record
    return None
