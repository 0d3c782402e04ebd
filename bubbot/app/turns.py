"""Build the dependencies of turns from the settings, again after each change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from msgspec import Struct

from bubbot.app.channel_factory import Deps
from bubbot.app.commands import typed_tools
from bubbot.app.features import BotFeatures
from bubbot.app.models import ModelSet
from bubbot.errors import ModelError
from bubbot.feature import Feature, FindModel
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.features.strategies.compact import SUMMARY
from bubbot.features.strategies.settings import ContextSettings
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.directory import ChannelDirectory
from bubbot.gateway.previews import PreviewSink
from bubbot.middleware import AroundTool
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.agents import AgentDirectory, OnlyTheBot
from bubbot.ports.health import HealthReport
from bubbot.ports.lease import SessionLease
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolCallRunner, ToolLimits
from bubbot.runtime.compose import ContextPolicy, RequestComposer
from bubbot.runtime.context.attachments import MAX_IMAGES
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.prompt import PromptSettings
from bubbot.runtime.router import InputRouter
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.runtime.session import SessionDeps
from bubbot.runtime.tool_list import ToolList
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandContext
from bubbot.texts import Texts
from bubbot.tool import Tool, Toolbox


class TurnServices(Struct, frozen=True):
    """The services that stay when the settings change.

    Attributes:
        channel_runtimes: the current channels, by name.
        texts: the bot's own sentences.
        turn_limiter: limits concurrent turns.
        activity: tracks the activity of turns.
        report: reports the health of the bot.
        leases: the leases of this process.
        command_context: the context of commands.
        tools: tools in addition to those of the features.
        around_tool: the innermost middleware of tools.
        is_quarantined: the home is a copy; the original bot may have acted since.
    """

    channel_runtimes: Mapping[str, ChannelRuntime]
    texts: Texts
    features: BotFeatures
    directory: ChannelDirectory
    turn_limiter: TurnLimiter
    deps: Deps
    activity: ActivityTracker
    report: HealthReport
    leases: SessionLease
    command_context: CommandContext
    tools: Sequence[Tool] = ()
    around_tool: Sequence[AroundTool] = ()
    is_quarantined: bool = False


def build_session_deps(settings: Settings, services: TurnServices, models: ModelSet) -> tuple[SessionDeps, Toolbox]:
    """Build the dependencies of all sessions from these settings. Raise `ConfigError` for bad ones."""
    runtimes, activity = services.channel_runtimes, services.activity
    activity.show = PreviewSink(
        {name: runtime.previews for name, runtime in runtimes.items() if runtime.previews is not None}
    )
    features = services.features.build(
        settings,
        models,
        compose=lambda turn: composer.compose(turn),  # noqa: PLW0108 - it is built from the features
        recompose=lambda turn, step: composer.recompose(turn, step),  # noqa: PLW0108
        list_tools=lambda: tuple(toolbox),
        report=services.report,
        channel_tapes=[tape for runtime in runtimes.values() for tape in (*runtime.inbox.tapes, *runtime.outbox.tapes)],
    )
    toolbox = Toolbox(
        [
            *(tool for feature in features for tool in feature.tools),
            *typed_tools(features, services.command_context, settings),
            *services.tools,
        ]
    )
    budget = services.features.budget
    find_model: FindModel = models.sessions.model_for_turn
    if budget:
        find_model = budget.choose_model(find_model)
    tools = ToolList(toolbox, settings.tools.schema_tokens)
    policy = _context_policy(settings, features, services.features)
    composer = RequestComposer(find_model, policy, tools.specs, toolbox.reads_web)
    loop = _build_loop(settings, services, features, toolbox=toolbox, tools=tools, composer=composer, models=models)

    async def deliver(channel: str, message: OutboxMessage) -> None:
        # A reload may have removed the channel during the turn; the message is durable.
        if runtime := runtimes.get(channel):
            await runtime.deliver(message)

    deps = SessionDeps(
        loop=loop,
        now=services.deps.now,
        new_id=services.deps.new_id,
        zone=ZoneInfo(settings.bot.timezone),
        turn_limiter=services.turn_limiter,
        leases=services.leases,
        deliver=deliver,
        on_preview=activity,
        texts=services.texts,
        sources={origin: source for feature in features for origin, source in feature.sources.items()},
        intake=services.features.intake,
        gate=budget.gate if budget else None,
        notify=services.directory.notify,
        around_turn=[around for feature in features for around in feature.around.turn],
        on_merged=[on_merged for feature in features for on_merged in feature.on_merged],
        agents=find_agents(features),
    )
    return deps, toolbox


def find_agents(features: Sequence[Feature]) -> AgentDirectory:
    """Return what knows the agents among the services of the features."""
    services = (service for feature in features for service in feature.services)
    return next((service for service in services if isinstance(service, AgentDirectory)), OnlyTheBot())


def _context_policy(settings: Settings, features: Sequence[Feature], host: BotFeatures) -> ContextPolicy:
    section = settings.section(ContextSettings)
    return ContextPolicy(
        section.selector,
        PromptSettings(settings.bot.name, settings.bot.read_persona()),
        sections=[section for feature in features for section in feature.prompt if not isinstance(section, str)],
        rules=[rule for feature in features for rule in feature.prompt if isinstance(rule, str)],
        images=MAX_IMAGES if settings.section(AttachmentSettings).images else 0,
        strategies=host.strategies,
        on_strategy_failure=host.problems.record_strategy,
        choices=[host.choose_selector] if host.choose_selector else [],
        sources=host.strategy_sources,
        prepare_seconds=section.timeout,
        find_heads=host.find_heads,
        handoff_selector=SUMMARY.name,
        withholds=[withholds for feature in features for withholds in feature.around.withholds],
    )


def _build_loop(
    settings: Settings,
    services: TurnServices,
    features: Sequence[Feature],
    *,
    toolbox: Toolbox,
    tools: ToolList,
    composer: RequestComposer,
    models: ModelSet,
) -> AgentLoop:
    show = services.activity
    calls = ToolCallRunner(
        tools,
        ToolLimits(settings.tools.timeout, settings.tools.result_limit, may_repeat_effects=not services.is_quarantined),
        show,
        around_tool=[*(around for feature in features for around in feature.around.tool), *services.around_tool],
    )
    runner = ModelRunner(
        composer,
        calls,
        RunnerSettings(settings.model.max_steps, settings.model.timeout),
        time.monotonic,
        show,
        lessons=models.sessions.lessons,
        list_around_model=lambda: services.features.around_model,  # a changed limit also applies to running turns
        before_step=[prepare_step for feature in features for prepare_step in feature.around.before_step],
    )

    async def has_model(turn: Turn) -> bool:
        try:
            return not isinstance(await models.sessions.model_for_turn(turn), UnconfiguredModel)
        except ModelError:
            return False

    return AgentLoop(InputRouter(toolbox, calls, time.monotonic, has_model=has_model), runner)
