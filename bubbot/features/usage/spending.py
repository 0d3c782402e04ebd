"""Spending of money and tokens: settled calls, added up by chat, person, job, agent, model and day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from bubbot.gateway.names import NameBook
from bubbot.ports.usage import BUDGET_TAPE, CallSettled, SpentTotal
from bubbot.tape.entry import Kind
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

SPENDING_DIMENSIONS = ("chat", "user", "job", "agent", "model", "day")
"""The dimensions of spending."""


class UsageTotals(Struct, frozen=True):
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


class UsageSum(Struct):
    """A sum of calls that grows.

    Attributes:
        cost_nanousd: billionths of a US dollar, of the calls that have a price.
        reservations: the ids of the entries with which the calls began, by tape.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_nanousd: int = 0
    unpriced: int = 0
    estimated: int = 0
    reservations: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def has_price(self) -> bool:
        """True if the price of a call is known."""
        return self.unpriced < self.calls

    def add_call(self, call: CallSettled, tape: str, entry_id: int) -> None:
        """Add a call, by the entry that settled it."""
        self.calls += 1
        self.input_tokens += call.input_tokens
        self.output_tokens += call.output_tokens
        self.cached_tokens += call.cached_tokens
        self.cost_nanousd += call.nano or 0
        self.unpriced += call.nano is None
        self.estimated += call.estimated is True
        self.reservations.setdefault(tape, []).append(entry_id if call.reserved is UNSET else call.reserved)

    def add(self, other: UsageSum) -> None:
        """Add another sum."""
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.cost_nanousd += other.cost_nanousd
        self.unpriced += other.unpriced
        self.estimated += other.estimated
        for tape, ids in other.reservations.items():
            self.reservations.setdefault(tape, []).extend(ids)

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
            tuple(self.reservations.get(BUDGET_TAPE, ())),
            {tape: tuple(ids) for tape, ids in self.reservations.items() if tape != BUDGET_TAPE},
        )


class SpendingReport(Struct, frozen=True):
    """The spending of a period.

    Attributes:
        total: the sum of all calls.
        by: its parts by the words of `SPENDING_DIMENSIONS`, the most expensive first, days in their order.
        answers: the turns in which a model wrote something.
    """

    total: UsageSum
    by: Mapping[str, Mapping[str, UsageSum]]
    answers: int = 0

    @property
    def by_agent(self) -> dict[str, SpentTotal]:
        """What each agent used, by name; the bot itself is the empty one. Without its calls it is left out."""
        sums = self.by["agent"].values()
        rest = SpentTotal(
            self.total.calls - sum(each.calls for each in sums),
            self.total.tokens - sum(each.tokens for each in sums),
            self.total.cost_nanousd - sum(each.cost_nanousd for each in sums),
        )
        named = {
            name: SpentTotal(each.calls, each.tokens, each.cost_nanousd) for name, each in self.by["agent"].items()
        }
        return {"": rest, **named} if rest.calls else named

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
    total, parts = UsageSum(), {by: defaultdict[str, UsageSum](UsageSum) for by in SPENDING_DIMENSIONS}
    for report in reports:
        total.add(report.total)
        for by, sums in report.by.items():
            for name, usage in sums.items():
                parts[by][name].add(usage)
    # The calls of a turn are on one shard, that of its chat.
    return SpendingReport(total, _sort_parts(parts), sum(report.answers for report in reports))


class PeriodStartView(Struct, frozen=True):
    """The id before a period: that of the newest call which was settled before its first moment."""

    first: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read that call."""
        before = self.first - timedelta(microseconds=1)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=CallSettled.EVENTS, until=before, newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> int:
        """Return its id; 0 if there is none."""
        return answers[0][0].id if answers[0] else 0


class SpendingView(Struct, frozen=True):
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
        return (TapeQuery(tape, IdRanges(((self.after + 1, None),)), kinds=(Kind.EVENT,), names=CallSettled.EVENTS),)

    def fold(self, answers: QueryAnswers) -> SpendingReport:
        """Add up the calls."""
        total, parts = UsageSum(), {by: defaultdict[str, UsageSum](UsageSum) for by in SPENDING_DIMENSIONS}
        turns: set[tuple[str, str]] = set()
        for entry in answers[0]:
            if entry.erased:
                continue
            call = CallSettled.of(entry)
            payer = call.payer
            if call.day < self.since or self.chat not in ("", payer.chat):
                continue
            total.add_call(call, self.tape, entry.id)
            if call.turn and call.output_tokens:
                turns.add((call.session, call.turn))
            names = (payer.chat, payer.user, payer.job, payer.agent, call.model, call.day)
            for by, name in zip(SPENDING_DIMENSIONS, names, strict=True):
                if name:
                    parts[by][name].add_call(call, self.tape, entry.id)
        return SpendingReport(total, _sort_parts(parts), len(turns))


def _sort_parts(parts: Mapping[str, Mapping[str, UsageSum]]) -> dict[str, dict[str, UsageSum]]:
    return {by: _sort_sums(by, sums) for by, sums in parts.items()}


def _sort_sums(by: str, totals: Mapping[str, UsageSum]) -> dict[str, UsageSum]:
    if by == "day":
        return dict(sorted(totals.items()))
    return dict(sorted(totals.items(), key=lambda item: (-item[1].cost_nanousd, -item[1].input_tokens, item[0])))
