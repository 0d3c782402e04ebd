"""Reports of budgets: the used share of each limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.features.budget.budget import BudgetLimits
from bubbot.features.budget.state import BUDGET_PROJECTION
from bubbot.gateway.names import NO_NAMES, NameBook
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.usage import COST, TOKENS, Currency, TotalKey, budget_owner_text
from bubbot.records import dataclass
from bubbot.tape.projection import read_combined_projection
from bubbot.tape.service import TapeService
from bubbot.texts import Texts


@dataclass(frozen=True, slots=True)
class LimitReporter:
    """Reports the limits of budgets from the budget tape.

    Attributes:
        tape: the budget tape.
        limits: the limits of all budgets.
        today: returns the day, `2026-11-22`, in the deployment's time zone.
        currency: the currency of the reports.
    """

    tape: TapeService
    limits: BudgetLimits
    today: Callable[[], str]
    currency: Currency = Currency()

    async def report_limits(
        self, texts: Texts, scopes: Sequence[tuple[str, str]] | None = None, names: NameBook = NO_NAMES
    ) -> list[str]:
        """Report the used share of the budgets of these scopes; None: of all that have spending."""
        books = await read_combined_projection(BUDGET_PROJECTION, self.tape.shards())
        today = self.today()
        lines: list[str] = []
        for scope, name in (
            scopes if scopes is not None else dict.fromkeys((key.scope, key.name) for key, _ in books.totals())
        ):
            limit = self.limits.find_limit(scope, name)
            for period in (today, today[:7]):
                spent = books.find_spent(TotalKey(scope, name, period))
                for measure, used in ((COST, spent.cost_nanousd / NANOS_PER_USD), (TOKENS, float(spent.tokens))):
                    maximum = limit.limit_for(period, measure) if limit else None
                    if maximum is None:
                        continue
                    whose, percent = (
                        budget_owner_text(texts, scope, names.find_owner(scope, name)),
                        int(used / maximum * 100) if maximum else 100,
                    )
                    amounts = [self._format_amount(texts, measure, amount) for amount in (used, maximum)]
                    lines.append(
                        texts.say(
                            "usage_limit", whose=whose, period=period, used=amounts[0], most=amounts[1], percent=percent
                        )
                    )
        return lines

    def _format_amount(self, texts: Texts, measure: str, value: float) -> str:
        if measure == TOKENS:
            return texts.say("usage_tokens", tokens=texts.format_number(f"{value:,.0f}"))
        return self.currency.format_cost(texts, round(value * NANOS_PER_USD))
