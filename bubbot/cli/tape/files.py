"""`bubbot tape export` and `bubbot tape import`: tapes as files of JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from bubbot.app.tapes import now, open_tapes
from bubbot.arguments.fields import Args
from bubbot.cli.commands import carry_out
from bubbot.cli.files import open_output, read_file_lines
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape.exports import name_export
from bubbot.cli.tape.results import SkippedLine, TapeImportResult
from bubbot.errors import ConfigError, TapeConflict, TapeCorrupt
from bubbot.formatting import escape_json
from bubbot.new_files import create_file
from bubbot.ports.progress import REPORT_EVERY, report_each
from bubbot.ports.session_names import find_tape, parse_session, require_user_tape
from bubbot.shell_command import Argument
from bubbot.stores.jsonl import ImportProblem, ImportResult, JsonLineWriter, read_lines, to_bub
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.store import TapeStore

EXIT_OK = 0
EXPORT_PAGE_ENTRIES = 1000
"""Entries that an export reads at a time."""
MAX_LISTED_LINES = 5
"""The number of unreadable lines that an error lists."""
UNREADABLE_SUFFIX = ".unreadable"
NOTHING_IMPORTED = (
    "Nothing was imported. `bubbot tape import` reads what `bubbot tape export` writes, and tapes of Bub; "
    "`bubbot memory import` reads notes in Markdown."
)


class ExportTapeArgs(Args, frozen=True):
    """The arguments of `bubbot tape export`."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    file: Annotated[str | None, Argument("a new file (default: standard output)")] = None
    for_: Annotated[
        Literal["bub"] | None,
        Argument(
            "for another program: bub treats every anchor as the start of a window, so anchors that open none, such as those "
            "of the memory, become events; import restores them"
        ),
    ] = None


class ImportTapeArgs(Args, frozen=True):
    """The arguments of `bubbot tape import`."""

    file: Annotated[Path, Argument("the file; it is only read")]
    session: Annotated[str, Argument("the session it becomes, such as work or telegram:42")]
    repair: Annotated[
        bool, Argument(f"import what can be read, and write the other lines to FILE{UNREADABLE_SUFFIX}")
    ] = False


@local_command("tape export", form="<tape> [file]", example="tape export default talk.jsonl")
def export_tape(invocation: Invocation, args: ExportTapeArgs) -> int:
    """Write a tape or archive to a file, a JSON object a line.

    Write a whole tape as JSON lines, each with a hash that reveals changes. Works while the bot runs. Results and prompts
    that are stored outside the tape are not in the file.
    """
    return asyncio.run(_export(load_setup(invocation), args))


@local_command("tape import", form="<file>", example="tape import talk.jsonl --session copy", result=TapeImportResult)
def import_tape(invocation: Invocation, args: ImportTapeArgs) -> int:
    """Read a tape from a file, this bot's own or one of Bub.

    Read a file of JSON lines onto the empty tape of a session: all of it, or nothing if a line cannot be read or was
    altered.
    """
    return asyncio.run(_import(load_setup(invocation), args))


async def _export(setup: CommandSetup, args: ExportTapeArgs) -> int:
    """Write the lines; the file is complete or absent."""
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        name = await find_tape(store, workspace, args.tape)
        require_user_tape(name, "exported")
        head = await store.head(name)
        writer = JsonLineWriter()
        with (
            show_progress(f"Exporting {args.tape}", "entries", plain=setup.is_plain) as on_progress,
            open_output(args.file, escape_json) as write,
        ):
            async for entry in _entries(store, name, head):
                if entry.id % REPORT_EVERY == 0:
                    on_progress(entry.id, head)
                write(writer.encode_line(to_bub(entry) if args.for_ == "bub" else entry))
    if args.file is not None:
        show(f"Exported {_count_entries(head)} to {args.file}.")
    return EXIT_OK


async def _entries(store: TapeStore, name: str, head: int) -> AsyncIterator[TapeEntry]:
    """Read the entries up to the head by pages. Entries never change, so the pages form one snapshot."""
    for low in range(1, head + 1, EXPORT_PAGE_ENTRIES):
        high = min(low + EXPORT_PAGE_ENTRIES - 1, head)
        page = (await store.fetch([TapeQuery(name, IdRanges(((low, high),)))]))[0]
        if len(page) != high - low + 1:
            raise TapeConflict(f"{name} was archived during the export; export it under the name of its archive")
        for entry in page:
            yield entry


async def _import(setup: CommandSetup, args: ImportTapeArgs) -> int:
    """Read the file; append it and a fact about the import in one transaction."""
    # Imported here: `bubbot tape list` shares this file's parser.
    from bubbot.cli.tape.change import IMPORT_TAPE, ImportTape, append_import

    session = parse_session(args.session)
    lines = read_file_lines(args.file, setup.home)
    with show_progress(f"Reading {args.file}", "lines", plain=setup.is_plain) as on_progress:
        result = read_lines(report_each(lines, on_progress, len(lines)), date=timestamp(now()))
    if not result.entries:
        raise ConfigError(f"{args.file} holds no entries")
    if not result.has_entries and (program := name_export(lines)):
        raise TapeCorrupt(f"{args.file} is an export of {program}, which is not read. {NOTHING_IMPORTED}")
    if result.problems and not (args.repair and result.has_entries):
        raise TapeCorrupt(_describe_problems(args.file, result))
    arguments = ImportTape(session=session, data=b"".join(lines), repair=args.repair)
    del lines
    with _save_unreadable(args.file, result.problems):
        await carry_out(
            setup, IMPORT_TAPE, arguments, run_here=lambda context, _: append_import(context, arguments, result)
        )
    if setup.as_json:
        show_record(_import_result(args.file, session, result))
    else:
        _show_result(args.file, session, result)
    return EXIT_OK


@contextmanager
def _save_unreadable(file: Path, problems: Sequence[ImportProblem]) -> Iterator[None]:
    """Write the lines that cannot be imported to a file next to the source; remove it if the import fails."""
    if not problems:
        yield
        return
    with create_file(_unreadable_path(file)) as write:
        write(b"".join(problem.raw for problem in problems))
    try:
        yield
    except BaseException:
        _unreadable_path(file).unlink(missing_ok=True)
        raise


def _unreadable_path(file: Path) -> Path:
    return file.with_name(file.name + UNREADABLE_SUFFIX)


def _describe_problems(file: Path, result: ImportResult) -> str:
    """Describe the first unreadable lines, one per line, and the way to import the rest, if any."""
    problems = result.problems
    lines = [f"{file}, line {problem.number}: {problem.reason}." for problem in problems[:MAX_LISTED_LINES]]
    rest = (
        [f"{len(problems) - MAX_LISTED_LINES} more lines cannot be read."] if len(problems) > MAX_LISTED_LINES else []
    )
    advice = (
        f"Nothing was imported; --repair imports the rest and writes what it leaves out to {_unreadable_path(file)}."
        if result.has_entries
        else f"No line of {file} is an entry of a tape. {NOTHING_IMPORTED}"
    )
    return "\n".join([*lines, *rest, advice])


def _import_result(file: Path, session: str, result: ImportResult) -> TapeImportResult:
    return TapeImportResult(
        session,
        len(result.entries),
        result.renumbered,
        result.erased,
        result.unhashed,
        tuple(SkippedLine(problem.number, problem.reason) for problem in result.problems),
        str(_unreadable_path(file)) if result.problems else None,
    )


def _show_result(file: Path, session: str, result: ImportResult) -> None:
    show(f"Imported {_count_entries(len(result.entries))} into {session}.")
    if result.renumbered:
        show(f"{_count_entries(result.renumbered)} had other ids in the file; meta keeps them as imported_id.")
    if result.erased:
        show(f"{_count_entries(result.erased)} had been erased.")
    for problem in result.problems:
        show(f"{file}, line {problem.number}: {problem.reason}. An event stands in its place.")
    if result.problems:
        show(f"The lines left out are in {_unreadable_path(file)}; {file} is as it was.")
    elif result.unhashed:
        show("The file has no hashes, so nobody can tell whether it was altered.")


def _count_entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
