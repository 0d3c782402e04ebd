"""The reporter of model calls and their cost: reads the budget tape, and formats what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from io import StringIO
from typing import Literal

from msgspec import Struct

from bubbot.features.usage.spending import (
    PeriodStartView,
    SpendingReport,
    SpendingView,
    UsageSum,
    combine_reports,
)
from bubbot.gateway.names import NO_NAMES, NameBook
from bubbot.log import printable
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.usage import (
    BOT_SCOPE,
    BUDGET_TAPE,
    CHAT_SCOPE,
    TOKENS,
    BudgetUsage,
    Currency,
    ReportsLimits,
    budget_owner_text,
    round_amount,
)
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

Period = Literal["day", "month", "all"]
CLOCK_MARGIN = timedelta(days=1)
"""What is read before a period: if the clock was set back by less, later calls have the dates of earlier ones."""
MAX_BAR_WIDTH = 100
"""Columns of a table of bars in a terminal at most; longer bars say no more."""
BAR_CELLS = 8
"""Characters of a bar in a chat: a phone shows few in a line."""


class UsageReporter(Struct, frozen=True):
    """A reader of the budget tape.

    Attributes:
        tape: the budget tape.
        now: the clock.
        zone: the deployment's time zone.
        limits: the limits of budgets; None for bots without budgets.
    """

    tape: TapeService
    now: Clock
    zone: tzinfo
    limits: ReportsLimits | None = None

    @property
    def currency(self) -> Currency:
        """The currency of the reports."""
        return self.limits.currency if self.limits else Currency()

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
        scope = CHAT_SCOPE if chat else BOT_SCOPE
        limit = self.limits.find_cost_limit(scope, chat, key) if self.limits and key else None
        if limit is None:
            return self.currency.format_cost(texts, total.cost_nanousd)
        spent, rate = total.cost_nanousd / 10**9, self.currency.usd_rate
        return texts.say(
            "usage_spent_of",
            spent=texts.format_number(round_amount(spent * rate)),
            limit=self.currency.format_amount(texts, limit * rate),
        )

    async def report_limits(
        self, texts: Texts, scopes: Sequence[tuple[str, str]] | None = None, names: NameBook = NO_NAMES
    ) -> list[str]:
        """Return a line for each limit of these scopes; None: of all that have spending."""
        usages = await self.limits.read_limits(scopes) if self.limits else ()
        return [self._format_limit(texts, usage, names.find_owner(usage.scope, usage.name)) for usage in usages]

    def _format_limit(self, texts: Texts, usage: BudgetUsage, owner: str) -> str:
        def amount(value: float) -> str:
            if usage.measure == TOKENS:
                return texts.say("usage_tokens", tokens=texts.format_number(f"{value:,.0f}"))
            return self.currency.format_cost(texts, round(value * NANOS_PER_USD))

        most = usage.most or 0.0
        return texts.say(
            "usage_limit",
            whose=budget_owner_text(texts, usage.scope, owner),
            period=usage.period,
            used=amount(usage.used),
            most=amount(most),
            percent=int(usage.used / most * 100) if most else 100,
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

    def format_bars(self, texts: Texts, spending: SpendingReport, by: Sequence[str], width: int) -> Iterator[str]:
        """Yield the lines of the tables `by`, each a heading and a bar for each name, at most `width` columns wide."""
        # Imported here: what goes to a pipe or a chat has no bars.
        from rich.bar import Bar
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        output, width = StringIO(), min(width, MAX_BAR_WIDTH)
        console = Console(file=output, width=width, color_system=None, force_terminal=False, emoji=False)
        for grouping in by:
            sums = spending.by[grouping]
            if not sums:
                continue
            table = Table.grid(padding=(0, 1), expand=True)
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 8))
            table.add_column(ratio=1, min_width=4)
            for _ in range(2):
                table.add_column(justify="right", no_wrap=True)
            longest = max(map(spending.measure, sums.values()))
            for name, usage in sums.items():
                bar = Bar(longest or 1, 0, spending.measure(usage))
                cost, calls = self.format_cost(texts, usage), texts.say("usage_calls", count=usage.calls)
                table.add_row(Text(f"  {printable(name)}"), bar, Text(cost), Text(calls))
            console.print(Text(format_heading(texts, grouping)))
            console.print(table)
        yield from (line.rstrip() for line in output.getvalue().splitlines())

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
        case "agent":
            return texts.say("usage_by_agent")
        case "model":
            return texts.say("usage_by_model")
    return texts.say("usage_by_day")
