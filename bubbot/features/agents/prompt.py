"""What the system prompt says of agents: who else is in the chat, and for whom a sub-task works."""

from __future__ import annotations

from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.task import SubTask
from bubbot.formatting import clean, clean_label
from bubbot.ports.agents import BOT_SPEAKER, speaker_name
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.texts import SILENT_MARK

SUBTASK_PROMPT = (
    "You work on one sub-task. Nobody is there to answer questions, and people do not read your messages: your last message "
    "is the result, which goes to the assistant that ordered it. Put all it needs into that message; if you cannot do the "
    "task, say why."
)
BRANCH_PROMPT = "The person who asks wants the next answer like this: {prompt}"
MAX_ABOUT_CHARS = 200


async def describe_subtask(turn: Turn, traits: ModelTraits) -> str:
    """Tell the model of a sub-task with a window of its own for whom it works, and that of a branch its instruction."""
    task = turn.find_metadata(SubTask)
    if task is None:
        return ""
    if task.order.branch is not None:
        prompt = task.order.branch.alternative.prompt
        return BRANCH_PROMPT.format(prompt=escape_tags(clean(prompt))) if prompt else ""
    return SUBTASK_PROMPT if task.order.has_own_window else ""


class AgentPrompt:
    """Tells the model of a shared chat who it is there, and who the others are."""

    def __init__(self, agents: ConfiguredAgents) -> None:
        self._agents = agents

    async def describe(self, turn: Turn, traits: ModelTraits) -> str:  # noqa: ARG002 - a section's parameters
        """Write the section; empty if nobody else answers in the chat, and for a sub-task."""
        if not turn.agent.is_among_others or turn.is_subtask:
            return ""
        agents, own = self._agents, turn.agent.name
        living = turn.agent.living
        names = [
            name for name in ("", *agents.list_callable(turn.session)) if name != own and (not name or name in living)
        ]
        lines = [self._describe(name) for name in names]
        head = (
            f"You are {clean_label(turn.agent.title, MAX_ABOUT_CHARS)}, called @{speaker_name(own)} here. Several agents answer in "
            "this chat. A message that begins with NAME (agent): is that agent's; all others are of people. Do not put your own "
            "name before your answer: people see it. Others here:"
        )
        rule = (
            "To ask one of them, write its @name in your answer: it answers after you, and only then; nobody does in the turn of "
            "a scheduled job. Never write for another "
            f"agent. If a message needs no answer of yours, answer {SILENT_MARK}."
        )
        return "\n".join(["<agents>", head, *lines, rule, "</agents>"])

    def _describe(self, name: str) -> str:
        settings = self._agents.settings.named.get(name)
        title = clean_label(self._agents.find_title(name), MAX_ABOUT_CHARS)
        about = clean_label(settings.about, MAX_ABOUT_CHARS) if settings is not None else ""
        who = "the bot itself" if speaker_name(name) == BOT_SPEAKER else title
        return f"- @{speaker_name(name)}: {who}{f', {about}' if about else ''}"
