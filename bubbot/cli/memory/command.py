"""`bubbot memory`: the memory of a session, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

from bubbot.app.bot import now, open_tapes
from bubbot.cli.files import open_output
from bubbot.cli.memory.change import ForgetMemory, ImportedNote, ImportMemory, RestoreMemory, SaveMemory
from bubbot.cli.memory.files import FILE_LIMIT, read_memory
from bubbot.cli.output import show
from bubbot.cli.session_names import find_tape, read_session, require_user_tape, tape_service
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.write_command import run_write_command
from bubbot.errors import ConfigError
from bubbot.features.memory.views import MemoryVersionsView, format_memory_page
from bubbot.features.memory.zone import MemoryZone, format_versions
from bubbot.ports.channel import replace_controls
from bubbot.tape.service import TapeService

EXIT_OK = 0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Show and change the memory of a session. `show` and `export` are read-only and work while the bot runs. "
        "Every change is a new version; older versions stay."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = commands.add_parser(
            name, help=helps, description=f"{helps[0].upper()}{helps[1:]}.", epilog=f"example: bubbot memory {example}"
        )
        subparser.add_argument("session", help="a session such as default or telegram:42")
        return subparser

    action("show", "print what is remembered, and which versions there are", "show default")
    save = action("save", "replace the long-term memory", "save default 'Likes green tea.'")
    save.add_argument("text", help="the whole new text; - reads it from standard input")
    forget = action("forget", "remove every line that contains a text", "forget default 'green tea'")
    forget.add_argument("text", help="what the lines contain; upper and lower case are the same")
    restore = action("restore", "bring an older version back as the newest", "restore default 3")
    restore.add_argument("version", type=int, help="its number, as show lists them")
    export = action("export", "write what is remembered as Markdown", "export default memory.md")
    export.add_argument("file", nargs="?", help="a new file (default: standard output)")
    import_ = action("import", "take memory from a file or a nanobot folder", "import default my-bot/memory")
    import_.add_argument("path", type=Path, help="a Markdown file, or a folder with MEMORY.md and YYYY-MM-DD.md")
    import_.add_argument("--replace", action="store_true", help="also if something is remembered already")


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    return asyncio.run(_ACTIONS[args.action](load_setup(args), args))


@asynccontextmanager
async def _open_memory(setup: CommandSetup, reference: str) -> AsyncIterator[tuple[TapeService, MemoryZone]]:
    """Open the memory of a session for reading."""
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        name = await find_tape(store, workspace, reference)
        require_user_tape(name, "remembered from")
        tape = tape_service(store, name, await read_session(store, name))
        zone, days = ZoneInfo(setup.settings.bot.timezone), setup.settings.memory.retention_days
        yield tape, MemoryZone(tape, now=now, zone=zone, retention_days=days)


async def _show(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with _open_memory(setup, args.session) as (tape, zone):
        snapshot = await zone.read()
        versions = {fact.version for fact in await tape.read(MemoryVersionsView())}
    show(format_memory_page(snapshot), end="")
    if versions:
        show(f"\nOn the tape: {format_versions(versions)}. `bubbot memory restore {args.session} N` brings one back.")
    return EXIT_OK


async def _save(setup: CommandSetup, args: argparse.Namespace) -> int:
    return await run_write_command(setup, "memory save", SaveMemory(args.session, _read_text(args.text)))


def _read_text(text: str) -> str:
    raw = sys.stdin.buffer.read(FILE_LIMIT) if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        decoded = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    if not decoded.strip():
        raise ConfigError("the text is empty; bubbot memory forget removes lines")
    return decoded


async def _forget(setup: CommandSetup, args: argparse.Namespace) -> int:
    if not args.text.strip():
        raise ConfigError("the text to forget is empty; give words of the line that is to go")
    return await run_write_command(setup, "memory forget", ForgetMemory(args.session, args.text))


async def _restore(setup: CommandSetup, args: argparse.Namespace) -> int:
    return await run_write_command(setup, "memory restore", RestoreMemory(args.session, args.version))


async def _export(setup: CommandSetup, args: argparse.Namespace) -> int:
    async with _open_memory(setup, args.session) as (_, zone):
        text = format_memory_page(await zone.read())
    with open_output(args.file, replace_controls) as write:
        write(text.encode())
    if args.file is not None:
        show(f"Exported to {args.file}.")
    return EXIT_OK


async def _import(setup: CommandSetup, args: argparse.Namespace) -> int:
    files = read_memory(args.path)
    if files.memory.is_empty:
        raise ConfigError(f"{args.path} holds no memory")
    notes = tuple(ImportedNote(note.date, note.content) for note in files.memory.dailies)
    arguments = ImportMemory(args.session, files.memory.long_term, notes, files.left_out, args.replace)
    return await run_write_command(setup, "memory import", arguments)


_ACTIONS = {
    "show": _show,
    "save": _save,
    "forget": _forget,
    "restore": _restore,
    "export": _export,
    "import": _import,
}
