"""Explanation of an answer: the model's messages, the tools that ran, the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape
from bubbot.tape.view import QueryAnswers

CALL_CHECKED = "approval.checked"
MAX_TURNS_SEARCHED = 20
"""The newest turns that are searched for one with a model call."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A finished turn.

    Attributes:
        turn: its id.
        status: how it ended.
        first: its first entry.
        last: its last entry.
        steps: entry id and data of its `loop.step` events.
        tools: entry id and name of the tools it ran.
        answer: the entry of the answer; None without one.
        errors: entry id, kind and message of the errors that ended it early.
        checks: the facts on which it was decided whether its calls run, by entry id.
        labels: by entry id of a step, what it was for if it is none of the answer: the origin of the sub-task that made
            it, or its purpose.
    """

    turn: str
    status: str
    first: int
    last: int
    steps: tuple[tuple[int, JsonObject], ...]
    tools: tuple[tuple[int, str], ...]
    answer: int | None
    errors: tuple[tuple[int, str, str], ...] = ()
    checks: tuple[tuple[int, JsonObject], ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict)

    @property
    def answering_steps(self) -> tuple[tuple[int, JsonObject], ...]:
        """The steps that led to the answer; the others are those of sub-tasks, or ask a model for their own purpose."""
        return tuple((entry, step) for entry, step in self.steps if entry not in self.labels)

    @property
    def requested_step(self) -> JsonObject | None:
        """The step whose request is printed: the last that led to the answer, else the last for a purpose; None: none."""
        purposes = [step for _, step in self.steps if "messages" in step]
        steps = [step for _, step in self.answering_steps] or purposes
        return steps[-1] if steps else None


@dataclass(frozen=True, slots=True)
class TurnSpansView:
    """The newest turns as (first, last) entry ids, newest first, without the running one.

    `turn`: only those whose id begins so, of the whole tape.
    """

    turn: str = ""
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest starts and ends, through the name index."""
        names = ("turn/start", "turn/end", "turn/interrupted")
        limit = None if self.turn else 2 * MAX_TURNS_SEARCHED + 1
        return (TapeQuery(tape, WholeTape(), kinds=(Kind.EVENT,), names=names, newest=True, limit=limit),)

    def fold(self, answers: QueryAnswers) -> tuple[tuple[int, int], ...]:
        """Pair each end with the start just before it."""
        spans = []
        end: TapeEntry | None = None
        for entry in answers[0]:
            if entry.name == "turn/start":
                if end is not None and str(entry.meta.get("turn", "")).startswith(self.turn):
                    spans.append((entry.id, end.id))
                end = None
            else:
                end = entry
        return tuple(spans)


@dataclass(frozen=True, slots=True)
class WhyView:
    """One turn explained from its own entries; None if it called no model, unless `without_model`."""

    span: tuple[int, int]
    without_model: bool = False
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the entries of the turn."""
        return (TapeQuery(tape, IdRanges((self.span,))),)

    def fold(self, answers: QueryAnswers) -> Explanation | None:
        """Build the explanation."""
        entries = answers[0]
        steps = tuple((entry.id, entry.data) for entry in entries if entry.name == "loop.step")
        if not steps and not self.without_model:
            return None
        answer = [
            entry.id
            for entry in entries
            if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "assistant" and entry.is_shown_to("")
        ]
        status = next((entry.data.get("status", "") for entry in entries if entry.name == "turn/end"), "interrupted")
        turn = str(entries[0].meta.get("turn", ""))
        errors = tuple(
            (entry.id, str(entry.payload.get("kind", "")), str(entry.payload.get("message", "")))
            for entry in entries
            if entry.kind == Kind.ERROR
        )
        checks = tuple((entry.id, entry.data) for entry in entries if entry.name == CALL_CHECKED)
        labels = {entry.id: label for entry in entries if entry.name == "loop.step" and (label := _step_label(entry))}
        return Explanation(
            turn, status, *self.span, steps, _tools(entries), answer[-1] if answer else None, errors, checks, labels
        )


def _step_label(entry: TapeEntry) -> str:
    if entry.is_shown_to(""):
        return str(entry.data.get("purpose", ""))
    return str(entry.meta.get("origin", ""))


async def find_explanation(tape: TapeHandle, trace: str = "") -> Explanation | None:
    """Explain the newest turn that called a model, or with a trace the newest one whose id begins so; None without one."""
    for span in await tape.read(TurnSpansView(trace)):
        explanation = await tape.read(WhyView(span, without_model=bool(trace)))
        if explanation is not None:
            return explanation
    return None


def _tools(entries: Sequence[TapeEntry]) -> tuple[tuple[int, str], ...]:
    return tuple(
        (entry.id, str(call["function"]["name"]))
        for entry in entries
        if entry.kind == Kind.TOOL_CALL
        for call in entry.payload["calls"]
    )
