"""The feature: sub-tasks in forks of a turn's tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.feature import Feature, Kernel
from bubbot.features.agents.commands import agent_tools
from bubbot.features.agents.service import SubTaskService
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.agents.task import SubTask, keep_token_limit
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.settings.loader import Settings
from bubbot.tool import Tool

SUBTASK_PROMPT = (
    "You work on one sub-task. Nobody is there to answer questions, and people do not read your messages: your last message "
    "is the result, which goes to the assistant that ordered it. Put all it needs into that message; if you cannot do the "
    "task, say why."
)


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return agents_feature(settings.section(AgentsSettings), kernel.list_tools, kernel.strategies)


def agents_feature(
    settings: AgentsSettings, list_tools: Callable[[], Sequence[Tool]], strategies: ContextStrategies
) -> Feature:
    """Build the record."""
    return Feature(
        name="agents",
        tools=agent_tools(SubTaskService(settings, list_tools, strategies)),
        prompt=(describe_subtask,),
        around_model=(keep_token_limit,),
    )


async def describe_subtask(turn: Turn, traits: ModelTraits) -> str:
    """Tell the model of a sub-task with a window of its own for whom it works."""
    task = turn.find_metadata(SubTask)
    return SUBTASK_PROMPT if task is not None and task.order.has_own_window else ""
