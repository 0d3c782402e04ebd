"""`[agents]` of the settings: limits of sub-tasks and of conversations between agents, and a table for each agent."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from bubbot.ports.agents import AGENT_NAME, AGENT_NAME_FORM, BOT_SPEAKER, NO_MEMORY
from bubbot.ports.settings import (
    Label,
    Names,
    Number,
    OptionalNames,
    OptionalWhole,
    SettingsSection,
    Text,
    Whole,
    matches,
)

DAY_SECONDS = 86_400


def _check_name(name: str) -> str:
    if name == BOT_SPEAKER:
        raise ValueError(f"another one: {name!r} is the bot itself")
    return name


AgentName = Annotated[
    Label,
    matches(AGENT_NAME, AGENT_NAME_FORM),
    AfterValidator(_check_name),
]


class AgentSettings(SettingsSection):
    """`[agents.NAME]`: an agent that answers beside the bot itself, under its own name."""

    title: Text = Field(default="", description="The name that people see; default: the name of its table.")
    names: Names = Field(
        default=[],
        description="Names by which people may call it at the beginning of a message, besides `@NAME` and `/NAME`; default: its title.",
    )
    prompt: Text = Field(
        default="",
        description="Who it is, at the beginning of its system prompt; default: a helpful assistant with its title.",
    )
    about: Text = Field(default="", description="What it is for, in some words, for people and the other agents.")
    model: Text = Field(default="", description="The model that it asks; default: that of the chat.")
    tools: OptionalNames = Field(
        default=None,
        description=(
            "The tools that it may call, such as `memory.recall` or `web.*`; default: all that the person may whom it answers. "
            "An empty list: none."
        ),
        examples=[["tape.search", "web.*"]],
    )
    strategy: Text = Field(
        default="", description="Its context strategy, as `[context] selector` names it; default: that of the chat."
    )
    memory: Text = Field(
        default="",
        description=f"The memory view that it is shown, as `[memory] view` names it; `{NO_MEMORY}`: none; default: that of the chat. With any other than `zones` it is shown nothing else that is remembered, and has no `memory.*` tools.",
    )
    steps: OptionalWhole = Field(
        default=None,
        ge=1,
        le=1000,
        description="Model calls of one of its turns, within `[model] max_steps`, which is the default.",
        examples=[10],
    )
    chats: Names = Field(
        default=[],
        description="Where it may be called, besides the places of `answers`: channels, chats or threads, such as `telegram:-1001`; default: everywhere.",
    )
    answers: Names = Field(
        default=[],
        description=(
            "Where it answers messages that call nobody: chats or threads, such as `telegram:-1001`, and topics, such as "
            "`topic/cake`."
        ),
    )
    day: Annotated[float | None, Field(ge=0)] = Field(
        default=None, description="Money that it may spend in a day, in `[budget] currency`.", examples=[1.0]
    )
    month: Annotated[float | None, Field(ge=0)] = Field(
        default=None, description="Money that it may spend in a month.", examples=[10.0]
    )
    tokens_day: OptionalWhole = Field(
        default=None, ge=0, description="Tokens that it may read and write in a day.", examples=[500_000]
    )
    tokens_month: OptionalWhole = Field(
        default=None, ge=0, description="Tokens that it may read and write in a month.", examples=[5_000_000]
    )

    def spoken_names(self, name: str) -> list[str]:
        """Return the names by which people call it at the beginning of a message; `name` is that of its table."""
        return [each for each in self.names or [self.title] if each.strip()] or [name]


class AgentsSettings(SettingsSection):
    """`[agents]`: limits of sub-tasks and of agents that call each other, and a table for each agent, `[agents.NAME]`."""

    max_parallel: Whole = Field(
        default=3, ge=1, le=16, description="Sub-tasks of one turn that run at the same time, at each depth."
    )
    max_depth: Whole = Field(
        default=2, ge=1, le=4, description="How deep sub-tasks may be nested; 1: a sub-task has none of its own."
    )
    max_steps: Whole = Field(default=10, ge=1, le=1000, description="Model calls of one sub-task.")
    max_tokens: Whole = Field(
        default=200_000,
        ge=1000,
        le=100_000_000,
        description="Tokens that one sub-task may read and write, those of its own sub-tasks included.",
    )
    timeout: Number = Field(default=600.0, gt=0, le=DAY_SECONDS, description="Seconds one sub-task may take.")
    max_turns: Whole = Field(
        default=6,
        ge=0,
        le=100,
        description="Turns of agents that may follow the first answer to a message of a person: of those that it calls too, and of those that agents call; 0: none.",
    )
    max_turn_tokens: Whole = Field(
        default=200_000,
        ge=1000,
        le=100_000_000,
        description="Tokens that these turns may read and write together; once they are used, no further one follows.",
    )
    named: dict[AgentName, AgentSettings] = Field(default={}, description="The agents by name.")

    named_tables: ClassVar[Mapping[str, type[SettingsSection]]] = MappingProxyType({"<name>": AgentSettings})
    table_field: ClassVar[str] = "named"

    @model_validator(mode="before")
    @classmethod
    def _gather_agents(cls, section: Any) -> Any:
        """Gather the tables of agents. A field of this name is one of them."""
        if not isinstance(section, Mapping):
            return section
        names = [key for key in section if key not in cls.model_fields or key == cls.table_field]
        tables = {name: section[name] for name in names if isinstance(section[name], Mapping)}
        rest = {key: value for key, value in section.items() if key not in tables}
        return {**rest, cls.table_field: tables} if tables else section


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"agents": AgentsSettings})
"""The section of the feature in config.toml."""
