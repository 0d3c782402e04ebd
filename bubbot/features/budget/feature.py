"""The feature: budgets around every model call, rates before every turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bubbot.feature import Apply, Around, Feature, FindModel, Kernel, Lifecycle
from bubbot.features.budget.budget import Budget, NotifyOwner
from bubbot.features.budget.health import (
    BUDGET_METRICS,
    budget_currency,
    budget_health,
    budget_readiness,
    budget_usage,
    model_outages,
)
from bubbot.features.budget.limits import ALWAYS_NOTIFY, ModelFacts, budget_limits, message_rates
from bubbot.features.budget.metering import BudgetFallbackModel, BudgetMeter, RateGate
from bubbot.features.budget.outages import ModelOutage
from bubbot.features.budget.rates import RateLimiter
from bubbot.features.budget.report import LimitReporter
from bubbot.features.budget.settings import BudgetSettings
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.ports.model import Model
from bubbot.ports.usage import BUDGET_TAPE, CountedCall
from bubbot.settings.loader import Settings


class BudgetFeature:
    """The budgets of a bot.

    Attributes:
        budget: reserves and settles the cost of calls.
        meter: counts calls, and reserves them if anything is limited.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        *,
        find_models: Callable[[Settings], ModelFacts],
        load_model: Callable[[str], Model],
        notify_owner: NotifyOwner,
    ) -> None:
        """Set the limits. Raise `ConfigError` for bad settings.

        Args:
            kernel: the kernel.
            settings: the settings.
            find_models: returns what is known of the configured models.
            load_model: returns a model by its name.
            notify_owner: notifies the owner.
        """
        self._kernel = kernel
        self._find_models = find_models
        self._settings, self._models = settings.section(BudgetSettings), find_models(settings)
        self._load_model = load_model
        self._tape = kernel.open_tape(BUDGET_TAPE)
        self.budget = Budget(
            self._tape,
            budget_limits(self._settings, self._models, kernel.current_session),
            now=kernel.now,
            new_id=kernel.new_id,
            zone=kernel.zone,
            texts=kernel.texts,
            notify_owner=notify_owner,
            projections=kernel.projections,
        )
        self.meter = BudgetMeter(self.budget)
        self._rates = self._build_rates(self._settings)
        self.budget.on_other_call = self._note_call

    def feature(self) -> Feature:
        """Build the record under the settings in force: it holds nothing of what they do not use."""
        return Feature(
            name="budget",
            around=Around(model=(self.meter.around_model,)),
            lifecycle=Lifecycle(lifespan=self._lifespan, prepare=self._prepare, renew=self.feature),
            health=self._report_health,
            metrics=BUDGET_METRICS,
        )

    @property
    def gate(self) -> RateGate | None:
        """What holds messages back under the settings in force; None if no rate is limited."""
        return None if self._rates is None else RateGate(self._rates, self._kernel.texts, self._kernel.notify)

    def choose_model(self, find_model: FindModel) -> FindModel:
        """Return what finds the model of a turn: a cheaper one once the budget of the chosen one is used up."""
        can_choose = self.budget.limits.limits and self._settings.fallback_models
        return self._choose_cheaper(find_model) if can_choose else find_model

    def readiness(self, context: HealthContext) -> dict[str, Any]:
        """Return what it adds to the answer of `/ready`, without I/O."""
        return budget_readiness(context, self._outages(context))

    @property
    def limits(self) -> LimitReporter:
        """What reports are told of the limits in force."""
        return LimitReporter(self._tape, self.budget.limits, self.budget.today, budget_currency(self._settings))

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        """Settle calls that an earlier process left open; at the end wait until all is written."""
        await self.budget.load()
        if self._rates is not None:
            await self._rates.load(self._tape, self._kernel.projections)
        try:
            yield
        finally:
            await self.budget.wait_written()

    def _report_health(self, context: HealthContext) -> FeatureHealth:
        budget, currency = self.budget, budget_currency(self._settings)
        usages = budget_usage(budget.totals(), budget.limits, budget.today(), currency.usd_rate)
        return budget_health(context, usages, self._outages(context), currency)

    def _outages(self, context: HealthContext) -> tuple[ModelOutage, ...]:
        failing, answered = self.budget.failing_models(), self.budget.answered_models()
        return model_outages(failing, answered, self._settings, self._models, context.at)

    def _note_call(self, call: CountedCall, date: str) -> None:
        """Count a call of another process towards the rates, too."""
        if self._rates is not None and call.turn:
            self._rates.note(call.payer, date)

    def _build_rates(self, settings: BudgetSettings) -> RateLimiter | None:
        kernel, rates = self._kernel, message_rates(settings)
        return RateLimiter(rates, kernel.now, kernel.zone, ALWAYS_NOTIFY, kernel.current_session) if rates else None

    def _choose_cheaper(self, find_model: FindModel) -> FindModel:
        names = self._settings.fallback_models
        return BudgetFallbackModel(find_model, self._load_model, self.budget, names).find_model

    async def _prepare(self, settings: Settings) -> Apply:
        budget, models = settings.section(BudgetSettings), self._find_models(settings)
        limits = budget_limits(budget, models, self._kernel.current_session)
        if (rates := self._build_rates(budget)) is not None:
            await rates.load(self._tape, self._kernel.projections)

        def apply() -> None:
            self._settings, self._models, self._rates = budget, models, rates
            self.budget.apply_limits(limits)

        return apply
