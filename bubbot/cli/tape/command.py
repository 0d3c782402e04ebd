"""`bubbot tape`: the commands of the store and of features, and those that only a shell has: show, export, import, repair."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bubbot.app.commands import load_shared
from bubbot.app.tapes import open_tapes
from bubbot.cli.arguments import add_json_option, decode_text, parse_count, usage_error
from bubbot.cli.commands import run_command
from bubbot.cli.options import add_command, read_arguments
from bubbot.cli.output import show_json, show_line
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape import files, repair
from bubbot.cli.tape.commands import STORE_COMMANDS
from bubbot.cli.tape.results import EntryLine, RepairResult, TapeImportResult
from bubbot.ports.command import Command, require_head
from bubbot.ports.session_names import find_tape
from bubbot.stores.jsonl import line_fields
from bubbot.tape.entry import THOUGHTS, Kind, TapeEntry, thaw
from bubbot.tape.query import IdRanges, TapeQuery, date_bounds
from bubbot.tape.store import TapeStore

EXIT_OK = 0
PAGE_ENTRIES = 1000
"""Entries of a tape that are read at a time."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Read and manage tapes. All actions except `archive`, `import`, `gc`, `repair` and `index --rebuild` are "
        "read-only and work while the bot runs."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action in ACTIONS:
        if action in _DECLARED:
            add_command(commands, _DECLARED[action])
        else:
            _LOCAL[action][0](commands)


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    setup = load_setup(args)
    if (command := _DECLARED.get(args.action)) is not None:
        return asyncio.run(run_command(setup, command, read_arguments(command, args)))
    return asyncio.run(_LOCAL[args.action][1](setup, args))


def _configure_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
                show_line(_format_entry(entry))
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


def _format_entry(entry: TapeEntry) -> str:
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


_DECLARED: Mapping[str, Command] = {
    command.action: command for command in (*STORE_COMMANDS.commands, *load_shared("tape"))
}
"""The actions that the store and features declare."""
_LOCAL: Mapping[
    str, tuple[Callable[[Any], None], Callable[[CommandSetup, argparse.Namespace], Coroutine[Any, Any, int]]]
] = {
    "show": (_configure_show, _show),
    "export": (files.configure_export, files.export),
    "import": (files.configure_import, files.import_),
    "repair": (repair.configure, repair.repair),
}
"""Those that only a shell has: what adds the options, and what runs."""
ACTIONS = (
    *(
        "list",
        "show",
        "anchors",
        "verify",
        "archive",
        "search",
        "graph",
        "index",
        "export",
        "import",
        "gc",
        "size",
        "repair",
    ),
)
_LOCAL_RESULTS: Mapping[str, type] = {"show": EntryLine, "import": TapeImportResult, "repair": RepairResult}
RESULTS: Mapping[str, type] = {
    f"tape {action}": _DECLARED[action].result if action in _DECLARED else _LOCAL_RESULTS[action]
    for action in ACTIONS
    if action in _DECLARED or action in _LOCAL_RESULTS
}
"""What `--json` prints; of `tape show` a line each."""
