"""Servers and pinned tools: the one writer of their facts, and the commands of owners."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from bubbot.command import Caller, command
from bubbot.errors import CommandFailed, CommandRefused, ValueInvalid
from bubbot.features.mcp.child.values import McpFailed, OfferedTool
from bubbot.features.mcp.facts import (
    MCP_TAPE,
    ServerAdded,
    ServerRemoved,
    ToolChanged,
    ToolPinned,
    ToolUnpinned,
)
from bubbot.features.mcp.host import FOLDERS, LOGINS, McpHost
from bubbot.features.mcp.offers import (
    OfferedTools,
    describe_offer,
    digest_offer,
    find_difference,
    find_offer_problem,
    make_name,
    read_hints,
)
from bubbot.features.mcp.results import (
    LoginArgs,
    McpLogin,
    McpServer,
    McpServerChange,
    McpServerCheck,
    McpTool,
    McpToolChange,
    NameArgs,
    OptionalNameArgs,
    PinArgs,
    SentServerArgs,
    ServerArgs,
    ServerToolArgs,
    TypedServerArgs,
)
from bubbot.features.mcp.secrets import McpSecrets, ServerSecrets
from bubbot.features.mcp.settings import McpSettings
from bubbot.features.mcp.state import MCP_PROJECTION, McpState
from bubbot.ports.channel import Role
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.provenance import Source
from bubbot.tape.service import TapeService
from bubbot.tool import ADMINISTERS, READS_PEOPLE, READS_WORLD, CommandHelp, HelpTopic

log = logging.getLogger(__name__)

RESERVED = ("client", "serve")
"""Names that no server has: our own commands begin with them."""
LOOK_SECONDS = 60.0
"""How long a list of tools counts before a call looks at it again."""


class McpRules(Struct, frozen=True):
    """What the service goes by.

    Attributes:
        home: the folder of the home.
        find_settings: returns `[mcp]` of the settings in force.
        on_changed: called after each change of what models may call.
    """

    home: Path
    find_settings: Callable[[], McpSettings]
    on_changed: Callable[[], None] = lambda: None


class McpService:
    """The servers that owners added, and the tools that they pinned. Changes are durable when they return.

    Attributes:
        secrets: the values of headers and variables.
    """

    def __init__(
        self,
        open_tape: Callable[[str], TapeService],
        rules: McpRules,
        *,
        host: McpHost | None = None,
        projections: ProjectionRunner | None = None,
    ) -> None:
        """Read nothing yet; see `load`. `host` is that of the running bot; without one each command has its own."""
        self.rules = rules
        self.secrets = McpSecrets(rules.home)
        self._host = host
        projections = projections or ProjectionRunner()
        self._projected = projections.project(MCP_PROJECTION, open_tape(MCP_TAPE))
        self._lock = projections.lock(MCP_TAPE)
        self._looked: dict[str, tuple[int, float]] = {}

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        await self._projected.ensure_loaded()

    @property
    def state(self) -> McpState:
        """What holds now. It reads nothing."""
        return self._projected.state

    async def catch_up(self) -> McpState:
        """Read what was appended since, and return what holds now."""
        return await self._projected.catch_up()

    # Commands

    @command(
        "mcp add <name> <command>",
        chat=("mcp.add",),
        form="<name> <command>",
        example="notes 'uvx mcp-server-notes' --network --env NOTES_KEY=env:NOTES_KEY",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        undo="mcp remove",
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Add a server of tools",
            (",mcp.add docs https://docs.example.org/mcp", ",mcp.add network=yes notes uvx mcp-server-notes"),
        ),
    )
    async def add(self, caller: Caller, args: ServerArgs | TypedServerArgs) -> McpServerChange:
        """Add a server of tools: a program that the bot starts in a sandbox, or an address. Models may call none of its tools before you pin them.

        The program gets a folder of its own, and of the environment only what you name.
        """
        if args.name in RESERVED:
            raise ValueInvalid("mcp_name_reserved", name=args.name)
        sent = args if isinstance(args, SentServerArgs) else SentServerArgs(args.name, args.command)
        if sent.headers and not args.is_address:
            raise CommandRefused("mcp_headers_for_addresses")
        if sent.env and args.is_address:
            raise CommandRefused("mcp_env_for_programs")
        if sent.login and not args.is_address:
            raise CommandRefused("mcp_login_for_addresses")
        fact = ServerAdded(
            args.name,
            args.argv,
            args.command.strip() if args.is_address else "",
            args.transport,
            args.network,
            args.read,
            tuple(sent.env),
            tuple(sent.headers),
            sent.login,
            caller.place,
        )
        async with self._lock:
            state = await self.catch_up()
            before = state.find_server(args.name)
            if before is not None:
                raise CommandRefused("mcp_server_exists", name=args.name)
            # Before the fact: a server without the secrets that it needs would be reached without them.
            await asyncio.to_thread(self.secrets.put, args.name, ServerSecrets(sent.headers, sent.env))
            await self._projected.append(fact)
        log.info("server added", extra={"action": "mcp.added", "server": args.name})
        self.rules.on_changed()
        reached = McpServer.of(fact)
        workspace = "" if fact.url else str(self.rules.home / FOLDERS / fact.name)
        return McpServerChange(
            fact.name,
            reached.reaches,
            reached.is_program,
            fact.network,
            workspace,
            enabled=self.rules.find_settings().enabled,
        )

    @command(
        "mcp list",
        chat=("mcp.list", "mcp"),
        role=Role.OWNER,
        effect=READS_PEOPLE,
        is_direct=True,
        rows="servers",
        help=CommandHelp(HelpTopic.ADMIN, "Servers of tools", (",mcp",)),
    )
    async def list_servers(self) -> list[McpServer]:
        """List the servers of tools, with how many of their tools models may call. It reaches none of them."""
        state = await self.catch_up()
        return [
            McpServer.of(
                each.fact,
                sum(pin.server == each.fact.name for pin in state.offered),
                tuple(pin.tool for pin in state.list_pins(each.fact.name) if pin.subject in state.changed),
            )
            for each in state.servers
        ]

    @command(
        "mcp check [name]",
        chat=("mcp.check",),
        form="[name]",
        role=Role.OWNER,
        effect=READS_WORLD,
        writes=True,
        is_direct=True,
        rows="servers",
        help=CommandHelp(HelpTopic.ADMIN, "Reach the servers of tools", (",mcp.check", ",mcp.check docs")),
    )
    async def check(self, args: OptionalNameArgs) -> list[McpServerCheck]:
        """Reach servers, and say their version, how many tools they offer, and which of the pinned ones changed."""
        state = await self.catch_up()
        servers = [self._find_server(args.name)] if args.name else [each.fact for each in state.servers]
        found = []
        async with self._use_host() as host:
            for server in servers:
                try:
                    offered = await self._look(host, server)
                except McpFailed as error:
                    found.append(McpServerCheck(server.name, error.reason, error.needs_login))
                    continue
                pins = self.state.list_pins(server.name)
                changed = tuple(pin.tool for pin in pins if pin.subject in self.state.changed)
                found.append(
                    McpServerCheck(
                        server.name,
                        protocol=offered.protocol,
                        server=offered.server,
                        tools=len(offered.tools),
                        pinned=len(pins) - len(changed),
                        changed=changed,
                    )
                )
        return found

    @command(
        "mcp tools <name>",
        chat=("mcp.tools",),
        form="<name>",
        example="docs",
        role=Role.OWNER,
        effect=READS_WORLD,
        writes=True,
        is_direct=True,
        rows="tools",
        help=CommandHelp(HelpTopic.ADMIN, "Tools of a server", (",mcp.tools docs",)),
    )
    async def list_tools(self, args: NameArgs) -> list[McpTool]:
        """List the tools that a server offers, with your ticks, and what it says of them."""
        await self.catch_up()
        server = self._find_server(args.name)
        offered = await self._reach(server)
        rows = [self._describe_tool(server.name, each) for each in offered.tools]
        gone = [pin for pin in self.state.list_pins(server.name) if offered.find(pin.tool) is None]
        return [
            *rows,
            *(
                McpTool(
                    pin.server, pin.tool, "gone", pin.name, "", pin.only_reads, pin.once, pin.hints, pin.description
                )
                for pin in gone
            ),
        ]

    @command(
        "mcp pin <server> <tool> [digest]",
        chat=("mcp.pin",),
        form="<server> <tool> [digest]",
        example="docs search 3f09a1b2c4d5e6f708192a3b4c5d6e7f --reads",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        undo="mcp unpin",
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let models call a tool",
            (",mcp.pin docs search", ",mcp.pin docs search reads=yes digest=3f09a1b2c4d5e6f708192a3b4c5d6e7f"),
        ),
    )
    async def pin(self, caller: Caller, args: PinArgs) -> McpToolChange:
        """Show a tool whole: what its server says of it, and what changed since it was pinned. With the digest that is shown, let models call it.

        It counts as acting in the network unless you say that it only reads. A tool that changes later is off until you pin it again.
        """
        await self.catch_up()
        server = self._find_server(args.server)
        if caller.turn is not None:
            caller.turn.note_answer(Source.WORLD)  # it shows what the server says
        offered = await self._reach(server)
        tool = offered.find(args.tool)
        if tool is None:
            raise ValueInvalid("mcp_no_tool", server=server.name, tool=args.tool)
        if problem := find_offer_problem(tool, args.key):
            raise CommandRefused("mcp_cannot_pin", tool=args.tool, problem=problem)
        if args.probe and offered.find(args.probe) is None:
            raise ValueInvalid("mcp_no_tool", server=server.name, tool=args.probe)
        digest, hints = digest_offer(tool), read_hints(tool)
        shown = McpToolChange(
            server.name,
            tool.name,
            "shown",
            digest=digest,
            description=tool.description,
            schema=tool.schema,
            hints=hints,
            difference=self._find_difference(server.name, tool),
        )
        if not args.digest:
            return shown
        if not digest.startswith(args.digest):
            raise CommandRefused("mcp_other_digest", tool=args.tool, given=args.digest)
        async with self._lock:
            state = await self.catch_up()
            before = state.find_pin(server.name, tool.name)
            names = [each.fact.name for each in state.pinned]
            fact = ToolPinned(
                server.name,
                tool.name,
                before.name if before else make_name(server.name, tool.name, names),
                digest,
                tool.description,
                tool.schema,
                hints,
                args.reads,
                args.once,
                args.key,
                args.probe,
                caller.place,
            )
            await self._projected.append(fact)
        log.info("tool pinned", extra={"action": "mcp.pinned", "server": server.name, "tool": fact.name})
        self.rules.on_changed()
        return McpToolChange(
            server.name,
            tool.name,
            "pinned",
            fact.name,
            digest,
            tool.description,
            tool.schema,
            hints,
            (),
            fact.only_reads,
            args.reads and not fact.only_reads,
        )

    @command(
        "mcp unpin <server> <tool>",
        chat=("mcp.unpin",),
        form="<server> <tool>",
        example="docs search",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "Take a tool away from models", (",mcp.unpin docs search",)),
    )
    async def unpin(self, caller: Caller, args: ServerToolArgs) -> McpToolChange:
        """Take a pinned tool away from models."""
        async with self._lock:
            state = await self.catch_up()
            if state.find_pin(args.server, args.tool) is None:
                raise ValueInvalid("mcp_not_pinned", server=args.server, tool=args.tool)
            await self._projected.append(ToolUnpinned(args.server, args.tool, caller.place))
        self.rules.on_changed()
        return McpToolChange(args.server, args.tool, "unpinned")

    @command(
        "mcp login <name>",
        example="docs",
        role=Role.OWNER,
        effect=ADMINISTERS,
        writes=False,
        help=CommandHelp(HelpTopic.ADMIN, "Log in to a server of tools"),
    )
    async def login(self, caller: Caller, args: LoginArgs) -> McpLogin:
        """Log in to a server at an address, by OAuth: open the address that is shown in a browser. Only a terminal has this."""
        # Imported here: it needs the SDK, which the daemon never imports.
        from bubbot.features.mcp.child.oauth import ClientIdentity
        from bubbot.features.mcp.login import log_in

        await self.catch_up()
        server = self._find_server(args.name)
        if not server.login:
            raise CommandRefused("mcp_no_login", name=server.name)
        identity = ClientIdentity(args.client_id, args.client_secret, args.document)
        async with self._use_host() as host:
            try:
                await log_in(await host.find_place(server), identity, args.port, caller.texts)
            except McpFailed as error:
                raise CommandFailed("mcp_failed", name=server.name, problem=error.reason) from None
        return McpLogin(server.name)

    @command(
        "mcp remove <name>",
        chat=("mcp.remove",),
        form="<name>",
        example="docs",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "Remove a server of tools", (",mcp.remove docs",)),
    )
    async def remove(self, caller: Caller, args: NameArgs) -> McpServerChange:
        """Remove a server with all its tools, its secrets and its login. The folder of its program stays."""
        async with self._lock:
            await self.catch_up()
            server = self._find_server(args.name)
            # Before the fact: who knows no server cannot remove what is left of one.
            await asyncio.to_thread(self.secrets.put, server.name, None)
            for left in (self.rules.home / LOGINS).glob(f"{server.name}.*"):
                left.unlink(missing_ok=True)
            await self._projected.append(ServerRemoved(server.name, caller.place))
        if self._host is not None:
            await self._host.drop(server.name)
        self._looked.pop(server.name, None)
        log.info("server removed", extra={"action": "mcp.removed", "server": server.name})
        self.rules.on_changed()
        reached = McpServer.of(server)
        return McpServerChange(server.name, reached.reaches, reached.is_program, server.network, is_removed=True)

    # What calls need

    async def verify(self, host: McpHost, server: ServerAdded) -> None:
        """Switch off the pinned tools that a server has changed, unless the running child asked it within `LOOK_SECONDS`.

        Raises:
            McpFailed: the server cannot be reached.
        """
        starts, at = self._looked.get(server.name, (0, 0.0))
        if host.pid is None or starts != host.starts or time.monotonic() - at > LOOK_SECONDS:
            await self._look(host, server)

    def _find_server(self, name: str) -> ServerAdded:
        server = self.state.find_server(name)
        if server is None:
            names = ", ".join(each.fact.name for each in self.state.servers) or "-"
            raise ValueInvalid("mcp_no_server", name=name, names=names)
        return server

    @asynccontextmanager
    async def _use_host(self) -> AsyncIterator[McpHost]:
        """Yield the host of the bot, or one for this block."""
        if self._host is not None:
            yield self._host
            return
        host = McpHost(self.rules.home, self.rules.find_settings, self.secrets)
        try:
            yield host
        finally:
            await host.close()

    async def _reach(self, server: ServerAdded) -> OfferedTools:
        """Ask a server for its tools. Raise `CommandFailed`."""
        async with self._use_host() as host:
            try:
                return await self._look(host, server)
            except McpFailed as error:
                code = "mcp_needs_login" if error.needs_login else "mcp_failed"
                raise CommandFailed(code, name=server.name, problem=error.reason) from None

    async def _look(self, host: McpHost, server: ServerAdded) -> OfferedTools:
        """Ask a server for its tools, and switch off those that are not as they were pinned. Raise `McpFailed`."""
        offered = await host.list_tools(server)
        async with self._lock:
            state = await self.catch_up()
            changes = [
                change
                for pin in state.list_pins(server.name)
                if (change := self._find_change(pin, offered)) is not None
            ]
            if changes:
                await self._projected.append(*changes)
        self._looked[server.name] = host.starts, time.monotonic()
        if changes:
            tools = ", ".join(change.tool for change in changes)
            log.warning("tools changed and are off: %s", tools, extra={"action": "mcp.changed", "server": server.name})
            self.rules.on_changed()
        return offered

    def _find_change(self, pin: ToolPinned, offered: OfferedTools) -> ToolChanged | None:
        """Return the fact that a pinned tool changed; None if it did not, if it is as pinned again, or if the fact is stored."""
        tool, known = offered.find(pin.tool), self.state.find_change(pin.server, pin.tool)
        digest = digest_offer(tool) if tool is not None else ""
        if digest == (known.digest if known is not None else pin.digest) or (
            known is not None and digest == pin.digest
        ):
            return None
        difference = () if tool is None else _compare(pin, tool)
        return ToolChanged(pin.server, pin.tool, digest, difference)

    def _find_difference(self, server: str, tool: OfferedTool) -> tuple[str, ...]:
        pin = self.state.find_pin(server, tool.name)
        return _compare(pin, tool) if pin is not None else ()

    def _describe_tool(self, server: str, offered: OfferedTool) -> McpTool:
        pin, hints = self.state.find_pin(server, offered.name), read_hints(offered)
        digest = digest_offer(offered)
        if pin is None:
            return McpTool(server, offered.name, "off", "", digest, False, "never", hints, offered.description)  # noqa: FBT003 - a field
        is_changed = pin.subject in self.state.changed
        return McpTool(
            server,
            offered.name,
            "changed" if is_changed else "on",
            pin.name,
            digest,
            pin.only_reads,
            pin.once,
            hints,
            offered.description,
        )


def _compare(pin: ToolPinned, tool: OfferedTool) -> tuple[str, ...]:
    before = describe_offer(pin.description, pin.schema, pin.hints)
    return find_difference(before, describe_offer(tool.description, tool.schema, read_hints(tool)))
