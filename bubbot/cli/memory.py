"""`bubbot memory`: what a session remembers, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from bubbot.cli.files import output
from bubbot.cli.memory_files import read_memory
from bubbot.cli.setup import Setup, setup
from bubbot.cli.tape_names import no_open_turn, not_of_the_system, service, session_named, session_of, tape_name
from bubbot.errors import ConfigError, EntryNotFound
from bubbot.memory import MemoryZone, spelled
from bubbot.stores.sqlite import SqliteStore
from bubbot.tape.service import TapeService, session_tape
from bubbot.views.memory import MemorySnapshot, MemoryVersionsView, memory_markdown
from bubbot.wiring import now, open_tapes

FINE, NOTHING = 0, 1


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    parser.description = (
        "Look at the memory of a session and change it. Show and export only read, and work beside a running bot. "
        "Every change is a new version; older ones stay."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name, help=helps, description=f"{helps[0].upper()}{helps[1:]}.", epilog=f"example: bubbot memory {example}"
        )
        made.add_argument("session", help="a session such as default or telegram:42")
        return made

    action("show", "print what is remembered, and which versions there are", "show default")
    save = action("save", "replace the long-term memory", "save default 'Likes green tea.'")
    save.add_argument("text", help="the whole new text; - reads it from standard input")
    forget = action("forget", "remove every line that contains a text", "forget default 'green tea'")
    forget.add_argument("text", help="what the lines contain; upper and lower case are the same")
    restore = action("restore", "bring an older version back as the newest", "restore default 3")
    restore.add_argument("version", type=int, help="its number, as show lists them")
    export = action("export", "write what is remembered as Markdown", "export default memory.md")
    export.add_argument("file", nargs="?", help="a file that is not there yet; standard output where left out")
    take = action("import", "take memory from a file or a nanobot folder", "import default my-bot/memory")
    take.add_argument("path", type=Path, help="a Markdown file, or a folder with MEMORY.md and YYYY-MM-DD.md")
    take.add_argument("--replace", action="store_true", help="also where something is remembered already")


def run(args: argparse.Namespace) -> int:
    """Runs one action."""
    return asyncio.run(_ACTIONS[args.action](setup(args), args))


@dataclass(frozen=True, slots=True)
class _Open:
    """The memory of the session asked for."""

    tape: TapeService
    zone: MemoryZone

    async def versions(self) -> str:
        """Which versions the tape has, in words; empty where there is none."""
        found = {one.version for one in await self.tape.read(MemoryVersionsView())}
        return spelled(found) if found else ""


@asynccontextmanager
async def _opened(made: Setup, wanted: str, *, write: bool = False, new: bool = False) -> AsyncIterator[_Open]:
    """The memory of a session. `write` takes the home's lock, `new` makes the session where there is none."""
    async with open_tapes(made.home, write=write) as (store, workspace):
        try:
            name = await tape_name(store, workspace, wanted)
        except EntryNotFound:
            if not new:
                raise
            session = session_named(wanted)
            await no_open_turn(store, session_tape(workspace, session), session)
            tape = service(store, session_tape(workspace, session), session)
            await tape.ensure_bootstrap_anchor()
        else:
            not_of_the_system(name, "remembered from")
            if write:
                await _check_writable(store, name, wanted)
            tape = service(store, name, await session_of(store, name))
        zone = ZoneInfo(made.settings.bot.timezone)
        days = made.settings.memory.retention_days
        yield _Open(tape, MemoryZone(tape, now=now, zone=zone, retention_days=days))


async def _check_writable(store: SqliteStore, name: str, wanted: str) -> None:
    if any(one.archived_from for one in await store.tapes() if one.name == name):
        raise ConfigError(f"{name} is an archive; its memory can be read and no longer changed")
    await no_open_turn(store, name, wanted)


async def _show(made: Setup, args: argparse.Namespace) -> int:
    async with _opened(made, args.session) as memory:
        snapshot = await memory.zone.read()
        versions = await memory.versions()
    print(memory_markdown(snapshot), end="")
    if versions:
        print(f"\nOn the tape: {versions}. `bubbot memory restore {args.session} N` brings one back.")
    return FINE


async def _save(made: Setup, args: argparse.Namespace) -> int:
    text = _given(args.text)
    async with _opened(made, args.session, write=True, new=True) as memory:
        before = await memory.zone.read()
        lost = await memory.zone.save_long_term(text)
        after = await memory.zone.read()
    _tell_change(before, after, args.session, lost)
    return FINE


def _given(text: str) -> str:
    raw = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        given = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    if not given.strip():
        raise ConfigError("the text is empty; bubbot memory forget removes lines")
    return given


async def _forget(made: Setup, args: argparse.Namespace) -> int:
    if not args.text.strip():
        raise ConfigError("the text to forget is empty; give words of the line that is to go")
    async with _opened(made, args.session, write=True) as memory:
        before = await memory.zone.read()
        removed = await memory.zone.forget(args.text)
        after = await memory.zone.read()
    if not removed:
        print(f"No line contains {args.text!r}; nothing was removed.")
        return NOTHING
    _tell_change(before, after, args.session, removed)
    print("Older versions remain on the tape with these lines, and so does what was said.")
    return FINE


async def _restore(made: Setup, args: argparse.Namespace) -> int:
    async with _opened(made, args.session, write=True) as memory:
        before = await memory.zone.read()
        await memory.zone.restore(args.version)
        after = await memory.zone.read()
    _tell_change(before, after, args.session)
    return FINE


async def _export(made: Setup, args: argparse.Namespace) -> int:
    async with _opened(made, args.session) as memory:
        text = memory_markdown(await memory.zone.read())
    with output(args.file) as write:
        write(text.encode())
    if args.file is not None:
        print(f"Exported to {args.file}.")
    return FINE


async def _import(made: Setup, args: argparse.Namespace) -> int:
    found = read_memory(args.path)
    if found.memory.empty:
        raise ConfigError(f"{args.path} holds no memory")
    async with _opened(made, args.session, write=True, new=True) as memory:
        before = await memory.zone.read()
        if not before.empty and not args.replace:
            raise ConfigError(
                f"{args.session} remembers something already: --replace puts this in its place (the older version "
                "stays on the tape)"
            )
        await memory.zone.adopt(found.memory)
        after = await memory.zone.read()
        oldest = (memory.zone.today() - timedelta(days=made.settings.memory.retention_days)).isoformat()
    _tell_change(before, after, args.session)
    if found.left_out:
        print(f"Left out: {', '.join(found.left_out)}.")
    old = [note.date for note in after.dailies if note.date < oldest]
    if old:
        print(
            f"{len(old)} of the {len(after.dailies)} notes are older than {made.settings.memory.retention_days} days: "
            "they leave the newest version when the session is next opened, and stay in this one. "
            "To keep them, set retention_days under [memory] first."
        )
    return FINE


def _tell_change(before: MemorySnapshot, after: MemorySnapshot, session: str, gone: list[str] | None = None) -> None:
    if after.seal_id == before.seal_id:
        print(f"Nothing changed: this is what version {after.version} (entry {after.seal_id}) says.")
        return
    notes = f"{len(after.dailies)} daily note{'' if len(after.dailies) == 1 else 's'}"
    print(f"Memory of {session} is now version {after.version} (entry {after.seal_id}), with {notes}.")
    if gone:
        print("No longer there:")
        print("\n".join(f"- {line.strip()}" for line in gone))
    if before.version and not before.empty:
        print(f"`bubbot memory restore {session} {before.version}` brings back what was there before.")


_ACTIONS = {
    "show": _show,
    "save": _save,
    "forget": _forget,
    "restore": _restore,
    "export": _export,
    "import": _import,
}
