"""Reports of budgets: the used share of each limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from bubbot.features.budget.budget import BudgetLimits
from bubbot.features.budget.state import BUDGET_PROJECTION
from bubbot.ports.usage import BudgetUsage, Currency, TotalKey
from bubbot.tape.projection import read_combined_projection
from bubbot.tape.service import TapeService


class LimitReporter(Struct, frozen=True):
    """Reports the limits of budgets from the budget tape. See `ReportsLimits`.

    Attributes:
        tape: the budget tape.
        limits: the limits of all budgets.
        today: returns the day, `2026-11-22`, in the deployment's time zone.
        currency: the currency of the reports.
    """

    tape: TapeService
    limits: BudgetLimits
    today: Callable[[], str]
    currency: Currency = field(default_factory=Currency)

    async def read_limits(self, scopes: Sequence[tuple[str, str]] | None = None) -> list[BudgetUsage]:
        """Return the limits of these scopes, today's and this month's; None: of all that have spending."""
        state, today = await read_combined_projection(BUDGET_PROJECTION, self.tape.shards()), self.today()
        if scopes is None:
            scopes = list(dict.fromkeys((key.scope, key.name) for key, _ in state.totals()))
        keys = [TotalKey(*scope, period) for scope in scopes for period in (today, today[:7])]
        usages = [usage for key in keys for usage in self.limits.list_usages(key, state.find_spent(key))]
        return [usage for usage in usages if usage.most is not None]

    def find_cost_limit(self, scope: str, name: str, period: str) -> float | None:
        """Return the limit in US dollars for a day or month, as in `TotalKey`; None if there is none."""
        return self.limits.find_cost_limit(scope, name, period)
