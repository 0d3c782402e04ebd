"""The composition root: settings in, a running bot out. The only file that names concrete classes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

from bubbot.concurrency import task_group
from bubbot.errors import ConfigError, ModelError, StoreFull
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.outbound import Deliverer
from bubbot.home import Home, WriterLock
from bubbot.models.lazy import LazyModel
from bubbot.ports.channel import Channel, CommandInfo, Inbound, Role
from bubbot.ports.model import Model
from bubbot.ports.tool import Tool
from bubbot.ports.turn import TurnResult
from bubbot.quarantine import HOME_TAPE, Quarantine
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.models import SessionModels
from bubbot.runtime.preview import show_nothing
from bubbot.runtime.recovery import RecoveryResult, recover
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import SqliteStore, open_readonly, open_store
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tools.session import typed_commands
from bubbot.views.outbox import OutboxMessage
from bubbot.wiring.budget import BudgetServices, open_purse
from bubbot.wiring.channel_factory import ChannelFactory, Deps
from bubbot.wiring.channels import STDIN
from bubbot.wiring.health import HealthCollector, HealthSources
from bubbot.wiring.models import ModelSet, choose_models, turns_at_once
from bubbot.wiring.schedule import Scheduler, timekeeping
from bubbot.wiring.search import indexing
from bubbot.wiring.turns import TurnServices, make_turns

log = logging.getLogger(__name__)


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - the one clock


def new_id() -> str:
    """A fresh random id, 32 hexadecimal digits."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class PortWrappers:
    """Wraps put around ports before they are used: how a deployment, or a test, changes a turn."""

    store: Callable[[TapeStore], TapeStore] = lambda store: store
    model: Callable[[Model], Model] = lambda model: model
    channel: Callable[[Channel], Channel] = lambda channel: channel
    tools: Sequence[Tool] = ()


@dataclass
class Bot:
    """A bot, ready to run: its lines by the name of their channel.

    `opened` is the store itself, without wraps; `sets` are its models, of which the newest counts; `commands` are those
    people may type; `group` owns every long-lived task; `maker` makes further lines; `watch` looks over it all.
    """

    store: TapeStore
    opened: SqliteStore
    sets: list[ModelSet]
    runtime: AppRuntime
    lines: dict[str, ChannelRuntime]
    workspace: str
    commands: list[CommandInfo]
    group: asyncio.TaskGroup
    maker: ChannelFactory
    shared: TurnServices
    purse: BudgetServices
    wrap: PortWrappers
    watch: HealthCollector

    @property
    def models(self) -> SessionModels:
        """Knows the model of each session."""
        return self.sets[-1].sessions

    @property
    def time(self) -> Scheduler:
        """The schedules."""
        return self.shared.time

    @property
    def line(self) -> ChannelRuntime:
        """The only line, of a bot in a terminal or a pipe."""
        (line,) = self.lines.values()
        return line

    @property
    def model(self) -> Model:
        """The deployment's own model."""
        return self.models.default

    @property
    def channel(self) -> Channel:
        """That of the only line."""
        return self.line.channel

    @property
    def gate(self) -> InboundGate:
        """That of the only line."""
        return self.line.gate

    @property
    def deliverer(self) -> Deliverer:
        """That of the only line."""
        return self.line.deliverer

    @property
    def held(self) -> list[OutboxMessage]:
        """Merged intents not delivered yet, where `hold` was asked for."""
        return self.line.held if self.line.held is not None else []

    async def warm(self, session: str) -> None:
        """Begins to load the session's model in the background, where loading takes long."""
        with suppress(ModelError):  # whoever asks it is told
            model = await self.models.on(self.tape(session))
            if isinstance(model, LazyModel):
                model.warm()

    def tape(self, session: str) -> TapeService:
        """The tape of a session."""
        return _session_tape(self.store, self.workspace, session)

    async def recover(self, session: str, *, deliver: bool = True) -> list[asyncio.Future[TurnResult]]:
        """Merges what an earlier process left open, delivers what it owed to this session, and queues its turns.

        Other sessions of the channel keep theirs until they are opened.
        """
        recovered = await self._recovered()
        if deliver:
            await self.deliverer.resume(session)
        return self.line.take_up(recovered, session)

    async def recover_all(self) -> int:
        """Takes up everything an earlier process left open on these channels; says how many messages that are."""
        recovered = await self._recovered()
        for line in self.lines.values():
            await line.deliverer.resume(queued=True)
        return sum(len(line.take_up(recovered)) for line in self.lines.values())

    async def _recovered(self) -> RecoveryResult:
        inboxes = [line.inbox for line in self.lines.values()]
        recovered = await recover(self.store, inboxes, lambda name: _service(self.store, name))
        await self.time.book.load()  # what an interrupted turn had staged is on the tape by now
        return recovered

    async def ask(self, inbound: Inbound) -> TurnResult:
        """Accepts an inbound and waits for its turn. Raises `ConfigError` for an external id that came before."""
        result = await self.gate.accept(inbound)
        if result is None:
            raise ConfigError(f"the message {inbound.external_id} was accepted before")
        return await result


def _service(store: TapeStore, name: str, session: str = "") -> TapeService:
    return TapeService(store, name, now=now, new_id=new_id, session=session)


@asynccontextmanager
async def open_app(
    settings: Settings,
    home: Home,
    *,
    channel_settings: Mapping[str, Any] | None = None,
    hold: bool = False,
    wrap: PortWrappers | None = None,
) -> AsyncIterator[Bot]:
    """A bot that talks on standard input and output, holding the home's lock until the block ends.

    `hold` keeps answers in `Bot.held` instead of delivering them. Raises `HomeLocked`, `ConfigError` or
    `StoreError` where it cannot start.
    """

    async def lines(maker: ChannelFactory) -> list[ChannelRuntime]:
        table = {**settings.channels.get(STDIN, {}), **(channel_settings or {})}
        return [await maker.line(maker.channel(STDIN, table), ChannelPolicy(one_lane=True), hold=hold)]

    async with open_bot(settings, home, lines, wrap or PortWrappers()) as app:
        yield app


@asynccontextmanager
async def open_bot(
    settings: Settings,
    home: Home,
    lines: Callable[[ChannelFactory], Awaitable[list[ChannelRuntime]]],
    wrap: PortWrappers,
    address: str = "",
    *,
    room_retry: float | None = None,
) -> AsyncIterator[Bot]:
    """A bot with the lines that `lines` makes, holding the home's lock until the block ends.

    `address`: where other processes of this home reach it. `room_retry`: see `open_store`.
    """
    async with AsyncExitStack() as stack:
        home.ensure()
        stack.enter_context(WriterLock(home, address))
        opened = await _opened(home, room_retry)
        stack.push_async_callback(opened.aclose)
        workspace = await opened.workspace(str(home.path.resolve()))
        store = wrap.store(opened)
        models = [choose_models(settings, home, wrap.model)]
        stack.push_async_callback(_close, models)
        books = await stack.enter_async_context(AsyncExitStack())  # closed after the turns have ended
        group = await stack.enter_async_context(task_group())
        await stack.enter_async_context(indexing(opened, settings.search, group))
        commands: list[CommandInfo] = []
        given, texts = Deps(now, new_id), _texts(settings)
        restored = await Quarantine(_service(store, HOME_TAPE)).standing()
        maker = ChannelFactory(
            store, home, wrap.channel, group, workspace, lambda: tuple(commands), given, restored, opened.has_room
        )
        by_name = {line.channel.name: line for line in await lines(maker)}
        purse = await open_purse(settings, maker.service, given, by_name, texts)
        books.push_async_callback(purse.budget.written)
        kept = timekeeping(maker.service(SCHEDULE_TAPE), by_name, settings, texts, given)

        async def report(role: Role, *, direct: bool, own: int = 0) -> Sequence[str]:
            return await watch.told(role, direct=direct, own=own)

        activity, places = ActivityTracker(show_nothing, time.monotonic), TurnLimiter(turns_at_once(settings))
        shared = TurnServices(home, by_name, texts, kept, places, given, activity, report, wrap.tools)
        deps, toolbox = make_turns(settings, shared, models[0], purse)
        links = {name: line.link for name, line in by_name.items()}
        runtime = AppRuntime(links, deps, partial(_session_tape, store, workspace), group)
        for line in by_name.values():
            line.open_gate(runtime, texts, activity=activity, report=report)
        commands += typed_commands(toolbox, texts)
        over = HealthSources(by_name, runtime, activity, kept.book, purse.budget)
        watch = HealthCollector(opened, home, over, settings, texts, now=now, restored=restored)
        yield Bot(
            store, opened, models, runtime, by_name, workspace, commands, group, maker, shared, purse, wrap, watch
        )


async def _opened(home: Home, room_retry: float | None) -> SqliteStore:
    """The store; where the disk is full, and that is waited for, as soon as there is room."""
    while True:
        try:
            return await open_store(home.database, salt=os.urandom, now=now, room_retry=room_retry)
        except StoreFull as error:
            if room_retry is None:
                raise
            log.error("%s; the bot starts when there is room", error, extra={"action": "store.full"})  # noqa: TRY400
            await asyncio.sleep(room_retry)


async def _close(models: Sequence[ModelSet]) -> None:
    for one in models:
        await one.aclose()


def _session_tape(store: TapeStore, workspace: str, session: str) -> TapeService:
    return _service(store, session_tape(workspace, session), session)


def _texts(settings: Settings) -> Texts:
    texts = Texts(settings.bot.language)
    if not texts.translated:
        log.warning("no sentences in %r yet: English is used", texts.language, extra={"action": "texts.missing"})
    return texts


@asynccontextmanager
async def open_tapes(home: Home, *, write: bool = False) -> AsyncIterator[tuple[SqliteStore, str]]:
    """The store and the workspace label, without model or channel. Reading works beside a running bot."""
    async with AsyncExitStack() as stack:
        if write:
            home.ensure()
            stack.enter_context(WriterLock(home))
            store = await open_store(home.database, salt=os.urandom, now=now)
        else:
            store = await open_readonly(home.database)
        stack.push_async_callback(store.aclose)
        yield store, await store.workspace(str(home.path.resolve()))
