"""The composition root: settings in, a running bot out. The only file that names concrete classes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from bubbot import plugins
from bubbot.channel import Channel, ChannelOptions, CommandInfo, Inbound, Role
from bubbot.errors import BubbotError, ConfigError, ModelError
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.outbound import Deliverer
from bubbot.gateway.previews import PreviewSink
from bubbot.home import Home, WriterLock
from bubbot.inbox import Inbox, inbox_tape
from bubbot.model import Model, ModelOptions
from bubbot.models import litellm_sizes, local
from bubbot.models.lazy import LazyModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.outbox import Outbox, outbox_tape
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.calls import CallRunner, ToolSettings
from bubbot.runtime.commands import CommandRunner
from bubbot.runtime.compose import Composer, ComposeSettings
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.models import SessionModels
from bubbot.runtime.preview import Show
from bubbot.runtime.prompt import PromptSettings
from bubbot.runtime.recovery import recover
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.runtime.session import ChannelLink, SessionDeps
from bubbot.settings import Settings
from bubbot.stores.sqlite import SqliteStore, open_readonly, open_store
from bubbot.tape.entry import timestamp
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.tool import Tool, Toolbox
from bubbot.tools.memory import memory_tools
from bubbot.tools.model import model_tool
from bubbot.tools.result import result_tools
from bubbot.tools.session import context_tool, help_tool, reset_tool, session_tools
from bubbot.tools.tape import tape_tools
from bubbot.turn import Turn, TurnResult
from bubbot.views.outbox import Intent

CONCURRENT_TURNS = 8
"""Turns of different sessions at once."""
STDIN = "stdin"
LITELLM = "litellm"
"""The model plugin for every `provider/model` that is no plugin itself."""


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
    """A bot with one channel, ready to run. `models` has the model of each session, `model` is that of the deployment.

    `held` are merged intents not delivered yet, where `hold` was asked for.
    """

    store: TapeStore
    model: Model
    channel: Channel
    gate: InboundGate
    deliverer: Deliverer
    runtime: AppRuntime
    inbox: Inbox
    workspace: str
    models: SessionModels
    held: list[Intent] = field(default_factory=list)

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
        recovered = await recover(self.store, [self.inbox], lambda name: _service(self.store, name))
        if deliver:
            await self.deliverer.resume(session)
        return [self.gate.resume(one) for one in recovered.open if one.inbound.session == session]

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
    wrap = wrap or Wrap()
    async with AsyncExitStack() as stack:
        home.ensure()
        stack.enter_context(WriterLock(home))
        opened = await open_store(home.database, salt=os.urandom, now=now)
        stack.push_async_callback(opened.aclose)
        workspace = await opened.workspace(str(home.path.resolve()))
        store = wrap.store(opened)
        model = wrap.model(choose_model(settings, home))
        models = SessionModels(model, lambda name: wrap.model(choose_model(settings, home, name)), _model_names)
        stack.push_async_callback(models.aclose)
        commands: list[CommandInfo] = []
        given = {"commands": lambda: tuple(commands), **(channel_settings or {})}
        channel = wrap.channel(_channel(STDIN, settings, home, given))
        group = await stack.enter_async_context(_task_group())
        ports = _Ports(store, models, channel, workspace)
        app, toolbox = _assembled(settings, home, ports, group, wrap, hold=hold)
        commands += _typed(toolbox)
        yield app


@dataclass(frozen=True, slots=True)
class _Ports:
    store: TapeStore
    models: SessionModels
    channel: Channel
    workspace: str


@asynccontextmanager
async def _task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """The one task group; an error in it comes out as itself and not as a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as many:
        raise _first(many) from many


def _first(error: BaseException) -> BaseException:
    """The first error of a group that is one of ours, else the first one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, BubbotError)), leaves[0])


def _assembled(
    settings: Settings, home: Home, ports: _Ports, group: asyncio.TaskGroup, wrap: Wrap, *, hold: bool
) -> tuple[App, Toolbox]:
    channel, store, show = ports.channel, ports.store, PreviewSink({ports.channel.name: ports.channel})
    inbox = Inbox(_service(store, inbox_tape(channel.name)), new_id)
    deliverer = Deliverer(channel, Outbox(_service(store, outbox_tape(channel.name))), waits=())
    held: list[Intent] = []

    async def deliver(_: str, intent: Intent) -> None:
        if hold:
            held.append(intent)
        else:
            await deliverer.deliver(intent)

    link = ChannelLink(channel.name, inbox.name, outbox_tape(channel.name), channel.parts, lambda _sender: Role.OWNER)
    toolbox, loop = _loop(settings, home, ports.models, (inbox.name, link.outbox), wrap, show=show)
    deps = SessionDeps(
        loop=loop,
        now=now,
        new_id=new_id,
        zone=ZoneInfo(settings.bot.timezone),
        retention_days=settings.memory.retention_days,
        limit=asyncio.Semaphore(CONCURRENT_TURNS),
        deliver=deliver,
        show=show,
    )

    def tape(session: str) -> TapeService:
        return _service(store, session_tape(ports.workspace, session), session)

    runtime = AppRuntime({channel.name: link}, deps, tape, group)
    gate = InboundGate(inbox, runtime, deliverer.tell)
    model = ports.models.default
    return App(store, model, channel, gate, deliverer, runtime, inbox, ports.workspace, ports.models, held), toolbox


def _loop(
    settings: Settings, home: Home, models: SessionModels, traces: Sequence[str], wrap: Wrap, *, show: Show
) -> tuple[Toolbox, AgentLoop]:
    """The agent loop with its toolbox; `help` and `context` look at what is put together here."""
    prompt = PromptSettings(settings.bot.name, settings.bot.read_persona())
    composer = Composer(
        models.of,
        ComposeSettings(settings.context.selector, prompt, settings.memory.retention_days, settings.memory.recent_days),
        lambda role: toolbox.specs(role),  # noqa: PLW0108 - the toolbox is made below
    )
    toolbox = Toolbox(
        [
            help_tool(lambda: tuple(toolbox)),
            *session_tools(),
            context_tool(composer),
            model_tool(models),
            reset_tool(traces, lambda session, text: _export(home, session, text)),
            *tape_tools(),
            *memory_tools(retention_days=settings.memory.retention_days, recent_days=settings.memory.recent_days),
            *result_tools(),
            *wrap.tools,
        ]
    )
    calls = CallRunner(toolbox, ToolSettings(settings.tools.timeout, settings.tools.result_limit), show)
    commands = CommandRunner(toolbox, calls, time.monotonic)
    limits = RunnerSettings(settings.model.max_steps, settings.model.timeout)
    runner = ModelRunner(composer, calls, limits, time.monotonic, show)

    async def has_model(turn: Turn) -> bool:
        try:
            return not isinstance(await models.of(turn), UnconfiguredModel)
        except ModelError:
            return False

    return toolbox, AgentLoop(commands, runner, has_model=has_model)


def _typed(toolbox: Toolbox) -> list[CommandInfo]:
    """The commands as people type them."""
    return [
        CommandInfo(name, one.summary.partition(". ")[0].rstrip("."), tuple(one.args.model_fields))
        for one in toolbox
        for name in one.commands or (one.name,)
    ]


def _export(home: Home, session: str, text: str) -> str:
    """Writes a memory to a file of its own under `exports/` and returns its path."""
    folder = home.path / "exports"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:80]
    path = folder / f"memory-{safe}-{now():%Y%m%dT%H%M%S%f}.md"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _model_names() -> list[str]:
    """The models there are; of a provider, the form of their names."""
    known = {name: name for name in plugins.names("bubbot.models") if name != "local" or local.available()}
    return list((known | {LITELLM: "provider/model"}).values())


def choose_model(settings: Settings, home: Home, name: str = "") -> Model:
    """The model of this name, else the configured one; where none is, the demonstration model if it is installed.

    Raises `ConfigError`.
    """
    name = name or settings.model.name
    if not name:
        if not local.available():
            return UnconfiguredModel()
        name = "local"
    provider, known = name.partition("/")[0], plugins.names("bubbot.models")
    values = _model_values(settings)
    options = ModelOptions(name, home.path, values)
    if provider in known and provider != LITELLM:
        model: Model = plugins.load("bubbot.models", provider)(options)
        return model
    if not name.partition("/")[2]:
        ours = ", ".join(sorted({*known} - {LITELLM}))
        raise ConfigError(
            f"[model] name is {name!r}; it has to be 'provider/model', such as 'openai/gpt-4o', or one of {ours}. "
            "Leave it out for the demonstration model"
        )
    traits = litellm_sizes.traits(
        name, context_tokens=settings.model.context_tokens, own_address=bool(settings.model.api_base)
    )
    return LazyModel(name, traits, lambda: plugins.load("bubbot.models", LITELLM)(options))


def _model_values(settings: Settings) -> dict[str, Any]:
    """What a model is given of `[model]`: all but its name."""
    values = settings.model.model_dump(exclude={"name", "timeout", "max_steps"}, exclude_none=True)
    for secret in values.keys() & {"api_key"}:
        values[secret] = values[secret].get_secret_value()
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


def _channel(name: str, settings: Settings, home: Home, given: Mapping[str, Any]) -> Channel:
    table = {**settings.channels.get(name, {}), **given}
    options = ChannelOptions(name, home.path, lambda: timestamp(now()), new_id, table)
    channel: Channel = plugins.load("bubbot.channels", str(table.get("kind", name)))(options)
    return channel


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
