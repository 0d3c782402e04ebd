"""What `bubbot tape` changes, in this process or in the bot that runs for the home."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO

from bubbot.cli.session_names import IMPORTED, IMPORTS, no_open_turn, service, session_of, tape_name
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError, TapeCorrupt
from bubbot.stores.jsonl import ImportResult, read_lines
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, event, timestamp
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch
from bubbot.wiring.app import now


@dataclass(frozen=True, slots=True)
class ArchiveTape:
    """The tape to put aside, as it was named."""

    tape: str


@dataclass(frozen=True, slots=True)
class ImportTape:
    """A file of JSON lines, whole, and the session id it becomes; `repair`: also where lines cannot be read."""

    session: str
    data: bytes
    repair: bool


async def archive(desk: CommandContext, given: ArchiveTape) -> CommandResult:
    """Puts a tape aside and starts it anew."""
    name = await tape_name(desk.store, desk.workspace, given.tape)
    if any(one.archived_from for one in await desk.store.tapes() if one.name == name):
        raise ConfigError(f"{name} is an archive already")
    session = await session_of(desk.store, name)
    async with desk.alone(name, session):
        return CommandResult(f"{await service(desk.store, name, session).reset(archive=True)}\n")


async def take(desk: CommandContext, given: ImportTape) -> CommandResult:
    """Reads the file, which the command has looked at, and imports it."""
    found = await asyncio.to_thread(read_lines, BytesIO(given.data).readlines(), date=timestamp(now()))
    if not found.entries or (found.problems and not given.repair):
        raise TapeCorrupt("the file holds no entries, or some that cannot be read")
    return await imported(desk, given, found)


async def imported(desk: CommandContext, given: ImportTape, found: ImportResult) -> CommandResult:
    """Appends the entries and the fact of it in one transaction; says nothing."""
    tape = session_tape(desk.workspace, given.session)
    async with desk.alone(tape, given.session):
        if head := await desk.store.head(tape):
            entries = "1 entry" if head == 1 else f"{head} entries"
            raise ConfigError(f"{given.session} has {entries} already, and an import needs an empty tape: name another")
        await no_open_turn(desk.store, tape, given.session)
        fact = _fact(tape, given.session, found, sha256(given.data).hexdigest())
        await desk.store.append([Batch(tape, found.entries, expect_head=0), Batch(IMPORTS, (fact,))])
    return CommandResult("")


def _fact(tape: str, session: str, found: ImportResult, digest: str) -> TapeEntry:
    """Where the tape comes from, for the system's own tape: the imported one stays as it is in the file."""
    data = {
        "tape": tape,
        "session": session,
        "entries": len(found.entries),
        "renumbered": found.renumbered,
        "erased": found.erased,
        "unreadable": len(found.problems),
        "sha256": digest,
    }
    return event(IMPORTED, data).stamped(EMPTY_OBJECT, timestamp(now()))
