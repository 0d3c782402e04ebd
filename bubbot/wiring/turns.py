"""Build what a turn needs from the settings; build it again when they change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from zoneinfo import ZoneInfo

from bubbot.errors import ModelError
from bubbot.features.attachments.tools import file_tools
from bubbot.features.conversation.commands import context_tool, help_tool, reset_tool, session_tools
from bubbot.features.conversation.model import model_tool, status_tools
from bubbot.features.conversation.results import result_tools
from bubbot.features.memory.tools import memory_tools
from bubbot.features.schedule.changes import SCHEDULE_TAPE
from bubbot.features.schedule.tools import schedule_tools
from bubbot.features.search.tools import tape_tools
from bubbot.features.usage.tools import usage_tool
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.previews import PreviewSink
from bubbot.home import Home
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import PreviewCallback, session_folder
from bubbot.ports.health import HealthReport
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.tool import Tool, Toolbox
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolCallRunner, ToolLimits
from bubbot.runtime.compose import ContextPolicy, RequestComposer
from bubbot.runtime.context.attachments import MAX_IMAGES
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.metering import BudgetFallbackModel, BudgetMeter
from bubbot.runtime.models import SessionModels
from bubbot.runtime.prompt import PromptSettings
from bubbot.runtime.router import InputRouter
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.runtime.session import SessionDeps
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.settings.loader import Settings
from bubbot.texts import Texts
from bubbot.wiring.budget import BudgetServices
from bubbot.wiring.channel_factory import Deps
from bubbot.wiring.models import ModelSet, make_intake
from bubbot.wiring.schedule import Scheduler


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services that stay when the settings change.

    Attributes:
        home: the home of the bot.
        channel_runtimes: the current channels, by name.
        texts: the bot's own sentences.
        scheduler: the scheduler.
        turn_limiter: limits the turns at once.
        deps: clock and ids.
        activity: tracks what turns do.
        report: reports the health of the bot.
        tools: tools to add to ours.
    """

    home: Home
    channel_runtimes: Mapping[str, ChannelRuntime]
    texts: Texts
    scheduler: Scheduler
    turn_limiter: TurnLimiter
    deps: Deps
    activity: ActivityTracker
    report: HealthReport
    tools: Sequence[Tool] = ()


def build_session_deps(
    settings: Settings, services: TurnServices, models: ModelSet, budget: BudgetServices
) -> tuple[SessionDeps, Toolbox]:
    """Build the dependencies of every session from these settings. Raise `ConfigError` for bad ones."""
    channel_runtimes, texts = services.channel_runtimes, services.texts
    activity = services.activity
    activity.show = PreviewSink(
        {
            name: channel_runtime.previews
            for name, channel_runtime in channel_runtimes.items()
            if channel_runtime.previews is not None
        }
    )
    toolbox, loop = _loop(settings, services, models.sessions, budget, show=activity)

    async def deliver(channel: str, message: OutboxMessage) -> None:
        # A reload may have removed the channel in the middle of the turn; the message is durable.
        if channel_runtime := channel_runtimes.get(channel):
            await channel_runtime.deliver(message)

    deps = SessionDeps(
        loop=loop,
        now=services.deps.now,
        new_id=services.deps.new_id,
        zone=ZoneInfo(settings.bot.timezone),
        retention_days=settings.memory.retention_days,
        turn_limiter=services.turn_limiter,
        deliver=deliver,
        on_preview=activity,
        texts=texts,
        firings=services.scheduler.firings,
        intake=make_intake(settings, models.transcriber, texts, budget.budget),
        rate_gate=budget.rate_gate,
    )
    return deps, toolbox


def _loop(
    settings: Settings, shared: TurnServices, models: SessionModels, purse: BudgetServices, *, show: PreviewCallback
) -> tuple[Toolbox, AgentLoop]:
    """Build the agent loop and its toolbox; `help` and `context` read what is built here."""
    traces = [
        tape
        for channel_runtime in shared.channel_runtimes.values()
        for tape in (channel_runtime.inbox.name, channel_runtime.outbox.name)
    ] + [SCHEDULE_TAPE]
    prompt = PromptSettings(settings.bot.name, settings.bot.read_persona())
    composer = RequestComposer(
        BudgetFallbackModel(
            models.model_for_turn, models.get_model, purse.budget, settings.budget.fallback_models
        ).find_model,
        ContextPolicy(
            settings.context.selector,
            prompt,
            settings.memory.retention_days,
            settings.memory.recent_days,
            images=MAX_IMAGES if settings.attachments.images else 0,
        ),
        lambda role: toolbox.specs(role),  # noqa: PLW0108 - the toolbox is made below
    )
    toolbox = Toolbox(
        [
            help_tool(lambda: tuple(toolbox)),
            *session_tools(),
            context_tool(composer),
            model_tool(models),
            *status_tools(models, shared.report),
            reset_tool(traces, partial(_export, shared), partial(_remove_files, shared.home)),
            *tape_tools(),
            *memory_tools(retention_days=settings.memory.retention_days, recent_days=settings.memory.recent_days),
            *result_tools(),
            usage_tool(purse.usage_reporter),
            *file_tools(settings.attachments.max_bytes),
            *schedule_tools(shared.scheduler.store),
            *shared.tools,
        ]
    )
    calls = ToolCallRunner(toolbox, ToolLimits(settings.tools.timeout, settings.tools.result_limit), show)
    limits = RunnerSettings(settings.model.max_steps, settings.model.timeout)
    runner = ModelRunner(composer, calls, limits, time.monotonic, show, meter=BudgetMeter(purse.budget))

    async def has_model(turn: Turn) -> bool:
        try:
            return not isinstance(await models.model_for_turn(turn), UnconfiguredModel)
        except ModelError:
            return False

    router = InputRouter(toolbox, calls, time.monotonic, has_model=has_model)
    return toolbox, AgentLoop(router, runner)


def _export(shared: TurnServices, session: str, text: str) -> str:
    """Write a memory to its own file under `exports/` and return the path."""
    folder = shared.home.path / "exports"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:80]
    path = folder / f"memory-{safe}-{shared.deps.now():%Y%m%dT%H%M%S%f}.md"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _remove_files(home: Home, session: str) -> None:
    """Remove the files that channels keep of a session."""
    with suppress(FileNotFoundError):
        shutil.rmtree(session_folder(home.path, session))
