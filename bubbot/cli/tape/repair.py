"""`bubbot tape repair`: restores the triggers that keep the database from losing history."""

from __future__ import annotations

import argparse
import asyncio
import os

from bubbot.app.stores import database_file
from bubbot.app.tapes import now
from bubbot.cli.output import show
from bubbot.cli.setup import CommandSetup
from bubbot.home import WriterLock
from bubbot.stores.sqlite.check import restore_protection
from bubbot.tape.entry import timestamp

EXIT_OK = 0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    commands.add_parser(
        "repair",
        help="restore the triggers that protect the history",
        description="Restore the triggers of the database if some are missing or changed: without them the database does not "
        "protect its history, and bubbot writes nothing to it. No entry changes. Stop the bot first.",
        epilog="example: bubbot tape repair && bubbot tape verify",
    )


async def repair(setup: CommandSetup, _args: argparse.Namespace) -> int:
    """Restore the triggers and print their names."""
    database = database_file(setup.settings.store, setup.home, "bubbot tape repair")
    setup.home.ensure()
    with WriterLock(setup.home):
        triggers = await asyncio.to_thread(restore_protection, database, timestamp(now()), os.urandom)
    if triggers:
        show(f"Restored: {', '.join(triggers)}. bubbot tape verify checks whether anything was changed meanwhile.")
    else:
        show("All triggers are as they should be; nothing was changed.")
    return EXIT_OK
