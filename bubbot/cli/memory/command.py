"""`bubbot memory`: what a session remembers, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

from bubbot.cli.files import output
from bubbot.cli.memory.change import ForgetMemory, ImportedNote, ImportMemory, RestoreMemory, SaveMemory
from bubbot.cli.memory.files import FILE_LIMIT, read_memory
from bubbot.cli.output import show
from bubbot.cli.session_names import not_of_the_system, service, session_of, tape_name
from bubbot.cli.setup import CommandSetup, setup
from bubbot.cli.write_command import perform
from bubbot.errors import ConfigError
from bubbot.memory import MemoryZone, spelled
from bubbot.ports.channel import replace_controls
from bubbot.tape.service import TapeService
from bubbot.views.memory import MemoryVersionsView, memory_markdown
from bubbot.wiring.app import now, open_tapes

EXIT_OK = 0


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


@asynccontextmanager
async def _opened(made: CommandSetup, wanted: str) -> AsyncIterator[tuple[TapeService, MemoryZone]]:
    """The memory of a session, to look at."""
    async with open_tapes(made.home) as (store, workspace):
        name = await tape_name(store, workspace, wanted)
        not_of_the_system(name, "remembered from")
        tape = service(store, name, await session_of(store, name))
        zone, days = ZoneInfo(made.settings.bot.timezone), made.settings.memory.retention_days
        yield tape, MemoryZone(tape, now=now, zone=zone, retention_days=days)


async def _show(made: CommandSetup, args: argparse.Namespace) -> int:
    async with _opened(made, args.session) as (tape, zone):
        snapshot = await zone.read()
        found = {one.version for one in await tape.read(MemoryVersionsView())}
    show(memory_markdown(snapshot), end="")
    if found:
        show(f"\nOn the tape: {spelled(found)}. `bubbot memory restore {args.session} N` brings one back.")
    return EXIT_OK


async def _save(made: CommandSetup, args: argparse.Namespace) -> int:
    return await perform(made, "memory save", SaveMemory(args.session, _given(args.text)))


def _given(text: str) -> str:
    raw = sys.stdin.buffer.read(FILE_LIMIT) if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        given = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    if not given.strip():
        raise ConfigError("the text is empty; bubbot memory forget removes lines")
    return given


async def _forget(made: CommandSetup, args: argparse.Namespace) -> int:
    if not args.text.strip():
        raise ConfigError("the text to forget is empty; give words of the line that is to go")
    return await perform(made, "memory forget", ForgetMemory(args.session, args.text))


async def _restore(made: CommandSetup, args: argparse.Namespace) -> int:
    return await perform(made, "memory restore", RestoreMemory(args.session, args.version))


async def _export(made: CommandSetup, args: argparse.Namespace) -> int:
    async with _opened(made, args.session) as (_, zone):
        text = memory_markdown(await zone.read())
    with output(args.file, replace_controls) as write:
        write(text.encode())
    if args.file is not None:
        show(f"Exported to {args.file}.")
    return EXIT_OK


async def _import(made: CommandSetup, args: argparse.Namespace) -> int:
    found = read_memory(args.path)
    if found.memory.empty:
        raise ConfigError(f"{args.path} holds no memory")
    notes = tuple(ImportedNote(note.date, note.content) for note in found.memory.dailies)
    given = ImportMemory(args.session, found.memory.long_term, notes, found.left_out, args.replace)
    return await perform(made, "memory import", given)


_ACTIONS = {
    "show": _show,
    "save": _save,
    "forget": _forget,
    "restore": _restore,
    "export": _export,
    "import": _import,
}
