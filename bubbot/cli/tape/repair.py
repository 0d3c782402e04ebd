"""`bubbot tape repair`: restores the triggers that keep the database from losing history, and rebuilds its indexes."""

from __future__ import annotations

import argparse
import asyncio
import os

from bubbot.app.stores import database_file, refuse_unusable_database
from bubbot.app.tapes import now
from bubbot.cli.arguments import add_json_option
from bubbot.cli.output import show_either
from bubbot.cli.setup import CommandSetup
from bubbot.cli.tape.results import RepairResult
from bubbot.home import WriterLock
from bubbot.stores.sqlite.check import repair_database
from bubbot.tape.entry import timestamp

EXIT_OK = 0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "repair",
        help="restore the triggers that protect the history, and rebuild damaged indexes",
        description="Restore the triggers of the database if some are missing or changed: without them the database does not "
        "protect its history, and bubbot writes nothing to it. Build indexes anew that do not hold what their tables hold: they "
        "hide facts. No entry changes. Stop the bot first.",
        epilog="example: bubbot tape repair && bubbot tape verify",
    )
    add_json_option(parser)


async def repair(setup: CommandSetup, args: argparse.Namespace) -> int:
    """Restore triggers, rebuild indexes and print their names."""
    database = database_file(setup.settings.store, setup.home, "bubbot tape repair")
    refuse_unusable_database(setup.home)
    setup.home.ensure()
    with WriterLock(setup.home):
        repair = await asyncio.to_thread(repair_database, database, timestamp(now()), os.urandom)
    lines: list[str] = []
    if repair.triggers:
        lines.append(
            f"Restored: {', '.join(repair.triggers)}. bubbot tape verify checks whether anything was changed meanwhile."
        )
    if repair.indexes:
        lines.append(f"Built anew from their tables: {', '.join(repair.indexes)}.")
    text = "\n".join(lines) or "All triggers and indexes are as they should be; nothing was changed."
    show_either(args, text, RepairResult(repair.triggers, repair.indexes))
    return EXIT_OK
