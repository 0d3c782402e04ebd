"""What a turn goes through, put together from the settings; put together anew where they change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from zoneinfo import ZoneInfo

from bubbot.errors import ModelError
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.previews import PreviewSink
from bubbot.home import Home
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import kept_aside
from bubbot.ports.tool import Tool, Toolbox
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolCallRunner, ToolLimits
from bubbot.runtime.commands import CommandRunner
from bubbot.runtime.compose import ContextPolicy, RequestComposer
from bubbot.runtime.link import SessionDeps
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.metering import BudgetFallbackModel, BudgetMeter
from bubbot.runtime.models import SessionModels
from bubbot.runtime.preview import Show
from bubbot.runtime.prompt import PromptSettings
from bubbot.runtime.report import HealthReport
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.settings.loader import Settings
from bubbot.texts import Texts
from bubbot.tools.files import file_tools
from bubbot.tools.memory import memory_tools
from bubbot.tools.model import model_tool, status_tools
from bubbot.tools.result import result_tools
from bubbot.tools.schedule import schedule_tools
from bubbot.tools.session import context_tool, help_tool, reset_tool, session_tools
from bubbot.tools.tape import tape_tools
from bubbot.tools.usage import usage_tool
from bubbot.views.attachments import IMAGES_SHOWN
from bubbot.views.outbox import OutboxMessage
from bubbot.wiring.budget import BudgetServices
from bubbot.wiring.channel_factory import Deps
from bubbot.wiring.models import ModelSet, intake_of
from bubbot.wiring.schedule import Scheduler


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What stays as it is when the settings change. `lines` is always that of the moment; `activity` knows what turns do,
    `report` tells how the bot is; `tools` are added to ours."""

    home: Home
    lines: Mapping[str, ChannelRuntime]
    texts: Texts
    time: Scheduler
    places: TurnLimiter
    given: Deps
    activity: ActivityTracker
    report: HealthReport
    tools: Sequence[Tool] = ()


def make_turns(
    settings: Settings, shared: TurnServices, models: ModelSet, purse: BudgetServices
) -> tuple[SessionDeps, Toolbox]:
    """What every session is given, as these settings have it. Raises `ConfigError`."""
    lines, texts = shared.lines, shared.texts
    show = shared.activity
    show.show = PreviewSink({name: line.previews for name, line in lines.items() if line.previews is not None})
    toolbox, loop = _loop(settings, shared, models.sessions, purse, show=show)

    async def deliver(channel: str, intent: OutboxMessage) -> None:
        if line := lines.get(channel):  # else it was taken away in the middle of the turn; the intent is durable
            await line.deliver(intent)

    deps = SessionDeps(
        loop=loop,
        now=shared.given.now,
        new_id=shared.given.new_id,
        zone=ZoneInfo(settings.bot.timezone),
        retention_days=settings.memory.retention_days,
        places=shared.places,
        deliver=deliver,
        show=show,
        texts=texts,
        firings=shared.time.firings,
        intake=intake_of(settings, models.transcriber, texts, purse.budget),
        pace=purse.pace,
    )
    return deps, toolbox


def _loop(
    settings: Settings, shared: TurnServices, models: SessionModels, purse: BudgetServices, *, show: Show
) -> tuple[Toolbox, AgentLoop]:
    """The agent loop with its toolbox; `help` and `context` look at what is put together here."""
    traces = [tape for line in shared.lines.values() for tape in (line.inbox.name, line.outbox.name)] + [SCHEDULE_TAPE]
    prompt = PromptSettings(settings.bot.name, settings.bot.read_persona())
    composer = RequestComposer(
        BudgetFallbackModel(models.of, models.named, purse.budget, settings.budget.cheaper).of,
        ContextPolicy(
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
            *status_tools(models, shared.report),
            reset_tool(traces, partial(_export, shared), partial(_forget, shared.home)),
            *tape_tools(),
            *memory_tools(retention_days=settings.memory.retention_days, recent_days=settings.memory.recent_days),
            *result_tools(),
            usage_tool(purse.ledger),
            *file_tools(settings.attachments.max_bytes),
            *schedule_tools(shared.time.book),
            *shared.tools,
        ]
    )
    calls = ToolCallRunner(toolbox, ToolLimits(settings.tools.timeout, settings.tools.result_limit), show)
    commands = CommandRunner(toolbox, calls, time.monotonic)
    limits = RunnerSettings(settings.model.max_steps, settings.model.timeout)
    runner = ModelRunner(composer, calls, limits, time.monotonic, show, meter=BudgetMeter(purse.budget))

    async def has_model(turn: Turn) -> bool:
        try:
            return not isinstance(await models.of(turn), UnconfiguredModel)
        except ModelError:
            return False

    return toolbox, AgentLoop(commands, runner, has_model=has_model)


def _export(shared: TurnServices, session: str, text: str) -> str:
    """Writes a memory to a file of its own under `exports/` and returns its path."""
    folder = shared.home.path / "exports"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:80]
    path = folder / f"memory-{safe}-{shared.given.now():%Y%m%dT%H%M%S%f}.md"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _forget(home: Home, session: str) -> None:
    """Removes what channels keep of a session in files."""
    with suppress(FileNotFoundError):
        shutil.rmtree(kept_aside(home.path, session))
