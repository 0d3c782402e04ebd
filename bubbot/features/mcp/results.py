"""What the commands about servers take, and what they say."""

from __future__ import annotations

import shlex
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.mcp.facts import Once, ServerAdded
from bubbot.features.mcp.offers import describe_offer
from bubbot.formatting import escape_markdown, fence, replace_controls, show_details
from bubbot.shell_command import Argument
from bubbot.tape.entry import JsonObject

SHOWN_DIGITS = 32
"""Digits of a digest that people see and copy. A server that knows two tools with the same digits shows one and has the other
pinned: for 12 digits it finds them in a minute."""
MAX_BRIEF_CHARS = 100
NAME, NAME_FORM = r"^[a-z0-9_-]{1,32}\Z", "1 to 32 small letters, digits, _ and -"

ServerName = Annotated[str, Meta(pattern=NAME, description="the name of the server", extra={"form": NAME_FORM})]


class ServerArgs(Args, frozen=True):
    """A server to add."""

    name: ServerName
    command: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=8_000,
            description="the program with its arguments as one text, or the address, with https:// or http://",
        ),
    ]
    transport: Annotated[
        Literal["auto", "http", "sse"],
        Meta(description="how an address is spoken to: streamable HTTP, or its forerunner"),
    ] = "auto"
    network: Annotated[bool, Meta(description="let the program use the network")] = False
    read: Annotated[
        tuple[str, ...],
        Meta(description="a further folder that the program may read, as a whole path"),
        Argument(repeated=True, metavar="FOLDER"),
    ] = ()

    def find_problem(self) -> str:
        """Say what is wrong with the arguments together."""
        if replace_controls(self.command) != self.command or "\n" in self.command:
            return "command has no control characters"
        if self.is_address:
            return _find_address_problem(self.command.strip()) or (
                "network and read are for programs, not for addresses" if self.network or self.read else ""
            )
        if self.transport != "auto":
            return "transport is for addresses, not for programs"
        try:
            argv = shlex.split(self.command)
        except ValueError as error:
            return f"command cannot be split into words: {error}"
        if not argv or argv[0].startswith("-"):
            return "command begins with a program"
        if "/" in argv[0] and not argv[0].startswith("/"):
            return f"command begins with a whole path, or with a bare name that is looked for in PATH, and {argv[0]!r} is neither: write the path from / on"
        if wrong := [folder for folder in self.read if not folder.startswith("/")]:
            return f"read has whole paths, and {wrong[0]!r} is none"
        return ""

    @property
    def is_address(self) -> bool:
        """True for an address, false for a program."""
        return self.command.startswith(("https://", "http://"))

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments; empty for an address."""
        return () if self.is_address else tuple(shlex.split(self.command))


def _find_address_problem(address: str) -> str:
    try:
        parts = urlsplit(address)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError as error:
        return f"command is no address ({error}): write https://HOST/PATH"
    if not has_host or " " in address:
        return f"command begins as an address, and {address[:100]!r} is none: write https://HOST/PATH"
    if parts.username is not None:
        return "command has a name or password in its address, which would stand on the tape: send it as a header (bubbot mcp add --header)"
    return ""


class TypedServerArgs(ServerArgs, frozen=True):
    """A server to add, as it is typed in a shell."""

    header: Annotated[
        tuple[str, ...],
        Meta(
            description="a header of requests: NAME=@FILE, NAME=env:VARIABLE, or NAME alone, whose value is asked for"
        ),
        Argument(repeated=True, metavar="NAME=…"),
    ] = ()
    env: Annotated[
        tuple[str, ...],
        Meta(
            description="a variable of the program: NAME=@FILE, NAME=env:VARIABLE, or NAME alone, whose value is asked for"
        ),
        Argument(repeated=True, metavar="NAME=…"),
    ] = ()
    login: Annotated[bool, Meta(description="requests carry a login: bubbot mcp login NAME")] = False


class SentServerArgs(ServerArgs, frozen=True):
    """A server to add, with the values of its headers and variables."""

    headers: dict[str, str] = {}  # noqa: RUF012 - of a frozen Struct
    env: dict[str, str] = {}  # noqa: RUF012
    login: bool = False


class NameArgs(Args, frozen=True):
    """A server."""

    name: ServerName


class LoginArgs(NameArgs, frozen=True):
    """A server to log in to."""

    client_id: Annotated[
        str,
        Meta(description="the id of a registration made by hand (default: the bot is registered)", max_length=2_000),
    ] = ""
    client_secret: Annotated[
        str,
        Meta(description="the secret of that registration: @FILE or env:VARIABLE", max_length=4_000),
        Argument(metavar="@FILE"),
    ] = ""
    document: Annotated[
        str, Meta(description="the https address of a Client ID Metadata Document of this bot", max_length=2_000)
    ] = ""
    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="the port of this machine that the browser comes back to, if the registration names one",
        ),
    ] = 0

    def find_problem(self) -> str:
        """Say what is wrong with the arguments together."""
        return "client_secret needs client_id" if self.client_secret and not self.client_id else ""


class OptionalNameArgs(Args, frozen=True):
    """A server, or all of them."""

    name: Annotated[str, Meta(description="the name of the server (default: all of them)", max_length=32)] = ""


class ServerToolArgs(Args, frozen=True):
    """A tool of a server."""

    server: ServerName
    tool: Annotated[str, Meta(description="the name that the server has for the tool", min_length=1, max_length=256)]


class PinArgs(ServerToolArgs, frozen=True):
    """A tool to let models call."""

    digest: Annotated[
        str,
        Meta(
            description="the digest that was shown, at least 32 digits of it: what is pinned is what you saw; without it the tool is only shown",
            pattern=r"^([0-9a-f]{32,64})?\Z",
            extra={"form": "32 to 64 digits of a digest in hex"},
        ),
    ] = ""
    reads: Annotated[bool, Meta(description="it only reads, whatever its arguments: you vouch for that")] = False
    once: Annotated[
        Literal["never", "key", "probe"],
        Meta(
            description="after a crash in the middle of a call: leave it, repeat it with its key, or ask a tool whether it happened"
        ),
    ] = "never"
    key: Annotated[str, Meta(description="the argument that takes the key of a call", max_length=200)] = ""
    probe: Annotated[str, Meta(description="the tool that is asked whether a call happened", max_length=256)] = ""

    def find_problem(self) -> str:
        """Say what is wrong with the arguments together."""
        if self.reads and self.once != "never":
            return "reads and once exclude each other: what only reads is simply called again"
        if (self.once == "probe") is not bool(self.probe):
            return "once=probe and probe belong together"
        if self.key and self.once == "never":
            return "key needs once=key or once=probe"
        return ""


class AnswerArgs(Args, frozen=True):
    """An answer to a server."""

    id: Annotated[str, Meta(description="what the bot said to type", max_length=32)]
    values: Annotated[
        str, Meta(description="the fields as name=value, with quotes around values of several words", max_length=20_000)
    ] = ""
    decline: Annotated[bool, Meta(description="tell the server no")] = False


class McpServer(Struct, frozen=True):
    """A server.

    Attributes:
        name: what people call it.
        reaches: the program with its arguments, or the address.
        is_program: the bot starts it.
        network: the program may use the network.
        secrets: the names of the headers and variables whose values are kept in the home.
        pinned: how many of its tools models may call.
        changed: the tools that are off since they changed.
    """

    name: str
    reaches: str
    is_program: bool
    network: bool
    secrets: tuple[str, ...] = ()
    pinned: int = 0
    changed: tuple[str, ...] = ()

    @classmethod
    def of(cls, server: ServerAdded, pinned: int = 0, changed: tuple[str, ...] = ()) -> McpServer:
        """Read a fact."""
        return cls(
            server.name,
            server.url or shlex.join(server.argv),
            not server.url,
            server.network,
            (*server.headers, *server.env),
            pinned,
            changed,
        )

    def describe(self, caller: Caller) -> str:
        """Say what it is, and how its tools stand."""
        say = caller.result_texts.say
        parts = [say("McpServer.reaches", name=self.name, reaches=self.reaches)]
        if self.is_program:
            parts.append(say("mcp_with_network" if self.network else "mcp_without_network"))
        if self.secrets:
            parts.append(say("mcp_secrets", names=", ".join(self.secrets)))
        parts.append(say("mcp_pinned", count=self.pinned))
        if self.changed:
            parts.append(say("mcp_changed", tools=", ".join(self.changed)))
        return " ".join(parts)


class McpServerChange(Struct, frozen=True):
    """A server that was added or removed.

    Attributes:
        name: what people call it.
        reaches: the program with its arguments, or the address.
        is_program: the bot starts it.
        network: the program may use the network.
        workspace: its own folder; empty for an address.
        is_removed: it was removed.
        enabled: `[mcp]` is on.
    """

    name: str
    reaches: str
    is_program: bool
    network: bool
    workspace: str = ""
    is_removed: bool = False
    enabled: bool = True

    def describe(self, caller: Caller) -> str:
        """Say what the bot will run or reach."""
        say, is_shell = caller.result_texts.say, caller.turn is None
        if self.is_removed:
            return say("McpServerChange.removed", name=self.name)
        check = f"bubbot mcp tools {self.name}" if is_shell else caller.texts.format_commands(f",mcp.tools {self.name}")
        sentence = "McpServerChange.program" if self.is_program else "McpServerChange.address"
        parts = [say(sentence, name=self.name, reaches=self.reaches, folder=self.workspace)]
        if self.is_program:
            parts.append(say("mcp_with_network" if self.network else "mcp_without_network"))
        if not self.enabled:
            parts.append(say("mcp_is_off"))
        parts.append(say("mcp_look", command=check))  # last: a command with a full stop behind it is another one
        return " ".join(parts)


class McpServerCheck(Struct, frozen=True):
    """What a server said.

    Attributes:
        name: what people call it.
        problem: why it could not be asked; empty if it could.
        needs_login: it wants a login.
        protocol: the version of MCP.
        server: what it calls itself.
        tools: how many tools it offers.
        pinned: how many of them models may call.
        changed: those that are off since they changed.
    """

    name: str
    problem: str = ""
    needs_login: bool = False
    protocol: str = ""
    server: str = ""
    tools: int = 0
    pinned: int = 0
    changed: tuple[str, ...] = ()

    def describe(self, caller: Caller) -> str:
        """Say it in a line."""
        say = caller.result_texts.say
        if self.problem:
            text = say("McpServerCheck.problem", name=self.name, problem=_word(self.problem, caller))
            return f"{text} {say('mcp_login', command=f'bubbot mcp login {self.name}')}" if self.needs_login else text
        values = {"name": self.name, "server": _word(self.server, caller) or "-", "protocol": self.protocol}
        parts = [say("McpServerCheck.ok", count=self.tools, **values), say("mcp_pinned", count=self.pinned)]
        if self.changed:
            parts.append(say("mcp_changed", tools=", ".join(self.changed)))
        return " ".join(parts)


class McpTool(Struct, frozen=True):
    """A tool of a server.

    Attributes:
        server: the server.
        tool: its name there.
        state: `on`: models may call it; `off`: nobody pinned it; `changed`: it is off since it changed; `gone`: it is not offered.
        name: the name that models call it by; empty if it is not pinned.
        digest: of what the server says of it now; empty if it is gone.
        reads: an owner says that it only reads.
        once: what may be done after a crash in the middle of a call.
        hints: what the server says of its effects.
        description: what the server says that it does.
    """

    server: str
    tool: str
    state: Literal["on", "off", "changed", "gone"]
    name: str
    digest: str
    reads: bool
    once: Once
    hints: JsonObject
    description: str

    def describe(self, caller: Caller) -> str:
        """Say it in a line, with the beginning of what the server says."""
        say = caller.result_texts.say
        words = [say(f"mcp_state_{self.state}"), *([say("mcp_reads")] if self.reads else [])]
        if self.state != "off" and self.once != "never":
            words.append(f"once={self.once}")
        words += [f"{name}={str(value).lower()}" for name, value in self.hints.items()]
        brief = " ".join(self.description.split())
        brief = brief if len(brief) <= MAX_BRIEF_CHARS else f"{brief[: MAX_BRIEF_CHARS - 1]}…"
        tool = _word(self.tool, caller)
        return f"{tool} [{', '.join(words)}] {self.digest[:SHOWN_DIGITS]} {_word(brief, caller)}".rstrip()


class McpToolChange(Struct, frozen=True):
    """A tool that was shown, pinned or taken away.

    Attributes:
        server: the server.
        tool: its name there.
        action: what was done.
        name: the name that models call it by.
        digest: of what the server says of it.
        description: what the server says that it does.
        schema: of its arguments.
        hints: what the server says of its effects.
        difference: what changed since it was pinned.
        reads: it counts as reading.
        is_overruled: an owner says that it only reads, and the server that it does not.
    """

    is_text: ClassVar = True
    server: str
    tool: str
    action: Literal["shown", "pinned", "unpinned"]
    name: str = ""
    digest: str = ""
    description: str = ""
    schema: JsonObject = {}
    hints: JsonObject = {}
    difference: tuple[str, ...] = ()
    reads: bool = False
    is_overruled: bool = False

    def describe(self, caller: Caller) -> str:
        """Show all of it: what an owner pins is what he saw."""
        say, is_shell = caller.result_texts.say, caller.turn is None
        values = {"server": self.server, "tool": self.tool, "name": self.name, "digest": self.digest[:SHOWN_DIGITS]}
        if self.action == "unpinned":
            return say("McpToolChange.unpinned", **values)
        parts = []
        tool = _word(self.tool, caller)
        if self.difference:
            parts += [say("mcp_difference"), _quote(self.difference, caller)]
        parts.append(say("mcp_says", server=self.server, tool=tool))
        parts.append(_quote(describe_offer(self.description, self.schema, self.hints), caller))
        if self.action == "shown":
            words = f"{self.server} {self.tool} {self.digest[:SHOWN_DIGITS]}"
            command = f"bubbot mcp pin {words}" if is_shell else caller.texts.format_commands(f",mcp.pin {words}")
            return "\n".join([*parts, say("McpToolChange.shown", command=command, **values)])
        kind = "mcp_effect_reads" if self.reads else "mcp_effect_acts"
        parts.append(f"{say('McpToolChange.pinned', **values)} {say(kind)}")
        if self.is_overruled:
            parts.append(say("mcp_overruled"))
        return "\n".join(parts)


def _quote(lines: list[str] | tuple[str, ...], caller: Caller) -> str:
    """Quote lines of a server so that none looks like ours, nothing in them hides, and in a chat nothing counts as Markdown."""
    shown = show_details("\n".join(lines))
    return "\n".join(f"  {line}".rstrip() for line in shown.split("\n")) if caller.turn is None else fence(shown)


def _word(text: str, caller: Caller) -> str:
    """Return a few words of a server on one line, in which nothing hides, and in a chat nothing counts as Markdown."""
    return " ".join(show_details(text).split()) if caller.turn is None else escape_markdown(text)


class McpLogin(Struct, frozen=True):
    """A login.

    Attributes:
        name: the server.
    """

    name: str


class McpAnswer(Struct, frozen=True):
    """What a server said after an answer.

    Attributes:
        text: as it is shown.
    """

    text: str

    def describe(self, _caller: Caller) -> str:
        """Show it."""
        return self.text
