"""`bubbot tape`: shows and archives tapes; the other subcommands are in the modules next to this one."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from bubbot.app.tapes import open_tapes, tape_service
from bubbot.cli.commands import run_command
from bubbot.cli.invocation import Invocation, parse_count, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_json, show_line, show_record, show_table
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape.files import export_tape, import_tape
from bubbot.cli.tape.gc import collect_tapes, show_sizes
from bubbot.cli.tape.index import index_tapes
from bubbot.cli.tape.repair import repair_tapes
from bubbot.cli.tape.results import (
    AnchorList,
    ArchiveResult,
    EntryLine,
    TapeList,
    TapeRow,
    VerifyResult,
)
from bubbot.features.conversation import shell as conversation
from bubbot.features.conversation.anchors import AnchorsView
from bubbot.features.search import shell as search
from bubbot.gateway.names import NameBook
from bubbot.log import printable
from bubbot.ports.arguments import Args
from bubbot.ports.command import Argument, CommandGroup, CommandSyntax, require_head
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
TAPE_HELP = "a session such as stdin:default, or the name of a tape or archive"


class ShowTapeArgs(Args, frozen=True):
    """The arguments of `bubbot tape show`."""

    tape: Annotated[str, Argument(TAPE_HELP)]
    kinds: Annotated[str, Argument("only these kinds, separated by commas")] = ""
    since: Annotated[str | None, Argument("from this date or time on, in UTC; a date is its whole day")] = None
    until: Annotated[str | None, Argument("up to this date or time")] = None
    last: Annotated[int | None, Argument("only the newest N entries", "N", parse_count)] = None
    as_of: Annotated[
        int | None,
        Argument("as the tape was when N was its newest entry: what came later is not shown", "N", parse_count),
    ] = None
    turn: Annotated[str, Argument("only the turn whose id begins with this; failure messages show it", "TRACE")] = ""


class ListAnchorsArgs(Args, frozen=True):
    """The arguments of `bubbot tape anchors`."""

    tape: Annotated[str, Argument(TAPE_HELP)]
    zones: Annotated[bool, Argument("the markers of memory zones too")] = False


class ArchiveTapeArgs(Args, frozen=True):
    """The arguments of `bubbot tape archive`."""

    tape: Annotated[str, Argument(TAPE_HELP)]


class VerifyArgs(Args, frozen=True):
    """The arguments of `bubbot tape verify`."""

    tape: Annotated[str | None, Argument("one tape only")] = None
    head: Annotated[str | None, Argument("a deployment head kept from earlier (POSITION:HASH)", "HASH")] = None


@local_command("tape list", result=TapeList)
def list_tapes(invocation: Invocation) -> int:
    """Every tape: session, entries, archives."""
    return asyncio.run(_list(load_setup(invocation)))


@local_command("tape show", result=EntryLine, json_help="print one JSON object a line instead")
def show_tape(invocation: Invocation, args: ShowTapeArgs) -> int:
    """The entries of a tape."""
    return asyncio.run(_show(load_setup(invocation), args))


@local_command("tape anchors", result=AnchorList)
def list_anchors(invocation: Invocation, args: ListAnchorsArgs) -> int:
    """The anchors of a tape, newest first."""
    return asyncio.run(_anchors(load_setup(invocation), args))


@local_command("tape verify", form="[tape]", result=VerifyResult)
def verify_tapes(invocation: Invocation, args: VerifyArgs) -> int:
    """Check everything; tells altered, missing, renamed and erased apart."""
    return asyncio.run(_verify(load_setup(invocation), args))


@local_command("tape archive", result=ArchiveResult)
def archive_tape(invocation: Invocation, args: ArchiveTapeArgs) -> int:
    """Archive a tape under another name and start an empty one."""
    # Imported here: commands that only read share this file.
    from bubbot.cli.tape.change import ARCHIVE_TAPE, ArchiveTape

    return asyncio.run(run_command(load_setup(invocation), ARCHIVE_TAPE, ArchiveTape(tape=args.tape)))


async def _list(setup: CommandSetup) -> int:
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


async def _anchors(setup: CommandSetup, args: ListAnchorsArgs) -> int:
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        tape = tape_service(store, await find_tape(store, workspace, args.tape))
        anchors = await tape.read(AnchorsView(zones=args.zones))
    if setup.as_json:
        show_record(AnchorList(tape.name, anchors))
        return EXIT_OK
    for anchor in anchors:
        show_line(f"#{anchor.id} {anchor.date[:19]} {anchor.name} {anchor.state}")
    return EXIT_OK


async def _verify(setup: CommandSetup, args: VerifyArgs) -> int:
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
        if args.head and matching is not None:
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


TAPE_COMMANDS = CommandGroup[CommandSyntax](
    "tape",
    (
        list_tapes,
        show_tape,
        list_anchors,
        verify_tapes,
        archive_tape,
        *search.TAPE_COMMANDS.commands,
        *conversation.TAPE_COMMANDS.commands,
        index_tapes,
        export_tape,
        import_tape,
        collect_tapes,
        show_sizes,
        repair_tapes,
    ),
    "Read and manage tapes. All actions except `archive`, `import`, `gc`, `repair` and `index --rebuild` are read-only and "
    "work while the bot runs.",
    "list, show, search, verify, export and import tapes",
)
