"""The command about what models were asked and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal

from pydantic import Field

from bubbot.budget import COST, TOKENS, BudgetLimits
from bubbot.ports.model import NANO
from bubbot.ports.tool import Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.texts import Texts
from bubbot.views.budget import ZERO_SPENT, BudgetCheckpointView, BudgetStateView, TotalKey, whose_budget
from bubbot.views.spending import BY, PeriodStartView, SpendingReport, SpendingView, UsageSum

Period = Literal["day", "month", "all"]
MAX_USAGE_ROWS = 20
"""Lines of one table at most; the shell shows all."""


@dataclass(frozen=True, slots=True)
class UsageReporter:
    """The budget tape and how to read it: the deployment's time zone, its plan, its currency and what a US dollar is
    in that."""

    tape: TapeHandle
    now: Clock
    zone: tzinfo
    plan: BudgetLimits
    currency: str = "USD"
    dollar: float = 1.0

    def since(self, period: Period) -> str:
        """The first day of the period that runs; empty for all."""
        today = self.now().astimezone(self.zone).strftime("%Y-%m-%d")
        return {"day": today, "month": f"{today[:7]}-01", "all": ""}[period]

    async def spending(self, period: Period, chat: str = "") -> SpendingReport:
        """What was spent in the period that runs, by everybody or in one chat."""
        since, after = self.since(period), 0
        if since:
            after = await self.tape.read(PeriodStartView(datetime.fromisoformat(since).replace(tzinfo=self.zone)))
        return await self.tape.read(SpendingView(since, chat, after))

    async def limits(self, texts: Texts, names: Sequence[tuple[str, str]] | None = None) -> list[str]:
        """How much of the budgets of these scopes is used; None: of all that something was spent of."""
        books, _ = await self.tape.read(BudgetStateView(await self.tape.read(BudgetCheckpointView())))
        today = self.since("day")
        lines: list[str] = []
        for scope, name in names if names is not None else dict.fromkeys((key.scope, key.name) for key in books.spent):
            for period in (today, today[:7]):
                spent = books.spent.get(TotalKey(scope, name, period), ZERO_SPENT)
                for measure, used in ((COST, spent.nano / NANO), (TOKENS, float(spent.tokens))):
                    limit = self.plan.limit(scope, name)
                    most = limit.of(period, measure) if limit else None
                    if most is not None:
                        amounts = [self._amount(texts, measure, one) for one in (used, most)]
                        percent = int(used / most * 100) if most else 100
                        whose = whose_budget(texts, scope, name)
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

    def _amount(self, texts: Texts, measure: str, value: float) -> str:
        if measure == TOKENS:
            return texts.say("usage_tokens", tokens=f"{value:,.0f}")
        return self.cost(texts, round(value * NANO))

    def cost(self, texts: Texts, nano: int) -> str:
        """Money as people read it: two decimals, and more where it is little."""
        amount = nano / NANO * self.dollar
        shown = f"{amount:,.2f}" if amount >= 1 or not nano else f"{amount:.6f}".rstrip("0")
        whole, _, decimals = shown.partition(".")
        return texts.say("usage_cost", amount=f"{whole}.{decimals:0<2}", currency=self.currency)

    def line(self, texts: Texts, name: str, one: UsageSum) -> str:
        """A sum as one line."""
        priced = one.unpriced < one.calls
        first, last = min(one.reservations), max(one.reservations)
        return texts.say(
            "usage_line",
            name=name,
            cost=self.cost(texts, one.nano) if priced else texts.say("usage_no_price"),
            calls=one.calls,
            input=f"{one.input_tokens:,}",
            cached=f"{one.cached_tokens:,}",
            output=f"{one.output_tokens:,}",
            entries=f"#{first}" if first == last else f"#{first} … #{last}",
        )

    def report(
        self, texts: Texts, period: Period, found: SpendingReport, by: Sequence[str], most: int
    ) -> Iterator[str]:
        """The lines of a report."""
        heads = {
            "day": texts.say("usage_day", since=self.since("day")),
            "month": texts.say("usage_month", since=self.since("month")),
            "all": texts.say("usage_all"),
        }
        yield heads[period]
        total = found.total
        if not total.calls:
            yield texts.say("usage_none")
            return
        yield self.line(texts, texts.say("usage_sum"), total)
        for word in by:
            parts = found.by[word]
            if parts:
                yield _head(texts, word)
                yield from (f"  {self.line(texts, name, one)}" for name, one in list(parts.items())[:most])
                yield from ("  …",) if len(parts) > most else ()
        if total.unpriced:
            yield texts.say("usage_unpriced", calls=total.unpriced)
        if total.estimated:
            yield texts.say("usage_estimated", calls=total.estimated)
        yield texts.say("usage_cites")


def _head(texts: Texts, word: str) -> str:
    match word:
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
    """What `session.usage` takes."""

    period: Period = Field(default="day", description="day (where left out), month, or all")


def usage_tool(ledger: UsageReporter) -> Tool:
    """`session.usage` over the budget tape."""

    @tool("session.usage", commands=("usage",), for_model=False)
    async def session_usage(turn: Turn, args: UsageArgs) -> str:
        """Say what models were asked here and what that cost; to the owner, in a direct chat, everything."""
        chat = ":".join(turn.session.split(":", 2)[:2])
        everything = turn.has_power_over_other_chats
        found = await ledger.spending(args.period, "" if everything else chat)
        words = BY if everything else ("model", "day")
        by = [word for word in words if word != "day" or args.period != "day"]
        lines = [*ledger.report(turn.texts, args.period, found, by, MAX_USAGE_ROWS)]
        person = f"{turn.session.partition(':')[0]}:{turn.sender.id}"
        limits = await ledger.limits(turn.texts, None if everything else (("chat", chat), ("user", person)))
        return "\n".join([*lines, *([turn.texts.say("usage_limits"), *limits[:MAX_USAGE_ROWS]] if limits else [])])

    return session_usage
