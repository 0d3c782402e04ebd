"""`bubbot restore`: a new home out of a backup, and its release from quarantine."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from bubbot.cli.restore_change import ReleaseHome
from bubbot.cli.setup import Setup, setup
from bubbot.cli.writing import perform
from bubbot.errors import ConfigError
from bubbot.home import Home, WriterLock
from bubbot.quarantine import HOME_TAPE, Quarantine
from bubbot.stores.backups import DATABASE, Manifest
from bubbot.stores.restoring import put_in_place, refuse_used, unpacked, verified
from bubbot.stores.sqlite import open_store
from bubbot.stores.sqlite_check import restore_protection
from bubbot.stores.sqlite_migration import leave_it
from bubbot.tape.entry import timestamp
from bubbot.tape.service import TapeService
from bubbot.wiring import new_id, now

FINE = 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Make a home out of a backup, where none is yet. The home is in quarantine: it can be looked at and talked with in "
        "the terminal, and sends nothing to anybody else until --release."
    )
    parser.epilog = "example: bubbot --home restored restore backups/bubbot-20261121T202100Z"
    parser.add_argument("backup", nargs="?", type=Path, help="the folder that bubbot backup made")
    parser.add_argument(
        "--release", action="store_true", help="end the quarantine; what was left open before the restore is not sent"
    )
    parser.add_argument(
        "--deliver", action="store_true", help="with --release: also send and answer what the backup holds as open"
    )


def run(args: argparse.Namespace) -> int:
    """Restores or releases."""
    if args.deliver and not args.release:
        raise ConfigError("--deliver belongs to --release")
    if (args.backup is None) != args.release:
        raise ConfigError("give either the folder of a backup, or --release")
    made = setup(args)
    if args.release:
        return asyncio.run(perform(made, "restore release", ReleaseHome(args.deliver)))
    return asyncio.run(_restore(made, args.backup.absolute()))


async def _restore(made: Setup, backup: Path) -> int:
    """Checks the backup whole before anything is written; the database gets its name last."""
    refuse_used(made.home.path)
    manifest = await asyncio.to_thread(verified, backup)
    made.home.ensure()
    with WriterLock(made.home):
        refuse_used(made.home.path)
        with unpacked(backup, manifest, made.home.path) as folder:
            restored = restore_protection(folder / DATABASE, timestamp(now()), os.urandom)
            await _into_quarantine(folder / DATABASE, backup, manifest)
            notes = put_in_place(folder, manifest, made.home.path)
            if restored:
                notes.append(
                    f"The backup lacked triggers that protect its history, which were restored: {', '.join(restored)}."
                )
    _tell(made.home, manifest, notes)
    return FINE


async def _into_quarantine(database: Path, backup: Path, manifest: Manifest) -> None:
    store = await open_store(database, salt=os.urandom, now=now, aside=leave_it)
    try:
        await Quarantine(TapeService(store, HOME_TAPE, now=now, new_id=new_id)).begin(
            backup.name, created=manifest.created, head=manifest.database.head, bubbot=manifest.bubbot
        )
    finally:
        await store.aclose()


def _tell(home: Home, manifest: Manifest, notes: list[str]) -> None:
    print(
        f"{home.path} is what the bot was at {manifest.created[:19]} UTC: {len(manifest.database.tapes)} tapes, verified."
    )
    for note in notes:
        print(note)
    print(
        "It is in quarantine: look around, talk with it in the terminal; it sends nothing to anybody else.\n"
        "When the other bot is gone for good, bubbot restore --release ends that."
    )
