"""`bubbot tape`: shows and archives tapes; the other subcommands are in the modules next to this one."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from bubbot.app.tapes import open_tapes, tape_service
from bubbot.cli.arguments import add_json_option, decode_text, parse_count, usage_error
from bubbot.cli.commands import run_command
from bubbot.cli.options import add_command, read_arguments
from bubbot.cli.output import show, show_json, show_line, show_record, show_table
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape import files, gc, index, repair
from bubbot.cli.tape.results import (
    AnchorList,
    ArchiveResult,
    EntryLine,
    GcResult,
    IndexResult,
    RepairResult,
    SizeResult,
    TapeImportResult,
    TapeList,
    TapeRow,
    VerifyResult,
)
from bubbot.features.conversation import shell as conversation
from bubbot.features.conversation.anchors import AnchorsView
from bubbot.features.conversation.graph import AnchorGraph
from bubbot.features.search import shell as search
from bubbot.features.search.view import SearchResult
from bubbot.gateway.names import NameBook
from bubbot.log import printable
from bubbot.ports.command import Command, require_head
from bubbot.ports.session_names import find_tape, read_session
from bubbot.ports.store import DeploymentAudit, KeepsChain, require_chain
from bubbot.stores.jsonl import line_fields
from bubbot.tape.entry import THOUGHTS, Kind, TapeEntry, thaw
from bubbot.tape.query import IdRanges, TapeQuery, date_bounds
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

EXIT_OK, EXIT_DAMAGED = 0, 5
PAGE_ENTRIES = 1000
"""Entries of a tape that are read at a time."""
HeadForm: TypeAlias = Literal["current", "older", "none"]
RESULTS: Mapping[str, type] = {
    "tape list": TapeList,
    "tape show": EntryLine,
    "tape anchors": AnchorList,
    "tape verify": VerifyResult,
    "tape size": SizeResult,
    "tape gc": GcResult,
    "tape index": IndexResult,
    "tape repair": RepairResult,
    "tape archive": ArchiveResult,
    "tape import": TapeImportResult,
    "tape search": SearchResult,
    "tape graph": AnchorGraph,
}
"""What `--json` prints; of `tape show` a line each."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Read and manage tapes. All actions except `archive`, `import`, `gc`, `repair` and `index --rebuild` are "
        "read-only and work while the bot runs."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = commands.add_parser("list", help="every tape: session, entries, archives")
    add_json_option(listing)
    show = commands.add_parser("show", help="the entries of a tape")
    show.add_argument(
        "tape",
        type=partial(decode_text, name="tape"),
        help="a session such as stdin:default, or the name of a tape or archive",
    )
    show.add_argument("--kinds", default="", help="only these kinds, separated by commas")
    show.add_argument("--since", help="from this date or time on, in UTC; a date is its whole day")
    show.add_argument("--until", help="up to this date or time")
    show.add_argument("--last", type=parse_count, metavar="N", help="only the newest N entries")
    show.add_argument(
        "--as-of",
        type=parse_count,
        metavar="N",
        help="as the tape was when N was its newest entry: what came later is not shown",
    )
    show.add_argument(
        "--turn", default="", metavar="TRACE", help="only the turn whose id begins with this; failure messages show it"
    )
    add_json_option(show, "print one JSON object a line instead")
    anchors = commands.add_parser("anchors", help="the anchors of a tape, newest first")
    anchors.add_argument("tape", type=partial(decode_text, name="tape"))
    anchors.add_argument("--zones", action="store_true", help="the markers of memory zones too")
    add_json_option(anchors)
    verify = commands.add_parser("verify", help="check everything; tells altered, missing, renamed and erased apart")
    verify.add_argument("tape", type=partial(decode_text, name="tape"), nargs="?", help="one tape only")
    verify.add_argument("--head", metavar="HASH", help="a deployment head kept from earlier (POSITION:HASH)")
    add_json_option(verify)
    archive = commands.add_parser("archive", help="archive a tape under another name and start an empty one")
    archive.add_argument("tape", type=partial(decode_text, name="tape"))
    add_json_option(archive)
    for command in _DECLARED.values():
        add_command(commands, command)
    index.configure(commands)
    files.configure(commands)
    gc.configure(commands)
    repair.configure(commands)


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    return asyncio.run(_ACTIONS[args.action](load_setup(args), args))


async def _list(setup: CommandSetup, _args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        rows = [
            TapeRow(
                tape.name,
                await read_session(store, tape.name),
                tape.head,
                tape.erased,
                tape.archived_from,
                tape.hash,
            )
            for tape in await store.tapes()
        ]
        names = await NameBook.find(store, Texts(), [row.session for row in rows])
        rows = [replace(row, title=names.chats.get(row.session, "")) for row in rows]
    if setup.as_json:
        show_record(TapeList(tuple(sorted(rows, key=lambda row: row.name))))
        return EXIT_OK
    show_table(sorted(map(_format_tape, rows)), right=(1,))
    return EXIT_OK


def _format_tape(row: TapeRow) -> tuple[str, ...]:
    notes = [f"archive of {row.archived_from}"] if row.archived_from else []
    notes += [f"{row.erased} erased"] if row.erased else []
    notes += [printable(row.title)] if row.title else []
    return row.session or row.name, f"{row.entries} entries", row.name, "; ".join(notes)


async def _show(setup: CommandSetup, args: argparse.Namespace) -> int:
    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip())
    try:
        since, until = date_bounds(args.since, args.until)
    except ValueError as error:
        raise usage_error("bubbot tape show", str(error)) from error
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        tape = await find_tape(store, workspace, args.tape)
        head = await store.head(tape)
        if args.as_of is not None:
            require_head(args.as_of, head)
        query = TapeQuery(tape, kinds=kinds, since=since, until=until, as_of=args.as_of)
        is_shown = False
        async for entry in _select(store, query, head, turn=args.turn, last=args.last):
            is_shown = True
            if args.json:
                show_json(line_fields(entry))
            else:
                show_line(format_tape_entry(entry))
    if not is_shown and (unknown := [kind for kind in kinds if kind not in list(Kind)]):
        raise usage_error(
            "bubbot tape show", f"--kinds {unknown[0]!r}: no entry has it; the usual kinds are {', '.join(Kind)}"
        )
    return EXIT_OK


async def _select(
    store: TapeStore, query: TapeQuery, head: int, *, turn: str, last: int | None
) -> AsyncIterator[TapeEntry]:
    """Yield the entries of a query, or the `last` of them, oldest first; with `turn` only those of turns that begin so.

    What is found is read by pages: it may not fit into memory. The store skips what the filters leave out.
    """
    if last is not None and not turn:
        for entry in reversed((await store.fetch([replace(query, newest=True, limit=last)]))[0]):
            yield entry
        return
    newest = deque[TapeEntry](maxlen=last)
    low = 1
    while low <= head:
        page = replace(query, part=IdRanges(((low, head),)), limit=PAGE_ENTRIES)
        entries = (await store.fetch([page]))[0]
        for entry in entries:
            if not str(entry.meta.get("turn", "")).startswith(turn):
                continue
            if last is None:
                yield entry
            else:
                newest.append(entry)
        low = entries[-1].id + 1 if len(entries) == PAGE_ENTRIES else head + 1
    for entry in newest:
        yield entry


def format_tape_entry(entry: TapeEntry) -> str:
    """Write an entry on one line, as `tape show` prints it."""
    if entry.erased:
        return f"#{entry.id} {entry.date[:19]} {entry.kind} (erased)"
    payload = thaw(entry.payload)
    if entry.kind == "message" and isinstance(payload.get("content"), str):
        thoughts = f" (thoughts: {payload[THOUGHTS]})" if THOUGHTS in payload else ""
        text = f"{payload.get('role')}: {payload['content']}{thoughts}"
    else:
        text = json.dumps(payload, ensure_ascii=False)
    printed = "".join(char if char.isprintable() else " " for char in text)
    return f"#{entry.id} {entry.date[:19]} {entry.kind} {printed if len(printed) <= 400 else printed[:399] + '…'}"


async def _anchors(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        tape = tape_service(store, await find_tape(store, workspace, args.tape))
        anchors = await tape.read(AnchorsView(zones=args.zones))
    if setup.as_json:
        show_record(AnchorList(tape.name, anchors))
        return EXIT_OK
    for anchor in anchors:
        show_line(f"#{anchor.id} {anchor.date[:19]} {anchor.name} {anchor.state}")
    return EXIT_OK


async def _verify(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        only = await find_tape(store, workspace, args.tape) if args.tape else None
        chain = require_chain(store)
        with show_progress("Checking the tapes", "entries", plain=setup.is_plain) as on_progress:
            report = await chain.audit(only, on_progress=on_progress)
        matching = await _find_head_form(chain, args.head) if args.head and not report.indexes else None
    intact = not (report.damage or report.triggers or report.indexes or matching == "none")
    if setup.as_json:
        head_matches = None if matching is None else matching != "none"
        show_record(
            VerifyResult(
                intact,
                report.tapes,
                report.entries,
                report.findings,
                report.triggers,
                report.indexes,
                report.head,
                head_matches,
            )
        )
    else:
        _show_audit(report)
        if matching is not None:
            _show_head_match(args.head, matching)
        if report.indexes:
            show("Nothing else was checked: verify again after the repair.")
            return EXIT_DAMAGED
        kinds = ("altered", "missing", "renamed", "erased")
        counts = {kind: sum(finding.problem == kind for finding in report.findings) for kind in kinds}
        summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        show(f"{report.entries} entries on {report.tapes} tapes: {summary}; head {report.head}")
    return EXIT_OK if intact else EXIT_DAMAGED


def _show_audit(report: DeploymentAudit) -> None:
    for finding in report.damage:
        show_line(f"{finding.location} {finding.problem}: {finding.detail}")
    for name in report.triggers:
        show_line(f"the trigger {name} is missing or changed; bubbot tape repair restores it")
    for name in report.indexes:
        show_line(f"the index {name} does not hold what its table holds; bubbot tape repair builds it anew")


def _show_head_match(head: str, form: HeadForm) -> None:
    position = head.partition(":")[0]
    show(f"the kept head {'is NOT' if form == 'none' else 'is'} the one these tapes had at position {position}")
    if form == "older":
        show("It is of the older form, which did not cover the names of tapes: keep the new one that is printed here.")


async def _find_head_form(store: KeepsChain, head: str) -> HeadForm:
    """Return the form in which the tapes had this head at its position; `none` if they had another one."""
    position, colon, _ = head.partition(":")
    if not colon or not position.isdecimal():
        raise usage_error(
            "bubbot tape verify",
            f"--head {head!r} is not a deployment head, which looks like 1234:0f3a…, as verify prints it",
        )
    if await store.deployment_head(int(position)) == head:
        return "current"
    return "older" if await store.deployment_head(int(position), older=True) == head else "none"


async def _archive(setup: CommandSetup, args: argparse.Namespace) -> int:
    # Imported here: commands that only read share this file.
    from bubbot.cli.tape.change import ARCHIVE_TAPE, ArchiveTape

    return await run_command(setup, ARCHIVE_TAPE, ArchiveTape(tape=args.tape))


async def _run_declared(setup: CommandSetup, args: argparse.Namespace) -> int:
    command = _DECLARED[args.action]
    return await run_command(setup, command, read_arguments(command, args))


_DECLARED: Mapping[str, Command] = {
    command.action: command
    for group in (search.TAPE_COMMANDS, conversation.TAPE_COMMANDS)
    for command in group.commands
}
"""The actions that features declare."""
_ACTIONS = {
    "list": _list,
    "show": _show,
    "anchors": _anchors,
    "verify": _verify,
    "archive": _archive,
    **dict.fromkeys(_DECLARED, _run_declared),
    "index": index.index,
    "export": files.export,
    "import": files.import_,
    "gc": gc.gc,
    "size": gc.size,
    "repair": repair.repair,
}
