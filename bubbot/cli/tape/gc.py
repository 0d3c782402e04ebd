"""`bubbot tape gc` and `bubbot tape size`: disk space by tape, and freeing it."""

from __future__ import annotations

import argparse

from bubbot.app.tapes import now, open_tapes
from bubbot.cli.arguments import add_json_option
from bubbot.cli.commands import run_command
from bubbot.cli.output import show, show_line, show_record, show_table
from bubbot.cli.setup import CommandSetup
from bubbot.cli.tape.results import SizedTape, SizeResult
from bubbot.ports.session_names import read_session
from bubbot.ports.store import require_sizes

EXIT_OK = 0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommands."""
    collect = commands.add_parser(
        "gc",
        help="erase old archives, remove unreferenced blobs, and free disk space",
        description="Erase archives that are older than [store] archive_days, merge what turns left behind that were cut off "
        "long ago, remove blobs that no entry names, and give free space back to the disk. Erasure is recorded as a fact and "
        "cannot be undone; it does not reach backups.",
        epilog="example: bubbot tape gc --older 90 --dry-run",
    )
    collect.add_argument(
        "--older", type=_days, metavar="DAYS", help="minimum age of archives, instead of [store] archive_days"
    )
    collect.add_argument("--dry-run", action="store_true", help="only report what would be done")
    add_json_option(collect)
    size = commands.add_parser("size", help="show what uses the space in the database, the largest tapes first")
    add_json_option(size)


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) > 36500:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return int(text)


async def gc(setup: CommandSetup, args: argparse.Namespace) -> int:
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


async def size(setup: CommandSetup, args: argparse.Namespace) -> int:
    """Print the size of every tape."""
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        room = await require_sizes(store).measure_size()
        sessions = {tape.name: await read_session(store, tape.name) for tape in room.tapes}
    tapes = sorted(room.tapes, key=lambda tape: (-tape.entries - tape.blobs, tape.name))
    if args.json:
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
