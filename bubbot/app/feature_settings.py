"""The settings for features, their commands, checks and panels: their section, or a value built from several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from bubbot.app.own_features import find_part
from bubbot.ports.access import ListedPeople, MayRead
from bubbot.ports.judgements import ReadLabels
from bubbot.ports.people import AsksConsent
from bubbot.ports.usage import Currency, SpentTotal
from bubbot.settings.channels import split_channel_settings
from bubbot.settings.loader import Settings
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService

if TYPE_CHECKING:
    from bubbot.features.agents.commands import ReadSpent
    from bubbot.features.agents.directory import ConfiguredAgents
    from bubbot.features.budget.limits import ModelFacts
    from bubbot.features.budget.settings import BudgetSettings
    from bubbot.features.learn.commands import LearnOptions
    from bubbot.features.learn.settings import LearnSettings
    from bubbot.features.learn.weights.options import WeightsOptions
    from bubbot.features.learn.weights.trial import Trial
    from bubbot.features.learn.weights.turns import RewardedTurns
    from bubbot.features.mcp.serve.options import ServeOptions
    from bubbot.features.memory.opening import MemoryCommandOptions
    from bubbot.features.people.commands import PeopleOptions
    from bubbot.features.strategies.compare import StrategyComparer
    from bubbot.features.usage.reporter import UsageReporter
    from bubbot.features.views.commands import ViewOptions
    from bubbot.runtime.context.strategy import ContextStrategies
    from bubbot.tape.store import TapeStore


def configured_people(settings: Settings) -> dict[str, ListedPeople]:
    """Return the people that the configuration lists, by channel. Raise `ConfigError`."""
    channels = {name: split_channel_settings(name, table)[0] for name, table in settings.channels.items()}
    return {
        name: ListedPeople(
            frozenset(channel.owners),
            frozenset(channel.admins),
            frozenset(channel.members),
            frozenset(channel.groups) | {guild for guild, rules in channel.guilds.items() if rules.open},
        )
        for name, channel in channels.items()
    }


def _usage_reporter(settings: Settings) -> Callable[..., UsageReporter]:
    """Return the function that builds the reporter of a budget tape."""
    # Imported here: prices and budgets are for one command of many.
    from bubbot.app.budget import model_facts
    from bubbot.features.budget.limits import budget_limits
    from bubbot.features.budget.report import LimitReporter
    from bubbot.features.budget.settings import BudgetSettings
    from bubbot.features.usage.reporter import UsageReporter

    facts = model_facts(settings)
    currency = Currency(settings.section(BudgetSettings).currency, settings.section(BudgetSettings).usd_rate or 1.0)

    def build(
        tape: TapeService, now: Clock, zone: ZoneInfo, current_session: Callable[[str], str] = lambda session: session
    ) -> UsageReporter:
        limits = budget_limits(settings.section(BudgetSettings), facts, current_session)
        reporter = LimitReporter(tape, limits, lambda: now().astimezone(zone).strftime("%Y-%m-%d"), currency)
        return UsageReporter(tape, now, zone, reporter)

    return build


def _agent_directory(settings: Settings) -> Callable[..., tuple[ConfiguredAgents, ReadSpent]]:
    """Return the function that builds the directory of agents without their tools, and the reader of what they used."""
    # Imported here: agents are for one command of many.
    from bubbot.features.agents.directory import ConfiguredAgents
    from bubbot.features.agents.settings import AgentsSettings
    from bubbot.features.topics.view import find_current_topic

    def build(
        tape: TapeService, now: Clock, zone: ZoneInfo, current_session: Callable[[str], str]
    ) -> tuple[ConfiguredAgents, ReadSpent]:
        reporter = _usage_reporter(settings)(tape, now, zone, current_session)

        async def read_spent(chat: str) -> Mapping[str, SpentTotal]:
            return (await reporter.read_spending("month", chat)).by_agent

        section, name = settings.section(AgentsSettings), settings.bot.name
        return ConfiguredAgents(section, name, lambda: (), find_current_topic, current_session), read_spent

    return build


def _strategy_comparer(settings: Settings) -> StrategyComparer:
    # Imported here: strategies and prices are for one command of many.
    from bubbot.app.budget import model_facts
    from bubbot.app.installed import load_strategies
    from bubbot.features.budget.limits import budget_limits
    from bubbot.features.budget.settings import BudgetSettings
    from bubbot.features.strategies.compare import StrategyComparer

    limits = budget_limits(settings.section(BudgetSettings), model_facts(settings))
    return StrategyComparer(load_strategies(), limits.find_price)


def _memory_options(settings: Settings) -> MemoryCommandOptions:
    """Return the settings of memory with the directory of people's accounts, and what memory views need."""
    from bubbot.app.installed import find_memory_strategies
    from bubbot.features.access.links import AccountLinks
    from bubbot.features.access.state import ACCESS_PROJECTION
    from bubbot.features.memory.memories import MemorySources
    from bubbot.features.memory.opening import MemoryCommandOptions
    from bubbot.features.memory.settings import MemorySettings
    from bubbot.features.topics.view import find_current_topic, find_visits
    from bubbot.tape.projection import ProjectionRunner

    def find_accounts(open_tape: Callable[[str], TapeService]) -> AccountLinks:
        return AccountLinks(open_tape(ACCESS_PROJECTION.tapes), ProjectionRunner())

    sources = MemorySources(
        find_topic=find_visits, find_current_topic=find_current_topic, installed=find_memory_strategies()
    )
    return MemoryCommandOptions(settings.section(MemorySettings), find_accounts, _find_grants, sources)


async def _find_grants(open_tape: Callable[[str], TapeService]) -> MayRead:
    """Return who may read which chats, as the tapes of a home say."""
    # Imported here: who may read what is for few commands.
    from bubbot.features.access.state import ACCESS_PROJECTION
    from bubbot.tape.projection import ProjectionRunner

    projected = ProjectionRunner().project(ACCESS_PROJECTION, open_tape(ACCESS_PROJECTION.tapes))
    await projected.ensure_loaded()
    return lambda reader, source: (source, reader) in projected.state.readings


def _view_options(_settings: Settings) -> ViewOptions:
    from bubbot.features.views.commands import ViewOptions

    return ViewOptions(_find_grants)


def _people_options(settings: Settings) -> PeopleOptions:
    # Imported here: what the tapes of a home mean is for few commands.
    from bubbot.app.people import people_options

    return people_options(configured_people(settings))


def budget_settings(settings: Settings) -> tuple[BudgetSettings, ModelFacts]:
    """Return the limits and the facts about the configured models."""
    from bubbot.app.budget import model_facts
    from bubbot.features.budget.settings import BudgetSettings

    return settings.section(BudgetSettings), model_facts(settings)


def _learn_options(settings: Settings) -> LearnOptions:
    """Return the settings of exports, the strategies that rebuild requests, and the readers of consents and judgements."""
    # Imported here: exports are for one command of many.
    from bubbot.app.installed import load_strategies
    from bubbot.features.access.links import AccountLinks
    from bubbot.features.access.state import ACCESS_PROJECTION
    from bubbot.features.judge.labels import LabelReader
    from bubbot.features.judge.settings import JudgeSettings
    from bubbot.features.learn.commands import LearnOptions
    from bubbot.features.learn.settings import LearnSettings
    from bubbot.features.people.consent import CONSENT_TAPE, ConsentService
    from bubbot.tape.projection import ProjectionRunner

    def open_consents(open_tape: Callable[[str], TapeService]) -> AsksConsent:
        links = AccountLinks(open_tape(ACCESS_PROJECTION.tapes), ProjectionRunner())
        return ConsentService(open_tape(CONSENT_TAPE), ProjectionRunner(), links.linked_accounts)

    def open_labels(open_tape: Callable[[str], TapeService]) -> ReadLabels:
        return LabelReader(open_tape, lambda: settings.section(JudgeSettings)).read

    return LearnOptions(settings.section(LearnSettings), load_strategies(), open_consents, open_labels)


def open_rewarded_turns(
    store: TapeStore,
    section: LearnSettings,
    strategies: ContextStrategies,
    consents: AsksConsent,
    read_labels: ReadLabels,
) -> RewardedTurns:
    """Return what counts turns with a reward in the tapes of a home, for `[learn] after`."""
    # Imported here: most bots export nothing by themselves.
    from bubbot.app.tapes import new_id, now
    from bubbot.features.access.state import ACCESS_PROJECTION
    from bubbot.features.learn.weights.turns import RewardedTurns, TurnSources
    from bubbot.features.people.consent import CONSENT_TAPE

    basis = CONSENT_TAPE, ACCESS_PROJECTION.tapes
    return RewardedTurns(TurnSources(store, now, new_id, strategies, consents, read_labels, basis), section)


def _weights_options(settings: Settings) -> WeightsOptions:
    """Return the settings of exports and newer weights with what knows models, evaluations and turns."""
    from bubbot.features.learn.settings import LearnSettings
    from bubbot.features.learn.weights.options import WeightsOptions

    section = settings.section(LearnSettings)

    # Each imports what it needs when it is called: `bubbot status` of most bots calls none of them.
    def open_turns(store: TapeStore) -> RewardedTurns:
        from bubbot.app.tapes import new_id, now

        def open_tape(name: str) -> TapeService:
            return TapeService(store, name, now=now, new_id=new_id, session="")

        options = _learn_options(settings)
        consents, labels = options.open_consents(open_tape), options.open_labels(open_tape)
        return open_rewarded_turns(store, section, options.strategies, consents, labels)

    def check_model(home: Path, name: str) -> None:
        from bubbot.app.models import choose_model
        from bubbot.home import Home

        choose_model(settings, Home(home), name)

    async def find_trial(
        open_tape: Callable[[str], TapeService], evaluation: str, model: str, in_use: str, since: str
    ) -> Trial:
        from bubbot.app import weights

        return await weights.find_trial(open_tape, evaluation, model, in_use, since)

    return WeightsOptions(section, settings.model.name or "local", check_model, find_trial, open_turns)


def _serve_options(settings: Settings) -> ServeOptions:
    # Imported here: the views of six features are for one command.
    from bubbot.app.mcp_serve import serve_options

    return serve_options(settings)


def _learn_section(settings: Settings) -> LearnSettings:
    from bubbot.features.learn.settings import LearnSettings

    return settings.section(LearnSettings)


_SOURCES: Mapping[str, Callable[[Settings], Any]] = MappingProxyType(
    {
        "access": configured_people,
        "agents": _agent_directory,
        "budget": budget_settings,
        "learn": _learn_options,
        "learn.weights": _weights_options,
        "learn.live": _learn_section,
        "mcp.serve": _serve_options,
        "memory": _memory_options,
        "people": _people_options,
        "strategies": _strategy_comparer,
        "trace": lambda settings: settings.trace,
        "usage": _usage_reporter,
        "views": _view_options,
    }
)
"""The builders for features that need more of the settings than their section."""


def feature_settings(feature: str, settings: Settings) -> Any:
    """Return the settings for a feature; None if it has none."""
    if feature in _SOURCES:
        return _SOURCES[feature](settings)
    sections = find_part(feature, "settings", "SECTIONS")
    return settings.section(next(iter(sections.values()))) if sections else None
