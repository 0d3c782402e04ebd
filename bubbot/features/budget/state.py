"""Spending, open reservations and failing models, from the facts on the tape `bubbot/budget`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

from bubbot.features.budget.facts import BudgetWarned, ModelOutageReported, ModelUnpriced
from bubbot.features.budget.outages import ModelOutage
from bubbot.ports.usage import (
    BUDGET_TAPE,
    ZERO_SPENT,
    BudgetSubject,
    CallReserved,
    CallSettled,
    CountedCall,
    SpentTotal,
    TotalKey,
)
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts
from bubbot.tape.query import parse_moment

BUDGET_CHECKPOINT_INTERVAL = 200
"""Facts between two checkpoints at least; more if a checkpoint has more totals than that."""

CLOCK_GRACE = timedelta(days=2)
"""The most that a clock may be set back, or have been ahead, so that no day gets its budget twice."""
MIN_RECENT_TURNS, MAX_RECENT_TURNS = 200, 2_000
"""Newest turns that are remembered however long ago they were, and at most."""
RECENT_TURN_AGE = timedelta(hours=1)


class BudgetState(FactState):
    """The state of all budgets.

    Attributes:
        day: the newest day of a call; totals of days and months that were over then are dropped.
        open: reservations of calls that are not settled.
        spent: totals, by day or month, then by scope and name.
        warned: the warnings that the owner got.
        unpriced: models without a price that the owner was warned of.
        reported: the outages that the owner was told of last.
        failing: models whose newest calls failed.
        answered: when each model last answered, or a fallback for it, ISO 8601: its failures may be on another shard.
    """

    FACTS: ClassVar = (CallReserved, CallSettled, BudgetWarned, ModelUnpriced, ModelOutageReported)
    day: str = ""
    open: Current[CallReserved] = msgspec.field(default_factory=Current)
    spent: dict[str, dict[str, dict[str, SpentTotal]]] = msgspec.field(default_factory=dict)
    warned: Current[BudgetWarned] = msgspec.field(default_factory=Current)
    unpriced: Current[ModelUnpriced] = msgspec.field(default_factory=Current)
    reported: Current[ModelOutageReported] = msgspec.field(default_factory=Current)
    failing: dict[str, ModelOutage] = msgspec.field(default_factory=dict)
    answered: dict[str, str] = msgspec.field(default_factory=dict)

    def find_spent(self, key: TotalKey) -> SpentTotal:
        """Return a total, which may be zero."""
        return self.spent.get(key.period, {}).get(key.scope, {}).get(key.name, ZERO_SPENT)

    def totals(self) -> Iterator[tuple[TotalKey, SpentTotal]]:
        """Yield all totals."""
        for period, scopes in self.spent.items():
            for scope, names in scopes.items():
                for name, total in names.items():
                    yield TotalKey(scope, name, period), total

    def add(self, key: TotalKey, total: SpentTotal) -> None:
        """Add to a total."""
        names = self.spent.setdefault(key.period, {}).setdefault(key.scope, {})
        names[key.name] = names.get(key.name, ZERO_SPENT).add(total)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: CallReserved, cited: Cited[Any], /) -> None:
        self.open.put(cited)

    @fold.register
    def _(self, fact: CallSettled, cited: Cited[Any], /) -> None:
        self.open.drop(fact.call)
        took = SpentTotal(1, fact.tokens, fact.nano or 0)
        for key in fact.totals():
            self.add(key, took)
        self._apply_outcome(fact, cited.date)
        self._advance(fact.day)

    @fold.register
    def _(self, _fact: BudgetWarned, cited: Cited[Any], /) -> None:
        self.warned.put(cited)

    @fold.register
    def _(self, _fact: ModelUnpriced, cited: Cited[Any], /) -> None:
        self.unpriced.put(cited)

    @fold.register
    def _(self, _fact: ModelOutageReported, cited: Cited[Any], /) -> None:
        self.reported.put(cited)

    def _apply_outcome(self, call: CallSettled, settled_at: str) -> None:
        """Update the failing models.

        A model fails from its first failed call until one that it answers, or that a fallback answers for it.
        """
        name, error = call.model, call.error
        if error is not UNSET:
            since = self.failing[name].since if name in self.failing else error.at
            self.failing[name] = ModelOutage(name, since, error.at, error.kind, error.status or None)
        elif call.status == "answered":
            for each in {name, call.requested or name}:
                self.failing.pop(each, None)
                self.answered[each] = settled_at

    def _advance(self, day: str) -> None:
        """Drop the totals of days and months that are over, even if a clock is set back by `CLOCK_GRACE`."""
        if day == self.day:
            return
        if day < self.day:
            if self.day > (date.fromisoformat(day) + CLOCK_GRACE).isoformat():
                self.day = day  # the clock was ahead, or is behind now
            return
        self.day = day
        first = (date.fromisoformat(day) - CLOCK_GRACE).isoformat()
        # A call that is still open counts on the day it began: that day is not over.
        open_periods = {period for cited in self.open for period in (cited.fact.day, cited.fact.day[:7])}

        def is_over(period: str) -> bool:
            return period < first[: len(period)] and period not in open_periods

        self.spent = {period: scopes for period, scopes in self.spent.items() if not is_over(period)}
        self.warned.drop_if(lambda cited: is_over(cited.fact.period))


def combine_failing(states: Sequence[BudgetState]) -> Mapping[str, ModelOutage]:
    """Return the failing models of all shards: those that no shard has an answer of since their newest failure."""
    if len(states) == 1:
        return states[0].failing
    failing: dict[str, ModelOutage] = {}
    for model in sorted((model for state in states for model in state.failing.values()), key=lambda each: each.newest):
        answered = max((state.answered.get(model.name, "") for state in states), default="")
        if model.newest <= answered:
            continue
        since = model.since if model.since > answered else model.newest
        before = failing.get(model.name)
        failing[model.name] = msgspec.structs.replace(model, since=min(since, before.since) if before else since)
    return failing


def combine_answered(states: Sequence[BudgetState]) -> dict[str, str]:
    """Return when each model last answered, on any shard."""
    answered: dict[str, str] = {}
    for state in states:
        for name, at in state.answered.items():
            answered[name] = max(answered.get(name, ""), at)
    return answered


def _combine_states(states: Sequence[BudgetState]) -> BudgetState:
    """Add up the states of shards; a call is on one of them.

    Each shard drops the totals of days that are over for itself, so that for a time a part of such a day may be left.
    """
    total = BudgetState(failing=dict(combine_failing(states)), answered=combine_answered(states))
    for state in states:
        total.day = max(total.day, state.day)
        for key, spent in state.totals():
            total.add(key, spent)
        sums: list[tuple[Current[Any], Current[Any]]] = [
            (total.open, state.open),
            (total.warned, state.warned),
            (total.unpriced, state.unpriced),
            (total.reported, state.reported),
        ]
        for found, facts in sums:
            for cited in facts:
                found.put(cited)
    return total


BUDGET_PROJECTION = replace(
    project_facts(BudgetState, name="budget", version=3, tapes=BUDGET_TAPE, interval=BUDGET_CHECKPOINT_INTERVAL),
    size=lambda state: sum(len(names) for scopes in state.spent.values() for names in scopes.values()),
    combine=_combine_states,
)
"""The totals of days and months that are not over, and the reservations that are not settled."""


class RecentTurn(Struct, array_like=True, frozen=True):
    """A turn that called a model.

    Attributes:
        turn: the turn.
        date: when it first did, ISO 8601 in UTC.
        session: its session.
        user: the person, as `channel:id`.
        job: the job that began it; empty if none did.
    """

    turn: str
    date: str
    session: str
    user: str
    job: str

    @property
    def payer(self) -> BudgetSubject:
        """The session, person, job and turn."""
        return BudgetSubject(self.session, self.user, self.job, self.turn)


class RatesState(FactState, dict=True):
    """The turns of the last hour that called a model.

    Attributes:
        turns: in the order of their first calls.
    """

    FACTS: ClassVar = (CallReserved, CallSettled)
    turns: list[RecentTurn] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Index the turns."""
        self._names = {each.turn for each in self.turns}

    def fold(self, fact: CountedCall, cited: Cited[Any], /) -> None:
        """Add the turn of a call, and drop the oldest ones: those an hour before, and those of which there are too many."""
        if not fact.turn:
            return
        asked = fact.asked if isinstance(fact, CallSettled) else UNSET
        date = cited.date if asked is UNSET else asked
        if fact.turn not in self._names:
            self._names.add(fact.turn)
            self.turns.append(RecentTurn(fact.turn, date, fact.session, fact.user, fact.job or ""))
        while len(self.turns) > MIN_RECENT_TURNS:
            first, last = parse_moment(self.turns[0].date), parse_moment(date)
            is_old = first is None or last is None or last - first >= RECENT_TURN_AGE
            if len(self.turns) <= MAX_RECENT_TURNS and not is_old:
                return
            self._names.discard(self.turns.pop(0).turn)


def _combine_turns(shards: Sequence[RatesState]) -> RatesState:
    """Join the turns of shards, oldest first; a turn is on one of them."""
    return RatesState(sorted((turn for shard in shards for turn in shard.turns), key=lambda turn: turn.date))


RATES_PROJECTION = replace(
    project_facts(RatesState, name="rates", version=1, tapes=BUDGET_TAPE, interval=500),
    size=lambda state: len(state.turns),
    combine=_combine_turns,
)
"""The turns of the last hour that called a model."""

CHECKPOINTS = {
    BUDGET_PROJECTION.checkpoint_name: checkpoint_model(BudgetState),
    RATES_PROJECTION.checkpoint_name: checkpoint_model(RatesState),
}


def renewal_day(period: str) -> str:
    """Return the day on which the budget of a day or a month is renewed."""
    if len(period) == 10:
        return (datetime.fromisoformat(period) + timedelta(days=1)).strftime("%Y-%m-%d")
    year, month = int(period[:4]), int(period[5:])
    return f"{year + month // 12:04}-{month % 12 + 1:02}-01"
