"""The programs that may read tapes, each grant a fact on the tape `bubbot/mcp_clients`, and the commands that change them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from bubbot.command import Caller, command
from bubbot.errors import CommandRefused
from bubbot.features.mcp.serve.facts import ClientGrant, ClientRemoved, ClientToken
from bubbot.features.mcp.serve.results import (
    AddClientArgs,
    AskSendArgs,
    ClientArgs,
    ClientChange,
    ClientRow,
    MessageState,
    NewToken,
    RemoveClientArgs,
    WishArgs,
    WishNote,
)
from bubbot.features.mcp.serve.sending import MessageWishes
from bubbot.features.mcp.serve.state import CLIENTS_PROJECTION
from bubbot.ports.channel import Role
from bubbot.ports.session_names import keep_session, parse_session, require_user_tape
from bubbot.tape.fact import Fact
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tool import ADMINISTERS, INSIDE, READS_PEOPLE, CommandHelp, HelpTopic

if TYPE_CHECKING:
    from bubbot.feature import Kernel

log = logging.getLogger(__name__)

MAX_SESSIONS = 100
"""Chats that one program may read: a search of all of them reads each."""
GRANTED, REVOKED = ClientGrant.EVENTS


def digest_token(token: str) -> str:
    """Return what is stored of a token; it has 256 random bits, so no salt is needed."""
    return sha256(token.encode(errors="replace")).hexdigest()


class McpClients:
    """The one writer of the tape of programs. Changes are durable when they return, and hold at a program's next request.

    Attributes:
        wishes: the messages that programs want to send; None if no bot runs.
    """

    def __init__(
        self,
        tape: TapeHandle,
        make_token: Callable[[], str],
        *,
        projections: ProjectionRunner | None = None,
        first_session: Callable[[str], Awaitable[str]] = keep_session,
        kernel: Kernel | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            tape: the tape of programs.
            make_token: returns a new random token.
            projections: keeps the state.
            first_session: see `Kernel.first_session`.
            kernel: what sends messages of programs; None if no bot runs.
        """
        self._make_token, self._first_session = make_token, first_session
        projections = projections or ProjectionRunner()
        self._projected = projections.project(CLIENTS_PROJECTION, tape)
        self._lock = projections.lock(tape.name)
        self.wishes = MessageWishes(kernel, tape, self._projected, self._lock) if kernel is not None else None

    @command(
        "mcp client-list",
        chat=("mcp.client_list", "mcp.clients"),
        role=Role.OWNER,
        is_direct=True,
        effect=READS_PEOPLE,
        rows="clients",
        help=CommandHelp(HelpTopic.ADMIN, "Which programs read which chats", (",mcp.clients",)),
    )
    async def list_clients(self) -> list[ClientRow]:
        """List the programs that may read chats through MCP."""
        state = await self._projected.catch_up()
        return [
            ClientRow(name, state.sessions_of(name), name in state.tokens, state.targets_of(name))
            for name in state.clients
        ]

    @command(
        "mcp client-add <client> <sessions>",
        chat=("mcp.client_add",),
        form="<client> <sessions>",
        example="my-editor telegram:42 stdin:default",
        role=Role.OWNER,
        is_direct=True,
        effect=ADMINISTERS,
        help=CommandHelp(HelpTopic.ADMIN, "Let a program read chats", (",mcp.client_add my-editor telegram:42",)),
    )
    async def add_client(self, caller: Caller, args: AddClientArgs) -> ClientChange:
        """Let a program on this machine read chats through MCP; with send, it may also ask an owner to send a message there."""
        named = await self._read_sessions(args.sessions)
        if not named:
            raise CommandRefused("mcp_client_no_sessions", client=args.client)
        async with self._lock:
            state = await self._projected.catch_up()
            targets = state.targets_of(args.client)
            added = tuple([each for each in named if (args.client, each) not in state.grants])
            changed = [each for each in named if each in added or (args.send and each not in targets)]
            if len(state.sessions_of(args.client)) + len(added) > MAX_SESSIONS:
                raise CommandRefused("mcp_client_too_many", client=args.client, number=MAX_SESSIONS)
            await self._write(*[ClientGrant(args.client, each, caller.id, args.send or UNSET) for each in changed])
            state = self._projected.state
            return ClientChange(
                args.client, state.sessions_of(args.client), added, targets=state.targets_of(args.client)
            )

    @command(
        "mcp client-remove <client> [sessions]",
        chat=("mcp.client_remove",),
        form="<client> [sessions]",
        example="my-editor",
        role=Role.OWNER,
        is_direct=True,
        effect=ADMINISTERS,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let a program read no more",
            (",mcp.client_remove my-editor", ",mcp.client_remove my-editor telegram:42"),
        ),
    )
    async def remove_client(self, caller: Caller, args: RemoveClientArgs) -> ClientChange:
        """Take back what a program may read, from its next request on: all, or some chats."""
        named = await self._read_sessions(args.sessions)
        async with self._lock:
            state = await self._projected.catch_up()
            if args.client not in state.clients:
                raise CommandRefused("mcp_client_unknown", client=args.client)
            before = state.sessions_of(args.client)
            if missing := [each for each in named if each not in before]:
                raise CommandRefused("mcp_client_no_grant", client=args.client, session=missing[0])
            if named and len(named) < len(before):
                await self._write(*[ClientGrant(args.client, each, caller.id) for each in named], revokes=True)
            else:
                await self._write(ClientRemoved(args.client, caller.id))
            sessions = self._projected.state.sessions_of(args.client)
        return ClientChange(args.client, sessions, removed=tuple([each for each in before if each not in sessions]))

    @command(
        "mcp client-token <client>",
        example="my-editor",
        role=Role.OWNER,
        effect=ADMINISTERS,
    )
    async def make_token(self, caller: Caller, args: ClientArgs) -> NewToken:
        """Make a token with which a program asks over HTTP; the one before ends. It is printed once, and only its digest is stored."""
        async with self._lock:
            state = await self._projected.catch_up()
            if not state.sessions_of(args.client):
                raise CommandRefused("mcp_client_unknown", client=args.client)
            token = self._make_token()
            await self._write(ClientToken(args.client, digest_token(token), caller.id))
        return NewToken(args.client, token)

    @command(
        "mcp client-send <client> <session> <id> <text>",
        example="my-editor telegram:42 note-1 'The build is green.'",
        role=Role.OWNER,
        effect=ADMINISTERS,
    )
    async def ask_to_send(self, args: AskSendArgs) -> MessageState:
        """Ask an owner, as a program does, if a message is sent; the same id again says how it stands. It needs the running bot."""
        if self.wishes is None:
            raise CommandRefused("mcp_send_no_bot")
        named = await self._read_sessions(args.session)
        return await self.wishes.ask(replace(args, session=named[0] if len(named) == 1 else args.session))

    @command(
        "mcp send",
        chat=("mcp.send",),
        in_shell=False,
        form="<id>",
        role=Role.OWNER,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.ADMIN, "How a program's message stands", (",mcp.send 3f09a1b24c5d",)),
    )
    async def go_on(self, caller: Caller, args: WishArgs) -> WishNote:
        """Say how a message stands that a program wants to send here. It is sent after an owner's yes to its card alone."""
        if self.wishes is None:
            raise CommandRefused("mcp_send_no_bot")
        return WishNote(await self.wishes.go_on(caller.required_turn, args.id))

    async def _read_sessions(self, text: str) -> list[str]:
        """Return the chats that a text names. Raise `ConfigError` for a name that is none, such as a tape of the system."""
        words = text.replace(",", " ").split()
        for word in words:
            require_user_tape(word, "read by programs")
        return [*dict.fromkeys([await self._first_session(parse_session(word)) for word in words])]

    async def _write(self, *facts: Fact, revokes: bool = False) -> None:
        if not facts:
            return
        entries = [fact.to_entry(fact.EVENTS[-1 if revokes else 0]) for fact in facts]
        await self._projected.append(*entries)
        for entry in entries:
            log.info("programs that read chats: %s", entry.name, extra={"action": "mcp.client_changed"})
