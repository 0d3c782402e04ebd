"""Spending of money and tokens: settled calls, added up by chat, person, job, model and day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

from bubbot.gateway.names import NameBook
from bubbot.ports.usage import BUDGET_TAPE, SETTLED, reservation_from
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

SPENDING_DIMENSIONS = ("chat", "user", "job", "model", "day")
"""The dimensions of spending."""


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """A sum of calls, for programs.

    Attributes:
        dollars: their cost, of the calls that have a price.
        calls: their number.
        input_tokens: of the requests.
        output_tokens: of the answers.
        cached_tokens: input tokens that the provider had cached.
        unpriced: calls without a price.
        estimated: calls that were cut off.
        reservations: the ids of the entries behind the sum; for a call without a reservation, of the entry with its usage.
        shards: the same by tape, if the store spreads the tape of budgets over several.
    """

    dollars: float
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    unpriced: int
    estimated: int
    reservations: tuple[int, ...]
    shards: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class UsageSum:
    """A sum of calls.

    Attributes:
        calls: their number.
        input_tokens: of the requests.
        output_tokens: of the answers.
        cached_tokens: input tokens that the provider had cached.
        cost_nanousd: billionths of a US dollar, of the calls that have a price.
        unpriced: calls without a price.
        estimated: calls that were cut off.
        reservations: the ids of the entries with which they began, by tape.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_nanousd: int = 0
    unpriced: int = 0
    estimated: int = 0
    reservations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def has_price(self) -> bool:
        """True if the price of a call is known."""
        return self.unpriced < self.calls

    def add_call(self, data: JsonObject) -> UsageSum:
        """Add one settled call, without its reservation."""
        nano = data["nano"]
        return UsageSum(
            self.calls + 1,
            self.input_tokens + data["input_tokens"],
            self.output_tokens + data["output_tokens"],
            self.cached_tokens + data["cached_tokens"],
            self.cost_nanousd + (nano or 0),
            self.unpriced + (nano is None),
            self.estimated + bool(data.get("estimated")),
            self.reservations,
        )

    def add(self, other: UsageSum) -> UsageSum:
        """Add the sum of another shard."""
        return UsageSum(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost_nanousd + other.cost_nanousd,
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
            {**self.reservations, **other.reservations},
        )

    def totals(self) -> UsageTotals:
        """Return the form for programs."""
        return UsageTotals(
            self.cost_nanousd / 10**9,
            self.calls,
            self.input_tokens,
            self.output_tokens,
            self.cached_tokens,
            self.unpriced,
            self.estimated,
            self.reservations.get(BUDGET_TAPE, ()),
            {tape: ids for tape, ids in self.reservations.items() if tape != BUDGET_TAPE},
        )


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """The spending of a period.

    Attributes:
        total: the sum of all calls.
        by: its parts by the words of `SPENDING_DIMENSIONS`, the most expensive first, days in their order.
        answers: the turns in which a model wrote something.
    """

    total: UsageSum = UsageSum()
    by: Mapping[str, Mapping[str, UsageSum]] = field(default_factory=dict)
    answers: int = 0

    def with_names(self, names: NameBook) -> SpendingReport:
        """Return the report with what people call the chats and persons."""
        chats, people = names.name_chats(self.by.get("chat", {})), names.name_people(self.by.get("user", {}))
        return replace(self, by={**self.by, "chat": chats, "user": people})

    def measure(self, usage: UsageSum) -> int:
        """Return the length of the bar of a part: its cost, or its tokens if no call has a price."""
        return usage.cost_nanousd if self.total.has_price else usage.tokens


def combine_reports(reports: Sequence[SpendingReport]) -> SpendingReport:
    """Add up the reports of shards."""
    if len(reports) == 1:
        return reports[0]
    total, parts = UsageSum(), {by: dict[str, UsageSum]() for by in SPENDING_DIMENSIONS}
    for report in reports:
        total = total.add(report.total)
        for by, sums in report.by.items():
            for name, usage in sums.items():
                parts[by][name] = parts[by].get(name, UsageSum()).add(usage)
    # The calls of a turn are on one shard, that of its chat.
    answers = sum(report.answers for report in reports)
    return SpendingReport(total, {by: _sort_sums(by, sums) for by, sums in parts.items()}, answers)


@dataclass(frozen=True, slots=True)
class PeriodStartView:
    """The id before a period: that of the newest call which was settled before its first moment."""

    first: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read that call."""
        before = self.first - timedelta(microseconds=1)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(SETTLED,), until=before, newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> int:
        """Return its id; 0 if there is none."""
        return answers[0][0].id if answers[0] else 0


@dataclass(frozen=True, slots=True)
class SpendingView:
    """The spending from the day `since` on (empty: ever), by everybody or in one chat.

    Nothing of it is at or before the id `after`. `tape`: the tape or shard that is read.
    """

    tape: str = BUDGET_TAPE
    since: str = ""
    chat: str = ""
    after: int = 0
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the settled calls."""
        return (TapeQuery(tape, IdRanges(((self.after + 1, None),)), kinds=(Kind.EVENT,), names=(SETTLED,)),)

    def fold(self, answers: QueryAnswers) -> SpendingReport:
        """Add up the calls."""
        total = UsageAccumulator(self.tape)
        parts: dict[str, dict[str, UsageAccumulator]] = {by: {} for by in SPENDING_DIMENSIONS}
        turns: set[tuple[str, str]] = set()
        for entry in answers[0]:
            names = _names(entry)
            if names is None or names["day"] < self.since or self.chat not in ("", names["chat"]):
                continue
            total.add(entry)
            data = entry.data
            if data["turn"] and data["output_tokens"]:
                turns.add((data["session"], data["turn"]))
            for by, name in names.items():
                if name:
                    parts[by].setdefault(name, UsageAccumulator(self.tape)).add(entry)
        sums_by = {by: _build_sums(by, sums) for by, sums in parts.items()}
        return SpendingReport(total.build_sum(), sums_by, len(turns))


@dataclass
class UsageAccumulator:
    """A sum of calls on one tape that grows: a million calls are added in one pass."""

    tape: str
    sum: UsageSum = UsageSum()
    entry_ids: list[int] = field(default_factory=list)

    def add(self, entry: TapeEntry) -> None:
        """Add one settled call."""
        data = entry.data
        self.sum = self.sum.add_call(data)
        self.entry_ids.append(data.get("reserved", entry.id))

    def build_sum(self) -> UsageSum:
        """Return the sum, with its entries."""
        return replace(self.sum, reservations={self.tape: tuple(self.entry_ids)} if self.entry_ids else {})


def _names(entry: TapeEntry) -> dict[str, str] | None:
    if entry.erased:
        return None
    hold = reservation_from(entry.data, entry.id)
    payer = hold.subject
    return {"chat": payer.chat, "user": payer.user, "job": payer.job, "model": hold.model, "day": hold.day}


def _build_sums(by: str, sums: Mapping[str, UsageAccumulator]) -> dict[str, UsageSum]:
    return _sort_sums(by, {name: accumulator.build_sum() for name, accumulator in sums.items()})


def _sort_sums(by: str, totals: Mapping[str, UsageSum]) -> dict[str, UsageSum]:
    if by == "day":
        return dict(sorted(totals.items()))
    return dict(sorted(totals.items(), key=lambda item: (-item[1].cost_nanousd, -item[1].input_tokens, item[0])))
