"""The tools: a sub-task that a model or a person asks for, and a question beside the conversation."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from bubbot.errors import ToolRetry
from bubbot.features.agents.service import SubTaskService, may_write
from bubbot.features.agents.task import RUN_TOOL, MergeMode, SubTask, TaskOrder
from bubbot.ports.tool import INSIDE, CommandHelp, EffectKind, HelpTopic, Tool, ToolArgs, split_items, tool
from bubbot.ports.turn import Turn

MAX_TASK_CHARS = 20_000
"""Characters of a task at most."""
FORK_NAME = "fork"
"""The name of the sub-tasks that `,fork` runs."""


class RunArgs(ToolArgs):
    """The arguments of `agent.run`."""

    task: str = Field(
        min_length=1, max_length=MAX_TASK_CHARS, description="the task, with all that it needs: nothing else is shown"
    )
    name: str = Field(default="task", pattern=r"^[a-z0-9][a-z0-9-]{0,31}$", description="a short label")
    tools: Annotated[list[str] | None, BeforeValidator(split_items)] = Field(
        default=None, description="tools it may use; default: all that only read"
    )
    steps: int | None = Field(default=None, ge=1, description="model calls at most")
    budget: int | None = Field(default=None, ge=1, description="tokens at most, read and written")
    mode: MergeMode = Field(
        default="delta",
        description="delta keeps all that it did; result keeps only its result, unless it changed something",
    )
    positional: ClassVar[tuple[str, ...]] = ("task",)


class ForkArgs(ToolArgs):
    """The arguments of `agent.fork`."""

    text: str = Field(min_length=1, max_length=MAX_TASK_CHARS, description="the question or task")
    merge: MergeMode = Field(
        default="result",
        description="result keeps only the answer, unless something was changed; delta keeps all of it",
    )
    positional: ClassVar[tuple[str, ...]] = ("text",)


def agent_tools(service: SubTaskService) -> tuple[Tool, ...]:
    """Make the tools."""
    return _make_run(service), _make_fork(service)


def _make_run(service: SubTaskService) -> Tool:
    @tool(
        RUN_TOOL,
        effect=INSIDE,
        is_parallel=True,
        timeout=service.settings.timeout,
        help=CommandHelp(
            HelpTopic.TALK,
            "Run a task apart from this chat",
            (",agent.run What did we say about Rome?", ",agent.run tools=tape.search steps=3 What is planned for May?"),
        ),
    )
    async def agent_run(turn: Turn, args: RunArgs) -> str:
        """Give a sub-task to an assistant that sees only the task, and return its result. Several calls run at the same time."""
        return await service.run(turn, _order_run(service, turn, args))

    return agent_run


def _order_run(service: SubTaskService, turn: Turn, args: RunArgs) -> TaskOrder:
    available = service.available_tools(turn)
    if args.tools is None:
        tools = [each for each in available.values() if each.effect.kind is EffectKind.READ]
    else:
        if unknown := [name for name in args.tools if name not in available]:
            names = ", ".join(dict.fromkeys(each.name for each in available.values()))
            sentence = "agent_no_tool" if names else "agent_no_tools"
            raise ToolRetry(turn.result_texts.say(sentence, name=unknown[0], names=names))
        tools = [available[name] for name in args.tools]
    return _order(service, turn, args.task, tools, name=args.name, steps=args.steps, tokens=args.budget, mode=args.mode)


def _make_fork(service: SubTaskService) -> Tool:
    @tool(
        "agent.fork",
        commands=("fork",),
        for_model=False,
        effect=INSIDE,
        timeout=service.settings.timeout,
        help=CommandHelp(
            HelpTopic.TALK,
            "Ask beside this conversation",
            (",fork What if we went by train?", ",fork merge=delta Note the pros and cons."),
        ),
    )
    async def agent_fork(turn: Turn, args: ForkArgs) -> str:
        """Answer a question from here without adding it to the conversation: the next messages do not see it."""
        tools = list(service.available_tools(turn).values())
        order = _order(service, turn, args.text, tools, name=FORK_NAME, mode=args.merge, has_own_window=False)
        return await service.run(turn, order)

    return agent_fork


def _order(
    service: SubTaskService,
    turn: Turn,
    text: str,
    tools: list[Tool],
    *,
    name: str,
    mode: MergeMode,
    steps: int | None = None,
    tokens: int | None = None,
    has_own_window: bool = True,
) -> TaskOrder:
    """Build the order, within the settings and within what a sub-task that orders it has left."""
    settings, parent = service.settings, turn.find_metadata(SubTask)
    most = settings.max_tokens if parent is None else min(settings.max_tokens, parent.order.tokens)
    return TaskOrder(
        text=text,
        name=name,
        tools=frozenset(each.name for each in tools),
        steps=min(steps or settings.max_steps, settings.max_steps),
        tokens=min(tokens or most, most),
        mode=mode,
        has_own_window=has_own_window,
        may_write=may_write(tools),
    )
