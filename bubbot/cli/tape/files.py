"""`bubbot tape export` and `bubbot tape import`: tapes as files of JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bubbot.cli.files import lines_of, new_file, output
from bubbot.cli.output import escape_json, show
from bubbot.cli.session_names import not_of_the_system, session_named, tape_name
from bubbot.cli.setup import CommandSetup
from bubbot.cli.tape.change import ImportTape, imported
from bubbot.cli.write_command import perform
from bubbot.errors import ConfigError, TapeConflict, TapeCorrupt
from bubbot.stores.jsonl import ImportProblem, ImportResult, JsonLineWriter, for_bub, read_lines
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.wiring.app import now, open_tapes

EXIT_OK = 0
EXPORT_PAGE_ENTRIES = 1000
"""Entries read at once for an export, whatever the length of the tape."""
TOLD = 5
"""Unreadable lines that an error names one by one."""
SIDE = ".unreadable"


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommands."""
    export = commands.add_parser(
        "export",
        help="write a tape or archive to a file, a JSON object a line",
        description="Writes a whole tape as JSON lines, each with a hash that makes alterations visible. Works beside "
        "a running bot. Results and prompts that are kept beside the tape are not in the file.",
        epilog="example: bubbot tape export default talk.jsonl",
    )
    export.add_argument("tape", help="a session such as stdin:default, or the name of a tape or archive")
    export.add_argument("file", nargs="?", help="a file that is not there yet; standard output where left out")
    export.add_argument(
        "--for",
        dest="reader",
        choices=("bub",),
        help="for another program: bub takes every anchor for the start of a window, so those that open none, such as those "
        "of the memory, become events; import makes them anchors again",
    )
    take = commands.add_parser(
        "import",
        help="read a tape from a file, this bot's own or one of Bub",
        description="Reads a file of JSON lines onto the empty tape of a session: all of it, or nothing where a line "
        "cannot be read or was altered.",
        epilog="example: bubbot tape import talk.jsonl --session copy",
    )
    take.add_argument("file", type=Path, help="the file; it is only read")
    take.add_argument("--session", required=True, help="the session it becomes, such as work or telegram:42")
    take.add_argument(
        "--repair",
        action="store_true",
        help=f"import what can be read, and write the other lines to FILE{SIDE}",
    )


async def export(made: CommandSetup, args: argparse.Namespace) -> int:
    """Writes the lines; a file is complete or not there."""
    async with open_tapes(made.home) as (store, workspace):
        name = await tape_name(store, workspace, args.tape)
        not_of_the_system(name, "exported")
        head = await store.head(name)
        writer = JsonLineWriter()
        with output(args.file, escape_json) as write:
            async for entry in _entries(store, name, head):
                write(writer.line(for_bub(entry) if args.reader == "bub" else entry))
    if args.file is not None:
        show(f"Exported {_counted(head)} to {args.file}.")
    return EXIT_OK


async def _entries(store: SqliteStore, name: str, head: int) -> AsyncIterator[TapeEntry]:
    """The entries up to the head, a page at a time: nothing on a tape changes, so together they are one state."""
    for low in range(1, head + 1, EXPORT_PAGE_ENTRIES):
        high = min(low + EXPORT_PAGE_ENTRIES - 1, head)
        page = (await store.fetch([TapeQuery(name, IdRanges(((low, high),)))]))[0]
        if len(page) != high - low + 1:
            raise TapeConflict(f"{name} was put aside during the export; export it under the name of its archive")
        for entry in page:
            yield entry


async def import_(made: CommandSetup, args: argparse.Namespace) -> int:
    """Reads the file, and appends it and the fact of it in one transaction."""
    session = session_named(args.session)
    lines = lines_of(args.file, made.home)
    found = read_lines(lines, date=timestamp(now()))
    if found.problems and not args.repair:
        raise TapeCorrupt(_refusal(args.file, found.problems))
    if not found.entries:
        raise ConfigError(f"{args.file} holds no entries")
    given = ImportTape(session, b"".join(lines), args.repair)
    del lines
    with _left_out(args.file, found.problems):
        await perform(made, "tape import", given, here=lambda desk, _: imported(desk, given, found))
    _tell(args.file, session, found)
    return EXIT_OK


@contextmanager
def _left_out(file: Path, problems: Sequence[ImportProblem]) -> Iterator[None]:
    """Writes the lines that cannot be imported beside the file; gone again where the import fails."""
    if not problems:
        yield
        return
    with new_file(_side(file)) as write:
        write(b"".join(problem.raw for problem in problems))
    try:
        yield
    except BaseException:
        _side(file).unlink(missing_ok=True)
        raise


def _side(file: Path) -> Path:
    return file.with_name(file.name + SIDE)


def _refusal(file: Path, problems: Sequence[ImportProblem]) -> str:
    """The first unreadable lines, one a line, and the way out."""
    told = [f"{file}, line {problem.number}: {problem.reason}." for problem in problems[:TOLD]]
    more = [f"{len(problems) - TOLD} more lines cannot be read."] if len(problems) > TOLD else []
    way = f"Nothing was imported; --repair imports the rest and writes what it leaves out to {_side(file)}."
    return "\n".join([*told, *more, way])


def _tell(file: Path, session: str, found: ImportResult) -> None:
    show(f"Imported {_counted(len(found.entries))} into {session}.")
    if found.renumbered:
        show(f"{_counted(found.renumbered)} had other ids in the file; meta keeps them as imported_id.")
    if found.erased:
        show(f"{_counted(found.erased)} had been erased.")
    for problem in found.problems:
        show(f"{file}, line {problem.number}: {problem.reason}. An event stands in its place.")
    if found.problems:
        show(f"The lines left out are in {_side(file)}; {file} is as it was.")
    elif found.unhashed:
        show("The file has no hashes, so nobody can tell whether it was altered.")


def _counted(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
