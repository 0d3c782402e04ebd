"""The newest turn of a tape."""

from __future__ import annotations

from bubbot.records import dataclass
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class LastTurn:
    """A turn on the tape: its id, its status, and the first and the last id that it wrote."""

    turn: str
    status: str
    entries: tuple[int, int]


@dataclass(frozen=True, slots=True)
class LastTurnView:
    """The newest turn that has ended; None on a tape without one. Three entries, each found through an index."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read its end, its start, and the anchor that the first turn of a tape writes before its start."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=("turn/end",), newest=True, limit=1),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=("turn/start",), newest=True, limit=1),
            TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(SESSION_START,), newest=True, limit=1),
        )

    def fold(self, answers: QueryAnswers) -> LastTurn | None:
        """Return the turn; None if the entries do not belong to one."""
        end, start, opening = (part[0] if part else None for part in answers)
        if end is None or start is None or end.erased or end.meta.get("turn") != start.meta.get("turn"):
            return None
        turn = end.meta.get("turn")
        first = opening.id if opening and opening.meta.get("turn") == turn else start.id
        return LastTurn(str(turn), str(end.data["status"]), (min(first, start.id), end.id))
