"""The composition root: settings in, a running bot out. The only file that names concrete classes."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from bubbot.channel import Channel, CommandInfo, Inbound, Reports, kept_aside
from bubbot.errors import ConfigError, ModelError
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.line import Line, LineRules
from bubbot.gateway.outbound import Deliverer
from bubbot.gateway.previews import PreviewSink
from bubbot.home import Home, WriterLock
from bubbot.model import Model
from bubbot.models.lazy import LazyModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.calls import CallRunner, ToolSettings
from bubbot.runtime.commands import CommandRunner
from bubbot.runtime.compose import Composer, ComposeSettings
from bubbot.runtime.link import SessionDeps
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.metering import BudgetMeter, Thrifty
from bubbot.runtime.models import SessionModels
from bubbot.runtime.places import Places
from bubbot.runtime.preview import Show
from bubbot.runtime.prompt import PromptSettings
from bubbot.runtime.recovery import Recovered, recover
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.settings import Settings
from bubbot.stores.sqlite import SqliteStore, open_readonly, open_store
from bubbot.supervise import task_group
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import Tool, Toolbox
from bubbot.tools.files import file_tools
from bubbot.tools.memory import memory_tools
from bubbot.tools.model import model_tool, status_tools
from bubbot.tools.result import result_tools
from bubbot.tools.schedule import schedule_tools
from bubbot.tools.session import context_tool, help_tool, reset_tool, session_tools, typed_commands
from bubbot.tools.tape import tape_tools
from bubbot.tools.usage import usage_tool
from bubbot.turn import Turn, TurnResult
from bubbot.views.attachments import IMAGES_SHOWN
from bubbot.views.outbox import Intent
from bubbot.wiring_budget import Purse, open_purse
from bubbot.wiring_lines import Given, Maker
from bubbot.wiring_models import choose_model, choose_transcriber, intake_of, model_names, turns_at_once
from bubbot.wiring_schedule import Timekeeping, timekeeping
from bubbot.wiring_search import indexing

log = logging.getLogger(__name__)

STDIN = "stdin"


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - the one clock


def new_id() -> str:
    """A fresh random id, 32 hexadecimal digits."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Wrap:
    """Wraps put around ports before they are used: how a deployment, or a test, changes a turn."""

    store: Callable[[TapeStore], TapeStore] = lambda store: store
    model: Callable[[Model], Model] = lambda model: model
    channel: Callable[[Channel], Channel] = lambda channel: channel
    tools: Sequence[Tool] = ()


@dataclass
class App:
    """A bot, ready to run: its lines by the name of their channel. `models` has the model of each session.

    `opened` is the store itself, without wraps; `commands` are those people may type; `group` owns every long-lived task.
    """

    store: TapeStore
    opened: SqliteStore
    models: SessionModels
    runtime: AppRuntime
    lines: Mapping[str, Line]
    workspace: str
    commands: Sequence[CommandInfo]
    group: asyncio.TaskGroup
    time: Timekeeping

    @property
    def line(self) -> Line:
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
    def held(self) -> list[Intent]:
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
        return _service(self.store, session_tape(self.workspace, session), session)

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

    async def _recovered(self) -> Recovered:
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
    wrap: Wrap | None = None,
) -> AsyncIterator[App]:
    """A bot that talks on standard input and output, holding the home's lock until the block ends.

    `hold` keeps answers in `App.held` instead of delivering them. Raises `HomeLocked`, `ConfigError` or
    `StoreError` where it cannot start.
    """

    async def lines(maker: Maker) -> list[Line]:
        table = {**settings.channels.get(STDIN, {}), **(channel_settings or {})}
        return [await maker.line(maker.channel(STDIN, table), LineRules(one_lane=True), hold=hold)]

    async with open_bot(settings, home, lines, wrap or Wrap()) as app:
        yield app


@asynccontextmanager
async def open_bot(
    settings: Settings, home: Home, lines: Callable[[Maker], Awaitable[list[Line]]], wrap: Wrap, address: str = ""
) -> AsyncIterator[App]:
    """A bot with the lines that `lines` makes, holding the home's lock until the block ends.

    `address`: where other processes of this home reach it.
    """
    async with AsyncExitStack() as stack:
        home.ensure()
        stack.enter_context(WriterLock(home, address))
        opened = await open_store(home.database, salt=os.urandom, now=now)
        stack.push_async_callback(opened.aclose)
        workspace = await opened.workspace(str(home.path.resolve()))
        store = wrap.store(opened)
        model = wrap.model(choose_model(settings, home))
        models = SessionModels(model, lambda name: wrap.model(choose_model(settings, home, name)), model_names)
        stack.push_async_callback(models.aclose)
        transcriber = choose_transcriber(settings, home)
        if transcriber is not None:
            stack.push_async_callback(transcriber.aclose)
        group = await stack.enter_async_context(task_group())
        await stack.enter_async_context(indexing(opened, settings.search, group))
        commands: list[CommandInfo] = []
        given, texts = Given(now, new_id), _texts(settings)
        made = await lines(Maker(store, home, wrap.channel, group, workspace, lambda: tuple(commands), given))
        by_name = {line.channel.name: line for line in made}
        purse = await open_purse(settings, lambda name: _service(store, name), given, by_name, texts)
        tape = _service(store, SCHEDULE_TAPE)
        kept = timekeeping(tape, by_name, settings.schedule, texts, now=now, new_id=new_id, zone=settings.bot.timezone)
        ports = _Ports(store, models, by_name, workspace, texts, transcriber, kept, purse)
        runtime, toolbox = _assembled(settings, home, ports, group, wrap)
        commands += typed_commands(toolbox, ports.texts)
        yield App(store, opened, models, runtime, ports.lines, workspace, commands, group, kept)


@dataclass(frozen=True, slots=True)
class _Ports:
    store: TapeStore
    models: SessionModels
    lines: Mapping[str, Line]
    workspace: str
    texts: Texts
    transcriber: LazyModel | None
    time: Timekeeping
    purse: Purse


def _assembled(
    settings: Settings, home: Home, ports: _Ports, group: asyncio.TaskGroup, wrap: Wrap
) -> tuple[AppRuntime, Toolbox]:
    store, lines, texts = ports.store, ports.lines, ports.texts
    show = PreviewSink({name: line.previews for name, line in lines.items() if line.previews is not None})
    toolbox, loop = _loop(settings, home, ports, wrap, show=show)

    async def deliver(channel: str, intent: Intent) -> None:
        await lines[channel].deliver(intent)

    deps = SessionDeps(
        loop=loop,
        now=now,
        new_id=new_id,
        zone=ZoneInfo(settings.bot.timezone),
        retention_days=settings.memory.retention_days,
        places=Places(turns_at_once(settings)),
        deliver=deliver,
        show=show,
        texts=texts,
        firings=ports.time.firings,
        intake=intake_of(settings, ports.transcriber, texts, ports.purse.budget),
        pace=ports.purse.pace,
    )

    def tape(session: str) -> TapeService:
        return _service(store, session_tape(ports.workspace, session), session)

    runtime = AppRuntime({name: line.link for name, line in lines.items()}, deps, tape, group)
    for line in lines.values():
        line.open_gate(runtime, texts)
    return runtime, toolbox


def _loop(settings: Settings, home: Home, ports: _Ports, wrap: Wrap, *, show: Show) -> tuple[Toolbox, AgentLoop]:
    """The agent loop with its toolbox; `help` and `context` look at what is put together here."""
    purse, models, channels = ports.purse, ports.models, {name: line.channel for name, line in ports.lines.items()}
    traces = [tape for line in ports.lines.values() for tape in (line.inbox.name, line.outbox.name)] + [SCHEDULE_TAPE]
    prompt = PromptSettings(settings.bot.name, settings.bot.read_persona())
    composer = Composer(
        Thrifty(models.of, models.named, purse.budget, settings.budget.cheaper).of,
        ComposeSettings(
            settings.context.selector,
            prompt,
            settings.memory.retention_days,
            settings.memory.recent_days,
            images=IMAGES_SHOWN if settings.attachments.images else 0,
        ),
        lambda role: toolbox.specs(role),  # noqa: PLW0108 - the toolbox is made below
    )
    toolbox = Toolbox(
        [
            help_tool(lambda: tuple(toolbox)),
            *session_tools(),
            context_tool(composer),
            model_tool(models),
            *status_tools(
                models, lambda: {name: one.health() for name, one in channels.items() if isinstance(one, Reports)}
            ),
            reset_tool(traces, partial(_export, home), partial(_forget, home)),
            *tape_tools(),
            *memory_tools(retention_days=settings.memory.retention_days, recent_days=settings.memory.recent_days),
            *result_tools(),
            usage_tool(purse.ledger),
            *file_tools(settings.attachments.max_bytes),
            *schedule_tools(ports.time.book),
            *wrap.tools,
        ]
    )
    calls = CallRunner(toolbox, ToolSettings(settings.tools.timeout, settings.tools.result_limit), show)
    commands = CommandRunner(toolbox, calls, time.monotonic)
    limits = RunnerSettings(settings.model.max_steps, settings.model.timeout)
    runner = ModelRunner(composer, calls, limits, time.monotonic, show, meter=BudgetMeter(purse.budget))

    async def has_model(turn: Turn) -> bool:
        try:
            return not isinstance(await models.of(turn), UnconfiguredModel)
        except ModelError:
            return False

    return toolbox, AgentLoop(commands, runner, has_model=has_model)


def _texts(settings: Settings) -> Texts:
    texts = Texts(settings.bot.language)
    if not texts.translated:
        log.warning("no sentences in %r yet: English is used", texts.language, extra={"action": "texts.missing"})
    return texts


def _export(home: Home, session: str, text: str) -> str:
    """Writes a memory to a file of its own under `exports/` and returns its path."""
    folder = home.path / "exports"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:80]
    path = folder / f"memory-{safe}-{now():%Y%m%dT%H%M%S%f}.md"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _forget(home: Home, session: str) -> None:
    """Removes what channels keep of a session in files."""
    with suppress(FileNotFoundError):
        shutil.rmtree(kept_aside(home.path, session))


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
