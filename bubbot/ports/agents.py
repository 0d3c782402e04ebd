"""Agents: who answers a turn. The bot itself is one of them; others are named by the settings.

An agent is a name, a prompt, a model and limits. What it writes carries its name in `meta.origin`, so that several of them can
share a tape: each model sees its own words as its own, and those of the others as words of a speaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from bubbot.ports.channel import CommandInfo, Inbound
from bubbot.ports.memory import ZONES_VIEW
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, text_field
from bubbot.tape.events import CommandRun
from bubbot.tape.handle import TapeHandle
from bubbot.texts import Texts

ORIGIN_PREFIX = "agent:"
"""The beginning of the origin of what an agent wrote; its name follows."""
BOT_SPEAKER = "bot"
"""The name of the bot itself among several agents; no agent may have it."""
AGENT_NAME = r"[a-z][a-z0-9_-]{0,31}"
"""The form of the name of an agent, as a regular expression."""
AGENT_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter first"
NO_MEMORY = "none"
"""The memory view of an agent that is shown no memory."""
_CALLS = (Kind.TOOL_CALL, Kind.TOOL_RESULT)


class Agent(Struct, frozen=True):
    """Who answers a turn.

    Attributes:
        name: as `[agents.NAME]` names it; empty for the bot itself.
        title: the name that people and other agents see.
        persona: the beginning of its system prompt; empty for the default one, of the bot itself for the configured one.
        model: the model that it asks; empty for that of the chat.
        tools: the tools that it may call, by name; None: all that the person may.
        strategy: the selector of its context strategy; empty for that of the chat.
        memory: the memory view that it is shown; empty for that of the chat, `NO_MEMORY` for none.
        max_steps: the most model calls of a turn; 0 for the limit of the settings.
        living: the agents that live in the chat, by name (empty: the bot itself), as the turn begins.
    """

    name: str = ""
    title: str = ""
    persona: str = ""
    model: str = ""
    tools: frozenset[str] | None = None
    strategy: str = ""
    memory: str = ""
    max_steps: int = 0
    living: frozenset[str] = frozenset()

    @property
    def is_among_others(self) -> bool:
        """True if several agents live in the chat, so that each is shown with its name."""
        return len(self.living | {self.name}) > 1

    @property
    def stamp(self) -> JsonObject:
        """The meta of what it writes."""
        return {"origin": f"{ORIGIN_PREFIX}{self.name}"} if self.name else EMPTY_OBJECT

    @property
    def has_own_memory(self) -> bool:
        """True if it is shown another memory than the chat's, or none: what the chat remembers is kept from it."""
        return self.memory not in ("", ZONES_VIEW)

    def limit_memory(self, orderer: Agent) -> Agent:
        """Return it with no more memory than the agent that gives it an order has."""
        if not orderer.has_own_memory or self.memory == orderer.memory:
            return self
        return structs.replace(self, memory=NO_MEMORY if self.has_own_memory else orderer.memory)

    def may_read(self, entry: TapeEntry) -> bool:
        """Return true if it may look an entry of its chat up: with a memory of its own it may not look up the chat's, nor
        what other agents' tools found there, nor what sub-tasks wrote, which are tools of agents, too.
        """
        if not self.has_own_memory:
            return True
        if "fork" in entry.meta:
            return False
        if entry.kind in _CALLS:
            return writer_of(entry) == self.name
        if entry.name in CommandRun.EVENTS:
            return not text_field(entry.data, "name").startswith("memory.")
        return not (entry.name or "").startswith(("memory/", "memory."))

    @property
    def viewer(self) -> str | None:
        """The name under which it sees a shared tape; None if it is alone there."""
        return self.name if self.name or self.is_among_others else None


THE_BOT = Agent()
"""The bot itself, alone."""


def speaker_name(agent: str) -> str:
    """Return the name that models see of an agent; empty is the bot itself."""
    return agent or BOT_SPEAKER


def writer_of(entry: TapeEntry) -> str:
    """Return the name of the agent that wrote an entry; empty for the bot itself, for people, and for sub-tasks."""
    if "fork" in entry.meta:  # it belongs to the agent whose sub-task wrote it
        return ""
    origin = text_field(entry.meta, "origin")
    return origin.removeprefix(ORIGIN_PREFIX) if origin.startswith(ORIGIN_PREFIX) else ""


@runtime_checkable
class AgentDirectory(Protocol):
    """Knows the agents of a bot."""

    @property
    def has_agents(self) -> bool:
        """True if there are agents besides the bot itself."""
        ...

    def address(self, inbound: Inbound, quoted_writer: str | None = None) -> Inbound:
        """Return a message with the agents that it asks; called once, before it is stored.

        Args:
            inbound: the message.
            quoted_writer: the agent that wrote the quoted message (empty: the bot itself); None if it quotes none of the bot.
        """
        ...

    def list_commands(self, texts: Texts, translations: Mapping[str, Texts]) -> Sequence[CommandInfo]:
        """List the commands that call agents, for menus and completion.

        Args:
            texts: the language of the bot.
            translations: the languages of the menus, by tag.
        """
        ...

    def log_unknown_names(self) -> None:
        """Warn of tools and channels that the settings of agents name and this bot does not have; at a start and a reload."""
        ...

    async def choose(self, tape: TapeHandle, inbounds: Sequence[Inbound]) -> Agent:
        """Return the agent that answers these messages of the chat with this tape."""
        ...


FindAgent: TypeAlias = Callable[[str, str], Agent | None]
"""Return the agent of a name that may be called in a session; None if there is none."""


def find_no_agent(_session: str, _name: str) -> Agent | None:
    """Find nobody: there are no agents."""
    return None


class OnlyTheBot:
    """The directory of a bot without further agents."""

    @property
    def has_agents(self) -> bool:
        """See `AgentDirectory.has_agents`."""
        return False

    def address(self, inbound: Inbound, quoted_writer: str | None = None) -> Inbound:  # noqa: ARG002 - see `AgentDirectory`
        """See `AgentDirectory.address`: there is nobody else to ask."""
        return inbound

    def list_commands(self, texts: Texts, translations: Mapping[str, Texts]) -> Sequence[CommandInfo]:  # noqa: ARG002
        """See `AgentDirectory.list_commands`."""
        return ()

    def log_unknown_names(self) -> None:
        """See `AgentDirectory.log_unknown_names`."""

    async def choose(self, tape: TapeHandle, inbounds: Sequence[Inbound]) -> Agent:  # noqa: ARG002 - see `AgentDirectory`
        """See `AgentDirectory.choose`."""
        return THE_BOT
