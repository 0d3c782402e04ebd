"""The features of a bot by name: the only place that knows them all."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bubbot.app.budget import model_facts
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.feature_settings import configured_people, open_rewarded_turns
from bubbot.app.guard import FeatureGuard, FeatureProblems, GuardTimeouts
from bubbot.app.installed import feature_section
from bubbot.app.models import ModelSet
from bubbot.app.own_features import FEATURES, copying_events, find_parts, session_events
from bubbot.app.people import personal_tapes
from bubbot.app.reading_on import FactsReader, find_shared
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.app.weights import find_trial
from bubbot.errors import BubbotError, ConfigError, ModelUnavailable
from bubbot.feature import Apply, Feature, FeatureFactory, FindModel, Kernel
from bubbot.features.access.links import AccountLinks
from bubbot.features.access.service import ACCESS_TAPE
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.feature import agents_feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.approvals.feature import ApprovalsFeature
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.attachments.feature import attachments_feature
from bubbot.features.attachments.intake import PdfText
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.features.budget.feature import BudgetFeature
from bubbot.features.conversation.feature import conversation_feature
from bubbot.features.judge.evals.facts import EVALS_TAPE
from bubbot.features.judge.evals.feature import evals_feature
from bubbot.features.judge.labels import LabelReader
from bubbot.features.judge.settings import JudgeSettings
from bubbot.features.learn.live.feature import LiveFeature
from bubbot.features.learn.weights.feature import WeightsFeature
from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.memory.memories import MemorySources
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.shared_zone import SharedZones
from bubbot.features.people.consent import CONSENT_TAPE, ConsentService
from bubbot.features.people.export import ExportCommands
from bubbot.features.people.feature import PeopleFeature
from bubbot.features.replay.facts import REPLAY_TAPE
from bubbot.features.replay.feature import replay_feature
from bubbot.features.schedule.feature import ScheduleFeature
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.search.feature import search_feature
from bubbot.features.shell.feature import ShellFeature
from bubbot.features.skills.feature import SkillsFeature
from bubbot.features.strategies.feature import StrategiesFeature
from bubbot.features.strategies.settings import ContextSettings
from bubbot.features.topics.names import RESERVED_PREFIXES
from bubbot.features.topics.view import find_current_topic, find_visits
from bubbot.features.usage.feature import usage_feature
from bubbot.features.usage.reporter import UsageReporter
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.gateway.owner import OwnerChat, OwnerNames
from bubbot.home import Home
from bubbot.middleware import AroundDelivery, AroundModel
from bubbot.models.embeddings.index import EmbeddingIndex, embeddings_are_installed
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.agents import Agent
from bubbot.ports.channel import HUMAN_ORIGIN, TERMINAL_CHANNEL, Inbound, session_folder
from bubbot.ports.folders import list_no_folders
from bubbot.ports.health import HealthReport, MetricSpec
from bubbot.ports.memory import InstalledMemory
from bubbot.ports.model import Model, ModelTraits
from bubbot.ports.passages import PASSAGES_FILE
from bubbot.ports.session_names import read_session
from bubbot.ports.settings import AUTO_SELECTOR, SettingsSection
from bubbot.ports.turn import Turn
from bubbot.ports.usage import BUDGET_TAPE, SpentTotal
from bubbot.runtime.attachments import TakesAttachments
from bubbot.runtime.compose import ComposedRequest, Recompose
from bubbot.runtime.context.ports import MemoryText, StrategySources
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.models import SessionModels
from bubbot.runtime.tool_list import is_callable
from bubbot.settings.loader import Settings
from bubbot.tape.copies import KnownCopies, find_copies_of_tape
from bubbot.tape.entry import TapeEntry
from bubbot.tape.provenance import most_foreign
from bubbot.tape.references import ReferenceRegistry, declared_references
from bubbot.tape.store import TapeStore
from bubbot.tool import Tool

if TYPE_CHECKING:
    from bubbot.features.web.reading import PageReader


RUN_TOOL = "shell.run"
"""The tool that runs the programs of skills."""


class PdfReader:
    """Reads PDFs that people send, in the child process that reads PDFs of the web."""

    def __init__(self) -> None:
        self._reader: PageReader | None = None

    async def read_pdf(self, data: bytes) -> PdfText:
        """Read the text of a PDF, or the reason why there is none."""
        # Imported here: a bot without PDFs does not load it.
        from bubbot.features.web.client import WebError
        from bubbot.features.web.reading import MAX_PDF_PAGES, PageReader, PdfLocked

        self._reader = self._reader or PageReader()
        try:
            page = await self._reader.read_pdf(data)
        except PdfLocked as error:
            return PdfText(fault="locked", reason=str(error))
        except WebError as error:
            return PdfText(fault="failed", reason=str(error))
        except OSError:  # no process or pipe is available, for example without memory
            return PdfText(fault="failed", reason="no process could be started to read it")
        return PdfText(page.text, page.pages, min(page.pages, MAX_PDF_PAGES))


class BotFeatures:
    """The features of one bot.

    Attributes:
        schedule: None without schedules.
        approvals: decide which calls of models need a yes; None: all calls run.
        budget: None without budgets.
        memory: None without memory.
        consents: what people allow their words to be used for.
        problems: the problems of installed features.
        reader: reads on what other processes wrote.
        around_model: middleware around each model call, under the current settings.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        *,
        home: Home,
        store: TapeStore,
        load_model: Callable[[str], Model],
        find_model: FindModel,
        lessons: ModelLessons,
        open_endpoint: Callable[[Settings, str, str, str], Model],
        owner_chat: OwnerChat,
        list_owners: Callable[[str], Collection[str]],
        names: Collection[str] = FEATURES,
        factories: Sequence[FeatureFactory] = (),
        strategies: ContextStrategies = OWN_STRATEGIES,
        memory_strategies: InstalledMemory = InstalledMemory(),  # noqa: B008 - frozen
        references: ReferenceRegistry = OWN_REFERENCES,
        timeouts: GuardTimeouts = GuardTimeouts(),  # noqa: B008 - frozen
    ) -> None:
        """Build the features that last across reloads.

        Args:
            store: the tapes, for what reads those of all chats.
            open_endpoint: makes the model at an address of a feature's section: settings, name, address, key.
            owner_chat: notifies owners.
            list_owners: returns the numeric ids of the owners on a channel.
            names: a subset of `FEATURES`.
            factories: the features of installed packages.
            memory_strategies: what packages offer that chooses for memory views.
            timeouts: time limits for the code of packages.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self._judging = settings.section(JudgeSettings)
        labels = LabelReader(kernel.open_tape, lambda: self._judging)
        self._kernel = kernel = replace(
            kernel, list_tools=self.list_tools, strategies=strategies, read_labels=labels.read
        )
        self.find_heads = kernel.find_heads
        self._home, self._store, self.reader = home, store, FactsReader(kernel.projections)
        self._names = names
        self.strategies = strategies
        self._references = references
        self._trace_events = (*session_events(), *_list_session_events(factories))
        self._check_selector(settings)
        self.schedule = ScheduleFeature(kernel, settings.section(ScheduleSettings)) if "schedule" in names else None
        self._find_owners = OwnerNames(list_owners, kernel.open_tape).find
        links = AccountLinks(kernel.open_tape(ACCESS_TAPE), kernel.projections)
        self._find_accounts = links.linked_accounts
        self.consents = ConsentService(kernel.open_tape(CONSENT_TAPE), kernel.projections, links.linked_accounts)
        shared = _open_zones(kernel, links)
        self.memory = (
            MemoryFeature(
                kernel.home,
                kernel.now,
                settings.section(MemorySettings),
                shared,
                MemorySources(kernel.read_session, find_visits, find_current_topic, memory_strategies),
            )
            if "memory" in names
            else None
        )
        self.budget = (
            BudgetFeature(kernel, settings, find_models=model_facts, load_model=load_model, notify_owner=owner_chat)
            if "budget" in names
            else None
        )
        self.around_model: tuple[AroundModel, ...] = ()
        self._list_tools: Callable[[], Sequence[Tool]] = tuple
        self.approvals = (
            ApprovalsFeature(
                kernel,
                settings.section(ApprovalSettings),
                kernel.list_tools,
                self.schedule.list_allowed if self.schedule else lambda _turn: (),
            )
            if "approvals" in names
            else None
        )
        self._agents: ConfiguredAgents | None = None
        self._models: SessionModels | None = None
        kernel = replace(kernel, find_agent=self._find_agent)
        if self.approvals is not None:
            kernel = replace(kernel, ask=self.approvals.ask, find_answer=self.approvals.service.find_answer)
        self._lasting: dict[str, Feature] = {}
        self._eval_locks: MutableMapping[str, asyncio.Lock] = WeakValueDictionary()
        self._factories = {factory.name: factory for factory in factories}
        self._sections: dict[str, SettingsSection | None] = {}
        self.problems = FeatureProblems(kernel.now)
        for factory in factories:
            guard = FeatureGuard(factory.name, self.problems, timeouts)
            section = feature_section(factory, settings)
            # It gets its own projections: a failing one must not stop others on the same tape.
            projections = self.reader.make_projections(factory.name, find_shared(store))
            feature = guard.build(partial(factory.build, replace(kernel, projections=projections), section))
            if feature is not None:
                self._lasting[factory.name] = feature
                self._sections[factory.name] = section
        self.intake: TakesAttachments | None = None
        strategies_feature = StrategiesFeature(
            kernel,
            settings.section(ContextSettings),
            find_model=find_model,
            strategies=strategies,
            lessons=lessons,
            find_price=lambda name: self.budget.budget.limits.find_price(name) if self.budget else None,
            passages=EmbeddingIndex(kernel.home / PASSAGES_FILE) if embeddings_are_installed() else None,
        )
        if "strategies" in names:
            self.strategies = strategies.replace_own(strategies_feature.retrieval).replace_own(
                strategies_feature.summary
            )
        skills = SkillsFeature(kernel, settings, can_run=self._can_run_programs) if "skills" in names else None
        folders = skills.list_programs if skills is not None else list_no_folders
        own: dict[str, Any] = {
            "memory": self.memory,
            "skills": skills,
            "shell": ShellFeature(kernel.home, settings, folders) if "shell" in names else None,
            "schedule": self.schedule,
            "budget": self.budget,
            "approvals": self.approvals,
            "people": (
                PeopleFeature(
                    kernel,
                    self.consents,
                    settings,
                    build_exports=self._build_exports,
                    notify_owner=owner_chat.notify,
                    find_accounts=links.linked_accounts,
                    find_owners=self._find_owners,
                )
                if "people" in names
                else None
            ),
            "learn.live": (
                LiveFeature(kernel, settings, self.consents, open_endpoint) if "learn.live" in names else None
            ),
            "learn.weights": (
                WeightsFeature(
                    kernel,
                    store,
                    settings,
                    open_turns=lambda section: open_rewarded_turns(
                        store, section, self.strategies, self.consents, kernel.read_labels
                    ),
                    find_models=self._find_models,
                    find_trial=find_trial,
                    notify_owner=owner_chat.notify,
                )
                if "learn.weights" in names
                else None
            ),
            "strategies": strategies_feature if "strategies" in names else None,
        }
        self._lasting |= {name: made.feature() for name, made in own.items() if made is not None}
        self.choose_selector = strategies_feature.choice.chosen if "strategies" in names else None
        lasting = find_parts("feature", "create_lasting")
        self._lasting |= {name: create(kernel, settings) for name, create in lasting if name in names}

    @property
    def strategy_sources(self) -> StrategySources:
        """What the ports of context strategies reach."""
        kernel, find_session = self._kernel, partial(read_session, self._store)
        return StrategySources(self._read_memory, kernel.read_session, kernel.find_heads, find_session)

    async def _read_memory(self, turn: Turn) -> MemoryText:
        """Return the `<memory>` block that the chat of a turn is shown."""
        if self.memory is None:
            return MemoryText()
        size = self.memory.context_tokens.get(turn.session)
        block = await self.memory.build_block(turn, ModelTraits(context_tokens=size))
        return MemoryText(block.text, most_foreign(*[source for _, source in block.foreign or ()]))

    def list_tools(self) -> Sequence[Tool]:
        """Return all tools under the current settings; none while the bot is being built."""
        return self._list_tools()

    @property
    def lasting(self) -> Iterator[Feature]:
        """The features that stay when the settings change, without left-out ones."""
        return (feature for name, feature in self._lasting.items() if not self.problems.is_left_out(name))

    @property
    def reporting(self) -> list[Feature]:
        """The lasting features in the order of reports: bubbot's own in their order, then those of packages."""
        order = {name: index for index, name in enumerate(FEATURES)}
        return sorted(self.lasting, key=lambda feature: order.get(feature.name, len(order)))

    @property
    def metrics(self) -> list[MetricSpec]:
        return [spec for feature in self.reporting for spec in feature.metrics]

    @property
    def around_delivery(self) -> list[AroundDelivery]:
        """Middleware around deliveries of the lasting features: channels keep it when the settings change."""
        return [around for feature in self.lasting for around in feature.around.delivery]

    def build(
        self,
        settings: Settings,
        models: ModelSet,
        *,
        compose: Callable[[Turn], Awaitable[ComposedRequest]],
        recompose: Recompose,
        list_tools: Callable[[], Sequence[Tool]],
        report: HealthReport,
        channel_tapes: Sequence[str],
    ) -> list[Feature]:
        """Build all features under these settings: those of packages first, then in the order of `FEATURES`.

        Args:
            compose: builds the next request of a turn.
            recompose: builds the request of a recorded step with the current code.
            list_tools: returns all tools.
            channel_tapes: the inbox and outbox tapes.
        """
        self._models = models.sessions
        self._list_tools, self._judging = list_tools, settings.section(JudgeSettings)
        kernel = replace(self._kernel, recompose=recompose)
        self._lasting = {
            name: renew() if (renew := each.lifecycle.renew) else each for name, each in self._lasting.items()
        }
        made: Mapping[str, Callable[[], Feature]] = {
            "conversation": lambda: conversation_feature(
                models=models.sessions,
                compose=compose,
                list_tools=list_tools,
                report=report,
                traces=[
                    *channel_tapes,
                    REPLAY_TAPE,
                    EVALS_TAPE,
                    *(tape for feature in self.lasting for tape in feature.traces),
                ],
                forget=self._remove_files,
                memory=self.memory,
                view_traces=partial(SessionTraceView, events=self._trace_events, references=self._references),
                reserved_names=RESERVED_PREFIXES,
                find_traces=self._find_traces,
                wait_until_sent=self._kernel.wait_until_sent,
                find_copies=self._find_copies,
                name_tape=partial(read_session, self._store),
                find_owners=self._find_owners,
                restart=self._kernel.restart,
                bot_name=settings.bot.name,
            ),
            "search": lambda: search_feature(find_visits, kernel.find_heads),
            "agents": lambda: self._build_agents(settings, models),
            "replay": lambda: replay_feature(kernel, self.consents),
            "judge.evals": lambda: evals_feature(
                kernel,
                self.consents,
                compose=partial(_compose_answerable, compose),
                list_memories=self.memory.list_views if self.memory else tuple,
                locks=self._eval_locks,
            ),
            "usage": lambda: usage_feature(self._usage_reporter),
            "attachments": self._build_attachments(settings, models),
        }
        creates = {name: partial(create, kernel, settings) for name, create in find_parts("feature", "create")}
        builders: dict[str, Callable[[], Feature]] = {**creates, **made}
        own = [
            self._lasting.get(name) or builders[name]()
            for name in FEATURES
            if name in self._names and (name in self._lasting or name in builders)
        ]
        for feature in own:
            if feature.name not in self._lasting and (parts := feature.parts_that_last):
                raise TypeError(
                    f"feature {feature.name} is built anew at each reload, so nothing calls its {', '.join(parts)}"
                )
        self._leave_out_clashes(own)
        packages = (feature for feature in self.lasting if feature.name not in FEATURES)
        features = [*self.reader.features(), *packages, *own]
        self.around_model = tuple([around for feature in features for around in feature.around.model])
        return features

    def _can_run_programs(self, turn: Turn) -> bool:
        """Return true if the model of a turn may run programs in a sandbox."""
        return any(tool.name == RUN_TOOL and is_callable(tool, turn) for tool in self.list_tools())

    def _find_models(self) -> SessionModels:
        """Return the models of sessions under the settings in force."""
        assert self._models is not None  # no turn runs, and no command, while the bot is being built
        return self._models

    def _find_agent(self, session: str, name: str) -> Agent | None:
        """See `FindAgent`."""
        agents = self._agents
        return agents.make(name) if agents is not None and agents.may_call(name, session) else None

    def _build_agents(self, settings: Settings, models: ModelSet) -> Feature:
        kernel = self._kernel
        agents = self._agents = ConfiguredAgents(
            settings.section(AgentsSettings),
            settings.bot.name,
            kernel.list_tools,
            find_current_topic,
            kernel.current_session,
            channels=(*settings.channels, TERMINAL_CHANNEL),
        )

        async def read_spent(chat: str) -> Mapping[str, SpentTotal]:
            return (await self._usage_reporter().read_spending("month", chat)).by_agent

        return agents_feature(agents, kernel.list_tools, kernel.strategies, models.sessions, read_spent)

    def _build_exports(self, settings: Settings) -> ExportCommands:
        return ExportCommands(
            self._store,
            personal_tapes(configured_people(settings), self._references),
            self._find_accounts,
            now=self._kernel.now,
            zone=self._kernel.zone,
        )

    def _build_attachments(self, settings: Settings, models: ModelSet) -> Callable[[], Feature]:
        def build() -> Feature:
            transcriber = models.transcriber
            feature, self.intake = attachments_feature(
                settings.section(AttachmentSettings),
                self._kernel.texts,
                (transcriber.name, transcriber) if transcriber else None,
                self.budget.meter.transcription if self.budget else None,
                PdfReader().read_pdf,
            )
            return feature

        return build

    def _leave_out_clashes(self, own: Sequence[Feature]) -> None:
        """Leave out packages whose tools or sources have a taken name; among packages the first one keeps it."""
        names = {name for feature in own for tool in feature.tools for name in tool.names}
        origins = {HUMAN_ORIGIN, "system", *(origin for feature in own for origin in feature.sources)}
        for feature in [feature for feature in self.lasting if feature.name not in FEATURES]:
            theirs = [name for tool in feature.tools for name in tool.names]
            taken = [name for name in theirs if name in names]
            taken_origins = sorted(origins & feature.sources.keys())
            if taken:
                self.problems.leave_out(feature.name, f"another tool is called {taken[0]}")
            elif taken_origins:
                self.problems.leave_out(feature.name, f"another source is called {taken_origins[0]}")
            else:
                names |= {*theirs}
                origins |= {*feature.sources}

    @property
    def fixed_sections(self) -> list[str]:
        """The sections of features that cannot change while the bot runs."""
        return [name for name, feature in self._lasting.items() if feature.lifecycle.prepare is None]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Enter the lifespans of the features in order; leave them in reverse."""
        async with AsyncExitStack() as stack:
            for feature in self.lasting:
                if feature.lifecycle.lifespan is not None:
                    await stack.enter_async_context(feature.lifecycle.lifespan())
            yield

    async def on_recovered(self) -> None:
        """Notify the features that the start has found the work an earlier process left open."""
        for feature in self.lasting:
            if feature.lifecycle.on_recovered is not None:
                await feature.lifecycle.on_recovered()

    async def decide_press(self, inbound: Inbound, facts: Mapping[str, Sequence[TapeEntry]]) -> str | None:
        """Answer a pressed approval card; None if the button does not belong to one. See `DecidePress`."""
        return await self.approvals.decide_press(inbound, facts) if self.approvals else None

    async def on_chat_unreachable(self, channel: str, chat: str, reason: str) -> None:
        """End the jobs of an unreachable chat."""
        if self.schedule:
            await self.schedule.end_jobs_of_chat(channel, chat, reason)

    async def prepare(self, settings: Settings) -> Apply:
        """Check new settings in every feature; return the function that applies them. Raise `ConfigError`."""
        self._check_selector(settings)
        applies: list[Apply] = []
        sections = dict(self._sections)
        for name, feature in self._lasting.items():
            if name in sections:
                section = feature_section(self._factories[name], settings)
                if section == sections[name] or self.problems.is_left_out(name):
                    continue  # ask a package only if its section has changed
                sections[name] = section
                applies.append(await _prepare(name, feature, section))
            else:
                applies.append(await _prepare(name, feature, settings))

        def apply() -> None:
            for each in applies:
                each()
            self._sections = sections

        return apply

    def _check_selector(self, settings: Settings) -> None:
        """Raise `ConfigError` if the configured context strategy is unknown or cannot be loaded."""
        if settings.section(ContextSettings).selector != AUTO_SELECTOR:
            self.strategies.find(settings.section(ContextSettings).selector)

    def _usage_reporter(self) -> UsageReporter:
        kernel, limits = self._kernel, self.budget.limits if self.budget else None
        return UsageReporter(kernel.open_tape(BUDGET_TAPE), kernel.now, kernel.zone, limits)

    async def _find_copies(self, tape: str) -> Sequence[KnownCopies]:
        """Find what other chats hold of a tape."""
        return await find_copies_of_tape(self._store, tape, self._references, copying_events())

    async def _find_traces(self, turn: Turn) -> list[str]:
        """List the person's tapes with texts of a turn's session."""
        return list(await self.memory.shared.find_traces(turn)) if self.memory and self.memory.shared else []

    def _remove_files(self, session: str) -> None:
        """Remove the files that channels store for a session."""
        with suppress(FileNotFoundError):
            shutil.rmtree(session_folder(self._home.path, session))


def _open_zones(kernel: Kernel, links: AccountLinks) -> SharedZones:
    """Open the memory of people and of the workspace."""
    projections = kernel.projections
    zones = SharedZones(kernel.open_tape, kernel.now, links, is_written_elsewhere=projections.is_shared)
    projections.watch_erasures(zones.forget_all)
    return zones


async def _compose_answerable(compose: Callable[[Turn], Awaitable[ComposedRequest]], turn: Turn) -> ComposedRequest:
    """Build the next request of a turn. Raise `ModelUnavailable` if its model can answer none."""
    composed = await compose(turn)
    if isinstance(composed.model, UnconfiguredModel):
        raise ModelUnavailable(str(composed.model.traits.notice).rstrip("."))
    return composed


async def _prepare(name: str, feature: Feature, settings: Any) -> Apply:
    """Let a feature check new settings. Raise `ConfigError`, also if its code fails: the bot keeps the old ones."""
    if feature.lifecycle.prepare is None:
        return lambda: None
    try:
        return await feature.lifecycle.prepare(settings)
    except BubbotError:
        raise
    except Exception as error:
        raise ConfigError(f"The feature {name!r} cannot take its settings: {type(error).__name__}: {error}") from error


def _list_session_events(factories: Sequence[FeatureFactory]) -> list[str]:
    """List the packages' events that name sessions; an erasure of a session reaches those on their `traces`."""
    return [
        name for factory in factories for name, model in factory.events.items() if declared_references(model).sessions
    ]
