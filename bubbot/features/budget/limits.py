"""The limits, prices and rates that the settings give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from bubbot.errors import ConfigError
from bubbot.features.budget.budget import BudgetLimits, SpendingLimit
from bubbot.features.budget.settings import BudgetSettings, LimitSettings, ModelLimitSettings, PersonLimitSettings
from bubbot.ports.model import ModelPrice

FREE = ModelPrice(0.0, 0.0)
DEFAULT_ANSWER_TOKENS = 4096
"""Tokens to reserve for an answer if nothing limits it."""
ALWAYS_NOTIFY = frozenset({"stdin"})
"""Channels on which every rejected message is answered: whoever runs a command waits for its output."""


class ModelFacts(Struct, frozen=True):
    """What budgets need to know of the configured models.

    Attributes:
        listed_price: the price of a model in a price list; None if unknown. It may read a file.
        output_limit: the most tokens of an answer of a model; None if unknown.
        fallback: the models that answer if the first one cannot.
        max_tokens: the configured limit of an answer; None if there is none.
        name: the model of the deployment.
        agents: the limits of agents by name, as `[agents.NAME]` has them.
    """

    listed_price: Callable[[str], ModelPrice | None] = lambda _: None
    output_limit: Callable[[str], int | None] = lambda _: None
    fallback: Sequence[str] = ()
    max_tokens: int | None = None
    name: str = ""
    agents: Mapping[str, LimitSettings] = field(default_factory=dict)


def budget_limits(
    budget: BudgetSettings, models: ModelFacts, current_session: Callable[[str], str] = lambda session: session
) -> BudgetLimits:
    """Return the budget limits, with amounts in US dollars. Raise `ConfigError` for bad settings.

    Args:
        budget: the settings.
        models: facts about the configured models.
        current_session: see `BudgetLimits`.
    """
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
        "agent": models.agents,
        "model": budget.models,
    }
    limits |= {
        (scope, name): _limit(entry, usd_rate) for scope, table in tables.items() for name, entry in table.items()
    }
    if set(limits.values()) == {SpendingLimit()}:
        limits = {}  # each call asks for the limits of all its totals
    prices: dict[str, ModelPrice | None] = {}

    def list_price(name: str) -> ModelPrice | None:
        if name not in prices:
            prices[name] = models.listed_price(name)
        return prices[name]

    def models_asked(name: str) -> tuple[str, ...]:
        return (name, *models.fallback) if "/" in name else (name,)

    return BudgetLimits(
        limits,
        lambda name: _configured_price(budget, name, usd_rate),
        list_price,
        _reserved_tokens(budget, models),
        budget.warn_at,
        ALWAYS_NOTIFY,
        models_asked,
        current_session,
    )


def message_rates(settings: BudgetSettings) -> dict[tuple[str, str], PersonLimitSettings]:
    """Return the rates of people and chats, by scope and name."""
    tables: dict[str, Mapping[str, PersonLimitSettings]] = {"user": settings.users, "chat": settings.chats}
    return {
        (scope, name): limits
        for scope, table in tables.items()
        for name, limits in table.items()
        if limits.per_minute is not None or limits.per_hour is not None
    }


def _limit(settings: LimitSettings, usd_rate: float) -> SpendingLimit:
    day, month = (None if amount is None else amount / usd_rate for amount in (settings.day, settings.month))
    return SpendingLimit(day, month, settings.tokens_day, settings.tokens_month)


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


def _reserved_tokens(budget: BudgetSettings, models: ModelFacts) -> Callable[[str], int]:
    cache: dict[str, int] = {}

    def answer_tokens(name: str) -> int:
        configured = budget.reserved_output_tokens or models.max_tokens
        if configured:
            return configured
        if name not in cache:
            cache[name] = min(models.output_limit(name) or DEFAULT_ANSWER_TOKENS, DEFAULT_ANSWER_TOKENS)
        return cache[name]

    return answer_tokens
