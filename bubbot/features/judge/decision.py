"""The decision that a target is: what the model was shown, what it chose, and what else was possible."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from msgspec import Struct

from bubbot.ports.judgements import JudgedTarget
from bubbot.runtime.context.evidence import write_quotation
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.targets import BRANCH_ENDED, read_spans
from bubbot.runtime.turn_spans import TurnAtView
from bubbot.runtime.turns import TurnRecord, find_copied, read_calls
from bubbot.tape.entry import Kind, TapeEntry, int_field, text_field
from bubbot.tape.query import IdRanges, TapeQuery, union
from bubbot.tape.view import QueryAnswers

MAX_SHOWN = 40
"""Newest entries that were shown, of which the words are printed."""
MAX_READ = 2_000
"""Newest entries of a target, and of its turns, that are read: a slice may be a chat of years."""
_CONVERSATION = (Kind.MESSAGE, Kind.ANCHOR)


class Alternative(Struct, frozen=True):
    """A branch that could have been chosen instead, or was.

    Attributes:
        number: its number among those of its question.
        fork: its fork, which names it as a target.
        text: its answer; empty if it has none.
    """

    number: int
    fork: str
    text: str


class ModelDecision(Struct, frozen=True):
    """A decision.

    Attributes:
        shown: the ranges of entries that the model of the last step was shown, each as its first and last id.
        lines: the newest of them, as quotations, oldest first.
        chosen: the calls and the text that the model wrote, in order; of a long slice the newest ones.
        model: the model; empty if none wrote it.
        branches: what else was possible.
    """

    shown: tuple[tuple[int, ...], ...] = ()
    lines: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    model: str = ""
    branches: tuple[Alternative, ...] = ()


class DecisionView(Struct, frozen=True):
    """The decision that a target is, or is the outcome of."""

    target: JudgedTarget

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, ModelDecision]:
        """Read the turn around the target, then what its model was shown, then its branches."""
        spans = tuple((low, high) for low, high in self.target.entries)
        first, last = min(low for low, _ in spans), max(high for _, high in spans)
        start, end = yield from _find_turn(tape, first, last)
        own, written = yield (_newest(tape, *spans), _newest(tape, (start, end)))
        own, written = own[::-1], written[::-1]
        source = next((each for entry in own if (each := find_copied(tape, entry))), 0)
        if source:  # a branch that was chosen: what wrote it stands elsewhere
            start, end = yield from _find_turn(tape, source, source)
            written = (yield (_newest(tape, (start, end)),))[0][::-1]
        fork = self.target.name if self.target.kind == "branch" else ""
        if source:
            fork = next((text_field(entry.meta, "fork") for entry in written if entry.id == source), "")
        steps = [step for step in TurnRecord.of(written).steps if step.fork == fork]
        if self.target.kind == "entry" and not source:
            steps = [step for step in steps if step.wrote is not None and step.wrote.id in (first, last)] or steps
        shown = tuple((low, high or low) for low, high in union([*(steps[-1].shown if steps else ())]))
        near = TapeQuery(tape, IdRanges(shown), kinds=_CONVERSATION, newest=True, limit=MAX_SHOWN)
        quoted = (yield (near,))[0] if shown else ()
        lines = [write_quotation(entry) for entry in reversed(quoted) if not entry.erased]
        chosen = [text for entry in own for text in _read_choice(entry, fork if not source else "")]
        branches = [entry for entry in written if entry.name == BRANCH_ENDED and not entry.erased]
        parts = union([span for branch in branches for span in read_spans(branch)])
        texts = (yield (TapeQuery(tape, IdRanges(parts), kinds=(Kind.MESSAGE,)),))[0] if parts else ()
        alternatives = tuple(_describe(branch, texts) for branch in branches)
        return ModelDecision(shown, tuple(lines), tuple(chosen), steps[-1].model if steps else "", alternatives)


def _newest(tape: str, *spans: tuple[int, int]) -> TapeQuery:
    return TapeQuery(tape, IdRanges(spans), newest=True, limit=MAX_READ)


def _find_turn(tape: str, first: int, last: int) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[int, int]]:
    """Return the first and the last entry of the turns around these entries; the entries themselves without one."""
    start = yield from TurnAtView(first).steps(tape)
    end = yield from TurnAtView(last).steps(tape)
    return (start.first if start else first), (max(last, end.last) if end else last)


def _read_choice(entry: TapeEntry, fork: str) -> Sequence[str]:
    """Return the calls and the text that a model wrote in an entry."""
    if entry.erased or text_field(entry.meta, "fork") != fork:
        return ()
    calls = [f"{call.name}({call.arguments})" for call in read_calls(entry)]
    is_written = entry.kind == Kind.TOOL_CALL or entry.payload.get("role") == "assistant"
    text = text_of(entry.payload.get("content")).strip() if is_written else ""
    return [*calls, *([text] if text else [])]


def _describe(branch: TapeEntry, texts: Sequence[TapeEntry]) -> Alternative:
    fork = text_field(branch.data, "fork")
    own = [each for each in texts if text_field(each.meta, "fork") == fork and each.payload.get("role") == "assistant"]
    words: Mapping[str, object] = own[-1].payload if own else {}
    return Alternative(int_field(branch.data, "number"), fork, text_of(words.get("content")).strip())
