"""`bubbot tape`: shows and archives tapes; the other subcommands are in the modules next to this one."""

from __future__ import annotations

import argparse
import asyncio
import json

from bubbot.app.tapes import open_tapes, tape_service
from bubbot.cli.commands import run_command
from bubbot.cli.options import add_command, read_arguments
from bubbot.cli.output import show, show_json, show_line
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape import files, gc, index, repair
from bubbot.cli.tape.change import ARCHIVE_TAPE, ArchiveTape
from bubbot.errors import ConfigError
from bubbot.features.conversation.anchors import AnchorsView
from bubbot.features.search.shell import TAPE_COMMANDS
from bubbot.ports.session_names import find_tape, read_session
from bubbot.ports.store import KeepsChain, require_chain
from bubbot.stores.jsonl import line_fields
from bubbot.tape.entry import Kind, TapeEntry, thaw
from bubbot.tape.query import TapeQuery, date_bounds

EXIT_OK, EXIT_DAMAGED = 0, 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Read and manage tapes. All actions except `archive`, `import`, `gc`, `repair` and `index --rebuild` are "
        "read-only and work while the bot runs."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    commands.add_parser("list", help="every tape: session, entries, archives")
    show = commands.add_parser("show", help="the entries of a tape")
    show.add_argument("tape", help="a session such as stdin:default, or the name of a tape or archive")
    show.add_argument("--kinds", default="", help="only these kinds, separated by commas")
    show.add_argument("--since", help="from this date or time on, in UTC; a date is its whole day")
    show.add_argument("--until", help="up to this date or time")
    show.add_argument("--last", type=_count, metavar="N", help="only the newest N entries")
    show.add_argument(
        "--turn", default="", metavar="TRACE", help="only the turn whose id begins with this; failure messages show it"
    )
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    anchors = commands.add_parser("anchors", help="the anchors of a tape, newest first")
    anchors.add_argument("tape")
    anchors.add_argument("--zones", action="store_true", help="the markers of memory zones too")
    verify = commands.add_parser("verify", help="check everything; tells altered, missing, renamed and erased apart")
    verify.add_argument("tape", nargs="?", help="one tape only")
    verify.add_argument("--head", metavar="HASH", help="a deployment head kept from earlier (POSITION:HASH)")
    archive = commands.add_parser("archive", help="archive a tape under another name and start an empty one")
    archive.add_argument("tape")
    for command in TAPE_COMMANDS.commands:
        add_command(commands, command)
    index.configure(commands)
    files.configure(commands)
    gc.configure(commands)
    repair.configure(commands)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    return asyncio.run(_ACTIONS[args.action](load_setup(args), args))


async def _list(setup: CommandSetup, _args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        lines = []
        for tape in await store.tapes():
            session = await read_session(store, tape.name)
            notes = [f"archive of {tape.archived_from}"] if tape.archived_from else []
            notes += [f"{tape.erased} erased"] if tape.erased else []
            lines.append(f"{session or tape.name:<40} {tape.head:>8} entries  {tape.name}  {'; '.join(notes)}".rstrip())
    for line in sorted(lines):
        show_line(line)
    return EXIT_OK


async def _show(setup: CommandSetup, args: argparse.Namespace) -> int:
    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip())
    try:
        since, until = date_bounds(args.since, args.until)
    except ValueError as error:
        raise ConfigError(f"{error}") from error
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        tape = await find_tape(store, workspace, args.tape)
        newest = args.last is not None
        limit = None if args.turn else args.last
        query = TapeQuery(tape, kinds=kinds, since=since, until=until, newest=newest, limit=limit)
        entries = (await store.fetch([query]))[0]
    entries = tuple(entry for entry in entries if str(entry.meta.get("turn", "")).startswith(args.turn))[: args.last]
    if not entries and (unknown := [kind for kind in kinds if kind not in list(Kind)]):
        raise ConfigError(f"--kinds {unknown[0]!r}: no entry has it; the usual kinds are {', '.join(Kind)}")
    for entry in reversed(entries) if args.last is not None else entries:
        if args.json:
            show_json(line_fields(entry))
        else:
            show_line(_format_entry(entry))
    return EXIT_OK


def _format_entry(entry: TapeEntry) -> str:
    if entry.erased:
        return f"#{entry.id} {entry.date[:19]} {entry.kind} (erased)"
    payload = thaw(entry.payload)
    if entry.kind == "message" and isinstance(payload.get("content"), str):
        text = f"{payload.get('role')}: {payload['content']}"
    else:
        text = json.dumps(payload, ensure_ascii=False)
    printed = "".join(char if char.isprintable() else " " for char in text)
    return f"#{entry.id} {entry.date[:19]} {entry.kind} {printed if len(printed) <= 400 else printed[:399] + '…'}"


async def _anchors(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        tape = tape_service(store, await find_tape(store, workspace, args.tape))
        for anchor in await tape.read(AnchorsView(zones=args.zones)):
            show_line(f"#{anchor.id} {anchor.date[:19]} {anchor.name} {anchor.state}")
    return EXIT_OK


async def _verify(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        only = await find_tape(store, workspace, args.tape) if args.tape else None
        chain = require_chain(store)
        report = await chain.audit(only)
        for finding in report.findings:
            if finding.problem != "erased":
                show_line(f"{finding.location} {finding.problem}: {finding.detail}")
        for name in report.triggers:
            show_line(f"the trigger {name} is missing or changed; bubbot tape repair restores it")
        kinds = ("altered", "missing", "renamed", "erased")
        counts = {kind: sum(finding.problem == kind for finding in report.findings) for kind in kinds}
        damaged = bool(report.damage or report.triggers)
        if args.head:
            damaged = not await _matches_head(chain, args.head) or damaged
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    show(f"{report.entries} entries on {report.tapes} tapes: {summary}; head {report.head}")
    return EXIT_DAMAGED if damaged else EXIT_OK


async def _matches_head(store: KeepsChain, head: str) -> bool:
    position, colon, _ = head.partition(":")
    if not colon or not position.isdecimal():
        raise ConfigError(f"--head {head!r} is not a deployment head, which looks like 1234:0f3a…, as verify prints it")
    matches = await store.deployment_head(int(position)) == head
    older = not matches and await store.deployment_head(int(position), older=True) == head
    show(f"the kept head {'is' if matches or older else 'is NOT'} the one these tapes had at position {position}")
    if older:
        show("It is of the older form, which did not cover the names of tapes: keep the new one that is printed here.")
    return matches or older


async def _archive(setup: CommandSetup, args: argparse.Namespace) -> int:
    return await run_command(setup, ARCHIVE_TAPE, ArchiveTape(tape=args.tape))


async def _search(setup: CommandSetup, args: argparse.Namespace) -> int:
    (command,) = TAPE_COMMANDS.commands
    return await run_command(setup, command, read_arguments(command, args))


_ACTIONS = {
    "list": _list,
    "show": _show,
    "anchors": _anchors,
    "verify": _verify,
    "archive": _archive,
    "search": _search,
    "index": index.index,
    "export": files.export,
    "import": files.import_,
    "gc": gc.gc,
    "size": gc.size,
    "repair": repair.repair,
}
