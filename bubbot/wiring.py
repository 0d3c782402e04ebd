"""The composition root: settings in, a running bot out. The only file that names concrete classes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from bubbot import plugins
from bubbot.channel import Channel, ChannelOptions, Inbound, Role
from bubbot.errors import BubbotError, ConfigError
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.outbound import Deliverer
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
from bubbot.tools.result import result_tools
from bubbot.tools.session import context_tool, help_tool, reset_tool, session_tools
from bubbot.tools.tape import tape_tools
from bubbot.turn import TurnResult
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
    """A bot with one channel, ready to run. `held` are merged intents not delivered yet, where `hold` was asked for."""

    store: TapeStore
    model: Model
    channel: Channel
    gate: InboundGate
    deliverer: Deliverer
    runtime: AppRuntime
    inbox: Inbox
    workspace: str
    held: list[Intent] = field(default_factory=list)
    warm: Callable[[], None] = lambda: None
    """Begins to load the model in the background, where loading takes long."""

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
        chosen = choose_model(settings, home)
        model = wrap.model(chosen)
        stack.push_async_callback(model.aclose)
        channel = wrap.channel(_channel(STDIN, settings, home, channel_settings or {}))
        group = await stack.enter_async_context(_task_group())
        app = _assembled(settings, home, _Ports(store, model, channel, workspace), group, wrap, hold=hold)
        if isinstance(chosen, LazyModel):
            app.warm = chosen.warm
        yield app


@dataclass(frozen=True, slots=True)
class _Ports:
    store: TapeStore
    model: Model
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
) -> App:
    channel, store = ports.channel, ports.store
    inbox = Inbox(_service(store, inbox_tape(channel.name)), new_id)
    deliverer = Deliverer(channel, Outbox(_service(store, outbox_tape(channel.name))), waits=())
    held: list[Intent] = []

    async def deliver(_: str, intent: Intent) -> None:
        if hold:
            held.append(intent)
        else:
            await deliverer.deliver(intent)

    link = ChannelLink(channel.name, inbox.name, outbox_tape(channel.name), channel.parts, lambda _sender: Role.OWNER)
    deps = SessionDeps(
        loop=_loop(settings, home, ports.model, (inbox.name, link.outbox), wrap),
        now=now,
        new_id=new_id,
        zone=ZoneInfo(settings.bot.timezone),
        retention_days=settings.memory.retention_days,
        limit=asyncio.Semaphore(CONCURRENT_TURNS),
        deliver=deliver,
    )

    def tape(session: str) -> TapeService:
        return _service(store, session_tape(ports.workspace, session), session)

    runtime = AppRuntime({channel.name: link}, deps, tape, group)
    gate = InboundGate(inbox, runtime, deliverer.tell)
    return App(store, ports.model, channel, gate, deliverer, runtime, inbox, ports.workspace, held)


def _loop(settings: Settings, home: Home, model: Model, traces: Sequence[str], wrap: Wrap) -> AgentLoop:
    """The agent loop with its toolbox; `help` and `context` look at what is put together here."""
    prompt = PromptSettings(settings.bot.name, settings.bot.read_persona())
    composer = Composer(
        model,
        ComposeSettings(settings.context.selector, prompt, settings.memory.retention_days, settings.memory.recent_days),
        lambda role: toolbox.specs(role),  # noqa: PLW0108 - the toolbox is made below
    )
    toolbox = Toolbox(
        [
            help_tool(lambda: tuple(toolbox)),
            *session_tools(),
            context_tool(composer),
            reset_tool(traces, lambda session, text: _export(home, session, text)),
            *tape_tools(),
            *memory_tools(retention_days=settings.memory.retention_days, recent_days=settings.memory.recent_days),
            *result_tools(),
            *wrap.tools,
        ]
    )
    calls = CallRunner(toolbox, ToolSettings(settings.tools.timeout, settings.tools.result_limit))
    commands = CommandRunner(toolbox, calls, time.monotonic)
    limits = RunnerSettings(settings.model.max_steps, settings.model.timeout)
    runner = ModelRunner(composer, calls, limits, time.monotonic)
    return AgentLoop(commands, runner, has_model=not isinstance(model, UnconfiguredModel))


def _export(home: Home, session: str, text: str) -> str:
    """Writes a memory to a file of its own under `exports/` and returns its path."""
    folder = home.path / "exports"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:80]
    path = folder / f"memory-{safe}-{now():%Y%m%dT%H%M%S%f}.md"
    path.write_text(text, encoding="utf-8")
    return str(path)


def choose_model(settings: Settings, home: Home) -> Model:
    """The configured model; where none is, the demonstration model if it is installed. Raises `ConfigError`."""
    name = settings.model.name
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
