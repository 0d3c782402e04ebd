"""The one place that opens a memory for a caller: those that a turn has access to, or the one that a shell names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from bubbot.command import Caller
from bubbot.errors import AccessError, CommandRefused, ConfigError, EntryNotFound, ValueInvalid
from bubbot.features.memory.arguments import EraseArgs, OwnerArgs, ReadMemoryArgs, ScopedArgs, ShowOwnerArgs
from bubbot.features.memory.assembly import PlannedBlock, ViewLimits, ZoneReading, assemble
from bubbot.features.memory.block import MAX_SECTION_CHARS, BlockPolicy, ScopedMemory, plan_block
from bubbot.features.memory.memories import Memories, MemorySources, find_policy_of, scope_chat
from bubbot.features.memory.nodes import read_shown
from bubbot.features.memory.policy import MemoryPolicy, PolicyInUse, scope_of
from bubbot.features.memory.results import name_zone
from bubbot.features.memory.scopes import USER_TAPES, WORKSPACE_TAPE, Denial, FindsAccounts, ZoneAccess
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZones
from bubbot.features.memory.zone import MemoryZone
from bubbot.identity import is_id
from bubbot.ports.session_names import parse_session
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN
from bubbot.shell_command import CommandContext, read_as_of
from bubbot.tape.handle import TapeHandle
from bubbot.tape.service import TapeService, session_tape


class MemoryCommandOptions(Struct, frozen=True):
    """What the commands of a shell get.

    Attributes:
        settings: the settings of memory.
        find_accounts: returns what knows which accounts belong to one person, for the tapes of a home.
        find_grants: returns what tells if one session was granted to read another one, for the tapes of a home.
        sources: what memory views are assembled from, besides the zones.
    """

    settings: MemorySettings
    find_accounts: Callable[[Callable[[str], TapeService]], FindsAccounts]
    find_grants: Callable[[Callable[[str], TapeService]], Awaitable[Callable[[str, str], bool]]]
    sources: MemorySources


class OpenMemory(Struct, frozen=True):
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


async def plan_outside(caller: Caller, tape: TapeHandle) -> PlannedBlock:
    """Plan what the model is shown of memory in a session, for a shell.

    Of a person there is what the newest request was shown, since only a turn tells who speaks and who reads along.
    """
    options, context = _options(caller), _context(caller)
    settings, use = options.settings, await find_policy_of(tape, options.settings, options.sources.installed)
    shown = await read_shown(tape)
    user = tuple(name for name in shown.elsewhere if name.startswith(USER_TAPES))
    unread: dict[Scope, Denial] = {} if user else {Scope.USER: "person"}
    unread |= {scope: "off" for scope in Scope if scope not in settings.scopes}
    access = ZoneAccess(frozenset(Scope) - unread.keys(), frozenset(), unread, {})
    memories = {
        scope: await _read_outside(caller, tape, scope, user) for scope in settings.scopes if scope in access.reads
    }
    today = context.now().astimezone(context.zone).date()
    if not use.policy.is_default:
        chars = (use.policy.max_tokens or settings.block_tokens) * BYTES_PER_TOKEN
        limits = ViewLimits(chars // BYTES_PER_TOKEN, MAX_SECTION_CHARS, settings.recent_days, today)
        reader = options.sources.make_reader(tape, context.now(), context.zone, await _session_opener(caller, tape))
        nodes = use.policy.nodes
        zones = [
            ZoneReading(node, scope, memories.get(scope), access.unread.get(scope))
            for node in nodes
            if node.kind == "zone"
            for scope in [scope_of(node)]
        ]
        readings = [await reader.read(node, shown) for node in nodes if node.kind != "zone"]
        try:
            view = assemble(use.policy, zones, readings, limits)
        except ConfigError as error:
            use = PolicyInUse(MemoryPolicy(), "failed", use.wanted, str(error))
        else:
            found = tuple(zone.memory for zone in zones if zone.memory is not None)
            return PlannedBlock(found, view.order, access, chars, use, view)
    limit = settings.block_tokens * BYTES_PER_TOKEN
    policy = BlockPolicy(settings.scopes, settings.recent_days, MAX_SECTION_CHARS, limit)
    found = tuple(memory for memory in memories.values() if memory.scope is Scope.CHAT or not memory.memory.is_empty)
    return PlannedBlock(found, tuple(plan_block(found, policy, today=today)), access, limit, use)


async def _read_outside(caller: Caller, tape: TapeHandle, scope: Scope, user: tuple[str, ...]) -> ScopedMemory:
    context, days = _context(caller), _options(caller).settings.retention_days
    if scope is Scope.CHAT:
        own = MemoryZone(tape, now=context.now, zone=context.zone, retention_days=days)
        return scope_chat(tape.name, await own.read())
    tapes = user if scope is Scope.USER else (WORKSPACE_TAPE,)
    zone = await shared_zones(caller).open_outside(tapes, scope, zone=context.zone, retention_days=days)
    return await zone.read_scoped()


async def _session_opener(caller: Caller, tape: TapeHandle) -> Callable[[str], Awaitable[TapeHandle]]:
    """Return what opens the other sessions that the one with this tape may read."""
    context = _context(caller)
    may_read = await _options(caller).find_grants(context.open_tape)

    async def open_session(reference: str) -> TapeHandle:
        session = await context.first_session(parse_session(reference))
        is_thread = session.count(":") == 1 and tape.session.startswith(f"{session}:")
        if not (is_thread or may_read(tape.session, session)):
            raise AccessError(f"{tape.session} may not read {session}")
        opened = context.open_tape(session_tape(context.workspace, session), session)
        if not await opened.head():
            raise EntryNotFound(f"there is no session {session}")
        return opened

    return open_session


def _context(caller: Caller) -> CommandContext:
    assert caller.context is not None
    return caller.context


def _options(caller: Caller) -> MemoryCommandOptions:
    options: MemoryCommandOptions = _context(caller).settings
    return options
