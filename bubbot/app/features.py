"""The features of a bot, by name: the one place that knows them all."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bubbot.app.budget import model_facts
from bubbot.app.models import ModelSet
from bubbot.errors import BubbotError, ConfigError
from bubbot.feature import Apply, Feature, FeatureFactory, Kernel
from bubbot.features.attachments.feature import Transcriber, attachments_feature
from bubbot.features.budget.budget import NotifyOwner
from bubbot.features.budget.feature import BudgetFeature
from bubbot.features.conversation.feature import conversation_feature
from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.schedule.feature import ScheduleFeature
from bubbot.features.search.feature import search_feature
from bubbot.features.usage.feature import usage_feature
from bubbot.features.usage.tools import UsageReporter, report_no_limits
from bubbot.features.why.feature import why_feature
from bubbot.home import Home
from bubbot.ports.channel import session_folder
from bubbot.ports.health import HealthReport
from bubbot.ports.middleware import AroundDelivery
from bubbot.ports.model import Model
from bubbot.ports.settings import SettingsSection
from bubbot.ports.tool import Tool
from bubbot.ports.turn import Turn
from bubbot.ports.usage import BUDGET_TAPE, Currency
from bubbot.runtime.compose import ComposedRequest
from bubbot.runtime.context.view import OWN_STRATEGIES, ContextStrategies
from bubbot.settings.loader import Settings
from bubbot.settings.values import AUTO_SELECTOR

log = logging.getLogger(__name__)

FEATURES = ("conversation", "search", "why", "memory", "usage", "attachments", "schedule", "budget")
"""The features of bubbot, in the order of their tools, prompts and middleware. Those of packages come before."""


@dataclass(frozen=True, slots=True)
class LastingFeature:
    """A feature with a state, which stays when the settings change. `pick` takes its settings from all of them."""

    feature: Feature
    pick: Callable[[Settings], Any]


class BotFeatures:
    """The features of one bot.

    Attributes:
        schedule: the schedules; None without them.
        budget: the budgets; None without them.
        memory: the memory; None without it.
        strategies: the context strategies.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        *,
        home: Home,
        load_model: Callable[[str], Model],
        notify_owner: NotifyOwner,
        names: Collection[str] = FEATURES,
        factories: Sequence[FeatureFactory] = (),
        strategies: ContextStrategies = OWN_STRATEGIES,
    ) -> None:
        """Build the features that last.

        Args:
            kernel: what they may use.
            settings: the settings.
            home: the home of the bot.
            load_model: returns a model by its name.
            notify_owner: notifies the owner.
            names: those of `FEATURES` that the bot has.
            factories: the features of installed packages.
            strategies: the context strategies.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self._kernel = kernel
        self._home = home
        self._names = names
        self.strategies = strategies
        self._check_selector(settings)
        self.schedule = ScheduleFeature(kernel, settings.schedule) if "schedule" in names else None
        self.memory = MemoryFeature(kernel.home, kernel.now, settings.memory) if "memory" in names else None
        self.budget = (
            BudgetFeature(
                kernel, settings.budget, model_facts(settings), load_model=load_model, notify_owner=notify_owner
            )
            if "budget" in names
            else None
        )
        self._lasting: dict[str, LastingFeature] = {}
        for factory in factories:
            feature = _build_plugin(factory, kernel, settings)
            if feature is not None:
                self._lasting[factory.name] = LastingFeature(feature, partial(feature_section, factory))
        if self.memory:
            self._lasting["memory"] = LastingFeature(self.memory.feature(), lambda settings: settings.memory)
        if self.schedule:
            self._lasting["schedule"] = LastingFeature(self.schedule.feature(), lambda settings: settings.schedule)
        if self.budget:
            pick = lambda settings: (settings.budget, model_facts(settings))  # noqa: E731
            self._lasting["budget"] = LastingFeature(self.budget.feature(), pick)

    @property
    def lasting(self) -> Iterator[Feature]:
        """The features that stay when the settings change."""
        return (lasting.feature for lasting in self._lasting.values())

    @property
    def around_delivery(self) -> list[AroundDelivery]:
        """Middleware around deliveries, of the features that stay: channels keep it when the settings change."""
        return [around for feature in self.lasting for around in feature.around_delivery]

    def build(
        self,
        settings: Settings,
        models: ModelSet,
        *,
        compose: Callable[[Turn], Awaitable[ComposedRequest]],
        list_tools: Callable[[], Sequence[Tool]],
        report: HealthReport,
        channel_tapes: Sequence[str],
    ) -> list[Feature]:
        """Build all features under these settings, those of packages first, then in the order of `FEATURES`.

        Args:
            settings: the settings.
            models: the models.
            compose: builds the next request of a turn.
            list_tools: returns all tools.
            report: reports the health of the bot.
            channel_tapes: the inbox and outbox tapes.
        """
        transcriber = models.transcriber
        made: Mapping[str, Callable[[], Feature]] = {
            "conversation": lambda: conversation_feature(
                models=models.sessions,
                compose=compose,
                list_tools=list_tools,
                report=report,
                traces=[*channel_tapes, *(tape for feature in self.lasting for tape in feature.traces)],
                forget=self._remove_files,
                memory=self.memory,
            ),
            "search": search_feature,
            "why": lambda: why_feature(self.strategies),
            "usage": lambda: usage_feature(self._usage_reporter()),
            "attachments": lambda: attachments_feature(
                settings.attachments,
                self._kernel.texts,
                Transcriber(transcriber.name, transcriber) if transcriber else None,
                self.budget.meter.transcription if self.budget else None,
            ),
        }
        own = [
            self._lasting[name].feature if name in self._lasting else made[name]()
            for name in FEATURES
            if name in self._names
        ]
        return [*(lasting.feature for name, lasting in self._lasting.items() if name not in FEATURES), *own]

    @property
    def fixed_sections(self) -> list[str]:
        """The sections of features that take no new settings while the bot runs."""
        return [name for name, lasting in self._lasting.items() if lasting.feature.prepare is None]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Enter the lifespans of the features, in order; leave them in reverse."""
        async with AsyncExitStack() as stack:
            for feature in self.lasting:
                if feature.lifespan is not None:
                    await stack.enter_async_context(feature.lifespan())
            yield

    async def on_recovered(self) -> None:
        """Tell the features that recovery has merged what an earlier process left open."""
        for feature in self.lasting:
            if feature.on_recovered is not None:
                await feature.on_recovered()

    async def on_chat_unreachable(self, channel: str, chat: str, reason: str) -> None:
        """Tell the features that a chat can no longer be reached."""
        for feature in self.lasting:
            if feature.on_chat_unreachable is not None:
                await feature.on_chat_unreachable(channel, chat, reason)

    async def prepare(self, settings: Settings) -> Apply:
        """Check new settings in every feature; return what puts them into force. Raise `ConfigError`."""
        self._check_selector(settings)
        applies = [await _prepare(name, lasting, settings) for name, lasting in self._lasting.items()]

        def apply() -> None:
            for each in applies:
                each()

        return apply

    def _check_selector(self, settings: Settings) -> None:
        """Raise `ConfigError` if no context strategy has the configured name, or if it cannot be loaded."""
        if settings.context.selector != AUTO_SELECTOR:
            self.strategies.find(settings.context.selector)

    def _usage_reporter(self) -> UsageReporter:
        kernel, budget = self._kernel, self.budget
        limits, currency = (budget.report_limits, budget.currency) if budget else (report_no_limits, Currency())
        return UsageReporter(kernel.open_tape(BUDGET_TAPE), kernel.now, kernel.zone, limits, currency)

    def _remove_files(self, session: str) -> None:
        """Remove the files that channels keep of a session."""
        with suppress(FileNotFoundError):
            shutil.rmtree(session_folder(self._home.path, session))


def _build_plugin(factory: FeatureFactory, kernel: Kernel, settings: Settings) -> Feature | None:
    """Build the feature of a package; None, with a warning, if its code fails. Raise `ConfigError` for its settings."""
    try:
        feature: object = factory.build(kernel, feature_section(factory, settings))
        if not isinstance(feature, Feature):
            raise TypeError(f"it is {type(feature).__name__}, not a Feature")
        if feature.name != factory.name:
            raise TypeError(f"it is called {feature.name!r}")
        return feature
    except ConfigError:
        raise
    except Exception as error:  # a package is someone else's code
        log.warning(
            "feature %s left out: %s: %s",
            factory.name,
            type(error).__name__,
            error,
            exc_info=True,
            extra={"action": "plugin.broken"},
        )
        return None


async def _prepare(name: str, lasting: LastingFeature, settings: Settings) -> Apply:
    """Let a feature check new settings. Raise `ConfigError`, also for a feature of a package whose code fails."""
    if lasting.feature.prepare is None:
        return lambda: None
    try:
        return await lasting.feature.prepare(lasting.pick(settings))
    except BubbotError:
        raise
    except Exception as error:  # a package is someone else's code
        raise ConfigError(f"The feature {name!r} cannot take its settings: {type(error).__name__}: {error}") from error


def feature_section(factory: FeatureFactory, settings: Settings) -> SettingsSection | None:
    """Return the settings of a package's feature: its section, which is loaded only if it is written, or its defaults."""
    if factory.settings is None:
        return None
    return settings.section(factory.name) if factory.name in type(settings).model_fields else factory.settings()
