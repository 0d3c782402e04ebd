"""`bubbot restore`: makes a home from a backup, and releases it from quarantine."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bubbot import __version__
from bubbot.app.commands import find_command
from bubbot.app.models import keyless_models
from bubbot.app.stores import database_file, find_loss, open_home_store, server_url
from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args, NoArguments
from bubbot.cli.commands import read, run_command
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.progress import show_progress
from bubbot.cli.restore_change import RELEASE_HOME, ReleaseHome, ReleaseResult
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError
from bubbot.formatting import format_table
from bubbot.gateway.quarantine import Quarantine
from bubbot.home import Home, WriterLock
from bubbot.log import printable
from bubbot.ops.onboarding.secret_uses import describe_secret
from bubbot.ports.settings import format_setting, quote_value
from bubbot.settings.channels import KINDS_REQUIRING_TOKEN, split_channel_settings
from bubbot.settings.environment import read_variables
from bubbot.settings.loader import Settings
from bubbot.settings.sections import POSTGRES_STORE
from bubbot.shell_command import Argument, CommandGroup, IsoTime
from bubbot.stores.sqlite.backups import DATABASE_FILE, BackupManifest, read_manifest, skip_backup
from bubbot.stores.sqlite.check import repair_database
from bubbot.stores.sqlite.restore import (
    put_in_place,
    refuse_existing_database,
    set_aside_remains,
    unpack,
    verify_backup,
    verify_files,
)
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

EXIT_OK = 0


class RestoreResult(Struct, frozen=True):
    """A home that was made from a backup.

    Attributes:
        home: the path of the home.
        created: when the backup was made.
        head: its deployment head.
        tapes: how many tapes there are.
        notes: what was done otherwise than expected, in sentences.
        missing_secrets: settings whose files with secrets have to be put back.
        missing_tokens: channels whose token has to come from the environment or systemd again.
    """

    home: str
    created: IsoTime
    head: str
    tapes: int
    notes: tuple[str, ...]
    missing_secrets: tuple[str, ...]
    missing_tokens: tuple[str, ...]


class EmptyHomeResult(Struct, frozen=True):
    """A home that begins with an empty database in place of a missing one.

    Attributes:
        home: the path of the home.
        set_aside: the folder with what the missing database left; empty if it left nothing.
    """

    home: str
    set_aside: str


class AcceptedLossResult(Struct, frozen=True):
    """A home that goes on with a database that lacks what the home had.

    Attributes:
        home: the path of the home.
        lost: what was wrong with the database.
        newest: the position of its newest entry, before the fact about the loss.
    """

    home: str
    lost: str
    newest: int


OPTION_RESULTS: Mapping[str, type] = {
    "restore release": ReleaseResult,
    "restore empty": EmptyHomeResult,
    "restore accept-loss": AcceptedLossResult,
}
"""The results for `--json` with these options."""


class RestoreHomeArgs(Args, frozen=True):
    """The arguments of `bubbot restore`."""

    backup: Annotated[Path | None, Argument("the folder that bubbot backup made")] = None
    empty: Annotated[bool, Argument("begin with an empty database, if the one of this home is missing")] = False
    accept_loss: Annotated[
        bool,
        Argument(
            "go on with the database of this home, if it lacks its newest entries; the home is in quarantine then"
        ),
    ] = False
    release: Annotated[bool, Argument("end the quarantine; what was left open before the restore is not sent")] = False
    deliver: Annotated[bool, Argument("with --release: also send and answer what the backup holds as open")] = False


@local_command(
    "restore",
    form="[backup]",
    example="bubbot --home restored restore backups/bubbot-20261121T202100Z",
    result=RestoreResult,
)
def restore(invocation: Invocation, args: RestoreHomeArgs) -> int:
    """Create a home from a backup, in quarantine until it is released.

    Create a home from a backup, if there is none yet. The home is in quarantine: you can read it and chat in the terminal,
    but it sends nothing to anybody else until --release.
    """
    if args.deliver and not args.release:
        raise usage_error("bubbot restore", "--deliver belongs to --release")
    if (args.backup is not None) + args.release + args.empty + args.accept_loss != 1:
        raise usage_error("bubbot restore", "give one of: the folder of a backup, --release, --empty, or --accept-loss")
    setup = load_setup(invocation)
    if args.empty:
        return _begin_empty(setup)
    if args.accept_loss:
        return asyncio.run(_accept_loss(setup))
    if args.backup is None:
        return asyncio.run(run_command(setup, RELEASE_HOME, ReleaseHome(deliver=args.deliver)))
    return asyncio.run(_restore(setup, args.backup.absolute()))


def _begin_empty(setup: CommandSetup) -> int:
    """Let the next start create a database in a home whose database is missing."""
    home = setup.home
    database_file(setup.settings.store, home, "bubbot restore")
    if find_loss(home) is None:
        raise ConfigError(f"{home.path} lacks no database: --empty is for a home whose database is missing")
    with WriterLock(home):
        folder = set_aside_remains(home.path, now())
        try:
            home.database_mark.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{home.database_mark} cannot be removed ({error.strerror}): remove it by hand"
            ) from error
    if setup.as_json:
        show_record(EmptyHomeResult(str(home.path), str(folder or "")))
        return EXIT_OK
    show(f"{home.path} begins with an empty database at the next start.")
    if folder is not None:
        show(_describe_remains(folder))
    return EXIT_OK


def _describe_remains(folder: Path) -> str:
    return f"What the missing database left is in {folder}; if you find that database, put it beside it."


async def _accept_loss(setup: CommandSetup) -> int:
    """Continue with a database that lacks its newest entries, in quarantine: work that they closed may look open."""
    home = setup.home
    database_file(setup.settings.store, home, "bubbot restore")
    loss = find_loss(home)
    if loss is None:
        raise ConfigError(f"{home.path} lacks no entries: --accept-loss is for a database that lost its newest ones")
    if not loss.newest:
        raise ConfigError(f"{home.database} {loss.state}: there is nothing to go on with; --empty begins another one")
    with WriterLock(home):
        newest: list[str] = []
        store = await open_store(home.database, salt=os.urandom, now=now, on_newest=newest.append)
        try:
            head = await store.deployment_head()
            date = timestamp(now())
            await Quarantine(TapeService(store, HOME_TAPE, now=now, new_id=new_id)).record_restore(
                DATABASE_FILE, created=date, head=head, bubbot=__version__, lost=loss.state
            )
        finally:
            await store.aclose()
        _mark(home, newest[-1])  # last: the home is refused until it is in quarantine
    if setup.as_json:
        show_record(AcceptedLossResult(str(home.path), loss.state, loss.newest))
        return EXIT_OK
    show(
        f"{home.path} goes on with what its database holds, up to entry {loss.newest}.\n"
        "It is in quarantine: look around, talk with it in the terminal; it sends nothing to anybody else.\n"
        f"`{_command(setup, 'restore --release')}` ends that; what looks open in the database, and may have been done, is not done again."
    )
    return EXIT_OK


async def _restore(setup: CommandSetup, backup: Path) -> int:
    """Verify the whole backup before writing anything; the database gets its name last."""
    if setup.settings.store.kind == POSTGRES_STORE:
        return await _restore_on_server(setup, backup)
    database_file(setup.settings.store, setup.home, "bubbot restore")
    _refuse_existing_database(setup.home)
    with show_progress("Checking the backup", "entries", plain=setup.is_plain) as on_progress:
        manifest = await asyncio.to_thread(verify_backup, backup, on_progress)
    setup.home.ensure()
    with WriterLock(setup.home), show_progress("Copying the backup", plain=setup.is_plain):
        _refuse_existing_database(setup.home)
        with unpack(backup, manifest, setup.home.path) as folder:
            repair = repair_database(folder / DATABASE_FILE, timestamp(now()), os.urandom)
            newest = await _into_quarantine(folder / DATABASE_FILE, backup, manifest)
            if setup.home.has_lost_database:  # this stays true if the command ends half-way; its log is set aside
                setup.home.mark_database()
            remains = set_aside_remains(setup.home.path, now())
            notes = put_in_place(folder, manifest, setup.home.path, before_database=partial(_mark, setup.home, newest))
            if remains is not None:
                notes.append(_describe_remains(remains))
            if repair.triggers:
                names = ", ".join(repair.triggers)
                notes.append(f"The backup lacked triggers that protect its history, which were restored: {names}.")
            if repair.indexes:
                notes.append(f"Indexes of the backup were damaged, and were built anew: {', '.join(repair.indexes)}.")
    return await _report(setup, manifest, notes)


async def _report(setup: CommandSetup, manifest: BackupManifest, notes: list[str]) -> int:
    if setup.as_json:
        show_record(_result(setup, manifest, notes))
        return EXIT_OK
    _show_summary(setup.home, manifest, notes)
    await _show_contents(setup)
    show(
        "It is in quarantine: look around, talk with it in the terminal; it sends nothing to anybody else.\n"
        f"If the original bot will never run again, `{_command(setup, 'restore --release')}` ends that."
    )
    return EXIT_OK


async def _restore_on_server(setup: CommandSetup, backup: Path) -> int:
    """Compare a database that others restored with the manifest, put it into quarantine, and add the other files."""
    url = server_url(setup.settings.store)
    # Imported here: few homes have a server.
    from bubbot.stores.postgres.backup import verify_restored

    manifest = read_manifest(backup)
    if not manifest.server:
        raise ConfigError(
            f"{backup} holds a database of SQLite, and [store] url names a server: restore without it, and then "
            "`bubbot tape copy` moves the tapes"
        )
    verify_files(backup, manifest)
    with show_progress("Checking the database", "entries", plain=setup.is_plain) as on_progress:
        newer = await asyncio.to_thread(verify_restored, url, manifest.database, on_progress)
    setup.home.ensure()
    with WriterLock(setup.home), unpack(backup, manifest, setup.home.path) as folder:
        notes = put_in_place(folder, manifest, setup.home.path)
        store = await open_home_store(setup.settings.store, setup.home, now=now)
        try:
            await _record_restore(store, backup, manifest)
        finally:
            await store.aclose()
    if newer:
        notes.append(f"The database has {newer} entries that were written after the backup.")
    return await _report(setup, manifest, notes)


def _result(setup: CommandSetup, manifest: BackupManifest, notes: list[str]) -> RestoreResult:
    secrets: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    try:
        settings = setup.read_settings_without_secrets()
        secrets = tuple(format_setting(secret.setting) for secret in settings.missing_secrets)
        tokens = tuple(_without_token(settings))
    except ConfigError as error:
        notes = [*notes, f"Its configuration cannot be used yet: {error}"]
    content = manifest.database
    return RestoreResult(
        str(setup.home.path), manifest.created, content.head, len(content.tapes), tuple(notes), secrets, tokens
    )


def _refuse_existing_database(home: Home) -> None:
    """Refuse to replace a complete database; a damaged or lost one may be set aside."""
    if find_loss(home) is None:
        refuse_existing_database(home.path)


async def _into_quarantine(database: Path, backup: Path, manifest: BackupManifest) -> str:
    """Record the restore in the restored database; return its newest entry in the form of the home's mark."""
    newest: list[str] = []
    store = await open_store(database, salt=os.urandom, now=now, on_migration=skip_backup, on_newest=newest.append)
    try:
        await _record_restore(store, backup, manifest)
    finally:
        await store.aclose()
    return newest[-1]


async def _record_restore(store: TapeStore, backup: Path, manifest: BackupManifest) -> None:
    await Quarantine(TapeService(store, HOME_TAPE, now=now, new_id=new_id)).record_restore(
        backup.name, created=manifest.created, head=manifest.database.head, bubbot=manifest.bubbot
    )


def _mark(home: Home, newest: str) -> None:
    """Mark this newest entry of a home. Raise `ConfigError` if another mark stays: the home would be refused."""
    home.mark_database(newest)
    marked = home.read_marked_entry()
    if marked is not None and f"{marked[0]}:{marked[1]}" != newest:
        raise ConfigError(f"{home.database_mark} cannot be written: make room, or give it to this user (chown)")


def _show_summary(home: Home, manifest: BackupManifest, notes: list[str]) -> None:
    show(
        f"{home.path} is what the bot was at {manifest.created[:19]} UTC: {len(manifest.database.tapes)} tapes, verified."
    )
    for note in notes:
        show(note)


async def _show_contents(setup: CommandSetup) -> None:
    """Print what a person must check before the release: who may speak, the addresses, and the missing secrets."""
    try:
        restored = CommandSetup(setup.read_settings_without_secrets(), setup.home, setup.config)
        listed = find_command("access list")
        people = (await read(restored, listed, NoArguments())).rows if listed else ()
    except ConfigError as error:
        show(f"Its configuration cannot be used yet: {error}")
        return
    sections = {
        "Who may speak with it:": [
            *(format_table(people) if people else ()),
            *_describe_open_chats(restored.settings),
        ],
        "Addresses in its configuration:": list(_addresses(restored.settings)),
        f"A backup holds no files with secrets. `{_command(restored, 'init')}` asks for these, or put the files back:": [
            f"{describe_secret(restored.settings, secret.setting, Texts())}: {secret.file}"
            for secret in restored.settings.missing_secrets
        ],
        "These came from the environment or systemd, and have to come from there again:": [
            *(
                describe_secret(restored.settings, ("channels", name, "token"), Texts())
                for name in _without_token(restored.settings)
            ),
            *(
                f"{' or '.join(variables)}, the key of the model {name}"
                for name, variables in keyless_models(restored.settings, read_variables()).items()
                if not restored.settings.missing_secret("model", "api_key")
            ),
        ],
    }
    for title, lines in sections.items():
        if lines:
            show("\n".join([title, *(f"  {printable(line)}" for line in lines)]))


def _command(setup: CommandSetup, words: str) -> str:
    """Return a command for this home and configuration."""
    options = {"--home": setup.home.path, "--config": setup.config}
    return " ".join(["bubbot", *(f"{name} {shlex.quote(str(path))}" for name, path in options.items() if path), words])


def _describe_open_chats(settings: Settings) -> Iterator[str]:
    """Yield a line for each chat or server in which all people or holders of a role may speak."""
    for name, table in settings.channels.items():
        common, _ = split_channel_settings(name, table)
        if common.groups:
            yield f"[channels.{name}] groups: {', '.join(common.groups)}"
        for guild, rules in common.guilds.items():
            ids_by_key = {key: getattr(rules, key) for key in ("admins", "members", "roles", "admin_roles")}
            grants = ["everybody"] if rules.open else []
            grants += [f"{key} {', '.join(ids)}" for key, ids in ids_by_key.items() if ids]
            if grants:
                yield f"[channels.{name}.guilds.{guild}]: {'; '.join(grants)}"


def _addresses(settings: Settings) -> Iterator[str]:
    if settings.model.api_base:
        yield f"[model] api_base: {quote_value(settings.model.api_base)}"
    for name, table in settings.channels.items():
        for key, value in table.items():
            if isinstance(value, str) and "://" in value:
                yield f"{format_setting(('channels', name, key))}: {quote_value(value)}"


def _without_token(settings: Settings) -> Iterator[str]:
    for name, table in settings.channels.items():
        kind = table.get("kind", name)
        if (
            kind in KINDS_REQUIRING_TOKEN
            and not table.get("token")
            and not settings.missing_secret("channels", name, "token")
        ):
            yield name


RESTORE_COMMANDS = CommandGroup("restore", (restore,))
