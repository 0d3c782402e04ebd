"""The changes of `bubbot memory`, made in this process or in the running bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from bubbot.app.bot import now
from bubbot.cli.session_names import (
    find_tape,
    parse_session,
    read_session,
    require_no_open_turn,
    require_user_tape,
    tape_service,
)
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError, EntryNotFound, MemoryTooLarge
from bubbot.features.memory.views import DailyNote, MemorySnapshot
from bubbot.features.memory.zone import MemoryZone
from bubbot.tape.service import session_tape

EXIT_NO_CHANGE = 1


@dataclass(frozen=True, slots=True)
class SaveMemory:
    """The complete new long-term memory of a session."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class ForgetMemory:
    """The text in the lines to remove."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class RestoreMemory:
    """The version to restore."""

    session: str
    version: int


@dataclass(frozen=True, slots=True)
class ImportedNote:
    """A daily note; `date` is `YYYY-MM-DD`."""

    date: str
    content: str


@dataclass(frozen=True, slots=True)
class ImportMemory:
    """The contents of the imported files.

    Attributes:
        session: the session that gets the memory.
        long_term: the text of the long-term memory.
        notes: the daily notes.
        left_out: the names of files that are not memory.
        replace: replace a memory that is not empty.
    """

    session: str
    long_term: str
    notes: tuple[ImportedNote, ...]
    left_out: tuple[str, ...]
    replace: bool


@asynccontextmanager
async def _open_memory(context: CommandContext, reference: str, *, create: bool = False) -> AsyncIterator[MemoryZone]:
    """Open the memory of a session and keep other writers away; `create` makes a missing session."""
    try:
        name = await find_tape(context.store, context.workspace, reference)
    except EntryNotFound:
        if not create:
            raise
        session = parse_session(reference)
        name = session_tape(context.workspace, session)
    else:
        require_user_tape(name, "remembered from")
        if any(tape.archived_from for tape in await context.store.tapes() if tape.name == name):
            raise ConfigError(f"{name} is an archive; its memory can be read and no longer changed")
        session = await read_session(context.store, name)
    async with context.lock_tape(name, session):
        await require_no_open_turn(context.store, name, reference)
        tape = tape_service(context.store, name, session)
        if create:
            await tape.ensure_bootstrap_anchor()
        zone, days = ZoneInfo(context.settings.bot.timezone), context.settings.memory.retention_days
        try:
            yield MemoryZone(tape, now=now, zone=zone, retention_days=days)
        except MemoryTooLarge as error:
            raise ConfigError(str(error)) from error


async def save(context: CommandContext, arguments: SaveMemory) -> CommandResult:
    """Replace the long-term memory."""
    async with _open_memory(context, arguments.session, create=True) as zone:
        before = await zone.read()
        removed = await zone.save_long_term(arguments.text)
        after = await zone.read()
    return CommandResult(_describe_change(before, after, arguments.session, removed))


async def forget(context: CommandContext, arguments: ForgetMemory) -> CommandResult:
    """Remove the lines that contain a text."""
    async with _open_memory(context, arguments.session) as zone:
        before = await zone.read()
        removed = await zone.forget(arguments.text)
        after = await zone.read()
    if not removed:
        return CommandResult(f"No line contains {arguments.text!r}; nothing was removed.\n", EXIT_NO_CHANGE)
    text = _describe_change(before, after, arguments.session, removed)
    return CommandResult(f"{text}Older versions remain on the tape with these lines, and so does what was said.\n")


async def restore(context: CommandContext, arguments: RestoreMemory) -> CommandResult:
    """Restore an older version as the newest."""
    async with _open_memory(context, arguments.session) as zone:
        before = await zone.read()
        await zone.restore(arguments.version)
        after = await zone.read()
    return CommandResult(_describe_change(before, after, arguments.session))


async def import_memory(context: CommandContext, arguments: ImportMemory) -> CommandResult:
    """Import memory that the command read from files."""
    notes = tuple(DailyNote(note.date, note.content) for note in arguments.notes)
    days = context.settings.memory.retention_days
    async with _open_memory(context, arguments.session, create=True) as zone:
        before = await zone.read()
        if not before.is_empty and not arguments.replace:
            raise ConfigError(
                f"{arguments.session} remembers something already: --replace puts this in its place (the older version "
                "stays on the tape)"
            )
        await zone.import_snapshot(MemorySnapshot(long_term=arguments.long_term, dailies=notes))
        after = await zone.read()
        oldest, last = (zone.today() - timedelta(days=days)).isoformat(), zone.last_day()
    text = _describe_change(before, after, arguments.session)
    if arguments.left_out:
        text += f"Left out: {', '.join(arguments.left_out)}.\n"
    if old := [note.date for note in after.dailies if not oldest <= note.date <= last]:
        text += (
            f"{len(old)} of the {len(after.dailies)} notes are of days more than {days} days ago or ahead: "
            "they leave the newest version when the session is next opened, and stay in this one. "
            "To keep them, set retention_days under [memory] first.\n"
        )
    return CommandResult(text)


def _describe_change(
    before: MemorySnapshot, after: MemorySnapshot, session: str, removed: list[str] | None = None
) -> str:
    if after.seal_id == before.seal_id:
        return f"Nothing changed: this is what version {after.version} (entry {after.seal_id}) says.\n"
    notes = f"{len(after.dailies)} daily note{'' if len(after.dailies) == 1 else 's'}"
    lines = [f"Memory of {session} is now version {after.version} (entry {after.seal_id}), with {notes}."]
    if removed:
        lines += ["No longer there:", *(f"- {line.strip()}" for line in removed)]
    if before.version and not before.is_empty:
        lines.append(f"`bubbot memory restore {session} {before.version}` brings back what was there before.")
    return "".join(f"{line}\n" for line in lines)
