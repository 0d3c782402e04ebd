"""Build budgets and rate limits from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from bubbot.errors import ConfigError
from bubbot.features.budget.budget import Budget, BudgetLimits, SpendingLimit
from bubbot.features.budget.rates import MessageRate, RateLimiter
from bubbot.features.budget.state import BUDGET_TAPE
from bubbot.features.usage.tools import UsageReporter
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.owner import OwnerChat
from bubbot.models.litellm import sizes
from bubbot.ports.channel import Outbound
from bubbot.ports.model import ModelPrice
from bubbot.runtime.metering import RateGate
from bubbot.settings.budget import BudgetSettings, LimitSettings, ModelLimitSettings, PersonLimitSettings
from bubbot.settings.loader import Settings
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.wiring.channel_factory import Deps

FREE = ModelPrice(0.0, 0.0)
DEFAULT_ANSWER_TOKENS = 4096
"""Tokens to reserve for an answer if nothing limits it."""
ALWAYS_NOTIFY = frozenset({"stdin"})
"""Channels on which every rejected message is answered: whoever runs a command waits for its output."""


@dataclass(frozen=True, slots=True)
class BudgetServices:
    """The budgets of a bot.

    Attributes:
        budget: reserves and settles the cost of calls.
        usage_reporter: what `,usage` reads.
        rate_gate: limits the rate of messages.
        tape: the budget tape.
        deps: clock and ids.
        projections: the states that follow from the tapes.
    """

    budget: Budget
    usage_reporter: UsageReporter
    rate_gate: RateGate
    tape: TapeHandle
    deps: Deps
    projections: ProjectionRunner


async def open_budget(
    settings: Settings,
    tape: Callable[[str], TapeService],
    deps: Deps,
    channel_runtimes: Mapping[str, ChannelRuntime],
    texts: Texts,
    *,
    projections: ProjectionRunner,
) -> BudgetServices:
    """Read the budget tape and settle calls that an earlier process left open. Raise `ConfigError` for bad settings."""
    zone, tell = ZoneInfo(settings.bot.timezone), OwnerChat(channel_runtimes, BUDGET_TAPE)
    plan, books = budget_limits(settings), tape(BUDGET_TAPE)
    budget = Budget(
        books,
        plan,
        now=deps.now,
        new_id=deps.new_id,
        zone=zone,
        texts=texts,
        notify_owner=tell,
        projections=projections,
    )
    await budget.load()

    async def say(channel: str, outbound: Outbound) -> None:
        await channel_runtimes[channel].deliverer.notify(outbound)

    pace = RateGate(await _load_rates(settings, books, deps, projections), texts, say)
    reporter = make_usage_reporter(settings, books, deps, plan)
    return BudgetServices(budget, reporter, pace, books, deps, projections)


def renew_budget(services: BudgetServices, settings: Settings, rates: RateLimiter | None) -> BudgetServices:
    """Return the same budgets under other settings; calls under way stay reserved. Raise `ConfigError` for bad ones."""
    services.budget.limits = plan = budget_limits(settings)
    services.rate_gate.rates = rates
    return replace(services, usage_reporter=make_usage_reporter(settings, services.tape, services.deps, plan))


async def load_rate_limits(settings: Settings, services: BudgetServices) -> RateLimiter:
    """Return the rate limits of people and chats by these settings, with their messages so far."""
    return await _load_rates(settings, services.tape, services.deps, services.projections)


async def _load_rates(settings: Settings, tape: TapeHandle, deps: Deps, projections: ProjectionRunner) -> RateLimiter:
    rates = RateLimiter(_rates(settings.budget), deps.now, ZoneInfo(settings.bot.timezone), ALWAYS_NOTIFY)
    await rates.load(tape, projections)
    return rates


def make_usage_reporter(settings: Settings, tape: TapeHandle, deps: Deps, limits: BudgetLimits) -> UsageReporter:
    """Return the reporter that reads the budget tape for people."""
    budget = settings.budget
    return UsageReporter(
        tape, deps.now, ZoneInfo(settings.bot.timezone), limits, budget.currency, budget.usd_rate or 1.0
    )


def budget_limits(settings: Settings) -> BudgetLimits:
    """Return the budget limits, with amounts in US dollars. Raise `ConfigError` for bad settings."""
    budget = settings.budget
    if budget.currency != "USD" and budget.usd_rate is None:
        raise ConfigError(
            f"[budget] currency is {budget.currency!r}, and usd_rate is not set: providers' prices are in US dollars; "
            f"set usd_rate to what one US dollar is in {budget.currency}, such as 0.9."
        )
    for name in budget.models:
        _check_prices(name, budget.models[name])
    usd_rate = budget.usd_rate or 1.0
    limits = {("bot", ""): _limit(budget, usd_rate)}
    tables: dict[str, Mapping[str, LimitSettings]] = {
        "channel": budget.channels,
        "chat": budget.chats,
        "user": budget.users,
        "job": budget.jobs,
        "model": budget.models,
    }
    limits |= {
        (scope, name): _limit(entry, usd_rate) for scope, table in tables.items() for name, entry in table.items()
    }
    prices: dict[str, ModelPrice | None] = {}

    def list_price(name: str) -> ModelPrice | None:
        if name not in prices:  # reads a file
            prices[name] = sizes.find_price(name, own_address=_has_own_address(settings, name))
        return prices[name]

    def models_asked(name: str) -> tuple[str, ...]:
        return (name, *settings.model.fallback) if "/" in name else (name,)

    return BudgetLimits(
        limits,
        lambda name: _configured_price(budget, name, usd_rate),
        list_price,
        _reserved_tokens(settings),
        budget.warn_at,
        ALWAYS_NOTIFY,
        models_asked,
    )


def _limit(settings: LimitSettings, usd_rate: float) -> SpendingLimit:
    day, month = (None if amount is None else amount / usd_rate for amount in (settings.day, settings.month))
    return SpendingLimit(day, month, settings.tokens_day, settings.tokens_month)


def _rates(settings: BudgetSettings) -> dict[tuple[str, str], MessageRate]:
    tables: dict[str, Mapping[str, PersonLimitSettings]] = {"user": settings.users, "chat": settings.chats}
    return {
        (scope, name): MessageRate(limits.per_minute, limits.per_hour)
        for scope, table in tables.items()
        for name, limits in table.items()
        if limits.per_minute is not None or limits.per_hour is not None
    }


def _check_prices(name: str, settings: ModelLimitSettings) -> None:
    is_complete = (settings.input_price is None) == (settings.output_price is None)
    if not is_complete or (settings.cached_price is not None and settings.input_price is None):
        raise ConfigError(
            f'[budget.models."{name}"] has a price for a part of its tokens only: set input_price and output_price, '
            "or neither of the three."
        )


def _configured_price(settings: BudgetSettings, name: str, usd_rate: float) -> ModelPrice | None:
    """Return the configured price of a model; a model on this machine is free."""
    for prices in (settings.models.get(name), settings.models.get("each")):
        if prices is not None and prices.input_price is not None and prices.output_price is not None:
            cached_price = None if prices.cached_price is None else prices.cached_price / usd_rate
            return ModelPrice(prices.input_price / usd_rate, prices.output_price / usd_rate, cached_price)
    return FREE if name == "local" else None


def _has_own_address(settings: Settings, name: str) -> bool:
    """Return true if `api_base` sends calls of this model to an address of ours."""
    return bool(settings.model.api_base) and name.partition("/")[0] == settings.model.provider


def _reserved_tokens(settings: Settings) -> Callable[[str], int]:
    cache: dict[str, int] = {}

    def answer_tokens(name: str) -> int:
        configured = settings.budget.reserved_output_tokens or settings.model.max_tokens
        if configured:
            return configured
        if name not in cache:
            cache[name] = min(sizes.find_output_limit(name) or DEFAULT_ANSWER_TOKENS, DEFAULT_ANSWER_TOKENS)
        return cache[name]

    return answer_tokens
