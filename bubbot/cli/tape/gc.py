"""`bubbot tape gc` and `bubbot tape size`: disk space by tape, and freeing it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from bubbot.app.tapes import now, open_tapes
from bubbot.cli.commands import run_command
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_line, show_record, show_table
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape.results import GcResult, SizedTape, SizeResult
from bubbot.ports.arguments import Args
from bubbot.ports.command import Argument
from bubbot.ports.session_names import read_session
from bubbot.ports.store import require_sizes

EXIT_OK = 0


def parse_days(text: str) -> int:
    """Parse days. Raise `ValueError` with a sentence."""
    if not text.isdecimal() or int(text) > 36500:
        raise ValueError(f"{text!r} is not a number of days")
    return int(text)


class CollectTapesArgs(Args, frozen=True):
    """The arguments of `bubbot tape gc`."""

    older: Annotated[
        int | None, Argument("minimum age of archives, instead of [store] archive_days", "DAYS", parse_days)
    ] = None
    dry_run: Annotated[bool, Argument("only report what would be done")] = False


@local_command("tape gc", example="tape gc --older 90 --dry-run", result=GcResult)
def collect_tapes(invocation: Invocation, args: CollectTapesArgs) -> int:
    """Erase old archives, remove unreferenced blobs, and free disk space.

    Erase archives that are older than [store] archive_days, merge what turns left behind that were cut off long ago, remove
    blobs that no entry names, and give free space back to the disk. Erasure is recorded as a fact and cannot be undone; it
    does not reach backups.
    """
    return asyncio.run(_collect(load_setup(invocation), args))


@local_command("tape size", result=SizeResult)
def show_sizes(invocation: Invocation) -> int:
    """Show what uses the space in the database, the largest tapes first."""
    return asyncio.run(_show_sizes(load_setup(invocation)))


async def _collect(setup: CommandSetup, args: CollectTapesArgs) -> int:
    """Free disk space, or print what would be removed."""
    # Imported here: commands that only read share this file's parser.
    from bubbot.cli.tape.gc_change import COLLECT_TAPES, CollectTapes, describe_gc, gc_result, plan_gc

    if not args.dry_run:
        return await run_command(setup, COLLECT_TAPES, CollectTapes(older=args.older))
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        gc_plan = await plan_gc(store, setup.settings, args.older, now())
    blobs = sum(len(items) for items in gc_plan.blobs.tapes.values())
    if setup.as_json:
        show_record(gc_result(gc_plan, blobs, dry_run=True))
        return EXIT_OK
    for line in describe_gc(gc_plan, blobs, "that would be erased", "that would be merged", "that would be removed"):
        show(line)
    for archive in gc_plan.archives:
        show_line(f"{archive.session or '(no session)'}  {archive.entries} entries  {archive.name}")
    return EXIT_OK


async def _show_sizes(setup: CommandSetup) -> int:
    """Print the size of every tape."""
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        room = await require_sizes(store).measure_size()
        sessions = {tape.name: await read_session(store, tape.name) for tape in room.tapes}
    tapes = sorted(room.tapes, key=lambda tape: (-tape.entries - tape.blobs, tape.name))
    if setup.as_json:
        sized = tuple(
            SizedTape(tape.name, tape.archived_from, tape.count, tape.entries, tape.blobs, sessions[tape.name])
            for tape in tapes
        )
        show_record(SizeResult(room.file, room.free, room.wal, room.gives_back, sized))
        return EXIT_OK
    rows = [
        (
            f"{tape.entries + tape.blobs:,}",
            f"{tape.blobs:,}",
            str(tape.count),
            f"{sessions[tape.name]}  {tape.name}".strip(),
        )
        for tape in tapes
    ]
    show_table(rows, header=("bytes", "of blobs", "entries", "tape"), right=(0, 1, 2))
    show(
        f"{room.file:,}  the database file, of which {room.free:,} are free; {room.wal:,} beside it wait to be moved in"
    )
    return EXIT_OK
