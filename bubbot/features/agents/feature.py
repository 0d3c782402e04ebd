"""The feature: agents that the settings name, and sub-tasks and branches in forks of a turn's tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.feature import Around, Feature
from bubbot.features.agents.calls import AgentCalls
from bubbot.features.agents.commands import ReadSpent, agent_tools
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.prompt import AgentPrompt, describe_subtask
from bubbot.features.agents.service import SubTaskService
from bubbot.features.agents.subtasks import subtask_tools
from bubbot.features.agents.task import keep_token_limit
from bubbot.ports.channel import AGENT_ORIGIN
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.models import SessionModels
from bubbot.tool import Tool


def agents_feature(
    agents: ConfiguredAgents,
    list_tools: Callable[[], Sequence[Tool]],
    strategies: ContextStrategies,
    models: SessionModels,
    read_spent: ReadSpent,
) -> Feature:
    """Build the record. `models` are those that branches may be asked of."""
    calls = AgentCalls(agents)

    return Feature(
        name="agents",
        tools=[
            *subtask_tools(SubTaskService(agents, list_tools, strategies), models),
            *agent_tools(agents, read_spent),
        ],
        services=(agents,),
        prompt=(AgentPrompt(agents).describe, describe_subtask),
        sources={AGENT_ORIGIN: calls},
        around=Around(turn=(calls.around_turn,), model=(keep_token_limit,)),
    )
