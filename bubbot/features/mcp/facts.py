"""The facts about servers of others and their tools. They hold no secrets: those stand in a file of the home."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.tape.entry import JsonObject
from bubbot.tape.fact import Fact

MCP_TAPE = "bubbot/mcp"
Transport: TypeAlias = Literal["auto", "http", "sse"]
Once: TypeAlias = Literal["never", "key", "probe"]


class ServerAdded(Fact):
    """An owner added a server, or gave one another command or address: then its tools are off until they were pinned again.

    Attributes:
        name: what people call it.
        argv: the program and its arguments; empty for a server at an address.
        url: its address; empty for a program.
        transport: how an address is spoken to.
        network: the program may use the network.
        readable: further folders that the program may read and run programs from.
        env: the names of the variables that the program gets.
        headers: the names of the headers that requests carry.
        login: requests carry a login by OAuth, once there is one.
        by: where it was added: `terminal`, or a channel. Who it was is on the tape of that chat: this fact outlives them.
    """

    EVENTS = ("mcp/added",)
    name: str
    argv: tuple[str, ...]
    url: str
    transport: Transport
    network: bool
    readable: tuple[str, ...]
    env: tuple[str, ...]
    headers: tuple[str, ...]
    login: bool
    by: str

    @property
    def subject(self) -> str:
        """The server."""
        return self.name


class ServerRemoved(Fact):
    """An owner removed a server with all its tools.

    Attributes:
        name: the server.
        by: where it was removed, as in `ServerAdded`.
    """

    EVENTS = ("mcp/removed",)
    name: str
    by: str


class ToolPinned(Fact):
    """An owner lets models call a tool as its server describes it now. A later pin takes the place of an earlier one.

    Attributes:
        server: the server.
        tool: the name that the server has for it.
        name: the name that models call it by.
        digest: of its name, description, schema and hints, in hex.
        description: as the server gave it.
        schema: the JSON Schema of its arguments.
        hints: what the server says of its effects: `readOnlyHint` and `destructiveHint`, if it says so.
        reads: the owner says that it only reads.
        once: what may be done after a crash in the middle of a call.
        key: the argument that takes the key of a call; empty for none.
        probe: the tool that is asked whether a call happened; empty for none.
        by: where it was pinned, as in `ServerAdded`.
    """

    EVENTS = ("mcp/pinned",)
    server: str
    tool: str
    name: str
    digest: str
    description: str
    schema: JsonObject
    hints: JsonObject
    reads: bool
    once: Once
    key: str
    probe: str
    by: str

    @property
    def subject(self) -> tuple[str, str]:
        """The tool."""
        return self.server, self.tool

    @property
    def only_reads(self) -> bool:
        """True if the owner says that it only reads, and the server does not say otherwise."""
        return (
            self.reads and self.hints.get("readOnlyHint") is not False and self.hints.get("destructiveHint") is not True
        )


class ToolUnpinned(Fact):
    """An owner takes a tool away from models.

    Attributes:
        server: the server.
        tool: the tool.
        by: where that was, as in `ServerAdded`.
    """

    EVENTS = ("mcp/unpinned",)
    server: str
    tool: str
    by: str

    @property
    def subject(self) -> tuple[str, str]:
        """The tool."""
        return self.server, self.tool


class ToolChanged(Fact):
    """A pinned tool is not as it was pinned: it is off until an owner pins it again.

    Attributes:
        server: the server.
        tool: the tool.
        digest: what it has now; empty if the server does not offer it any more.
        difference: lines that went, after `-`, and that came, after `+`.
    """

    EVENTS = ("mcp/changed",)
    server: str
    tool: str
    digest: str
    difference: tuple[str, ...]

    @property
    def subject(self) -> tuple[str, str]:
        """The tool."""
        return self.server, self.tool


class WantedInput(Struct, frozen=True):
    """One question of a server.

    Attributes:
        key: its answer is given under this name.
        message: the words of the server.
        schema: of the fields to fill in; empty if the person shall open an address.
        url: the address; empty for fields.
    """

    key: str
    message: str
    schema: JsonObject
    url: str


class InputWanted(Fact):
    """A server wants input before it goes on with a call. The call rests until a person answers. It is on the tape of the chat.

    Attributes:
        id: what people type.
        server: the server.
        tool: the name that models call the tool by.
        digest: that of the pinned tool.
        arguments: those of the call.
        key: that of the effect; empty for none.
        questions: what it wants.
        state: what the server wants back.
        answers: those of earlier rounds, by the keys of their questions.
        approval: the card that asks; empty if fields are to be filled in.
    """

    EVENTS = ("mcp.wanted",)
    id: str
    server: str
    tool: str
    digest: str
    arguments: JsonObject
    key: str
    questions: tuple[WantedInput, ...]
    state: str
    answers: JsonObject
    approval: str


class InputGiven(Fact):
    """A person answered a server, or declined; the call goes on once.

    Attributes:
        id: that of the question.
    """

    EVENTS = ("mcp.given",)
    id: str


FACTS: tuple[type[Fact], ...] = (
    ServerAdded,
    ServerRemoved,
    ToolPinned,
    ToolUnpinned,
    ToolChanged,
    InputWanted,
    InputGiven,
)
