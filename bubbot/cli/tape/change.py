"""The change of `bubbot tape import`, made in this process or in the running bot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256
from io import BytesIO

from bubbot.arguments.fields import Args
from bubbot.errors import ConfigError, TapeCorrupt
from bubbot.ports.session_names import IMPORTS_TAPE, require_no_open_turn
from bubbot.shell_command import Command, CommandContext, CommandResult
from bubbot.stores.jsonl import ImportResult, read_lines
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, timestamp
from bubbot.tape.events import TapeImported
from bubbot.tape.provenance import PROVENANCE, Source
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch


class ImportTape(Args, frozen=True):
    """A complete file of JSON lines to import.

    Attributes:
        session: the session id that it becomes.
        data: the bytes of the file.
        repair: import even if some lines cannot be read.
    """

    session: str
    data: bytes
    repair: bool


async def import_tape(context: CommandContext, arguments: ImportTape) -> CommandResult:
    """Parse the file, which the command has checked already, and import it."""
    result = await asyncio.to_thread(read_lines, BytesIO(arguments.data).readlines(), date=timestamp(context.now()))
    if not result.has_entries or (result.problems and not arguments.repair):
        raise TapeCorrupt("the file holds no entries, or some that cannot be read")
    return await append_import(context, arguments, result)


async def append_import(context: CommandContext, arguments: ImportTape, result: ImportResult) -> CommandResult:
    """Append the entries and a fact about the import in one transaction; return an empty text."""
    tape = session_tape(context.workspace, arguments.session)
    async with context.lock_tape(tape, arguments.session):
        if head := await context.store.head(tape):
            entries = "1 entry" if head == 1 else f"{head} entries"
            raise ConfigError(
                f"{arguments.session} has {entries} already, and an import needs an empty tape: name another"
            )
        await require_no_open_turn(context.store, tape, arguments.session)
        fact = _fact(tape, arguments.session, result, sha256(arguments.data).hexdigest(), timestamp(context.now()))
        marked = tuple(map(_mark, result.entries))
        await context.store.append([Batch(tape, marked, expect_head=0), Batch(IMPORTS_TAPE, (fact,))])
    return CommandResult("")


def _mark(entry: TapeEntry) -> TapeEntry:
    """Mark an entry as words from outside, regardless of the file: anybody may have written it (T22)."""
    return replace(entry, meta={**entry.meta, PROVENANCE: str(Source.WORLD)})


def _fact(tape: str, session: str, result: ImportResult, digest: str, date: str) -> TapeEntry:
    """Make the fact about the import for the system's own tape: except for its marks, the imported tape equals the
    file.
    """
    fact = TapeImported(
        tape=tape,
        session=session,
        entries=len(result.entries),
        renumbered=result.renumbered,
        erased=result.erased,
        unreadable=len(result.problems),
        sha256=digest,
    )
    return fact.to_entry().with_meta(EMPTY_OBJECT, date)


IMPORT_TAPE = Command(
    name="tape import", run=import_tape, args=ImportTape, writes=True, progress=("Writing the tape", "")
)
