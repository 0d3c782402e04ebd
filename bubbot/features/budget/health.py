"""What budgets report of their health: what was spent, and the models that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import asdict, replace

from bubbot.features.budget.budget import BudgetLimits
from bubbot.features.budget.limits import ModelFacts, budget_limits
from bubbot.features.budget.outages import ModelOutage, explain_outage
from bubbot.features.budget.settings import BudgetSettings
from bubbot.features.budget.state import BUDGET_PROJECTION
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow, MetricSample, MetricSpec
from bubbot.ports.usage import (
    BOT_SCOPE,
    BUDGET_TAPE,
    COST,
    TOKENS,
    ZERO_SPENT,
    BudgetUsage,
    Currency,
    SpentTotal,
    TotalKey,
    budget_owner_text,
)
from bubbot.tape.projection import read_combined_projection

MAX_NEAR_BUDGETS = 5
"""Budgets near their limit to report, besides that of the whole bot."""
_SPENT, _LIMIT = "bubbot_budget_spent", "bubbot_budget_limit"
BUDGET_METRICS = (
    MetricSpec(_SPENT, "What the whole bot has spent, by day and month.", labels=("period", "measure")),
    MetricSpec(_LIMIT, "What it may spend; missing where nothing limits it.", labels=("period", "measure")),
)


def budget_health(
    context: HealthContext, usages: Sequence[BudgetUsage], outages: Sequence[ModelOutage], currency: Currency
) -> FeatureHealth:
    """Report what was spent, and the models that do not answer.

    Args:
        context: what the report goes by.
        usages: see `budget_usage`.
        outages: see `model_outages`.
        currency: the currency of the amounts.
    """
    say, rows = context.texts.say, []
    if outages:
        lines = tuple(_describe_outage(context, outage) for outage in outages)
        rows.append(HealthRow(say("st_models"), lines, in_groups=True, is_trouble=True))
    if usages:
        rows.append(HealthRow(say("st_budget"), tuple(_describe_usages(context, usages, currency))))
    return FeatureHealth(
        name="budget",
        trouble="; ".join(_describe_trouble(context, outage) for outage in outages),
        rows=tuple(rows),
        basis={"currency": currency.name},
        data={"budget": [asdict(usage) for usage in usages]},
        faults={"failing": [asdict(outage) for outage in outages]},
        samples=tuple(_sample_usages(usages)),
    )


def budget_readiness(context: HealthContext, outages: Sequence[ModelOutage]) -> dict[str, Any]:
    """Return the models that do not answer, for `/ready`."""
    models = {
        outage.name: {"since": outage.since, "asked": outage.newest, "why": explain_outage(context.texts, outage)}
        for outage in outages
    }
    return {"models": models} if models else {}


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report the same from the tape, if no bot runs."""
    settings: tuple[BudgetSettings, ModelFacts] = home.settings
    currency = budget_currency(settings[0])
    if not home.has_tapes:
        return budget_health(context, (), (), currency)
    async with home.open_tape(BUDGET_TAPE) as tape:
        state = await read_combined_projection(BUDGET_PROJECTION, tape.shards())
    today = home.now().astimezone(ZoneInfo(context.zone)).strftime("%Y-%m-%d")
    usages = budget_usage(dict(state.totals()), budget_limits(*settings), today, currency.usd_rate)
    return budget_health(context, usages, model_outages(state.failing, state.answered, *settings, context.at), currency)


def budget_currency(settings: BudgetSettings) -> Currency:
    """Return the currency of reports."""
    return Currency(settings.currency, settings.usd_rate or 1.0)


def model_outages(
    failing: Mapping[str, ModelOutage],
    answered: Mapping[str, str],
    budget: BudgetSettings,
    models: ModelFacts,
    at: str,
) -> tuple[ModelOutage, ...]:
    """Return the models that do not answer, if that still matters.

    A model that no setting names counts until one of the settings answers, a day after it was last asked at most: it may
    have been exchanged, or a chat has chosen it.

    Args:
        failing: the models whose newest calls failed.
        answered: when each model last answered, ISO 8601.
        budget: the settings of budgets.
        models: facts about the configured models.
        at: the current time, ISO 8601.
    """
    configured = {models.name, *models.fallback, *budget.fallback_models}
    dates = [datetime.fromisoformat(answered[name]) for name in configured if name in answered]
    oldest = max([(datetime.fromisoformat(at) - timedelta(days=1)).astimezone(UTC), *dates])
    return tuple(
        model
        for name, model in sorted(failing.items())
        if name in configured or datetime.fromisoformat(model.newest) > oldest
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

    def list_usages(key: TotalKey) -> list[BudgetUsage]:
        usages = limits.list_usages(key, spent.get(key, ZERO_SPENT))
        return [_convert(usage, usd_rate if usage.measure == COST else 1.0) for usage in usages]

    bot = [usage for period in (today, today[:7]) for usage in list_usages(TotalKey(BOT_SCOPE, "", period))]
    others = [
        usage
        for key in spent
        if key.scope != BOT_SCOPE and key.period in (today, today[:7])
        for usage in list_usages(key)
        if usage.most is not None and usage.used >= limits.warn_at * usage.most
    ]
    near = sorted(others, key=lambda usage: usage.used / usage.most if usage.most else 1.0, reverse=True)
    return (*bot, *near[:MAX_NEAR_BUDGETS])


def _convert(usage: BudgetUsage, rate: float) -> BudgetUsage:
    most = None if usage.most is None else float(usage.most * rate)
    return replace(usage, used=usage.used * rate, most=most)


def _describe_usages(context: HealthContext, usages: Sequence[BudgetUsage], currency: Currency) -> Iterator[str]:
    """Yield a line for each budget and period: what was spent in money and in tokens."""
    texts = context.texts
    names = {"chat": context.chats, "user": context.people}
    say, by_budget = texts.say, dict[tuple[str, str, bool], list[str]]()

    def amount(usage: BudgetUsage, value: float) -> str:
        if usage.measure == TOKENS:
            return say("usage_tokens", tokens=texts.format_number(f"{value:,.0f}"))
        return currency.format_amount(texts, value)

    for usage in usages:
        used = amount(usage, usage.used)
        limit = usage.most is not None
        limited = say("st_limited", used=used, most=amount(usage, usage.most or 0.0)) if limit else ""
        by_budget.setdefault((usage.scope, usage.name, usage.is_monthly), []).append(
            limited or say("st_unlimited", used=used)
        )
    for (scope, name, monthly), amounts in by_budget.items():
        shown = names.get(scope, {}).get(name, name)
        whose, period = budget_owner_text(texts, scope, shown), say("st_month") if monthly else say("st_today")
        yield say("st_budget_is", whose=whose, period=period, amounts=say("st_and").join(amounts))


def _sample_usages(usages: Sequence[BudgetUsage]) -> Iterator[MetricSample]:
    for usage in usages:
        if usage.scope == BOT_SCOPE:  # the others are people and chats
            labels = ("month" if usage.is_monthly else "day", usage.measure)
            yield MetricSample(_SPENT, usage.used, labels)
            if usage.most is not None:
                yield MetricSample(_LIMIT, usage.most, labels)


def _describe_trouble(context: HealthContext, outage: ModelOutage) -> str:
    since = context.format_time(outage.since)
    why = explain_outage(context.texts, outage)
    return context.texts.say("verdict_outage", name=outage.name, since=since, why=why)


def _describe_outage(context: HealthContext, outage: ModelOutage) -> str:
    return context.texts.say(
        "st_failing_is",
        name=outage.name,
        since=context.format_time(outage.since),
        why=explain_outage(context.texts, outage),
        newest=context.format_time(outage.newest),
    )
