"""`bubbot restore`: a new home out of a backup, and its release from quarantine."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from bubbot.cli.access import list_people
from bubbot.cli.output import show
from bubbot.cli.restore_change import ReleaseHome
from bubbot.cli.setup import CommandSetup, setup
from bubbot.cli.write_command import perform
from bubbot.errors import ConfigError
from bubbot.home import Home, WriterLock
from bubbot.log import printable
from bubbot.quarantine import HOME_TAPE, Quarantine
from bubbot.settings.channels import TOKENED, channel_settings
from bubbot.settings.loader import Settings
from bubbot.settings.sources import quoted, shown
from bubbot.stores.sqlite.backups import DATABASE_FILE, BackupManifest
from bubbot.stores.sqlite.check import restore_protection
from bubbot.stores.sqlite.migration import leave_it
from bubbot.stores.sqlite.restore import put_in_place, refuse_used, unpacked, verified
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import timestamp
from bubbot.tape.service import TapeService
from bubbot.wiring.app import new_id, now

EXIT_OK = 0


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


async def _restore(made: CommandSetup, backup: Path) -> int:
    """Checks the backup whole before anything is written; the database gets its name last."""
    refuse_used(made.home.path)
    manifest = await asyncio.to_thread(verified, backup)
    made.home.ensure()
    with WriterLock(made.home):
        refuse_used(made.home.path)
        with unpacked(backup, manifest, made.home.path) as folder:
            restored = restore_protection(folder / DATABASE_FILE, timestamp(now()), os.urandom)
            await _into_quarantine(folder / DATABASE_FILE, backup, manifest)
            notes = put_in_place(folder, manifest, made.home.path)
            if restored:
                notes.append(
                    f"The backup lacked triggers that protect its history, which were restored: {', '.join(restored)}."
                )
    _tell(made.home, manifest, notes)
    await _tell_contents(made)
    show(
        "It is in quarantine: look around, talk with it in the terminal; it sends nothing to anybody else.\n"
        "When the other bot is gone for good, bubbot restore --release ends that."
    )
    return EXIT_OK


async def _into_quarantine(database: Path, backup: Path, manifest: BackupManifest) -> None:
    store = await open_store(database, salt=os.urandom, now=now, aside=leave_it)
    try:
        await Quarantine(TapeService(store, HOME_TAPE, now=now, new_id=new_id)).begin(
            backup.name, created=manifest.created, head=manifest.database.head, bubbot=manifest.bubbot
        )
    finally:
        await store.aclose()


def _tell(home: Home, manifest: BackupManifest, notes: list[str]) -> None:
    show(
        f"{home.path} is what the bot was at {manifest.created[:19]} UTC: {len(manifest.database.tapes)} tapes, verified."
    )
    for note in notes:
        show(note)


async def _tell_contents(made: CommandSetup) -> None:
    """Print what a person checks before the release: who may speak, where it connects to, and which secrets it lacks."""
    try:
        restored = CommandSetup(made.read_without_secrets(), made.home, made.config)
        people = await list_people(restored)
    except ConfigError as error:
        show(f"Its configuration cannot be used yet: {error}")
        return
    sections = {
        "Who may speak with it:": [*people.splitlines(), *_open_places(restored.settings)],
        "Addresses in its configuration:": list(_addresses(restored.settings)),
        "A backup holds no files with secrets. Put these back, or let bubbot init ask for them:": [
            f"{one.file}  ({shown(one.setting)})" for one in restored.settings.missing_secrets
        ],
        "Tokens that came from the environment or systemd, and have to come from there again:": [
            f"[channels.{name}] token" for name in _without_token(restored.settings)
        ],
    }
    for title, lines in sections.items():
        if lines:
            show("\n".join([title, *(f"  {printable(line)}" for line in lines)]))


def _open_places(settings: Settings) -> Iterator[str]:
    """The chats and servers whose people may all speak, or some of them."""
    for name, table in settings.channels.items():
        common, _ = channel_settings(name, table)
        if common.groups:
            yield f"[channels.{name}] groups: {', '.join(common.groups)}"
        for guild, rules in common.guilds.items():
            listed = {key: getattr(rules, key) for key in ("admins", "members", "roles", "admin_roles")}
            words = ["everybody"] if rules.open else []
            words += [f"{key} {', '.join(ids)}" for key, ids in listed.items() if ids]
            if words:
                yield f"[channels.{name}.guilds.{guild}]: {'; '.join(words)}"


def _addresses(settings: Settings) -> Iterator[str]:
    if settings.model.api_base:
        yield f"[model] api_base: {quoted(settings.model.api_base)}"
    for name, table in settings.channels.items():
        for key, value in table.items():
            if isinstance(value, str) and "://" in value:
                yield f"{shown(('channels', name, key))}: {quoted(value)}"


def _without_token(settings: Settings) -> Iterator[str]:
    for name, table in settings.channels.items():
        kind = table.get("kind", name)
        if kind in TOKENED and not table.get("token") and not settings.missing_secret("channels", name, "token"):
            yield name
