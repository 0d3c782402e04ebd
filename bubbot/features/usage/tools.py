"""The command that reports model calls and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from pydantic import Field

from bubbot.features.usage.spending import (
    SPENDING_DIMENSIONS,
    PeriodStartView,
    SpendingReport,
    SpendingView,
    UsageSum,
    combine_reports,
)
from bubbot.ports.tool import CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.ports.usage import BUDGET_TAPE, Currency
from bubbot.records import dataclass
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

Period = Literal["day", "month", "all"]
MAX_USAGE_ROWS = 20
"""Rows of one table at most; the shell shows all."""


class ReportLimits(Protocol):
    """Reports the used shares of budgets."""

    async def __call__(self, texts: Texts, scopes: Sequence[tuple[str, str]] | None = None) -> list[str]:
        """Return a line for each limit of these scopes; None: of all that have spending."""
        ...


async def report_no_limits(texts: Texts, scopes: Sequence[tuple[str, str]] | None = None) -> list[str]:
    """Report nothing, for bots without budgets."""
    return []


@dataclass(frozen=True, slots=True)
class UsageReporter:
    """A reader of the budget tape.

    Attributes:
        tape: the budget tape.
        now: the clock.
        zone: the deployment's time zone.
        report_limits: reports the used shares of budgets; by scope and name, or of all that have spending.
        currency: the currency of the reports.
    """

    tape: TapeService
    now: Clock
    zone: tzinfo
    report_limits: ReportLimits = report_no_limits
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
                after = await shard.read(PeriodStartView(datetime.fromisoformat(since).replace(tzinfo=self.zone)))
            reports.append(await shard.read(SpendingView(shard.name, since, chat, after)))
        return combine_reports(reports)

    def format_line(self, texts: Texts, name: str, usage: UsageSum) -> str:
        """Format a sum as one line."""
        has_price = usage.unpriced < usage.calls
        return texts.say(
            "usage_line",
            name=name,
            cost=self.currency.format_cost(texts, usage.cost_nanousd) if has_price else texts.say("usage_no_price"),
            calls=usage.calls,
            input=f"{usage.input_tokens:,}",
            cached=f"{usage.cached_tokens:,}",
            output=f"{usage.output_tokens:,}",
            entries=", ".join(_format_ids(tape, ids) for tape, ids in usage.reservations.items()),
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


def _format_ids(tape: str, ids: Sequence[int]) -> str:
    """Cite entries: `#3 … #9`; on a shard `/0#3 … /0#9`, the end of its name before the id."""
    shard, first, last = tape.removeprefix(BUDGET_TAPE), min(ids), max(ids)
    return f"{shard}#{first}" if first == last else f"{shard}#{first} … {shard}#{last}"


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

    @tool(
        "session.usage",
        commands=("usage",),
        for_model=False,
        help=CommandHelp(HelpTopic.HISTORY, "What answers cost", (",usage", ",usage month")),
    )
    async def session_usage(turn: Turn, args: UsageArgs) -> str:
        """Say what models were asked here and what that cost; to the owner, in a direct chat, everything."""
        chat = ":".join(turn.session.split(":", 2)[:2])
        everything = turn.has_power_over_other_chats
        spending = await reporter.read_spending(args.period, "" if everything else chat)
        groupings = SPENDING_DIMENSIONS if everything else ("model", "day")
        by = [grouping for grouping in groupings if grouping != "day" or args.period != "day"]
        lines = [*reporter.format_report(turn.texts, args.period, spending, by, MAX_USAGE_ROWS)]
        person = f"{turn.session.partition(':')[0]}:{turn.sender.id}"
        limits = await reporter.report_limits(turn.texts, None if everything else (("chat", chat), ("user", person)))
        return "\n".join([*lines, *([turn.texts.say("usage_limits"), *limits[:MAX_USAGE_ROWS]] if limits else [])])

    return session_usage
