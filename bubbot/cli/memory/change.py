"""What `bubbot memory` changes, in this process or in the bot that runs for the home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from bubbot.cli.session_names import no_open_turn, not_of_the_system, service, session_named, session_of, tape_name
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError, EntryNotFound, MemoryTooLarge
from bubbot.memory import MemoryZone
from bubbot.tape.service import session_tape
from bubbot.views.memory import DailyNote, MemorySnapshot
from bubbot.wiring.app import now

EXIT_NO_CHANGE = 1


@dataclass(frozen=True, slots=True)
class SaveMemory:
    """The whole new long-term memory of a session."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class ForgetMemory:
    """What the lines to remove contain."""

    session: str
    text: str


@dataclass(frozen=True, slots=True)
class RestoreMemory:
    """The version to bring back."""

    session: str
    version: int


@dataclass(frozen=True, slots=True)
class ImportedNote:
    """A note of a day, `YYYY-MM-DD`."""

    date: str
    content: str


@dataclass(frozen=True, slots=True)
class ImportMemory:
    """What the files held; `left_out` are the names of those that are no memory."""

    session: str
    long_term: str
    notes: tuple[ImportedNote, ...]
    left_out: tuple[str, ...]
    replace: bool


@asynccontextmanager
async def _opened(desk: CommandContext, wanted: str, *, new: bool = False) -> AsyncIterator[MemoryZone]:
    """The memory of a session, which nobody else changes meanwhile; `new` makes the session where there is none."""
    try:
        name = await tape_name(desk.store, desk.workspace, wanted)
    except EntryNotFound:
        if not new:
            raise
        session = session_named(wanted)
        name = session_tape(desk.workspace, session)
    else:
        not_of_the_system(name, "remembered from")
        if any(one.archived_from for one in await desk.store.tapes() if one.name == name):
            raise ConfigError(f"{name} is an archive; its memory can be read and no longer changed")
        session = await session_of(desk.store, name)
    async with desk.alone(name, session):
        await no_open_turn(desk.store, name, wanted)
        tape = service(desk.store, name, session)
        if new:
            await tape.ensure_bootstrap_anchor()
        zone, days = ZoneInfo(desk.settings.bot.timezone), desk.settings.memory.retention_days
        try:
            yield MemoryZone(tape, now=now, zone=zone, retention_days=days)
        except MemoryTooLarge as error:
            raise ConfigError(str(error)) from error


async def save(desk: CommandContext, given: SaveMemory) -> CommandResult:
    """Replaces the long-term memory."""
    async with _opened(desk, given.session, new=True) as zone:
        before = await zone.read()
        lost = await zone.save_long_term(given.text)
        after = await zone.read()
    return CommandResult(_change(before, after, given.session, lost))


async def forget(desk: CommandContext, given: ForgetMemory) -> CommandResult:
    """Removes the lines that contain a text."""
    async with _opened(desk, given.session) as zone:
        before = await zone.read()
        removed = await zone.forget(given.text)
        after = await zone.read()
    if not removed:
        return CommandResult(f"No line contains {given.text!r}; nothing was removed.\n", EXIT_NO_CHANGE)
    told = _change(before, after, given.session, removed)
    return CommandResult(f"{told}Older versions remain on the tape with these lines, and so does what was said.\n")


async def restore(desk: CommandContext, given: RestoreMemory) -> CommandResult:
    """Brings an older version back."""
    async with _opened(desk, given.session) as zone:
        before = await zone.read()
        await zone.restore(given.version)
        after = await zone.read()
    return CommandResult(_change(before, after, given.session))


async def take(desk: CommandContext, given: ImportMemory) -> CommandResult:
    """Takes memory that was read from files."""
    notes = tuple(DailyNote(note.date, note.content) for note in given.notes)
    days = desk.settings.memory.retention_days
    async with _opened(desk, given.session, new=True) as zone:
        before = await zone.read()
        if not before.empty and not given.replace:
            raise ConfigError(
                f"{given.session} remembers something already: --replace puts this in its place (the older version "
                "stays on the tape)"
            )
        await zone.adopt(MemorySnapshot(long_term=given.long_term, dailies=notes))
        after = await zone.read()
        oldest, last = (zone.today() - timedelta(days=days)).isoformat(), zone.last_day()
    told = _change(before, after, given.session)
    if given.left_out:
        told += f"Left out: {', '.join(given.left_out)}.\n"
    if old := [note.date for note in after.dailies if not oldest <= note.date <= last]:
        told += (
            f"{len(old)} of the {len(after.dailies)} notes are of days more than {days} days ago or ahead: "
            "they leave the newest version when the session is next opened, and stay in this one. "
            "To keep them, set retention_days under [memory] first.\n"
        )
    return CommandResult(told)


def _change(before: MemorySnapshot, after: MemorySnapshot, session: str, gone: list[str] | None = None) -> str:
    if after.seal_id == before.seal_id:
        return f"Nothing changed: this is what version {after.version} (entry {after.seal_id}) says.\n"
    notes = f"{len(after.dailies)} daily note{'' if len(after.dailies) == 1 else 's'}"
    told = [f"Memory of {session} is now version {after.version} (entry {after.seal_id}), with {notes}."]
    if gone:
        told += ["No longer there:", *(f"- {line.strip()}" for line in gone)]
    if before.version and not before.empty:
        told.append(f"`bubbot memory restore {session} {before.version}` brings back what was there before.")
    return "".join(f"{line}\n" for line in told)
