"""Reservations and costs of model calls, from the facts on the tape `bubbot/budget`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from bubbot.ports.usage import (
    BUDGET_CHECKPOINT,
    RESERVED,
    SETTLED,
    ZERO_SPENT,
    BudgetSubject,
    FailingModel,
    Reservation,
    SpentTotal,
    TotalKey,
    reservation_from,
)
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

WARNED = "budget/warned"
UNPRICED = "budget/unpriced"
CLOCK_GRACE = timedelta(days=2)
"""The most that a clock may be set back, or have been ahead, so that no day gets its budget twice."""
MAX_TURNS_READ = 2_000
"""Newest calls that are read to count recent turns."""


@dataclass(frozen=True, slots=True)
class CallError:
    """The reason why a call failed: the error's kind, as on the tape, and the HTTP status that the provider sent."""

    kind: str
    status: int | None = None


class BudgetWarning(NamedTuple):
    """A warning that the owner got: a total, and its measure (`tokens` or `cost`)."""

    key: TotalKey
    measure: str


@dataclass
class BudgetState:
    """The state of all budgets.

    Attributes:
        spent: totals by day and month.
        open: reservations of calls in progress, by call.
        warned: the warnings that the owner got.
        unpriced: models without a price that the owner was warned of.
        failing: models whose newest calls failed.
    """

    spent: dict[TotalKey, SpentTotal] = field(default_factory=dict)
    open: dict[str, Reservation] = field(default_factory=dict)
    warned: set[BudgetWarning] = field(default_factory=set)
    unpriced: set[str] = field(default_factory=set)
    failing: dict[str, FailingModel] = field(default_factory=dict)

    def apply(self, entries: Iterable[TapeEntry]) -> BudgetState:
        """Apply these facts, in the order of the tape. Erased ones are ignored."""
        for entry in entries:
            if not entry.erased:
                self._apply(entry)
        return self

    def _apply(self, entry: TapeEntry) -> None:
        data = entry.payload["data"]
        if entry.name == RESERVED:
            self.open[data["call"]] = reservation_from(data, entry.id)
        elif entry.name == SETTLED:
            self.open.pop(data["call"], None)
            hold = reservation_from(data, entry.id)
            for key in hold.totals():
                self.spent[key] = self.spent.get(key, ZERO_SPENT).add_call(hold.tokens, hold.cost_nanousd)
            self._apply_outcome(data)
        elif entry.name == WARNED:
            self.warned.add(BudgetWarning(TotalKey(data["scope"], data["name"], data["period"]), data["measure"]))
        elif entry.name == UNPRICED:
            self.unpriced.add(data["model"])

    def _apply_outcome(self, data: JsonObject) -> None:
        """Update the failing models.

        A model fails from its first failed call until one that it answers, or that a fallback answers for it.
        """
        if error := data.get("error"):
            name, at = data["model"], error["at"]
            since = self.failing[name].since if name in self.failing else at
            self.failing[name] = FailingModel(name, since, at, error["kind"], error.get("status"))
        elif data["status"] == "answered":
            self.failing.pop(data["model"], None)
            self.failing.pop(data.get("requested", ""), None)

    def held_total(self, key: TotalKey) -> SpentTotal:
        """Add up what the open reservations hold of a total."""
        total = ZERO_SPENT
        for hold in self.open.values():
            if hold.counts_towards(key):
                total = total.add_call(hold.tokens, hold.cost_nanousd)
        return total

    def drop_before(self, day: str) -> BudgetState:
        """Drop the totals of days and months that are over, even if a clock is set back by `CLOCK_GRACE`."""
        first = (date.fromisoformat(day) - CLOCK_GRACE).isoformat()
        # A call that is still open counts on the day it began: that day is not over.
        open_periods = {period for hold in self.open.values() for period in (hold.day, hold.day[:7])}

        def is_current(key: TotalKey) -> bool:
            return key.period >= first[: len(key.period)] or key.period in open_periods

        self.spent = {key: total for key, total in self.spent.items() if is_current(key)}
        self.warned = {warning for warning in self.warned if is_current(warning.key)}
        return self

    def checkpoint_state(self) -> dict[str, Any]:
        """Build the state of a bookkeeping anchor."""
        return {
            "open": [hold.as_json() | {"id": hold.entry} for hold in self.open.values()],
            "spent": [
                [*key, total.calls, total.tokens, total.cost_nanousd] for key, total in sorted(self.spent.items())
            ],
            "warned": [[*warning.key, warning.measure] for warning in sorted(self.warned)],
            "unpriced": sorted(self.unpriced),
            "failing": [list(model) for _, model in sorted(self.failing.items())],
        }


def budget_state_from(state: JsonObject) -> BudgetState:
    """Read the state of a bookkeeping anchor."""
    return BudgetState(
        {TotalKey(*line[:3]): SpentTotal(*line[3:]) for line in state["spent"]},
        {item["call"]: reservation_from(item, item["id"]) for item in state["open"]},
        {BudgetWarning(TotalKey(*line[:3]), line[3]) for line in state["warned"]},
        set(state["unpriced"]),
        {model[0]: FailingModel(*model) for model in state.get("failing", ())},  # an older version stored none
    )


@dataclass(frozen=True, slots=True)
class BudgetCheckpointView:
    """The state of the newest bookkeeping anchor; None without one."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the anchor, by one indexed look-up."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(BUDGET_CHECKPOINT,), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> JsonObject | None:
        """Return the state unchanged."""
        marks = [entry for entry in answers[0] if not entry.erased]
        state: JsonObject | None = marks[0].payload["state"] if marks else None
        return state


@dataclass(frozen=True, slots=True)
class BudgetStateView:
    """The budget state: an anchor's state, and everything newer. The value is (state, newest id read)."""

    mark: JsonObject | None = None
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read everything after the entries in the anchor's state."""
        after = self.mark["after"] if self.mark else 0
        names = (RESERVED, SETTLED, WARNED, UNPRICED)
        return (TapeQuery(tape, IdRanges(((after + 1, None),)), kinds=(Kind.EVENT,), names=names),)

    def fold(self, answers: QueryAnswers) -> tuple[BudgetState, int]:
        """Apply the newer facts to the anchor's state."""
        books = budget_state_from(self.mark) if self.mark else BudgetState()
        after = int(self.mark["after"]) if self.mark else 0
        return books.apply(answers[0]), answers[0][-1].id if answers[0] else after


@dataclass(frozen=True, slots=True)
class LateTurnsView:
    """The newest turns with the times of their first model calls and their subjects: by turn, oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest facts about calls: two of each, or one if nothing limits it."""
        names = (RESERVED, SETTLED)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=2 * MAX_TURNS_READ),)

    def fold(self, answers: QueryAnswers) -> Mapping[str, tuple[str, BudgetSubject]]:
        """Map turns to date and subject."""
        turns: dict[str, tuple[str, BudgetSubject]] = {}
        for entry in reversed(answers[0]):
            if not entry.erased and entry.payload["data"]["turn"]:
                data = entry.payload["data"]
                hold = reservation_from(data, entry.id)
                turns.setdefault(hold.subject.turn, (data.get("asked", entry.date), hold.subject))
        return turns


def renewal_day(period: str) -> str:
    """Return the day on which the budget of a day or a month is renewed."""
    if len(period) == 10:
        return (datetime.fromisoformat(period) + timedelta(days=1)).strftime("%Y-%m-%d")
    year, month = int(period[:4]), int(period[5:])
    return f"{year + month // 12:04}-{month % 12 + 1:02}-01"
