"""The composition root: build a running bot from the settings."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from bubbot.app.channel_factory import ChannelFactory, Deps
from bubbot.app.channels import STDIN
from bubbot.app.features import BotFeatures
from bubbot.app.forgetting import try_forgetting
from bubbot.app.guard import GuardTimeouts
from bubbot.app.health import HealthCollector, HealthSources
from bubbot.app.installed import find_memory_strategies, load_features, load_strategies
from bubbot.app.models import CurrentModels, choose_models, open_endpoint_model, turns_at_once
from bubbot.app.own_features import FEATURES
from bubbot.app.reading import blank_opener, copy_opener, head_finder, session_reader
from bubbot.app.reading_on import find_shared
from bubbot.app.search import open_indexing
from bubbot.app.stores import find_workspace, open_home_store, room_waiter
from bubbot.app.tapes import new_id, now, tape_service
from bubbot.app.turns import TurnServices, build_session_deps
from bubbot.app.workers import ChatWorkers
from bubbot.concurrency import task_group
from bubbot.errors import ConfigError, ModelError, StoreFull
from bubbot.feature import FeatureFactory, Kernel
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.features.conversation.help import list_commands
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.search.settings import SearchSettings
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.gateway.directory import ChannelDirectory
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.outbound import Deliverer
from bubbot.gateway.owner import OwnerChat
from bubbot.gateway.quarantine import Quarantine
from bubbot.home import Home, WriterLock
from bubbot.ports.channel import Channel, CommandInfo, HasCommandPrefix, Inbound, Role, Sender, ignore_preview
from bubbot.ports.model import Model, WarmsUp
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.requests import SharesRequests
from bubbot.ports.session_names import first_session
from bubbot.ports.session_names import read_session as read_session_of_tape
from bubbot.ports.store import OrdersEntries
from bubbot.ports.turn import TurnResult
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.ports.workers import SharesTurns
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.context.strategy import ContextStrategy
from bubbot.runtime.lessons import MODELS_TAPE, ModelLessons
from bubbot.runtime.models import SessionModels
from bubbot.runtime.recovery import OpenWork, find_open_work
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.settings.loader import Settings
from bubbot.settings.sections import StoreSettings
from bubbot.shell_command import CommandContext
from bubbot.stores.lease import InProcessLease
from bubbot.tape.entry import timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from bubbot.tool import Tool, Toolbox

log = logging.getLogger(__name__)


class PortWrappers(Struct, frozen=True):
    """Wrappers around ports, with which a deployment or a test changes a turn.

    Attributes:
        store: wraps the store.
        model: wraps each model.
        channel: wraps each adapter.
        tools: tools in addition to those of the features.
        timeouts: time limits for the code of installed features.
        strategies: context strategies in addition to those of bubbot and of packages.
        features: features in addition to these.
    """

    store: Callable[[TapeStore], TapeStore] = lambda store: store
    model: Callable[[Model], Model] = lambda model: model
    channel: Callable[[Channel], Channel] = lambda channel: channel
    tools: Sequence[Tool] = ()
    timeouts: GuardTimeouts = msgspec.field(default_factory=GuardTimeouts)
    strategies: Sequence[ContextStrategy] = ()
    features: Sequence[FeatureFactory] = ()


@dataclass
class Bot:
    """A bot, ready to run.

    Attributes:
        store: the store, wrapped.
        base_store: the store without wrappers.
        current_models: its models, also after a reload.
        channel_runtimes: its channels, by name.
        workspace: the label of its home in the store.
        commands: the commands that people may type.
        group: owns every long-lived task.
        turn_services: the services of turns.
        restart: set once it has to start again.
        workers: shares the turns with other processes; None: this one runs all.
    """

    store: TapeStore
    base_store: TapeStore
    current_models: CurrentModels
    runtime: AppRuntime
    channel_runtimes: dict[str, ChannelRuntime]
    workspace: str
    commands: list[CommandInfo]
    group: asyncio.TaskGroup
    channel_factory: ChannelFactory
    turn_services: TurnServices
    features: BotFeatures
    directory: ChannelDirectory
    wrappers: PortWrappers
    health_collector: HealthCollector
    restart: asyncio.Event
    workers: ChatWorkers | None = None

    @property
    def models(self) -> SessionModels:
        return self.current_models.in_use.sessions

    @property
    def schedule_store(self) -> ScheduleStore | None:
        """The jobs; None for a bot without schedules."""
        return self.features.schedule.store if self.features.schedule else None

    @property
    def channel_runtime(self) -> ChannelRuntime:
        """The only channel; for a bot in a terminal or a pipe."""
        (line,) = self.channel_runtimes.values()
        return line

    @property
    def model(self) -> Model:
        """The deployment's own model."""
        return self.models.default

    @property
    def channel(self) -> Channel:
        return self.channel_runtime.channel

    @property
    def gate(self) -> InboundGate:
        return self.channel_runtime.gate

    @property
    def deliverer(self) -> Deliverer:
        return self.channel_runtime.deliverer

    @property
    def held_messages(self) -> list[OutboxMessage]:
        """Merged messages that are not delivered yet; empty unless `open_app` got `hold`."""
        return self.channel_runtime.held_messages if self.channel_runtime.held_messages is not None else []

    def check_model(self, name: str) -> None:
        """Raise `ConfigError` if this model cannot be used for a single question."""
        try:
            self.models.get_model(name)
        except ConfigError as error:
            raise ConfigError(f"-m {name}: {error}") from error

    async def warm_model(self, session: str) -> None:
        """Start loading the session's model in the background, if loading takes long."""
        with suppress(ModelError):  # a turn that asks the model reports the error
            model = await self.models.model_for_tape(self.tape(session))
            if isinstance(model, WarmsUp):
                model.warm()

    def tape(self, session: str) -> TapeService:
        return _session_tape(self.store, self.channel_factory.references, self.workspace, session)

    def renew_sessions(self, settings: Settings) -> Toolbox:
        """Build what turns need under these settings; each session uses it from its next turn on."""
        for channel_runtime in self.channel_runtimes.values():
            self.join(channel_runtime)
        deps, toolbox = build_session_deps(settings, self.turn_services, self.current_models.in_use)
        links = {name: channel_runtime.link for name, channel_runtime in self.channel_runtimes.items()}
        self.runtime.reload(links, deps)
        for channel_runtime in self.channel_runtimes.values():
            channel_runtime.open_gate(
                self.runtime,
                self.turn_services.texts,
                activity=self.turn_services.activity,
                report=self.turn_services.report,
                zone=ZoneInfo(settings.bot.timezone),
                notify_owner=OwnerChat(self.channel_runtimes, BUDGET_TAPE, self.turn_services.texts).notify,
                decide_press=self.features.decide_press,
            )
        return toolbox

    def list_commands(self, toolbox: Toolbox) -> list[CommandInfo]:
        """List the commands for the menus of platforms."""
        texts, languages = self.turn_services.texts, menu_languages(self.channel_runtimes)
        agents = self.runtime.deps.agents
        return [*list_commands(toolbox, texts, languages), *agents.list_commands(texts, languages)]

    def renew_tools(self) -> None:
        """Build the tools again under the settings in force, because a feature has others now; as a reload does."""
        toolbox = self.renew_sessions(self.health_collector.settings)
        self.commands[:] = self.list_commands(toolbox)

    async def recover(self, session: str, *, deliver: bool = True) -> list[asyncio.Future[TurnResult]]:
        """Take up a session, deliver its pending messages and queue its open inbounds.

        Other sessions of the channel wait until they are opened.
        """
        open_work = await self._find_open_work()
        async with self.runtime.exclusive(session):
            pass  # merges its open forks
        if deliver:
            await self.deliverer.resume(session)
        return self.channel_runtime.resume(open_work, session)

    async def recover_all(self) -> int:
        """Resume everything that an earlier process left open on these channels; return the number of messages.

        If processes share the turns, their jobs say what is open.
        """
        if self.workers is not None:
            self.runtime.deps.agents.log_unknown_names()
            await self.features.on_recovered()
            for channel_runtime in self.channel_runtimes.values():
                await channel_runtime.gate.admit()
            return 0
        open_work = await self._find_open_work()
        self.runtime.deps.agents.log_unknown_names()
        for channel_runtime in self.channel_runtimes.values():
            await channel_runtime.deliverer.resume(queued=True)
        count = sum(len(channel_runtime.resume(open_work)) for channel_runtime in self.channel_runtimes.values())
        for session in open_work.sessions:
            self.runtime.take_up(session)
        for channel_runtime in self.channel_runtimes.values():
            await channel_runtime.gate.admit()
        return count

    async def _find_open_work(self) -> OpenWork:
        inboxes = {name: channel_runtime.inbox for name, channel_runtime in self.channel_runtimes.items()}
        open_work = await find_open_work(
            self.store, inboxes, self.channel_factory.open_tape, partial(session_tape, self.workspace)
        )
        await self.features.on_recovered()
        return open_work

    def join(self, channel_runtime: ChannelRuntime) -> None:
        """Connect a channel to the others and to the features."""
        self.directory.join(channel_runtime, self.features.on_chat_unreachable)

    async def say(self, text: str, *, chat: str = "default") -> TurnResult:
        """Say something as the owner in a chat of the terminal, and wait for the turn that answers it."""
        return await self.ask(Inbound(STDIN, new_id(), chat, Sender("0", "owner"), text, timestamp(now())))

    async def ask(self, inbound: Inbound) -> TurnResult:
        """Accept an inbound and wait for its turn. Raise `ConfigError` if its external id was accepted before."""
        result = await self.gate.accept(inbound)
        if result is None:
            raise ConfigError(f"the message {inbound.external_id} was accepted before")
        return await result


class _ToolRenewal:
    """Builds the tools of a bot again, once it is open."""

    def __init__(self) -> None:
        self._bot: Bot | None = None

    def begin(self, bot: Bot) -> Bot:
        """Take and return the bot. While it was being opened nothing was to be done: its tools are built last."""
        self._bot = bot
        return bot

    def renew(self) -> None:
        if self._bot is not None:
            self._bot.renew_tools()


@asynccontextmanager
async def open_app(
    settings: Settings,
    home: Home,
    *,
    channel_settings: Mapping[str, Any] | None = None,
    hold: bool = False,
    wrappers: PortWrappers | None = None,
    features: Collection[str] = FEATURES,
    address: str = "",
) -> AsyncIterator[Bot]:
    """Open a bot on standard input and output; hold the home's lock until the block ends.

    Args:
        channel_settings: override the adapter's settings.
        hold: keep answers in `Bot.held_messages` instead of delivering them.
        features: a subset of `FEATURES`.
        address: its control socket for other processes of this home; empty: none.

    Raises:
        HomeLocked: another process holds the lock.
        ConfigError: a setting cannot be used.
        StoreError: the database cannot be opened.
    """

    access_services: list[AccessService] = []

    async def build_channels(maker: ChannelFactory) -> list[ChannelRuntime]:
        access = AccessService(
            maker.open_tape(ACCESS_TAPE),
            now=now,
            random=os.urandom,
            projections=maker.projections,
            first_session=maker.first_session,
        )
        await access.load()
        access_services.append(access)
        table = {**settings.channels.get(STDIN, {}), **(channel_settings or {})}
        return [await maker.build_runtime(maker.build_adapter(STDIN, table), ChannelPolicy(one_lane=True), hold=hold)]

    wrappers = wrappers or PortWrappers()

    def may_read(reader: str, source: str) -> bool:
        return access_services[0].may_read(reader, source)

    async with open_bot(settings, home, build_channels, wrappers, address, features=features, may_read=may_read) as app:
        yield app


@asynccontextmanager
async def open_bot(
    settings: Settings,
    home: Home,
    build_channels: Callable[[ChannelFactory], Awaitable[list[ChannelRuntime]]],
    wrappers: PortWrappers,
    address: str = "",
    *,
    room_retry: float | None = None,
    features: Collection[str] = FEATURES,
    is_daemon: bool = False,
    may_read: Callable[[str, str], bool] = lambda _reader, _source: False,
) -> AsyncIterator[Bot]:
    """Open a bot with these channels; hold the home's lock until the block ends.

    Args:
        address: its control socket for other processes of this home; empty: none.
        room_retry: see `open_store`.
        features: a subset of `FEATURES`.
        is_daemon: see `CommandContext`.
        may_read: returns true if the first session was granted to read the second one.
    """
    async with AsyncExitStack() as stack:
        home.ensure()
        stack.enter_context(WriterLock(home, address))
        base_store = await _open_store(settings.store, home, room_retry)
        stack.push_async_callback(base_store.aclose)
        workspace = await find_workspace(base_store, home)
        store = wrappers.store(base_store)
        installed = load_features(wrappers.features)
        await try_forgetting(base_store, home, workspace, installed.references)
        open_tape = partial(tape_service, store, references=installed.references)
        restored = await Quarantine(open_tape(HOME_TAPE)).current_restore()
        lessons = ModelLessons(open_tape(MODELS_TAPE))
        await lessons.load()
        models = CurrentModels(
            choose_models(settings, home, wrappers.model, lessons, is_quarantined=restored is not None)
        )
        _log_assumed_size(models.in_use.sessions.default)
        stack.push_async_callback(models.aclose)
        feature_stack = await stack.enter_async_context(AsyncExitStack())  # closed after the turns have ended
        group = await stack.enter_async_context(task_group())
        await stack.enter_async_context(open_indexing(base_store, settings.section(SearchSettings), group))
        commands: list[CommandInfo] = []
        clock_and_ids, texts = Deps(now, new_id), _texts(settings)
        channel_runtimes: dict[str, ChannelRuntime] = {}
        workers = (
            _share_turns(base_store, store, channel_runtimes, workspace, settings=settings, home=home)
            if is_daemon and isinstance(base_store, SharesTurns)
            else None
        )
        leases = InProcessLease(store, partial(session_tape, workspace), workers.may_take if workers else None)
        directory = ChannelDirectory(channel_runtimes, texts)
        owner_chat = OwnerChat(channel_runtimes, BUDGET_TAPE, texts)
        projections, restart, renewal = ProjectionRunner(find_shared(base_store)), asyncio.Event(), _ToolRenewal()
        open_tape_of = partial(_session_tape, store, installed.references, workspace)
        read_session = session_reader(open_tape_of, may_read, partial(first_session, store))
        kernel = Kernel(
            home=home.path,
            now=now,
            new_id=new_id,
            zone=ZoneInfo(settings.bot.timezone),
            texts=texts,
            find_texts=directory.find_texts,
            projections=projections,
            open_tape=open_tape,
            role_of=directory.role_of,
            accept=directory.accept,
            send=directory.send,
            notify=directory.notify,
            draft=directory.draft,
            stage=directory.stage,
            wait_until_sent=directory.wait_until_sent,
            find_sent=directory.find_sent,
            open_copy=copy_opener(store, workspace, installed.references),
            open_blank=blank_opener(store, workspace, installed.references),
            read_session=read_session,
            find_heads=head_finder(read_session, partial(read_session_of_tape, store)),
            may_read=may_read,
            ordered_entries=base_store if isinstance(base_store, OrdersEntries) else None,
            current_session=directory.current_session,
            first_session=partial(first_session, store),
            restart=restart.set,
            renew_tools=renewal.renew,
            find_owner=owner_chat.find,
        )
        bot_features = BotFeatures(
            kernel,
            settings,
            home=home,
            store=base_store,
            load_model=models.get_model,
            find_model=models.model_for_turn,
            lessons=lessons,
            open_endpoint=lambda *endpoint: wrappers.model(
                open_endpoint_model(*endpoint, home=home.path, lessons=lessons, is_quarantined=restored is not None)
            ),
            owner_chat=owner_chat,
            list_owners=directory.list_owners,
            names=features,
            factories=installed.factories,
            strategies=load_strategies(wrappers.strategies),
            memory_strategies=find_memory_strategies(),
            references=installed.references,
            timeouts=wrappers.timeouts,
        )
        for name, reason in installed.broken.items():
            bot_features.problems.leave_out(name, reason)
        maker = ChannelFactory(
            store,
            home,
            wrappers.channel,
            group,
            workspace,
            lambda: tuple(commands),
            clock_and_ids,
            kernel.zone,
            restored,
            _permission_waiter(base_store, workers),
            [*bot_features.around_delivery, *([workers.around_delivery()] if workers else [])],
            projections,
            installed.references,
            leases,
            workers,
        )
        channel_runtimes |= {
            channel_runtime.channel.name: channel_runtime for channel_runtime in await build_channels(maker)
        }
        await feature_stack.enter_async_context(bot_features.lifespan())
        for channel_runtime in channel_runtimes.values():
            directory.join(channel_runtime, bot_features.on_chat_unreachable)

        async def report(role: Role, *, direct: bool, own: int = 0, texts: Texts | None = None) -> Sequence[str]:
            return await watch.report(role, direct=direct, own=own, texts=texts)

        activity, limiter = ActivityTracker(ignore_preview, time.monotonic), TurnLimiter(turns_at_once(settings))
        context = CommandContext(
            base_store,
            workspace,
            now,
            new_id,
            services=[service for feature in bot_features.lasting for service in feature.services],
            is_running=True,
            is_daemon=is_daemon,
            home=home.path,
        )
        shared = TurnServices(
            channel_runtimes,
            texts,
            bot_features,
            directory,
            limiter,
            clock_and_ids,
            activity,
            report,
            leases,
            context,
            wrappers.tools,
            [workers.around_tool()] if workers else [],
            is_quarantined=restored is not None,
        )
        deps, toolbox = build_session_deps(settings, shared, models.in_use)
        runtime = AppRuntime(
            {name: channel_runtime.link for name, channel_runtime in channel_runtimes.items()},
            deps,
            open_tape_of,
            group,
            workers,
            requests=base_store.requests if isinstance(base_store, SharesRequests) else None,
        )
        _join_others(workers, runtime, leases, projections, lessons)
        for channel_runtime in channel_runtimes.values():
            channel_runtime.open_gate(
                runtime,
                texts,
                activity=activity,
                report=report,
                zone=ZoneInfo(settings.bot.timezone),
                notify_owner=owner_chat.notify,
                decide_press=bot_features.decide_press,
            )
        languages = menu_languages(channel_runtimes)
        commands += [*list_commands(toolbox, texts, languages), *deps.agents.list_commands(texts, languages)]
        sources = HealthSources(channel_runtimes, runtime, activity, bot_features, models.loading_names)
        watch = HealthCollector(base_store, home, sources, settings, texts, now=now, restored=restored)
        yield renewal.begin(
            Bot(
                store,
                base_store,
                models,
                runtime,
                channel_runtimes,
                workspace,
                commands,
                group,
                maker,
                shared,
                bot_features,
                directory,
                wrappers,
                watch,
                restart,
                workers,
            )
        )


async def _open_store(settings: StoreSettings, home: Home, room_retry: float | None) -> TapeStore:
    """Open the store. If the disk is full and `room_retry` is set, wait for room."""
    while True:
        try:
            return await open_home_store(settings, home, now=now, room_retry=room_retry)
        except StoreFull as error:
            if room_retry is None:
                raise
            log.error("disk full, waiting for room to start: %s", error, extra={"action": "store.full"})  # noqa: TRY400
            await asyncio.sleep(room_retry)


def _share_turns(
    shares: SharesTurns,
    store: TapeStore,
    channel_runtimes: Mapping[str, ChannelRuntime],
    workspace: str,
    *,
    settings: Settings,
    home: Home,
) -> ChatWorkers:
    """Share the turns with the other processes of the store."""
    return ChatWorkers(
        shares,
        store,
        channel_runtimes,
        workspace,
        local_channel=STDIN,
        home=home.identity,
        places=turns_at_once(settings),
        lease_seconds=settings.store.lease,
    )


def _permission_waiter(store: TapeStore, workers: ChatWorkers | None) -> Callable[[], Awaitable[None]]:
    """Return the function that waits before each sending until there is room, and raises `LeaseLost` if others send by now."""
    has_room = room_waiter(store)
    if workers is None:
        return has_room

    async def wait() -> None:
        await has_room()
        await workers.jobs.confirm()

    return wait


def _session_tape(store: TapeStore, references: ReferenceRegistry, workspace: str, session: str) -> TapeService:
    return tape_service(store, session_tape(workspace, session), session, references=references)


def _join_others(
    workers: ChatWorkers | None,
    runtime: AppRuntime,
    leases: InProcessLease,
    projections: ProjectionRunner,
    lessons: ModelLessons,
) -> None:
    """Begin to share the turns, and reload lessons and windows, which are no projections, after other processes wrote."""
    if workers is not None:
        workers.begin(runtime, leases)
    projections.watch(MODELS_TAPE, lessons.load)
    projections.watch_erasures(runtime.forget_windows)


def menu_languages(channel_runtimes: Mapping[str, ChannelRuntime]) -> dict[str, Texts]:
    """Return the languages of command menus; empty if no platform here has such a menu."""
    if not any(isinstance(each.channel, HasCommandPrefix) for each in channel_runtimes.values()):
        return {}
    return {tag: Texts(tag) for tag in list_languages(Texts.package)}


def _texts(settings: Settings) -> Texts:
    texts = Texts(settings.bot.language)
    if not texts.is_translated:
        log.warning("no translation for %r, using English", texts.language, extra={"action": "texts.missing"})
    return texts


def _log_assumed_size(model: Model) -> None:
    if model.traits.assumes_size:
        log.info(
            "nobody knows the context size of %s: %s tokens are assumed; [model] context_tokens sets it",
            model.name,
            model.traits.context_tokens,
            extra={"action": "model.assumed_size"},
        )
