"""`bubbot tape`: the commands of the store and of features, and those only for shells: show, export, import, repair, copy."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from bubbot.app.commands import load_shared
from bubbot.app.tapes import open_tapes
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation, parse_count, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show_json, show_line
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape.commands import STORE_COMMANDS
from bubbot.cli.tape.copy import copy_tapes
from bubbot.cli.tape.files import export_tape, import_tape
from bubbot.cli.tape.repair import repair_tapes
from bubbot.cli.tape.results import EntryLine
from bubbot.ports.agents import ORIGIN_PREFIX, writer_of
from bubbot.ports.session_names import find_tape
from bubbot.shell_command import Argument, CommandGroup, CommandSyntax, require_head
from bubbot.stores.jsonl import line_fields
from bubbot.tape.entry import THOUGHTS, Kind, TapeEntry, thaw
from bubbot.tape.query import IdRanges, TapeQuery, date_bounds
from bubbot.tape.store import TapeStore

EXIT_OK = 0
PAGE_ENTRIES = 1000
"""Entries of a tape to read at a time."""


class ShowTapeArgs(Args, frozen=True):
    """The arguments of `bubbot tape show`."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    kinds: Annotated[str, Argument("only these kinds, separated by commas")] = ""
    since: Annotated[str | None, Argument("from this date or time on, in UTC; a date is its whole day")] = None
    until: Annotated[str | None, Argument("up to this date or time")] = None
    last: Annotated[int | None, Argument("only the newest N entries", "N", parse_count)] = None
    as_of: Annotated[
        int | None,
        Argument("as the tape was when N was its newest entry: what came later is not shown", "N", parse_count),
    ] = None
    turn: Annotated[str, Argument("only the turn whose id begins with this; failure messages show it", "TRACE")] = ""


@local_command("tape show", result=EntryLine, json_help="print one JSON object a line instead")
def show_tape(invocation: Invocation, args: ShowTapeArgs) -> int:
    """The entries of a tape."""
    return asyncio.run(_show(load_setup(invocation), args))


async def _show(setup: CommandSetup, args: ShowTapeArgs) -> int:
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
            if setup.as_json:
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
    """Yield the entries of a query, or the `last` of them, oldest first; with `turn` only those of turns whose id
    begins with it.

    It reads pages, since the entries may not fit into memory. The store skips entries that the filters reject.
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
        writer = writer_of(entry)
        role = f"{payload.get('role')} {ORIGIN_PREFIX}{writer}" if writer else payload.get("role")
        text = f"{role}: {payload['content']}{thoughts}"
    else:
        text = json.dumps(payload, ensure_ascii=False)
    printed = "".join(char if char.isprintable() else " " for char in text)
    return f"#{entry.id} {entry.date[:19]} {entry.kind} {printed if len(printed) <= 400 else printed[:399] + '…'}"


_ORDER = (
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
    "copy",
)
_COMMANDS: tuple[CommandSyntax, ...] = (
    *STORE_COMMANDS.commands,
    *load_shared("tape"),
    show_tape,
    export_tape,
    import_tape,
    repair_tapes,
    copy_tapes,
)
TAPE_COMMANDS = CommandGroup[CommandSyntax](
    "tape",
    tuple(sorted(_COMMANDS, key=lambda command: _ORDER.index(command.action))),
    "Read and manage tapes. All actions except `archive`, `import`, `gc`, `repair`, `copy` and `index --rebuild` are read-only and "
    "work while the bot runs.",
    "list, show, search, verify, export and import tapes",
)
