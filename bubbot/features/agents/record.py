"""Interrupted attempts at a sub-task, by its order. What they did answers calls: see `bubbot.runtime.effects`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bubbot.features.agents.events import ENDED, STARTED
from bubbot.records import dataclass
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_EVENTS = 500
"""The newest events about sub-tasks that are searched for an interrupted attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a sub-task in an interrupted turn.

    Attributes:
        fork: its fork.
        ended: the event of its end; None if it was cut off.
    """

    fork: str
    ended: TapeEntry | None = None


@dataclass(frozen=True, slots=True)
class AttemptsView:
    """The attempts at an order in interrupted turns, oldest first.

    Attributes:
        order: the digest of the order.
        turns: the ids of the turns.
    """

    order: str
    turns: Collection[str]
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest events about sub-tasks, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(STARTED, ENDED), newest=True, limit=MAX_EVENTS),)

    def fold(self, answers: QueryAnswers) -> tuple[Attempt, ...]:
        """Pair the starts with the ends. A sub-task that was discarded has an end only."""
        attempts: dict[str, Attempt] = {}
        for entry in sorted(answers[0], key=lambda entry: entry.id):
            data = entry.data
            if data.get("order") != self.order or entry.meta.get("turn") not in self.turns:
                continue
            attempts[data["fork"]] = Attempt(data["fork"], entry if entry.name == ENDED else None)
        return tuple(attempts.values())


def find_finished(attempts: Sequence[Attempt], answered: Collection[str]) -> Attempt | None:
    """Return the oldest attempt that ended with a result and has not answered another order."""
    return next((each for each in attempts if each.fork not in answered and _is_finished(each)), None)


def find_cut_off(attempts: Sequence[Attempt], answered: Collection[str]) -> Attempt | None:
    """Return the newest attempt without a result that no other order continues."""
    return next((each for each in reversed(attempts) if each.fork not in answered and not _is_finished(each)), None)


def _is_finished(attempt: Attempt) -> bool:
    return attempt.ended is not None and attempt.ended.data["status"] == "answered"
