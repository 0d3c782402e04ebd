"""`bubbot tape repair`: restores the triggers that keep the database from losing history."""

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
from bubbot.stores.sqlite.check import restore_protection
from bubbot.tape.entry import timestamp

EXIT_OK = 0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "repair",
        help="restore the triggers that protect the history",
        description="Restore the triggers of the database if some are missing or changed: without them the database does not "
        "protect its history, and bubbot writes nothing to it. No entry changes. Stop the bot first.",
        epilog="example: bubbot tape repair && bubbot tape verify",
    )
    add_json_option(parser)


async def repair(setup: CommandSetup, args: argparse.Namespace) -> int:
    """Restore the triggers and print their names."""
    database = database_file(setup.settings.store, setup.home, "bubbot tape repair")
    refuse_unusable_database(setup.home)
    setup.home.ensure()
    with WriterLock(setup.home):
        triggers = await asyncio.to_thread(restore_protection, database, timestamp(now()), os.urandom)
    if triggers:
        text = f"Restored: {', '.join(triggers)}. bubbot tape verify checks whether anything was changed meanwhile."
    else:
        text = "All triggers are as they should be; nothing was changed."
    show_either(args, text, RepairResult(tuple(triggers)))
    return EXIT_OK
