"""Judging a run while it runs.

A monitor is asked of each event before it happens (`judge`), and told of it once it happened (`record`); a refused event is
never recorded.

    move    pending while the run runs; violated once an event was recorded at which it did not hold; else satisfied in the end
    duty    pending until nothing can change it, at the latest until the run finishes

`judge` refuses an event at which a move does not hold, an event after which a duty can never be met (one call too many), and
the finish of a run whose duties are not met. A deadline that passed refuses nothing but the finish: the next event is not to
blame.

A search of `matches` that takes too long counts as not matched. That alone would let a model pass a rule that forbids what
matches, with a text that is slow to search; so `judge` refuses the event by each rule whose search it was, whether the rule
forbids or demands the match, now or for a later event. Of an event that was recorded all the same, the move is violated.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.feature_files import Harness, HarnessRule
from bubbot.features.tasks.harness.formula import (
    MAX_CITATIONS,
    Citation,
    Evaluator,
    FormulaValues,
    merge_citations,
)

Status: TypeAlias = Literal["satisfied", "violated", "pending"]


class RuleVerdict(Struct, frozen=True):
    """What became of a rule.

    Attributes:
        rule: its id.
        events: numbers of the events that decide it, ascending, 8 at most, the newest of them if there are more. Of a
            satisfied move those that it was about; empty if there was none.
        is_undecided: nobody knows, since a search of its checks took too long.
    """

    rule: str
    status: Status
    events: tuple[int, ...] = ()
    is_undecided: bool = False


class Monitor:
    """The rules of a harness along one run."""

    def __init__(self, harness: Harness) -> None:
        formulas = [formula for rule in harness.rules for formula in (rule.at, rule.holds) if formula is not None]
        self._evaluator = Evaluator(formulas)
        places = iter(self._evaluator.places)
        self._states: list[_MoveState | _DutyState] = [
            _DutyState(rule, next(places), self._evaluator)
            if rule.at is None
            else _MoveState(rule, next(places), next(places))
            for rule in harness.rules
        ]

    def judge(self, event: RunEvent) -> list[RuleVerdict]:
        """Return the rules that this event would violate if it came next, in the order of the harness. Change nothing."""
        at = self._evaluator.peek(event)
        self._evaluator.prepare(at)  # a rule may need later what a search does not decide now
        citations = [state.judge(at) for state in self._states]
        undecided = self._evaluator.find_users(at.undecided)
        verdicts = []
        for state, citation in zip(self._states, citations, strict=True):
            if not undecided.isdisjoint(state.places):
                verdicts.append(RuleVerdict(state.rule.id, "violated", (event.number,), is_undecided=True))
            elif citation is not None:
                verdicts.append(RuleVerdict(state.rule.id, "violated", citation))
        return verdicts

    def record(self, event: RunEvent) -> None:
        """Let this event happen."""
        at = self._evaluator.peek(event)
        self._evaluator.prepare(at)
        for state in self._states:
            state.record(at)
        if undecided := self._evaluator.find_users(at.undecided):
            for state in self._states:
                if isinstance(state, _MoveState) and not undecided.isdisjoint(state.places):
                    state.violate(at)
        self._evaluator.advance(at)

    def verdicts(self) -> list[RuleVerdict]:
        """Return a verdict for each rule, in the order of the harness. After the finish none is pending."""
        return [state.verdict() for state in self._states]


class _MoveState:
    """One move along a run."""

    def __init__(self, rule: HarnessRule, at: int, holds: int) -> None:
        self.rule = rule
        self.places = at, holds
        self._at = at
        self._holds = holds
        self._applied: deque[int] = deque(maxlen=MAX_CITATIONS)
        self._violation: Citation | None = None
        self._is_finished = False

    def judge(self, at: FormulaValues) -> Citation | None:
        """Return the events that an event would violate the rule by, itself included; None if it would not."""
        if not at.holds(self._at) or at.holds(self._holds):
            return None
        return merge_citations(at.cite(self._holds), (at.event.number,))

    def record(self, at: FormulaValues) -> None:
        """Let an event happen."""
        if self._violation is None:
            self._violation = self.judge(at)
        if at.holds(self._at):
            self._applied.append(at.event.number)
        self._is_finished = self._is_finished or at.event.kind == "finished"

    def violate(self, at: FormulaValues) -> None:
        """Note that an event violates the rule, if none did before."""
        self._violation = self._violation or (at.event.number,)

    def verdict(self) -> RuleVerdict:
        """Return what became of the rule."""
        if self._violation is not None:
            return RuleVerdict(self.rule.id, "violated", self._violation)
        return RuleVerdict(self.rule.id, "satisfied" if self._is_finished else "pending", tuple(self._applied))


class _DutyState:
    """One duty along a run."""

    def __init__(self, rule: HarnessRule, holds: int, evaluator: Evaluator) -> None:
        self.rule = rule
        self.places = (holds,)
        self._holds = holds
        self._is_timed = holds in evaluator.timed
        self._needs_trace = holds in evaluator.traced
        self._verdict = RuleVerdict(rule.id, "pending")

    def judge(self, at: FormulaValues) -> Citation | None:
        """Return the events that decide that the rule is or can never be met; None if it is or can."""
        is_finish = at.event.kind == "finished"
        if self._verdict.status != "pending":
            return self._verdict.events if is_finish and self._verdict.status == "violated" else None
        if not is_finish and (self._is_timed or not self._is_final(at)):
            return None
        if at.holds(self._holds):
            return None
        return merge_citations(at.cite(self._holds), (at.event.number,))

    def record(self, at: FormulaValues) -> None:
        """Let an event happen."""
        if self._verdict.status == "pending" and (at.event.kind == "finished" or self._is_final(at)):
            if at.holds(self._holds):
                self._verdict = RuleVerdict(self.rule.id, "satisfied", at.cite(self._holds))
            else:
                citation = merge_citations(at.cite(self._holds), (at.event.number,))
                self._verdict = RuleVerdict(self.rule.id, "violated", citation)

    def verdict(self) -> RuleVerdict:
        """Return what became of the rule."""
        return self._verdict

    def _is_final(self, at: FormulaValues) -> bool:
        # A function of all events would read them all again at each.
        return not self._needs_trace and at.is_final(self._holds)
