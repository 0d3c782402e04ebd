"""The turns that an answer is explained from."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.events import STEP_EVENT, TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape
from bubbot.tape.view import QueryAnswers

MAX_COPIES_READ = 64
"""Newest messages among which a copied answer is looked for: a chat may record messages that get no answer."""


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


@dataclass(frozen=True, slots=True)
class LastCopyView:
    """The newest finished turn after an entry whose answer is a copy of an entry of this tape; None without one."""

    after: int = 0

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnRecord | None]:
        """Look among the newest messages: turns that called no model write few."""
        part = IdRanges(((self.after + 1, None),))
        (found,) = yield (TapeQuery(tape, part, kinds=(Kind.MESSAGE,), newest=True, limit=MAX_COPIES_READ),)
        copy = next((entry.id for entry in found if entry.is_shown_to("") and find_source(tape, entry)), 0)
        span = (yield from _find_turn(tape, copy)) if copy else None
        if span is None:
            return None
        record = TurnRecord.of((yield (TapeQuery(tape, IdRanges((span,))),))[0])
        return record if record.answer and find_source(tape, record.answer) else None


@dataclass(frozen=True, slots=True)
class OriginalView:
    """What wrote an entry: its turn, or of that the sub-task with its forks alone; None if that is not known."""

    entry: int

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnRecord | None]:
        """Read the entry, then its turn."""
        (found,) = yield (TapeQuery(tape, IdRanges(((self.entry, self.entry),))),)
        span = (yield from _find_turn(tape, self.entry)) if found and not found[0].erased else None
        if span is None:
            return None
        (entries,) = yield (TapeQuery(tape, IdRanges((span,))),)
        fork = text_field(found[0].meta, "fork")
        own = [entry for entry in entries if not fork or f"{text_field(entry.meta, 'fork')}/".startswith(f"{fork}/")]
        return TurnRecord.of(own)


def find_source(tape: str, entry: TapeEntry) -> int:
    """Return the entry of this tape that an entry is a copy of; 0 if it is none."""
    source = entry.meta.get("source")
    is_here = isinstance(source, tuple) and len(source) == 2 and source[0] == tape and type(source[1]) is int
    return source[1] if is_here and isinstance(source, tuple) else 0


def _find_turn(tape: str, entry: int) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[int, int] | None]:
    """Return the first and the last entry of the finished turn that wrote an entry; None without one."""
    events = TapeQuery(tape, kinds=(Kind.EVENT,), limit=1)
    starts, ends = yield (
        replace(events, part=IdRanges(((1, entry),)), names=(TURN_START,), newest=True),
        replace(events, part=IdRanges(((entry, None),)), names=TURN_ENDS),
    )
    if not starts or not ends or starts[0].meta.get("turn") != ends[0].meta.get("turn"):
        return None
    return starts[0].id, ends[0].id


async def find_explained(tape: TapeHandle, trace: str = "") -> TurnRecord | None:
    """Find the newest turn that has an answer of a model, which may be a copy; with a trace the newest one whose id begins so.

    Return None without one.
    """
    if not trace:
        asked = await tape.read(LastAnswerView())
        return await tape.read(LastCopyView(asked.entries[-1].id if asked else 0)) or asked
    for span in await tape.read(TurnSpansView(trace)):
        return await tape.read(WhyView(span, without_model=True))
    return None


async def find_original(tape: TapeHandle, turn: TurnRecord) -> TurnRecord | None:
    """Find what wrote the answer of a turn if that is a copy of an entry of this tape; None if it is no copy."""
    if turn.steps or turn.answer is None or not (source := find_source(tape.name, turn.answer)):
        return None
    return await tape.read(OriginalView(source))
