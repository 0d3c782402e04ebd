"""Interrupted attempts at a sub-task, by its order. What they did answers calls: see `bubbot.runtime.effects`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from msgspec import Struct

from bubbot.features.agents.facts import AgentEnded, AgentStarted
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_EVENTS = 500
"""The newest events about sub-tasks that are searched for an interrupted attempt."""
Attempt: TypeAlias = Cited[AgentStarted] | Cited[AgentEnded]
"""An attempt at a sub-task in an interrupted turn: its end, or its start if it was cut off."""


class AttemptsView(Struct, frozen=True):
    """The attempts at the order with this digest in interrupted turns, oldest first."""

    order: str
    turns: Collection[str]
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest events about sub-tasks, through the name index."""
        names = (*AgentStarted.EVENTS, *AgentEnded.EVENTS)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_EVENTS),)

    def fold(self, answers: QueryAnswers) -> tuple[Attempt, ...]:
        """Pair the starts with the ends. A sub-task that was discarded has an end only."""
        attempts: dict[str, Attempt] = {}
        for entry in sorted(answers[0], key=lambda entry: entry.id):
            if entry.data.get("order") == self.order and entry.meta.get("turn") in self.turns:
                attempt: Attempt | None = Cited.try_of(AgentStarted, entry)
                if entry.name in AgentEnded.EVENTS:
                    attempt = Cited.try_of(AgentEnded, entry)
                if attempt:
                    attempts[attempt.fact.fork] = attempt
        return tuple(attempts.values())


def find_finished(attempts: Sequence[Attempt], answered: Collection[str]) -> Cited[AgentEnded] | None:
    """Return the end of the oldest attempt with a result that has not answered another order."""
    return next((each for each in _ends(attempts) if each.fact.is_answered and each.fact.fork not in answered), None)


def find_cut_off(attempts: Sequence[Attempt], answered: Collection[str]) -> Attempt | None:
    """Return the newest attempt without a result that no other order continues."""
    finished = {each.fact.fork for each in _ends(attempts) if each.fact.is_answered}
    return next((each for each in reversed(attempts) if each.fact.fork not in finished.union(answered)), None)


def _ends(attempts: Sequence[Attempt]) -> list[Cited[AgentEnded]]:
    return [each for each in attempts if isinstance(each.fact, AgentEnded)]
