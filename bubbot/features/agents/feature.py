"""The feature: sub-tasks and branches in forks of a turn's tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.feature import Feature
from bubbot.features.agents.commands import agent_tools
from bubbot.features.agents.service import SubTaskService
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.agents.task import SubTask, keep_token_limit
from bubbot.formatting import clean
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.models import SessionModels
from bubbot.tool import Tool

SUBTASK_PROMPT = (
    "You work on one sub-task. Nobody is there to answer questions, and people do not read your messages: your last message "
    "is the result, which goes to the assistant that ordered it. Put all it needs into that message; if you cannot do the "
    "task, say why."
)

BRANCH_PROMPT = "The person who asks wants the next answer like this: {prompt}"


def agents_feature(
    settings: AgentsSettings,
    list_tools: Callable[[], Sequence[Tool]],
    strategies: ContextStrategies,
    models: SessionModels,
) -> Feature:
    """Build the record. `models` are those that branches may be asked of."""
    return Feature(
        name="agents",
        tools=agent_tools(SubTaskService(settings, list_tools, strategies), models),
        prompt=(describe_subtask,),
        around_model=(keep_token_limit,),
    )


async def describe_subtask(turn: Turn, traits: ModelTraits) -> str:
    """Tell the model of a sub-task with a window of its own for whom it works, and that of a branch its instruction."""
    task = turn.find_metadata(SubTask)
    if task is None:
        return ""
    if task.order.branch is not None:
        prompt = task.order.branch.alternative.prompt
        return BRANCH_PROMPT.format(prompt=escape_tags(clean(prompt))) if prompt else ""
    return SUBTASK_PROMPT if task.order.has_own_window else ""
