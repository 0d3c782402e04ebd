"""What the facts about servers and tools come to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec

from bubbot.features.mcp.facts import (
    FACTS,
    MCP_TAPE,
    InputGiven,
    InputWanted,
    ServerAdded,
    ServerRemoved,
    ToolChanged,
    ToolPinned,
    ToolUnpinned,
)
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class McpState(FactState):
    """The servers and their tools.

    Attributes:
        servers: in the order in which they were added.
        pinned: the newest pin of each tool.
        changed: pinned tools that are not as they were pinned, and off.
    """

    FACTS: ClassVar = FACTS
    servers: Current[ServerAdded] = msgspec.field(default_factory=Current)
    pinned: Current[ToolPinned] = msgspec.field(default_factory=Current)
    changed: Current[ToolChanged] = msgspec.field(default_factory=Current)

    def find_server(self, name: str) -> ServerAdded | None:
        """Return a server by its name; None if there is none."""
        found = self.servers.find(name)
        return found.fact if found else None

    def find_pin(self, server: str, tool: str) -> ToolPinned | None:
        """Return the pin of a tool; None if it is not pinned."""
        found = self.pinned.find((server, tool))
        return found.fact if found else None

    def find_change(self, server: str, tool: str) -> ToolChanged | None:
        """Return what changed of a pinned tool since; None if nothing did."""
        found = self.changed.find((server, tool))
        return found.fact if found else None

    def list_pins(self, server: str) -> list[ToolPinned]:
        """List the pinned tools of a server, those that are off included."""
        return [each.fact for each in self.pinned if each.fact.server == server]

    @property
    def offered(self) -> Iterator[ToolPinned]:
        """The tools that models may call, in the order of their names."""
        on = [each.fact for each in self.pinned if each.fact.subject not in self.changed]
        return iter(sorted(on, key=lambda pin: pin.name))

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact. One about a server or a tool that is not known changes nothing."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: ServerAdded, cited: Cited[Any], /) -> None:
        if self.servers.find(fact.name) is not None:
            self._forget_tools(fact.name)
        self.servers.put(cited)

    @fold.register
    def _(self, fact: ServerRemoved, _cited: Cited[Any], /) -> None:
        self.servers.drop(fact.name)
        self._forget_tools(fact.name)

    @fold.register
    def _(self, fact: ToolPinned, cited: Cited[Any], /) -> None:
        if fact.server in self.servers:
            self.pinned.put(cited)
            self.changed.drop(fact.subject)

    @fold.register
    def _(self, fact: ToolUnpinned, _cited: Cited[Any], /) -> None:
        self.pinned.drop(fact.subject)
        self.changed.drop(fact.subject)

    @fold.register
    def _(self, fact: ToolChanged, cited: Cited[Any], /) -> None:
        if fact.subject in self.pinned:
            self.changed.put(cited)

    @fold.register(InputWanted | InputGiven)
    def _(self, _fact: InputWanted | InputGiven, _cited: Cited[Any], /) -> None:
        """Change nothing: they stand on the tapes of chats."""

    def _forget_tools(self, server: str) -> None:
        self.pinned.drop_if(lambda each: each.fact.server == server)
        self.changed.drop_if(lambda each: each.fact.server == server)


MCP_PROJECTION = project_facts(McpState, name="mcp", version=1, tapes=MCP_TAPE, interval=200)

CHECKPOINTS = {MCP_PROJECTION.checkpoint_name: checkpoint_model(McpState)}
