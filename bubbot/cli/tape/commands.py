"""The commands about the store behind the tapes: list, size, verify, archive, index, garbage collection."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from msgspec.structs import replace

from bubbot.app.settings import has_search_index
from bubbot.arguments.fields import Args
from bubbot.cli.tape.results import (
    ArchiveResult,
    GcResult,
    IndexOff,
    IndexResult,
    SizedTape,
    SizeResult,
    TapeList,
    TapeRow,
    TapesVerified,
    VerifyResult,
)
from bubbot.command import Caller, command, make_group
from bubbot.errors import ConfigError, UsageError
from bubbot.gateway.names import NameBook
from bubbot.ports.session_names import find_tape, read_session
from bubbot.ports.store import CountsEntries, KeepsChain, require_chain, require_index, require_sizes
from bubbot.shell_command import Argument, CommandContext
from bubbot.tool import ADMINISTERS, READS_PEOPLE

MAX_DAYS = 36_500


def parse_days(text: str) -> int:
    """Parse days. Raise `ValueError` with a sentence."""
    if not text.isdecimal() or int(text) > MAX_DAYS:
        raise ValueError(f"{text!r} is not a number of days")
    return int(text)


class VerifyArgs(Args, frozen=True):
    """What to verify."""

    tape: Annotated[str | None, Argument("one tape only")] = None
    head: Annotated[str | None, Argument("a deployment head kept from earlier (POSITION:HASH)", "HASH")] = None


class ArchiveTapeArgs(Args, frozen=True):
    """A tape to archive."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]


class IndexTapesArgs(Args, frozen=True):
    """What to do with the search index."""

    rebuild: Annotated[bool, Argument("delete it and build it again")] = False


class CollectTapesArgs(Args, frozen=True):
    """What to collect."""

    older: Annotated[
        int | None, Argument("minimum age of archives, instead of [store] archive_days", "DAYS", parse_days)
    ] = None
    dry_run: Annotated[bool, Argument("only report what would be done")] = False


class StoreCommands:
    """The commands over the store of a context. They get all settings."""

    @command("tape list", effect=READS_PEOPLE)
    async def list(self, caller: Caller) -> TapeList:
        """Every tape: session, entries, archives."""
        store = _context(caller).store
        rows = [
            TapeRow(
                tape.name, await read_session(store, tape.name), tape.head, tape.erased, tape.archived_from, tape.hash
            )
            for tape in await store.tapes()
        ]
        names = await NameBook.find(store, caller.texts.english, [row.session for row in rows])
        rows = [replace(row, title=names.chats.get(row.session, "")) for row in rows]
        return TapeList(tuple(sorted(rows, key=lambda row: row.name)))

    @command("tape verify [tape]", effect=READS_PEOPLE, progress=("Checking the tapes", "entries"))
    async def verify(self, caller: Caller, args: VerifyArgs) -> VerifyResult:
        """Check everything; tells altered, missing, renamed and erased apart."""
        context = _context(caller)
        only = await find_tape(context.store, context.workspace, args.tape) if args.tape else None
        chain = require_chain(context.store)
        report = await chain.audit(only, on_progress=context.on_progress)
        form = await _find_head_form(chain, args.head) if args.head and not report.indexes else None
        return TapesVerified(
            not (report.damage or report.triggers or report.indexes or form == "none"),
            report.tapes,
            report.entries,
            report.findings,
            report.triggers,
            report.indexes,
            report.head,
            None if form is None else form != "none",
            position=(args.head or "").partition(":")[0],
            is_older=form == "older",
        )

    @command("tape archive <tape>", effect=ADMINISTERS)
    async def archive(self, caller: Caller, args: ArchiveTapeArgs) -> ArchiveResult:
        """Archive a tape under another name and start an empty one."""
        context = _context(caller)
        name = await find_tape(context.store, context.workspace, args.tape)
        if any(tape.archived_from for tape in await context.store.tapes() if tape.name == name):
            raise ConfigError(f"{name} is an archive already")
        session = await read_session(context.store, name)
        async with context.lock_tape(name, session):
            archived = await context.open_tape(name, session).reset(archive=True)
        return ArchiveResult(name, str(archived))

    @command(
        "tape index",
        example="--rebuild",
        effect=ADMINISTERS,
        only_reads=lambda args: not args.rebuild,
        progress=("Indexing the tapes", "entries"),
    )
    async def index(self, caller: Caller, args: IndexTapesArgs) -> IndexResult:
        """Show how far the search index goes. The index is derived from the tapes and filled while the bot runs; searches
        read the rest directly. The exit code is 1 if there is no index, or it belongs to other tapes.
        """
        context = _context(caller)
        if args.rebuild:
            return await self._rebuild_index(context)
        return await _read_index(context)

    async def _rebuild_index(self, context: CommandContext) -> IndexResult:
        """Delete the index and fill a new one, here or gradually in the running bot."""
        if not has_search_index(context.settings):
            return IndexOff(usable=False, rebuilding=False, state=None)
        store = require_index(context.store)
        await store.forget_index()
        if store.is_indexing:
            return IndexResult(usable=False, rebuilding=True, state=None)
        indexer = store.build_indexer()
        try:
            total = await context.store.count_entries() if isinstance(context.store, CountsEntries) else 0
            await indexer.fill(context.on_progress, total)
        finally:
            await indexer.aclose()
        return await _read_index(context)

    @command(
        "tape gc",
        example="--older 90 --dry-run",
        effect=ADMINISTERS,
        only_reads=lambda args: args.dry_run,
        progress=("Collecting", "tapes"),
    )
    async def collect(self, caller: Caller, args: CollectTapesArgs) -> GcResult:
        """Erase archives that are older than [store] archive_days, merge what turns left behind that were cut off long ago,
        remove blobs that no entry names, and give free space back to the disk. Erasure is recorded as a fact and cannot be
        undone; it does not reach backups.
        """
        # Imported here: it loads the whole kernel, and commands that only read share this file.
        from bubbot.cli.tape.gc import collect, plan_gc

        context = _context(caller)
        at = context.now()
        plan = await plan_gc(context.store, context.settings, args.older, at)
        return plan.describe_run() if args.dry_run else await collect(context, plan, at)

    @command("tape size", effect=READS_PEOPLE)
    async def size(self, caller: Caller) -> SizeResult:
        """Show what uses the space in the database, the largest tapes first."""
        store = _context(caller).store
        room = await require_sizes(store).measure_size()
        sized = [
            SizedTape(
                tape.name,
                tape.archived_from,
                tape.count,
                tape.entries,
                tape.blobs,
                await read_session(store, tape.name),
            )
            for tape in sorted(room.tapes, key=lambda tape: (-tape.entries - tape.blobs, tape.name))
        ]
        return SizeResult(room.file, room.free, room.wal, room.gives_back, tuple(sized))


def _context(caller: Caller) -> CommandContext:
    assert caller.context is not None, "a chat has none of these commands"
    return caller.context


async def _find_head_form(chain: KeepsChain, head: str) -> str:
    """Return the form of this head, `current` or `older`, if the tapes had it at its position; else `none`."""
    position, colon, _ = head.partition(":")
    if not colon or not position.isdecimal():
        raise UsageError(
            f"--head {head!r} is not a deployment head, which looks like 1234:0f3a…, as verify prints it; "
            "see `bubbot tape verify --help`"
        )
    if await chain.deployment_head(int(position)) == head:
        return "current"
    return "older" if await chain.deployment_head(int(position), older=True) == head else "none"


async def _read_index(context: CommandContext) -> IndexResult:
    state = await require_index(context.store).index_state()
    return IndexResult(state is not None and state.fresh, rebuilding=False, state=state)


_NEEDS_HOME: Mapping[str, Any] = MappingProxyType({"is_answered_without_home": False})
STORE_COMMANDS = make_group(
    "tape",
    StoreCommands,
    None,
    "",
    list=_NEEDS_HOME,
    verify=_NEEDS_HOME,
    size=_NEEDS_HOME,
    index={"help": "show how far the search index goes, or rebuild it"},
    gc={"help": "erase old archives, remove unreferenced blobs, and free disk space"},
)
