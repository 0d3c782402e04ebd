"""Budgets, rates and places, made from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from bubbot.budget import Budget, BudgetLimits, SpendingLimit
from bubbot.errors import ConfigError
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.owner import OwnerChat
from bubbot.models.litellm import sizes
from bubbot.ports.channel import Outbound
from bubbot.ports.model import ModelPrice
from bubbot.rates import MessageRate, RateLimiter
from bubbot.runtime.metering import RateGate
from bubbot.settings.budget import BudgetSettings, LimitSettings, ModelLimitSettings, PersonLimitSettings
from bubbot.settings.loader import Settings
from bubbot.tape.handle import TapeHandle
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.tools.usage import UsageReporter
from bubbot.views.budget import BUDGET_TAPE
from bubbot.wiring.channel_factory import Deps

FREE = ModelPrice(0.0, 0.0)
ANSWER_TOKENS = 4096
"""What an answer is reckoned at before it is there, at most, where nothing limits it."""
LOUD = frozenset({"stdin"})
"""Channels on which every message that is refused is told so: whoever runs a command waits for what it prints."""


@dataclass(frozen=True, slots=True)
class BudgetServices:
    """What a bot keeps of budgets: the budget itself, what `,usage` reads, the pace of messages, and the budget tape."""

    budget: Budget
    ledger: UsageReporter
    pace: RateGate
    books: TapeHandle
    given: Deps


async def open_purse(
    settings: Settings,
    tape: Callable[[str], TapeService],
    given: Deps,
    lines: Mapping[str, ChannelRuntime],
    texts: Texts,
) -> BudgetServices:
    """Reads the books and settles what an earlier process left open. Raises `ConfigError`."""
    zone, tell = ZoneInfo(settings.bot.timezone), OwnerChat(lines, BUDGET_TAPE)
    plan, books = plan_of(settings), tape(BUDGET_TAPE)
    budget = Budget(books, plan, now=given.now, new_id=given.new_id, zone=zone, texts=texts, tell=tell)
    await budget.load()

    async def say(channel: str, outbound: Outbound) -> None:
        await lines[channel].deliverer.tell(outbound)

    pace = RateGate(await _loaded(settings, books, given), texts, say)
    return BudgetServices(budget, ledger_of(settings, books, given, plan), pace, books, given)


def renewed(purse: BudgetServices, settings: Settings, rates: RateLimiter | None) -> BudgetServices:
    """The same books under other settings; calls under way stay reserved. Raises `ConfigError`."""
    purse.budget.plan = plan = plan_of(settings)
    purse.pace.rates = rates
    return replace(purse, ledger=ledger_of(settings, purse.books, purse.given, plan))


async def rates_of(settings: Settings, purse: BudgetServices) -> RateLimiter:
    """How often people and chats may ask by these settings, with what they asked already."""
    return await _loaded(settings, purse.books, purse.given)


async def _loaded(settings: Settings, books: TapeHandle, given: Deps) -> RateLimiter:
    rates = RateLimiter(_rates(settings.budget), given.now, ZoneInfo(settings.bot.timezone), LOUD)
    await rates.load(books)
    return rates


def ledger_of(settings: Settings, tape: TapeHandle, given: Deps, plan: BudgetLimits) -> UsageReporter:
    """What reads the budget tape for people."""
    found = settings.budget
    return UsageReporter(tape, given.now, ZoneInfo(settings.bot.timezone), plan, found.currency, found.dollar or 1.0)


def plan_of(settings: Settings) -> BudgetLimits:
    """What was agreed, with amounts in US dollars. Raises `ConfigError`."""
    found = settings.budget
    if found.currency != "USD" and found.dollar is None:
        raise ConfigError(
            f"[budget] currency is {found.currency!r}, and dollar is not set: providers' prices are in US dollars; "
            f"set dollar to what one US dollar is in {found.currency}, such as 0.9."
        )
    for name in found.models:
        _check_prices(name, found.models[name])
    dollar = found.dollar or 1.0
    limits = {("bot", ""): _limit(found, dollar)}
    tables: dict[str, Mapping[str, LimitSettings]] = {
        "channel": found.channels,
        "chat": found.chats,
        "user": found.users,
        "job": found.jobs,
        "model": found.models,
    }
    limits |= {(scope, name): _limit(one, dollar) for scope, table in tables.items() for name, one in table.items()}
    memo: dict[str, ModelPrice | None] = {}

    def listed(name: str) -> ModelPrice | None:
        if name not in memo:  # a look into a file
            memo[name] = sizes.price(name, own_address=_own_address(settings, name))
        return memo[name]

    def answering(name: str) -> tuple[str, ...]:
        return (name, *settings.model.fallback) if "/" in name else (name,)

    return BudgetLimits(
        limits,
        lambda name: _decided(found, name, dollar),
        listed,
        _answers(settings),
        found.warn_at,
        LOUD,
        answering,
    )


def _limit(found: LimitSettings, dollar: float) -> SpendingLimit:
    day, month = (None if one is None else one / dollar for one in (found.day, found.month))
    return SpendingLimit(day, month, found.tokens_day, found.tokens_month)


def _rates(found: BudgetSettings) -> dict[tuple[str, str], MessageRate]:
    tables: dict[str, Mapping[str, PersonLimitSettings]] = {"user": found.users, "chat": found.chats}
    return {
        (scope, name): MessageRate(one.per_minute, one.per_hour)
        for scope, table in tables.items()
        for name, one in table.items()
        if one.per_minute is not None or one.per_hour is not None
    }


def _check_prices(name: str, found: ModelLimitSettings) -> None:
    both = (found.input_price is None) == (found.output_price is None)
    if not both or (found.cached_price is not None and found.input_price is None):
        raise ConfigError(
            f'[budget.models."{name}"] has a price for a part of its tokens only: set input_price and output_price, '
            "or neither of the three."
        )


def _decided(settings: BudgetSettings, name: str, dollar: float) -> ModelPrice | None:
    """The price that was set for a model; that of this machine costs nothing."""
    for found in (settings.models.get(name), settings.models.get("each")):
        if found is not None and found.input_price is not None and found.output_price is not None:
            cached = None if found.cached_price is None else found.cached_price / dollar
            return ModelPrice(found.input_price / dollar, found.output_price / dollar, cached)
    return FREE if name == "local" else None


def _own_address(settings: Settings, name: str) -> bool:
    """Whether `api_base` sends calls of this model to an address of ours."""
    return bool(settings.model.api_base) and name.partition("/")[0] == settings.model.provider


def _answers(settings: Settings) -> Callable[[str], int]:
    memo: dict[str, int] = {}

    def answer(name: str) -> int:
        given = settings.budget.answer_tokens or settings.model.max_tokens
        if given:
            return given
        if name not in memo:
            memo[name] = min(sizes.longest_answer(name) or ANSWER_TOKENS, ANSWER_TOKENS)
        return memo[name]

    return answer
