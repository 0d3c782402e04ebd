"""The turns that an answer is explained from."""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from bubbot.runtime.turn_spans import TurnAtView, find_turn_spans
from bubbot.runtime.turns import TurnRecord, find_copied
from bubbot.tape.entry import Kind, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_COPIES_READ = 64
"""Newest messages among which a copied answer is looked for: a chat may record messages that get no answer."""


class WhyView(Struct, frozen=True):
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


class LastAnswerView(Struct, frozen=True):
    """The newest finished turn that called a model; None without one. Its cost grows with no number of other turns."""

    heavy: bool = False

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnRecord | None]:
        """Begin with the newest model call: it is part of the turn that is looked for, or of the running one."""
        before: int | None = None
        while True:
            part = IdRanges(((1, before),))
            (found,) = yield (TapeQuery(tape, part, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=1),)
            span = (yield from TurnAtView(found[0].id).steps(tape)) if found else None
            if span is None:
                return None
            if span.last < found[0].id:  # the step was imported behind that turn
                before = span.last
                continue
            if not span.is_open:
                view = WhyView((span.first, span.last))
                record = view.fold((yield view.queries(tape)))
                if record is not None:
                    return record
            before = span.first - 1


class LastCopyView(Struct, frozen=True):
    """The newest finished turn after an entry whose answer is a copy of an entry of this tape; None without one."""

    after: int = 0

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, TurnRecord | None]:
        """Look among the newest messages: turns that called no model write few."""
        part = IdRanges(((self.after + 1, None),))
        (found,) = yield (TapeQuery(tape, part, kinds=(Kind.MESSAGE,), newest=True, limit=MAX_COPIES_READ),)
        copy = next((entry.id for entry in found if entry.is_shown_to("") and find_copied(tape, entry)), 0)
        span = (yield from _find_turn(tape, copy)) if copy else None
        if span is None:
            return None
        record = TurnRecord.of((yield (TapeQuery(tape, IdRanges((span,))),))[0])
        return record if record.answer and find_copied(tape, record.answer) else None


class OriginalView(Struct, frozen=True):
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


def _find_turn(tape: str, entry: int) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[int, int] | None]:
    """Return the first and the last entry of the finished turn that wrote an entry; None without one."""
    span = yield from TurnAtView(entry).steps(tape)
    return None if span is None or span.is_open or span.last < entry else (span.first, span.last)


async def find_explained(tape: TapeHandle, trace: str = "") -> TurnRecord | None:
    """Find the newest turn that has an answer of a model, which may be a copy; with a trace the newest one whose id begins so.

    Return None without one.
    """
    if not trace:
        asked = await tape.read(LastAnswerView())
        return await tape.read(LastCopyView(asked.entries[-1].id if asked else 0)) or asked
    for span in reversed(await find_turn_spans(tape)):
        if span.id.startswith(trace):
            return await tape.read(WhyView((span.first, span.last), without_model=True))
    return None


async def find_original(tape: TapeHandle, turn: TurnRecord) -> TurnRecord | None:
    """Find what wrote the answer of a turn if that is a copy of an entry of this tape; None if it is no copy."""
    if turn.steps or turn.answer is None or not (source := find_copied(tape.name, turn.answer)):
        return None
    return await tape.read(OriginalView(source))
