"""The reporter of model calls and their cost: reads the budget tape, and formats what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal, Protocol

from bubbot.features.usage.spending import (
    PeriodStartView,
    SpendingReport,
    SpendingView,
    UsageSum,
    combine_reports,
)
from bubbot.gateway.names import NO_NAMES, NameBook
from bubbot.ports.usage import BOT_SCOPE, BUDGET_TAPE, CHAT_SCOPE, Currency, round_amount
from bubbot.records import dataclass
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

Period = Literal["day", "month", "all"]
CLOCK_MARGIN = timedelta(days=1)
"""What is read before a period: if the clock was set back by less, later calls have the dates of earlier ones."""
BAR_CELLS = 8
"""Characters of a bar in a chat: a phone shows few in a line."""


class ReportLimits(Protocol):
    """Reports the used shares of budgets."""

    async def __call__(
        self, texts: Texts, scopes: Sequence[tuple[str, str]] | None = None, names: NameBook = NO_NAMES
    ) -> list[str]:
        """Return a line for each limit of these scopes; None: of all that have spending."""
        ...


async def report_no_limits(
    texts: Texts, scopes: Sequence[tuple[str, str]] | None = None, names: NameBook = NO_NAMES
) -> list[str]:
    """Report nothing, for bots without budgets."""
    return []


class FindCostLimit(Protocol):
    """Finds the budget in US dollars of a scope and name."""

    def __call__(self, scope: str, name: str, period: str) -> float | None:
        """Return the limit for a day or month, as in `TotalKey`; None if there is none."""
        ...


def find_no_limit(scope: str, name: str, period: str) -> float | None:
    """Find nothing, for bots without budgets."""
    return None


@dataclass(frozen=True, slots=True)
class UsageReporter:
    """A reader of the budget tape.

    Attributes:
        tape: the budget tape.
        now: the clock.
        zone: the deployment's time zone.
        report_limits: reports the used shares of budgets; by scope and name, or of all that have spending.
        find_cost_limit: finds the budget that the summary names.
        currency: the currency of the reports.
    """

    tape: TapeService
    now: Clock
    zone: tzinfo
    report_limits: ReportLimits = report_no_limits
    find_cost_limit: FindCostLimit = find_no_limit
    currency: Currency = Currency()

    def period_start(self, period: Period) -> str:
        """Return the first day of the current period; empty for all."""
        today = self.now().astimezone(self.zone).strftime("%Y-%m-%d")
        return {"day": today, "month": f"{today[:7]}-01", "all": ""}[period]

    async def read_spending(self, period: Period, chat: str = "") -> SpendingReport:
        """Sum up the spending of the current period, in one chat or, if `chat` is empty, in all."""
        since, reports = self.period_start(period), []
        for shard in self.tape.shards():
            after = 0
            if since:
                first = datetime.fromisoformat(since).replace(tzinfo=self.zone) - CLOCK_MARGIN
                after = await shard.read(PeriodStartView(first))
            reports.append(await shard.read(SpendingView(shard.name, since, chat, after)))
        return combine_reports(reports)

    def format_cost(self, texts: Texts, usage: UsageSum) -> str:
        """Format the cost of calls; it may be unknown."""
        return self.currency.format_cost(texts, usage.cost_nanousd) if usage.has_price else texts.say("usage_no_price")

    def format_summary(
        self, texts: Texts, period: Period, spending: SpendingReport, chat: str = "", *, is_short: bool = False
    ) -> str:
        """Format what matters most as one sentence: the cost, the budget it counts towards, and where it went.

        Args:
            texts: the language.
            period: the period of the spending.
            spending: the spending, of one chat or of all.
            chat: that chat; empty for all.
            is_short: leave out where it went.
        """
        total, name = spending.total, format_period(texts, period)
        if not total.calls:
            return texts.say("usage_none", period=name)
        spent = self._format_spent(texts, period, total, chat)
        answers = texts.say("usage_answers", count=spending.answers)
        names = list(spending.by["model" if chat else "chat"])
        if is_short or len(names) < 2:
            return texts.say("usage_summary", period=name, spent=spent, answers=answers)
        if chat:
            return texts.say("usage_summary_model", period=name, spent=spent, answers=answers, name=names[0])
        return texts.say("usage_summary_chat", period=name, spent=spent, answers=answers, name=names[0])

    def _format_spent(self, texts: Texts, period: Period, total: UsageSum, chat: str) -> str:
        if not total.has_price:
            return texts.say("usage_tokens", tokens=texts.format_number(f"{total.tokens:,}"))
        day = self.period_start("day")
        key = {"day": day, "month": day[:7], "all": ""}[period]
        limit = self.find_cost_limit(CHAT_SCOPE if chat else BOT_SCOPE, chat, key) if key else None
        if limit is None:
            return self.currency.format_cost(texts, total.cost_nanousd)
        spent, rate = total.cost_nanousd / 10**9, self.currency.usd_rate
        return texts.say(
            "usage_spent_of",
            spent=texts.format_number(round_amount(spent * rate)),
            limit=self.currency.format_amount(texts, limit * rate),
        )

    def format_line(self, texts: Texts, name: str, usage: UsageSum) -> str:
        """Format a sum as one line."""
        cost, calls = self.format_cost(texts, usage), texts.say("usage_calls", count=usage.calls)
        read, cached, written = (
            texts.format_number(f"{count:,}")
            for count in (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
        )
        if not usage.cached_tokens:
            return texts.say("usage_line", name=name, cost=cost, calls=calls, input=read, output=written)
        return texts.say(
            "usage_line_cached", name=name, cost=cost, calls=calls, input=read, cached=cached, output=written
        )

    def _format_cited(self, texts: Texts, name: str, usage: UsageSum) -> str:
        """Format a sum as one line, with the entries behind it."""
        entries = ", ".join(_format_ids(tape, ids) for tape, ids in usage.reservations.items())
        return texts.say("usage_line_entries", line=self.format_line(texts, name, usage), entries=entries)

    def format_report(
        self, texts: Texts, spending: SpendingReport, by: Sequence[str], max_rows: int, *, has_bars: bool = False
    ) -> Iterator[str]:
        """Yield the lines of a report, which follow its summary.

        Args:
            texts: the language.
            spending: the spending to report.
            by: the groupings, each a table.
            max_rows: rows of one table at most.
            has_bars: begin the rows of a table with bars, for people in a chat: in front, as letters have different widths
                there. Without them each line has the entries behind it.
        """
        total, format_line = spending.total, self.format_line if has_bars else self._format_cited
        if not total.calls:
            return
        yield format_line(texts, texts.say("usage_sum"), total)
        for grouping in by:
            sums = spending.by[grouping]
            if not sums:
                continue
            yield format_heading(texts, grouping)
            longest = max(map(spending.measure, sums.values())) if has_bars and len(sums) > 1 else 0
            for name, usage in list(sums.items())[:max_rows]:
                bar = f"{_format_bar(spending.measure(usage) / longest)} " if longest else ""
                yield f"  {bar}{format_line(texts, name, usage)}"
            yield from ("  …",) if len(sums) > max_rows else ()
        yield from self.format_notes(texts, total)
        if not has_bars:
            yield texts.say("usage_cites")

    def format_notes(self, texts: Texts, total: UsageSum) -> Iterator[str]:
        """Yield what a sum leaves out or estimates."""
        if total.unpriced:
            yield texts.say("usage_unpriced", calls=total.unpriced)
        if total.estimated:
            yield texts.say("usage_estimated", calls=total.estimated)


def _format_bar(share: float) -> str:
    """Format a share of the longest bar; what is not nothing is at least one cell."""
    cells = min(max(round(share * BAR_CELLS), 1 if share else 0), BAR_CELLS)
    return "▓" * cells + "░" * (BAR_CELLS - cells)


def _format_ids(tape: str, ids: Sequence[int]) -> str:
    """Cite entries: `#3 … #9`; on a shard `/0#3 … /0#9`, the end of its name before the id."""
    shard, first, last = tape.removeprefix(BUDGET_TAPE), min(ids), max(ids)
    return f"{shard}#{first}" if first == last else f"{shard}#{first} … {shard}#{last}"


def format_period(texts: Texts, period: Period) -> str:
    """Name a period at the beginning of a sentence."""
    match period:
        case "day":
            return texts.say("usage_day")
        case "month":
            return texts.say("usage_month")
    return texts.say("usage_all")


def format_heading(texts: Texts, grouping: str) -> str:
    """Name a table of spending; it ends in a colon."""
    match grouping:
        case "chat":
            return texts.say("usage_by_chat")
        case "user":
            return texts.say("usage_by_user")
        case "job":
            return texts.say("usage_by_job")
        case "model":
            return texts.say("usage_by_model")
    return texts.say("usage_by_day")
