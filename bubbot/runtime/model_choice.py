"""The model that a session was switched to."""

from __future__ import annotations

from dataclasses import dataclass

from bubbot.tape.entry import Kind, text_field
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

SWITCHED = "model/switched"


@dataclass(frozen=True, slots=True)
class ModelChoiceView:
    """The model that the session was last switched to; empty without a switch."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(SWITCHED,), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> str:
        return text_field(answers[0][0].data, "model") if answers[0] else ""
