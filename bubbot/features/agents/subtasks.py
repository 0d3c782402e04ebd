"""The commands: a sub-task that a model or a person asks for, and a question beside the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.errors import CommandRefused, ToolFailed
from bubbot.features.agents.branch_commands import BranchCommands
from bubbot.features.agents.branches import MAX_BRANCHES
from bubbot.features.agents.facts import AgentEnded
from bubbot.features.agents.service import SubTaskService, choose_tools
from bubbot.features.agents.task import ORDER_TOOL, RUN_TOOL, MergeMode
from bubbot.runtime.models import SessionModels
from bubbot.tape.fact import Cited
from bubbot.tool import INSIDE, CommandHelp, HelpTopic, Tool

MAX_TASK_CHARS = 20_000
"""Characters of a task at most."""
FORK_NAME = "fork"
"""The name of the sub-tasks that `,fork` runs."""
LABEL_FORM = {"form": "1 to 32 small letters, digits and hyphens, with no hyphen first"}


TaskText = Annotated[
    str,
    Meta(
        description="the task, with all that it needs: nothing else is shown", min_length=1, max_length=MAX_TASK_CHARS
    ),
]
ToolNames = Annotated[tuple[str, ...] | None, Meta(description="tools it may use; default: all that only read")]
MaxSteps = Annotated[int, Meta(description="model calls at most", ge=1)] | None
MaxTokens = Annotated[int, Meta(description="tokens at most, read and written", ge=1)] | None
TaskMode = Annotated[
    MergeMode,
    Meta(description="delta keeps all that it did; result keeps only its result, unless it changed something"),
]


class SubTaskArgs(Args, frozen=True):
    """A sub-task, and what it may do."""

    task: TaskText
    name: Annotated[str, Meta(description="a short label", pattern=r"^[a-z0-9][a-z0-9-]{0,31}\Z", extra=LABEL_FORM)] = (
        "task"
    )
    tools: ToolNames = None
    steps: MaxSteps = None
    budget: MaxTokens = None
    mode: TaskMode = "delta"


class OrderArgs(Args, frozen=True, kw_only=True):
    """A sub-task for a named agent, whose name is its label."""

    task: TaskText
    tools: ToolNames = None
    steps: MaxSteps = None
    budget: MaxTokens = None
    mode: TaskMode = "delta"
    agent: Annotated[str, Meta(description="the agent that shall do it, by name", min_length=1)]


class AskAsideArgs(Args, frozen=True):
    """A question beside the conversation."""

    text: Annotated[str, Meta(description="the question or task", min_length=1, max_length=MAX_TASK_CHARS)]
    merge: Annotated[
        MergeMode,
        Meta(description="result keeps only the answer, unless something was changed; delta keeps all of it"),
    ] = "result"


class SubTaskAnswer(Struct, frozen=True):
    """The answer of a sub-task.

    Attributes:
        ended: how it ended, as the tape of its turn has it.
    """

    ended: Cited[AgentEnded]

    def describe(self, caller: Caller) -> str:
        """Write the answer, or why there is none, and cite the entries."""
        text = self.ended.fact.result or caller.result_texts.say("agent_silent")
        return f"{text}\n\n{self._cite(caller)}"

    def _cite(self, caller: Caller) -> str:
        """Name the entries, and what it used. Those of a fork of a fork have no ids yet: the fork names them."""
        fact, texts, turn = self.ended.fact, caller.result_texts, caller.required_turn
        tokens = fact.usage.input_tokens + fact.usage.output_tokens
        if turn.is_subtask:
            return texts.say("agent_cited_fork", name=fact.name, fork=fact.fork, steps=fact.steps, tokens=tokens)
        spans = fact.entries or [[self.ended.id, self.ended.id]]
        low, high = spans[0][0], spans[-1][-1]
        entries = f"#{low}" if low == high else f"#{low}-#{high}"
        if turn.runs_command:  # people find the fork on the tape
            return texts.say("agent_entries", entries=entries, steps=fact.steps, tokens=tokens)
        return texts.say(
            "agent_cited" if fact.merged else "agent_cited_result",
            name=fact.name,
            entries=entries,
            fork=fact.fork,
            steps=fact.steps,
            tokens=tokens,
        )


class SubTaskCommands:
    """The commands about sub-tasks. A call that is cancelled ends its sub-task."""

    def __init__(self, service: SubTaskService) -> None:
        self._service = service

    @command(
        "agent run",
        chat=(RUN_TOOL,),
        in_shell=False,
        effect=INSIDE,
        writes=False,
        for_model=True,
        help=CommandHelp(
            HelpTopic.TALK,
            "Run a task apart from this chat",
            (",agent.run What did we say about Rome?", ",agent.run tools=tape.search steps=3 What is planned for May?"),
        ),
    )
    async def run(self, caller: Caller, args: SubTaskArgs) -> SubTaskAnswer:
        """Give a sub-task to an assistant that sees only the task, and return its result. Several calls run at the same time."""
        if args.name in self._service.agents.settings.named:  # its entries would look like those of the agent
            raise CommandRefused("agent_label_taken", name=args.name)
        available = self._service.available_tools(caller.required_turn)
        return await self._run(caller, args, available, args.name)

    @command(
        "agent order",
        chat=(ORDER_TOOL,),
        in_shell=False,
        effect=INSIDE,
        writes=False,
        for_model=True,
        help=CommandHelp(
            HelpTopic.TALK,
            "Give a task to an agent, apart from this chat",
            (",agent.order agent=rosi Plan a dinner for six.",),
        ),
    )
    async def order(self, caller: Caller, args: OrderArgs) -> SubTaskAnswer:
        """Give a sub-task to a named agent that sees only the task, and return its result. It has its own tools, and no more than you."""
        agent = self._service.find_callable(caller.required_turn, args.agent)
        available = self._service.available_tools(caller.required_turn)
        if agent.tools is not None:
            available = {name: tool for name, tool in available.items() if tool.name in agent.tools}
        return await self._run(caller, args, available, agent.name, agent.name)

    async def _run(
        self, caller: Caller, args: SubTaskArgs | OrderArgs, available: Mapping[str, Tool], name: str, agent: str = ""
    ) -> SubTaskAnswer:
        """Run a sub-task under a label, with some of the available tools."""
        tools = choose_tools(available, args.tools)
        ended = await self._service.run(
            caller.required_turn,
            args.task,
            tools,
            name=name,
            mode=args.mode,
            steps=args.steps,
            tokens=args.budget,
            agent=agent,
        )
        return _answer(ended, caller)

    @command(
        "agent fork",
        chat=("agent.fork", "fork"),
        in_shell=False,
        effect=INSIDE,
        writes=False,
        help=CommandHelp(
            HelpTopic.TALK,
            "Ask beside this conversation",
            (",fork What if we went by train?", ",fork merge=delta Note the pros and cons."),
        ),
    )
    async def fork(self, caller: Caller, args: AskAsideArgs) -> SubTaskAnswer:
        """Answer a question from here without adding it to the conversation: the next messages do not see it."""
        turn = caller.required_turn
        tools = [*self._service.available_tools(turn).values()]
        ended = await self._service.run(turn, args.text, tools, name=FORK_NAME, mode=args.merge, has_own_window=False)
        return _answer(ended, caller)


def _answer(ended: Cited[AgentEnded], caller: Caller) -> SubTaskAnswer:
    """Return the answer of a sub-task. Raise `ToolFailed` if it gave none; the text says why, and cites its entries."""
    answer = SubTaskAnswer(ended)
    if not ended.fact.is_answered:
        raise ToolFailed(answer.describe(caller))
    return answer


def subtask_tools(service: SubTaskService, models: SessionModels) -> list[Tool]:
    """Build the tools; `models` are those that branches may be asked of. Without agents there is none for orders."""
    commands, branches, timeout = SubTaskCommands(service), BranchCommands(service, models), service.settings.timeout
    options: dict[str, dict[str, Any]] = {
        "agent_run": {"is_parallel": True, "timeout": timeout},
        "agent_order": {"is_parallel": True, "timeout": timeout, "is_rare": True},
        "agent_fork": {"timeout": timeout},
        "branch_ask": {"timeout": timeout * (MAX_BRANCHES + 1)},
    }
    tools = [
        *make_tools(SubTaskCommands, lambda: commands, **options),
        *make_tools(BranchCommands, lambda: branches, **options),
    ]
    return [tool for tool in tools if service.agents.settings.named or tool.name != ORDER_TOOL]
