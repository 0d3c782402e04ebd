"""Reservations and costs of model calls, from the facts on the tape `bubbot/budget`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from bubbot.features.budget.totals import SpentTotals
from bubbot.ports.usage import (
    BUDGET_TAPE,
    RESERVED,
    SETTLED,
    ZERO_SPENT,
    BudgetSubject,
    FailingModel,
    Reservation,
    TotalKey,
    reservation_from,
)
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.projection import LegacyAnchor, Projection
from bubbot.tape.query import parse_moment

WARNED = "budget/warned"
UNPRICED = "budget/unpriced"
OUTAGE = "budget/outage"
BUDGET_CHECKPOINT_INTERVAL = 200
"""Facts between two checkpoints at least; more if a checkpoint has more totals than that."""

CLOCK_GRACE = timedelta(days=2)
"""The most that a clock may be set back, or have been ahead, so that no day gets its budget twice."""
MIN_RECENT_TURNS, MAX_RECENT_TURNS = 200, 2_000
"""Newest turns that are remembered however long ago they were, and at most."""
RECENT_TURN_AGE = timedelta(hours=1)


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
        open: reservations of calls that are not settled, by call.
        warned: the warnings that the owner got.
        unpriced: models without a price that the owner was warned of.
        reported: models whose outage the owner was told of last: when that outage began, and when the owner was told.
        failing: models whose newest calls failed.
        answered: when each model last answered, or a fallback for it, ISO 8601: its failures may be on another shard.
        day: the newest day of a call; totals of days and months that were over then are dropped.
    """

    spent: SpentTotals = field(default_factory=SpentTotals)
    open: dict[str, Reservation] = field(default_factory=dict)
    warned: set[BudgetWarning] = field(default_factory=set)
    unpriced: set[str] = field(default_factory=set)
    reported: dict[str, tuple[str, str]] = field(default_factory=dict)
    failing: dict[str, FailingModel] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    day: str = ""

    def apply(self, entries: Sequence[TapeEntry]) -> BudgetState:
        """Apply these facts to this state, in the order of the tape. Erased ones are ignored."""
        for entry in entries:
            if not entry.erased:
                self._apply(entry)
        return self

    def _apply(self, entry: TapeEntry) -> None:
        data = entry.data
        if entry.name == RESERVED:
            self.open[data["call"]] = reservation_from(data, entry.id)
        elif entry.name == SETTLED:
            self.open.pop(data["call"], None)
            hold = reservation_from(data, entry.id)
            self.spent.add_call(hold)
            self._apply_outcome(data, entry.date)
            self._advance(hold.day)
        elif entry.name == WARNED:
            self.warned.add(BudgetWarning(TotalKey(data["scope"], data["name"], data["period"]), data["measure"]))
        elif entry.name == UNPRICED:
            self.unpriced.add(data["model"])
        elif entry.name == OUTAGE:
            self.reported[data["model"]] = (data["since"], entry.date)

    def _apply_outcome(self, data: JsonObject, date: str) -> None:
        """Update the failing models.

        A model fails from its first failed call until one that it answers, or that a fallback answers for it.
        """
        if error := data.get("error"):
            name, at = data["model"], error["at"]
            since = self.failing[name].since if name in self.failing else at
            self.failing[name] = FailingModel(name, since, at, error["kind"], error.get("status"))
        elif data["status"] == "answered":
            for name in {data["model"], data.get("requested", data["model"])}:
                self.failing.pop(name, None)
                self.answered[name] = date

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
        open_periods = {period for hold in self.open.values() for period in (hold.day, hold.day[:7])}

        def is_current(period: str) -> bool:
            return period >= first[: len(period)] or period in open_periods

        self.spent.keep_periods(is_current)
        self.warned = {warning for warning in self.warned if is_current(warning.key.period)}

    def checkpoint_state(self) -> dict[str, Any]:
        """Build the state of a checkpoint."""
        return {
            "day": self.day,
            "open": [hold.as_json() | {"id": hold.entry} for hold in self.open.values()],
            "spent": self.spent.encode(),
            "warned": [[*warning.key, warning.measure] for warning in sorted(self.warned)],
            "unpriced": sorted(self.unpriced),
            "reported": [[name, *times] for name, times in sorted(self.reported.items())],
            "failing": [list(model) for _, model in sorted(self.failing.items())],
            "answered": sorted(self.answered.items()),
        }


def budget_state_from(state: JsonObject) -> BudgetState:
    """Read the state of a checkpoint, or of an anchor of earlier versions."""
    return BudgetState(
        SpentTotals.decode(state["spent"]),
        {item["call"]: reservation_from(item, item["id"]) for item in state["open"]},
        {BudgetWarning(TotalKey(*line[:3]), line[3]) for line in state["warned"]},
        set(state["unpriced"]),
        {str(name): (str(since), str(told)) for name, since, told in state.get("reported", ())},
        {model[0]: FailingModel(*model) for model in state.get("failing", ())},  # the oldest anchors stored none
        {str(name): str(date) for name, date in state.get("answered", ())},
        str(state.get("day", "")),
    )


def combine_failing(states: Sequence[BudgetState]) -> Mapping[str, FailingModel]:
    """Return the failing models of all shards: those that no shard has an answer of since their newest failure."""
    if len(states) == 1:
        return states[0].failing
    failing: dict[str, FailingModel] = {}
    for model in sorted((model for state in states for model in state.failing.values()), key=lambda each: each.newest):
        answered = max((state.answered.get(model.name, "") for state in states), default="")
        if model.newest <= answered:
            continue
        since = model.since if model.since > answered else model.newest
        before = failing.get(model.name)
        failing[model.name] = model._replace(since=min(since, before.since) if before else since)
    return failing


def combine_answered(states: Sequence[BudgetState]) -> dict[str, str]:
    """Return when each model last answered, on any shard."""
    answered: dict[str, str] = {}
    for state in states:
        for name, at in state.answered.items():
            answered[name] = max(answered.get(name, ""), at)
    return answered


def _combine_states(states: Sequence[BudgetState]) -> BudgetState:
    """Add up the states of shards; a call is on one of them."""
    total = BudgetState(failing=dict(combine_failing(states)), answered=combine_answered(states))
    for state in states:
        for key, spent in state.spent.items():
            total.spent[key] = total.spent.get(key, ZERO_SPENT).add(spent)
        total.open |= state.open
        total.warned |= state.warned
        total.unpriced |= state.unpriced
        total.reported |= state.reported
        total.day = max(total.day, state.day)
    return total


BUDGET_PROJECTION = Projection[BudgetState](
    name="budget",
    version=2,
    tapes=BUDGET_TAPE,
    events=(RESERVED, SETTLED, WARNED, UNPRICED, OUTAGE),
    initial=BudgetState,
    apply=BudgetState.apply,
    encode=BudgetState.checkpoint_state,
    decode=lambda state, _cited: budget_state_from(state),
    interval=BUDGET_CHECKPOINT_INTERVAL,
    size=lambda state: len(state.spent),
    legacy=LegacyAnchor(name="budget/mark", decode=lambda state, _cited: budget_state_from(state)),
    combine=_combine_states,
    older_versions=(1,),
)
"""The totals of days and months that are not over, and the reservations that are not settled."""


RecentTurns: TypeAlias = Mapping[str, tuple[str, BudgetSubject]]
"""Turns, oldest first, with the times of their first model calls and their subjects."""


def _apply_calls(turns: RecentTurns, entries: Sequence[TapeEntry]) -> RecentTurns:
    recent = dict(turns)
    for entry in entries:
        data = entry.data
        if data["turn"]:
            date = str(data.get("asked", entry.date))
            recent.setdefault(data["turn"], (date, reservation_from(data, entry.id).subject))
            _drop_old(recent, date)
    return recent


def _drop_old(turns: dict[str, tuple[str, BudgetSubject]], date: str) -> None:
    """Drop the oldest turns: those an hour before this date, and those of which there are too many."""
    while len(turns) > MIN_RECENT_TURNS:
        turn, (oldest, _) = next(iter(turns.items()))
        first, last = parse_moment(oldest), parse_moment(date)
        if len(turns) <= MAX_RECENT_TURNS and first is not None and last is not None and last - first < RECENT_TURN_AGE:
            return
        del turns[turn]


def _decode_turns(state: JsonObject, _cited: Sequence[TapeEntry]) -> RecentTurns:
    return {
        str(turn): (str(date), BudgetSubject(str(session), str(user), str(job), str(turn)))
        for turn, date, session, user, job in state["turns"]
    }


def _combine_turns(shards: Sequence[RecentTurns]) -> RecentTurns:
    """Join the turns of shards, oldest first; a turn is on one of them."""
    turns = [item for shard in shards for item in shard.items()]
    return dict(sorted(turns, key=lambda item: item[1][0]))


RATES_PROJECTION = Projection[RecentTurns](
    name="rates",
    version=1,
    tapes=BUDGET_TAPE,
    events=(RESERVED, SETTLED),
    initial=dict,
    apply=_apply_calls,
    encode=lambda turns: {
        "turns": [[turn, date, subject.session, subject.user, subject.job] for turn, (date, subject) in turns.items()]
    },
    decode=_decode_turns,
    interval=500,
    size=len,
    combine=_combine_turns,
)
"""The turns of the last hour that called a model."""


def renewal_day(period: str) -> str:
    """Return the day on which the budget of a day or a month is renewed."""
    if len(period) == 10:
        return (datetime.fromisoformat(period) + timedelta(days=1)).strftime("%Y-%m-%d")
    year, month = int(period[:4]), int(period[5:])
    return f"{year + month // 12:04}-{month % 12 + 1:02}-01"
