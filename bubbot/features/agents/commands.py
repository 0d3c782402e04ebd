"""The command that lists agents: what each is for, what it may and what it has used; in a chat and in a shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeAlias

from msgspec import Struct

from bubbot.arguments.fields import Args, NoArguments
from bubbot.command import Caller, command, make_group, make_tools
from bubbot.features.agents.branch_commands import BranchCommands
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.settings import AgentSettings
from bubbot.ports.agents import speaker_name
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.session_names import read_current_sessions
from bubbot.ports.usage import BUDGET_TAPE, BudgetSubject, SpentTotal
from bubbot.shell_command import Argument, CommandContext
from bubbot.tape.handle import TapeHandle
from bubbot.tool import READS_OWN, CommandHelp, HelpTopic, Tool

ReadSpent: TypeAlias = Callable[[str], Awaitable[Mapping[str, SpentTotal]]]
"""Return what each agent used this month in a chat, or in all if the chat is empty, by name; the bot itself is the empty one."""


class AgentListArgs(Args, frozen=True):
    """The agents of which chat."""

    session: Annotated[str, Argument("those of this chat, such as telegram:42 (default: all)")] = ""


class AgentInfo(Struct, frozen=True, kw_only=True):
    """An agent.

    Attributes:
        name: as `@name` calls it; `bot` for the bot itself.
        title: the name that people see.
        about: what it is for.
        model: the model that it asks; empty for that of the chat.
        tools: the tools that it may call at most, as the settings name them; None: all that the person may.
        memory: its memory view; empty for that of the chat.
        lives_here: it has a place in this chat; false if no chat is named.
        answers_here: it answers messages that call nobody.
        tokens: those of this month: of all chats for an owner in a direct chat or a shell, else of this one; None for none.
        cost_usd: what they cost; None for none.
    """

    name: str
    title: str
    about: str
    model: str
    tools: tuple[str, ...] | None
    memory: str
    lives_here: bool
    answers_here: bool
    tokens: int | None
    cost_usd: float | None

    def describe(self, caller: Caller) -> str:
        """Write a line."""
        texts = caller.result_texts
        parts = [texts.say("AgentInfo", name=self.name, title=self.title)]
        parts += [self.about] if self.about else []
        parts += [texts.say("agent_answers_here")] if self.answers_here else []
        parts += [texts.say("agent_model", model=self.model)] if self.model else []
        if self.tools is not None:
            names = ", ".join(self.tools)
            parts.append(texts.say("agent_tools", names=names) if names else texts.say("agent_toolless"))
        parts += [texts.say("agent_memory", name=self.memory)] if self.memory else []
        parts += [texts.say("agent_used", tokens=texts.format_number(f"{self.tokens:,}"))] if self.tokens else []
        return "; ".join(parts)


class AgentList(Struct, frozen=True):
    """The agents that may be called in a chat, or all.

    Attributes:
        agents: the bot itself, and then the others as the settings have them.
    """

    agents: tuple[AgentInfo, ...]

    def describe(self, caller: Caller) -> str:
        """Write a line for each, and how to call one."""
        texts = caller.result_texts
        if len(self.agents) == 1:
            return texts.say("agents_only_bot")
        return "\n".join([texts.say("agents_head"), *(f"- {each.describe(caller)}" for each in self.agents)])


class AgentCommands:
    """The command about the agents that the settings name."""

    def __init__(self, agents: ConfiguredAgents, read_spent: ReadSpent) -> None:
        """`read_spent` returns what the agents used this month."""
        self._agents = agents
        self._read_spent = read_spent

    @command(
        "agent list [session]",
        chat=("agent.list", "agents"),
        example="telegram:-1001",
        effect=READS_OWN,
        help=CommandHelp(HelpTopic.TALK, "List the agents that answer here", (",agents",)),
    )
    async def list_agents(self, caller: Caller, args: NoArguments | AgentListArgs) -> AgentList:
        """List the agents that may be called in a chat: what each is for, what it may and what it has used this month."""
        if not isinstance(args, AgentListArgs):
            turn = caller.required_turn
            chat = "" if caller.has_power else BudgetSubject(turn.session).chat
            return await self._list(turn.tape, chat)
        if not args.session:
            return await self._list(None, "")
        assert caller.context is not None
        async with caller.context.open_session(args.session, usage="asked about agents") as tape:
            return await self._list(tape, "")

    async def _list(self, tape: TapeHandle | None, chat: str) -> AgentList:
        """List the agents of the chat with a tape, or all; with what they used in `chat`, or in all if it is empty."""
        agents, spent = self._agents, await self._read_spent(chat)
        if tape is None:
            rows = [self._describe(name, spent.get(name)) for name in ("", *agents.settings.named)]
            return AgentList(tuple(rows))
        default = await agents.find_default(tape)
        living = await agents.find_living(tape, default)
        rows = [
            self._describe(name, spent.get(name), lives_here=name in living, answers_here=name == default)
            for name in ("", *agents.list_callable(tape.session))
        ]
        return AgentList(tuple(rows))

    def _describe(
        self, name: str, spent: SpentTotal | None, *, lives_here: bool = False, answers_here: bool = False
    ) -> AgentInfo:
        settings = self._agents.settings.named.get(name, AgentSettings())
        return AgentInfo(
            name=speaker_name(name),
            title=self._agents.make(name).title,
            about=settings.about,
            model=settings.model,
            tools=None if settings.tools is None else tuple(settings.tools),
            memory=settings.memory,
            lives_here=lives_here,
            answers_here=answers_here,
            tokens=spent.tokens if spent is not None else None,
            cost_usd=spent.cost_nanousd / NANOS_PER_USD if spent is not None else None,
        )


def agent_tools(agents: ConfiguredAgents, read_spent: ReadSpent) -> list[Tool]:
    """Build the tools."""
    commands = AgentCommands(agents, read_spent)
    return make_tools(AgentCommands, lambda: commands)


async def open_agents(context: CommandContext) -> AgentCommands:
    """Return the command over the tapes of a home."""
    current_session = await read_current_sessions(context.store)
    agents, read_spent = context.settings(context.open_tape(BUDGET_TAPE), context.now, context.zone, current_session)
    return AgentCommands(agents, read_spent)


COMMANDS = make_group(
    "agent",
    AgentCommands,
    open_agents,
    "List the agents that config.toml names besides the bot itself, with what each may and has used this month. Read-only; "
    "works while the bot runs.",
    section="Look",
    further=make_group("agent", BranchCommands, None, "").commands,
    help_line="list the agents that the settings name",
)
