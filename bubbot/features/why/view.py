"""The turns that an answer is explained from."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT, TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class TurnSpansView:
    """The turns whose id begins so, as (first, last) entry ids, newest first, without the running one."""

    turn: str = ""
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the starts and ends, through the name index."""
        names = (TURN_START, *TURN_ENDS)
        return (TapeQuery(tape, WholeTape(), kinds=(Kind.EVENT,), names=names, newest=True),)

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


@dataclass(frozen=True, slots=True)
class LastAnswerView:
    """The newest finished turn that called a model; None without one. Its cost grows with no number of other turns."""

    heavy: bool = False

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnRecord | None]:
        """Begin with the newest model call: it is part of the turn that is looked for, or of the running one."""
        events = TapeQuery(tape, kinds=(Kind.EVENT,), limit=1)
        before: int | None = None
        while True:
            part = IdRanges(((1, before),))
            (found,) = yield (replace(events, part=part, names=(STEP_EVENT,), newest=True),)
            if not found:
                return None
            (starts,) = yield (replace(events, part=IdRanges(((1, found[0].id),)), names=(TURN_START,), newest=True),)
            if not starts:
                return None
            start = starts[0].id
            (ends,) = yield (replace(events, part=IdRanges(((start, None),)), names=TURN_ENDS),)
            if ends and ends[0].id < found[0].id:  # it was imported behind that turn
                before = ends[0].id
                continue
            if ends and ends[0].meta.get("turn") == starts[0].meta.get("turn"):
                view = WhyView((start, ends[0].id))
                record = view.fold((yield view.queries(tape)))
                if record is not None:
                    return record
            before = start - 1


async def find_explained(tape: TapeHandle, trace: str = "") -> TurnRecord | None:
    """Find the newest turn that called a model, or with a trace the newest one whose id begins so; None without one."""
    if not trace:
        return await tape.read(LastAnswerView())
    for span in await tape.read(TurnSpansView(trace)):
        return await tape.read(WhyView(span, without_model=True))
    return None
