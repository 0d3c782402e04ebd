"""The feature: tasks, their runs, and the turns that go on with them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from bubbot.command import make_tools
from bubbot.errors import ConfigError
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.tasks.commands import TaskCommands
from bubbot.features.tasks.facts import TASKS_TAPE
from bubbot.features.tasks.health import task_health
from bubbot.features.tasks.library import TaskLibrary, product_layer
from bubbot.features.tasks.runs import TaskRuns
from bubbot.features.tasks.schema import DAY_SECONDS
from bubbot.features.tasks.settings import TaskSettings
from bubbot.features.tasks.source import TaskTurns
from bubbot.features.tasks.writing import TaskWriter
from bubbot.ports.channel import JOB_TASK_ORIGIN, TASK_ORIGIN
from bubbot.settings.loader import Settings

log = logging.getLogger(__name__)

OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # They look after attempts that were interrupted themselves.
        "task_run": {"is_rare": True, "is_parallel": True},
        "task_rerun": {"is_parallel": True},
        "task_resume": {"is_parallel": True, "timeout": float(2 * DAY_SECONDS)},
        "task_cancel": {"stops_tasks": True},
        "task_new": {"timeout": 600.0},
        "task_status": {"is_rare": True},
        "task_list": {"is_rare": True},
    }
)
"""What only tools have."""


def create_lasting(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature; new settings reach it by `prepare`."""
    runs = TaskRuns(kernel, settings.section(TaskSettings))
    library = TaskLibrary(kernel.home, _product_of(settings), kernel.list_tools)
    commands = TaskCommands(library, settings.section(TaskSettings), runs, TaskWriter(kernel, library))
    turns = TaskTurns(runs, kernel.role_of)

    @asynccontextmanager
    async def load_runs() -> AsyncIterator[None]:
        await runs.load()
        yield

    async def prepare(changed: Settings) -> Apply:
        section, product = changed.section(TaskSettings), _product_of(changed)

        def apply() -> None:
            commands.settings = runs.nodes.settings = section
            library.product = product

        return apply

    def build() -> Feature:
        has_tasks = _has_tasks(library)  # a model is told of tasks only if there are some
        tools = make_tools(TaskCommands, lambda: commands, **OPTIONS)
        return Feature(
            name="tasks",
            tools=[replace(tool, for_model=tool.for_model and has_tasks) for tool in tools],
            services=(commands,),
            sources={TASK_ORIGIN: turns, JOB_TASK_ORIGIN: turns},
            traces=(TASKS_TAPE,),
            around=Around(turn=(turns.around_turn,), model=(runs.nodes.around_model,), tool=(runs.nodes.around_tool,)),
            on_merged=(runs.apply_merge,),
            lifecycle=Lifecycle(lifespan=load_runs, background={"tasks": runs.watch}, prepare=prepare, renew=build),
            health=lambda context: task_health(context, runs.state),
        )

    return build()


def _product_of(settings: Settings) -> Mapping[str, Any]:
    return product_layer(settings.bot.name, settings.bot.language, settings.bot.timezone)


def _has_tasks(library: TaskLibrary) -> bool:
    try:
        return bool(library.list_names())
    except ConfigError as error:  # the doctor reports it, and who asks for a task is told
        log.warning("no task can run: %s", error, extra={"action": "task.folder"})
        return False
