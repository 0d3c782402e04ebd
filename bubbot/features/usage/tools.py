"""The command that reports model calls and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal

from pydantic import Field

from bubbot.features.budget.budget import COST, TOKENS, BudgetLimits
from bubbot.features.budget.state import BUDGET_PROJECTION, ZERO_SPENT, TotalKey, budget_owner_text
from bubbot.features.usage.spending import SPENDING_DIMENSIONS, PeriodStartView, SpendingReport, SpendingView, UsageSum
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.tool import Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import read_projection
from bubbot.texts import Texts

Period = Literal["day", "month", "all"]
MAX_USAGE_ROWS = 20
"""Rows of one table at most; the shell shows all."""


@dataclass(frozen=True, slots=True)
class UsageReporter:
    """A reader of the budget tape.

    Attributes:
        tape: the budget tape.
        now: the clock.
        zone: the deployment's time zone.
        budget_limits: the limits of all budgets.
        currency: the currency of the reports.
        usd_rate: the value of one US dollar in that currency.
    """

    tape: TapeHandle
    now: Clock
    zone: tzinfo
    budget_limits: BudgetLimits
    currency: str = "USD"
    usd_rate: float = 1.0

    def period_start(self, period: Period) -> str:
        """Return the first day of the current period; empty for all."""
        today = self.now().astimezone(self.zone).strftime("%Y-%m-%d")
        return {"day": today, "month": f"{today[:7]}-01", "all": ""}[period]

    async def read_spending(self, period: Period, chat: str = "") -> SpendingReport:
        """Sum up the spending of the current period, in one chat or, if `chat` is empty, in all."""
        since, after = self.period_start(period), 0
        if since:
            after = await self.tape.read(PeriodStartView(datetime.fromisoformat(since).replace(tzinfo=self.zone)))
        return await self.tape.read(SpendingView(since, chat, after))

    async def format_limits(self, texts: Texts, scopes: Sequence[tuple[str, str]] | None = None) -> list[str]:
        """Report the used share of the budgets of these scopes; None: of all that have spending."""
        books = await read_projection(BUDGET_PROJECTION, self.tape)
        today = self.period_start("day")
        lines: list[str] = []
        for scope, name in (
            scopes if scopes is not None else dict.fromkeys((key.scope, key.name) for key in books.spent)
        ):
            for period in (today, today[:7]):
                spent = books.spent.get(TotalKey(scope, name, period), ZERO_SPENT)
                for measure, used in ((COST, spent.cost_nanousd / NANOS_PER_USD), (TOKENS, float(spent.tokens))):
                    limit = self.budget_limits.find_limit(scope, name)
                    maximum = limit.limit_for(period, measure) if limit else None
                    if maximum is not None:
                        amounts = [self._format_amount(texts, measure, amount) for amount in (used, maximum)]
                        percent = int(used / maximum * 100) if maximum else 100
                        whose = budget_owner_text(texts, scope, name)
                        lines.append(
                            texts.say(
                                "usage_limit",
                                whose=whose,
                                period=period,
                                used=amounts[0],
                                most=amounts[1],
                                percent=percent,
                            )
                        )
        return lines

    def _format_amount(self, texts: Texts, measure: str, value: float) -> str:
        if measure == TOKENS:
            return texts.say("usage_tokens", tokens=f"{value:,.0f}")
        return self.format_cost(texts, round(value * NANOS_PER_USD))

    def format_cost(self, texts: Texts, cost_nanousd: int) -> str:
        """Format money for people: two decimals, more for small amounts."""
        amount = cost_nanousd / NANOS_PER_USD * self.usd_rate
        number = f"{amount:,.2f}" if amount >= 1 or not cost_nanousd else f"{amount:.6f}".rstrip("0")
        integer, _, decimals = number.partition(".")
        return texts.say("usage_cost", amount=f"{integer}.{decimals:0<2}", currency=self.currency)

    def format_line(self, texts: Texts, name: str, usage: UsageSum) -> str:
        """Format a sum as one line."""
        has_price = usage.unpriced < usage.calls
        first, last = min(usage.reservations), max(usage.reservations)
        return texts.say(
            "usage_line",
            name=name,
            cost=self.format_cost(texts, usage.cost_nanousd) if has_price else texts.say("usage_no_price"),
            calls=usage.calls,
            input=f"{usage.input_tokens:,}",
            cached=f"{usage.cached_tokens:,}",
            output=f"{usage.output_tokens:,}",
            entries=f"#{first}" if first == last else f"#{first} … #{last}",
        )

    def format_report(
        self, texts: Texts, period: Period, spending: SpendingReport, by: Sequence[str], max_rows: int
    ) -> Iterator[str]:
        """Yield the lines of a report.

        Args:
            texts: the language.
            period: the period, for the heading.
            spending: the spending to report.
            by: the groupings, each a table.
            max_rows: rows of one table at most.
        """
        heads = {
            "day": texts.say("usage_day", since=self.period_start("day")),
            "month": texts.say("usage_month", since=self.period_start("month")),
            "all": texts.say("usage_all"),
        }
        yield heads[period]
        total = spending.total
        if not total.calls:
            yield texts.say("usage_none")
            return
        yield self.format_line(texts, texts.say("usage_sum"), total)
        for grouping in by:
            sums = spending.by[grouping]
            if sums:
                yield _heading(texts, grouping)
                yield from (
                    f"  {self.format_line(texts, name, usage)}" for name, usage in list(sums.items())[:max_rows]
                )
                yield from ("  …",) if len(sums) > max_rows else ()
        if total.unpriced:
            yield texts.say("usage_unpriced", calls=total.unpriced)
        if total.estimated:
            yield texts.say("usage_estimated", calls=total.estimated)
        yield texts.say("usage_cites")


def _heading(texts: Texts, grouping: str) -> str:
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


class UsageArgs(ToolArgs):
    """The arguments of `session.usage`."""

    period: Period = Field(default="day", description="day (default), month, or all")


def usage_tool(reporter: UsageReporter) -> Tool:
    """Build `session.usage` for the budget tape."""

    @tool("session.usage", commands=("usage",), for_model=False)
    async def session_usage(turn: Turn, args: UsageArgs) -> str:
        """Say what models were asked here and what that cost; to the owner, in a direct chat, everything."""
        chat = ":".join(turn.session.split(":", 2)[:2])
        everything = turn.has_power_over_other_chats
        spending = await reporter.read_spending(args.period, "" if everything else chat)
        groupings = SPENDING_DIMENSIONS if everything else ("model", "day")
        by = [grouping for grouping in groupings if grouping != "day" or args.period != "day"]
        lines = [*reporter.format_report(turn.texts, args.period, spending, by, MAX_USAGE_ROWS)]
        person = f"{turn.session.partition(':')[0]}:{turn.sender.id}"
        limits = await reporter.format_limits(turn.texts, None if everything else (("chat", chat), ("user", person)))
        return "\n".join([*lines, *([turn.texts.say("usage_limits"), *limits[:MAX_USAGE_ROWS]] if limits else [])])

    return session_usage
