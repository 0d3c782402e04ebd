"""What budgets report of their health: what was spent, and the models that fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from bubbot.features.budget.budget import BudgetLimits
from bubbot.ports.health import BudgetUsage, ModelOutage
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.usage import BOT_SCOPE, COST, TOKENS, ZERO_SPENT, FailingModel, SpentTotal, TotalKey

MAX_NEAR_BUDGETS = 5
"""Budgets near their limit to report, besides that of the whole bot."""


def failing_models(
    failing: Mapping[str, FailingModel], configured: Collection[str], at: str
) -> tuple[ModelOutage, ...]:
    """Return the models that do not answer, if that still matters at `at`.

    A model that no setting names (`configured`) any more counts for a day after it was last asked: somebody may have left it.
    """
    day_ago = (datetime.fromisoformat(at) - timedelta(days=1)).astimezone(UTC)
    return tuple(
        ModelOutage(*model)
        for name, model in sorted(failing.items())
        if name in configured or datetime.fromisoformat(model.newest) > day_ago
    )


def budget_usage(
    spent: Mapping[TotalKey, SpentTotal], limits: BudgetLimits, today: str, usd_rate: float = 1.0
) -> tuple[BudgetUsage, ...]:
    """Return what the whole bot has spent today and this month, and other budgets that are nearly used up.

    Args:
        spent: the totals.
        limits: the limits.
        today: `2026-11-22`.
        usd_rate: the price of a US dollar in the currency of `[budget]`.
    """
    bot = [
        usage
        for period in (today, today[:7])
        for usage in _used(spent, limits, TotalKey(BOT_SCOPE, "", period), usd_rate)
    ]
    others = [
        usage
        for key in spent
        if key.scope != BOT_SCOPE and key.period in (today, today[:7])
        for usage in _used(spent, limits, key, usd_rate)
        if usage.most is not None and usage.used >= limits.warn_at * usage.most
    ]
    near = sorted(others, key=lambda usage: usage.used / usage.most if usage.most else 1.0, reverse=True)
    return (*bot, *near[:MAX_NEAR_BUDGETS])


def _used(
    spent: Mapping[TotalKey, SpentTotal], plan: BudgetLimits, key: TotalKey, dollar: float
) -> Iterator[BudgetUsage]:
    total, limit = spent.get(key, ZERO_SPENT), plan.find_limit(key.scope, key.name)
    for measure, used, unit in ((COST, total.cost_nanousd / NANOS_PER_USD, dollar), (TOKENS, float(total.tokens), 1.0)):
        ceiling = limit.limit_for(key.period, measure) if limit else None
        yield BudgetUsage(*key, measure, used * unit, None if ceiling is None else float(ceiling * unit))
