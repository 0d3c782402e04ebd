"""The one place that opens a memory for a caller: those that a turn has access to, or the one that a shell names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bubbot.command import Caller
from bubbot.errors import CommandRefused, ValueInvalid
from bubbot.features.memory.arguments import EraseArgs, OwnerArgs, ReadMemoryArgs, ScopedArgs, ShowOwnerArgs
from bubbot.features.memory.memories import Memories
from bubbot.features.memory.results import name_zone
from bubbot.features.memory.scopes import WORKSPACE_TAPE, MemoryCommandOptions
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZones
from bubbot.features.memory.zone import MemoryZone
from bubbot.identity import is_id
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext, read_as_of


@dataclass(frozen=True, slots=True)
class OpenMemory:
    """A memory that a caller may use.

    Attributes:
        scope: whose it is.
        zone: the memory.
        label: its name in a result: the session, as it was named; `user CHANNEL:ID` or `workspace` for other memory.
        reference: the words that name it in a shell; empty in a chat.
    """

    scope: Scope
    zone: AnyZone
    label: str
    reference: str = ""


class MemoryOpener:
    """Opens memories.

    Attributes:
        memories: those of the running bot, for its turns; None in a shell.
    """

    def __init__(self, memories: Memories | None = None) -> None:
        self.memories = memories

    def settings(self, caller: Caller) -> MemorySettings:
        """Return the settings of memory."""
        return self.memories.settings if self.memories is not None else _options(caller).settings

    @asynccontextmanager
    async def open_to_write(
        self, caller: Caller, args: ScopedArgs | OwnerArgs, *, create: bool = False, only_asks: bool = False
    ) -> AsyncIterator[OpenMemory]:
        """Open the memory that a command changes.

        Args:
            caller: who calls.
            args: which memory.
            create: make a session that is missing.
            only_asks: it is not changed yet, and other writers need not wait.

        Raises:
            CommandRefused: this turn may not change it, or not exactly one is named.
            EntryNotFound: there is no such session.
            ConfigError: nothing may be written there.
        """
        if isinstance(args, OwnerArgs):
            async with _open_owned(caller, args, write=not only_asks, create=create and not only_asks) as opened:
                yield opened
            return
        turn, memories = self._of_turn(caller)
        scope = Scope(args.scope)
        if denial := memories.choose(turn).unwritten.get(scope):
            raise CommandRefused(f"zone_unwritten_{denial}", zone=name_zone(scope, turn.result_texts))
        yield OpenMemory(scope, await memories.open_scope(turn, scope), turn.session)

    @asynccontextmanager
    async def open_to_read(
        self, caller: Caller, args: ReadMemoryArgs | OwnerArgs
    ) -> AsyncIterator[tuple[OpenMemory, ...]]:
        """Open the memories that a command reads: the one that is named, or all that may be shown here.

        Raises:
            CommandRefused: it may not be shown, or a shell does not name exactly one.
            EntryNotFound: there is no such session.
            ConfigError: its tape had not so many entries yet.
        """
        if isinstance(args, OwnerArgs):
            async with _open_owned(caller, args) as opened:
                yield (opened,)
            return
        turn, memories = self._of_turn(caller)
        access = memories.choose(turn)
        if args.scope and (denial := access.unread.get(Scope(args.scope))):
            raise CommandRefused(f"zone_unread_{denial}", zone=name_zone(Scope(args.scope), turn.result_texts))
        named = (Scope(args.scope),) if args.scope else memories.settings.scopes
        found = [
            OpenMemory(scope, await memories.open_scope(turn, scope), turn.session)
            for scope in named
            if scope in access.reads
        ]
        if not args.scope:
            found = [each for each in found if each.scope is Scope.CHAT or not (await each.zone.read()).is_empty]
        yield tuple(found)

    def _of_turn(self, caller: Caller) -> tuple[Turn, Memories]:
        assert self.memories is not None
        return caller.required_turn, self.memories


def shared_zones(caller: Caller) -> SharedZones:
    """Return the running bot's own shared memory, so that a change takes effect at once, or that of the home."""
    context = _context(caller)
    accounts = _options(caller).find_accounts(context.open_tape)
    return context.service(SharedZones) or SharedZones(context.open_tape, context.now, accounts)


async def find_shared(caller: Caller, args: OwnerArgs | EraseArgs) -> tuple[Scope, tuple[str, ...]]:
    """Find the tapes of a person, or of the workspace without one. Raise `ValueInvalid` if no account is named so."""
    if args.user is None:
        return Scope.WORKSPACE, (WORKSPACE_TAPE,)
    channel, _, number = args.user.rpartition(":")
    if not channel or not is_id(number):
        raise ValueInvalid("memory_no_account", account=args.user)
    return Scope.USER, await shared_zones(caller).find_user_tapes((channel, number))


def label_of(args: OwnerArgs | EraseArgs) -> str:
    """Name the memory of a person, or of the workspace without one, in a result."""
    return "workspace" if args.user is None else f"user {args.user}"


@asynccontextmanager
async def _open_owned(
    caller: Caller, args: OwnerArgs, *, write: bool = False, create: bool = False
) -> AsyncIterator[OpenMemory]:
    """Open the memory that a shell names. To `write` that of a session, keep other writers away."""
    if sum((args.session is not None, args.user is not None, args.workspace)) != 1:
        raise ValueInvalid("memory_owner_missing")
    context, as_of = _context(caller), args.as_of if isinstance(args, ShowOwnerArgs) else None
    days = _options(caller).settings.retention_days
    if args.session is None:
        if as_of is not None:
            raise ValueInvalid("memory_as_of_session")
        scope, tapes = await find_shared(caller, args)
        zone = await shared_zones(caller).open_outside(tapes, scope, zone=context.zone, retention_days=days)
        reference = "--workspace" if args.user is None else f"--user {args.user}"
        yield OpenMemory(scope, zone, label_of(args), reference)
        return
    async with context.open_session(
        args.session, write=write, create=create, usage="remembered from", subject="memory"
    ) as current:
        tape = await read_as_of(current, as_of)
        own = MemoryZone(tape, now=context.now, zone=context.zone, retention_days=days)
        yield OpenMemory(Scope.CHAT, own, args.session, args.session)


def _context(caller: Caller) -> CommandContext:
    assert caller.context is not None
    return caller.context


def _options(caller: Caller) -> MemoryCommandOptions:
    options: MemoryCommandOptions = _context(caller).settings
    return options
