"""`bubbot backup`: a copy of everything the bot keeps, also while it runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bubbot.app.stores import database_file, refuse_unusable_database, server_url
from bubbot.app.tapes import now
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation, parse_count, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.settings.sections import POSTGRES_STORE
from bubbot.settings.sources import find_written_secrets
from bubbot.shell_command import Argument, CommandGroup, IsoTime
from bubbot.stores.files import remove_partials
from bubbot.stores.sqlite.backups import (
    BACKUP_NAME_PREFIX,
    CONFIG_FILE,
    DATABASE_FILE,
    MANIFEST_FILE,
    BackupManifest,
    ExtraFiles,
    backups_folder,
    prune_backups,
    unused_path,
    write_backup,
    write_server_backup,
)

EXIT_OK = 0


class BackupResult(Struct, frozen=True):
    """A backup that was made.

    Attributes:
        path: its folder.
        created: when it was made.
        head: the deployment head.
        tapes: how many there are.
        size: bytes of all files.
        files: the names of the files.
        secrets: settings whose secrets are in its `config.toml`.
        removed: paths of older backups that were removed.
    """

    path: str
    created: IsoTime
    head: str
    tapes: int
    size: int
    files: tuple[str, ...]
    secrets: tuple[str, ...]
    removed: tuple[str, ...]


class BackupArgs(Args, frozen=True):
    """The arguments of `bubbot backup`."""

    target: Annotated[Path | None, Argument("a new or existing folder (default: HOME/backups)")] = None
    keep: Annotated[
        int | None, Argument("afterwards remove all but the newest N in HOME/backups", "N", parse_count)
    ] = None


@local_command("backup", form="[target]", result=BackupResult)
def back_up(invocation: Invocation, args: BackupArgs) -> int:
    """Back up everything the bot stores, even while it runs.

    Copy the database, config.toml and the persona file into a folder, even while the bot runs, and check the copy. Files
    with secrets are not copied; secrets in config.toml itself are, with a warning. Content that is erased later remains in
    earlier backups. If the tapes are on a server, pg_dump copies them: the backup lists what that copy has to hold.
    """
    if args.target is not None and args.keep is not None:
        raise usage_error(
            "bubbot backup", "--keep removes backups in HOME/backups only: leave out the folder, or --keep"
        )
    setup = load_setup(invocation)
    config = setup.config or setup.home.config
    if setup.settings.store.kind == POSTGRES_STORE:
        target = _target(setup.home, args.target, is_there=setup.home.path.is_dir())
        manifest = _back_up_server(setup, target, _extra_files(setup, config))
    else:
        database = database_file(setup.settings.store, setup.home, "bubbot backup")
        refuse_unusable_database(setup.home)
        target = _target(setup.home, args.target, is_there=setup.home.has_database)
        with show_progress("Copying the database", "pages", plain=setup.is_plain) as on_progress:
            manifest = write_backup(database, target, _extra_files(setup, config), now(), on_progress)
    removed = prune_backups(setup.home.path, args.keep) if args.keep is not None else []
    secrets = find_written_secrets(target / CONFIG_FILE) if CONFIG_FILE in manifest.files else []
    if setup.as_json:
        show_record(_result(target, manifest, removed, secrets))
    else:
        _show_report(target, manifest, removed, secrets)
    return EXIT_OK


def _back_up_server(setup: CommandSetup, target: Path, extra_files: ExtraFiles) -> BackupManifest:
    """Make the backup of a bot whose tapes are on a server: all but the database, and what its dump has to hold."""
    url = server_url(setup.settings.store)
    # Imported here: few homes have a server.
    from bubbot.stores.postgres.backup import read_content
    from bubbot.stores.postgres.connections import ServerAddress

    return write_server_backup(read_content(url), str(ServerAddress(url)), target, extra_files, now())


def _target(home: Home, requested: Path | None, *, is_there: bool) -> Path:
    """Return the folder to create. Create a missing default parent; remove incomplete backups from it."""
    stamp = f"{BACKUP_NAME_PREFIX}{now():%Y%m%dT%H%M%SZ}"
    if requested is not None:
        if requested.exists() and not requested.is_dir():
            raise ConfigError(f"{requested} is a file; name a folder that is there, or one to make")
        if (requested / MANIFEST_FILE).exists():
            raise ConfigError(f"{requested} is a backup itself: name the folder that contains it, or one to make")
        return unused_path(requested, stamp) if requested.is_dir() else requested.absolute()
    folder = backups_folder(home.path)
    if is_there:  # if not, `write_backup` reports that there is nothing to copy
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            remove_partials(folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used ({error.strerror}): name another folder") from error
    return unused_path(folder, stamp)


def _extra_files(setup: CommandSetup, config: Path) -> ExtraFiles:
    files = {CONFIG_FILE: config} if config.is_file() else {}
    persona = setup.settings.bot.persona_file
    if persona is None or not persona.is_file():
        return ExtraFiles(files)
    name = (
        persona.name if persona.name not in (DATABASE_FILE, CONFIG_FILE, "manifest.json") else f"persona-{persona.name}"
    )
    return ExtraFiles({**files, name: persona}, {name: _manifest_path(persona, setup.home.path)})


def _manifest_path(file: Path, home: Path) -> str:
    """Return the path of a file, relative to the home if it lies inside."""
    absolute = file.absolute()
    return str(absolute.relative_to(home.absolute())) if absolute.is_relative_to(home.absolute()) else str(absolute)


def _result(target: Path, manifest: BackupManifest, removed: list[Path], secrets: list[str]) -> BackupResult:
    return BackupResult(
        path=str(target),
        created=manifest.created,
        head=manifest.database.head,
        tapes=len(manifest.database.tapes),
        size=_size(manifest),
        files=tuple(sorted(manifest.files)),
        secrets=tuple(secrets),
        removed=tuple(map(str, removed)),
    )


def _size(manifest: BackupManifest) -> int:
    return sum(file.size for file in manifest.files.values())


def _show_report(target: Path, manifest: BackupManifest, removed: list[Path], secrets: list[str]) -> None:
    others = " and ".join(sorted(name for name in manifest.files if name != DATABASE_FILE))
    if manifest.server:
        show(
            f"{target}: what {len(manifest.database.tapes)} tapes on {manifest.server} have to hold; the database is not in it."
        )
        show(f"With the manifest: {others or 'no other file'}.")
        show(f"Now copy the database: {_dump_command(manifest.server, target)}", wraps=False)
    else:
        show(f"{target}: {len(manifest.database.tapes)} tapes, {_size(manifest):,} bytes, checked.")
        show(f"With the database: {others or 'no other file'}.")
    if secrets:
        show(f"{CONFIG_FILE} holds secrets ({', '.join(secrets)}), and so does this backup: keep it as safe as them.")
    else:
        show("No secrets are in it; files with secrets stay where they are.")
    show(f"head {manifest.database.head}")
    if removed:
        show(f"Removed: {', '.join(path.name for path in removed)}.")


def _dump_command(server: str, target: Path) -> str:
    """Return the command that dumps the database of a server; pg_dump finds a password itself (`PGPASSFILE`)."""
    host, _, database = server.rpartition("/")
    place, colon, port = host.rpartition(":")
    options = ["--host", place, "--port", port] if colon and port.isdecimal() else ["--host", host]
    return shlex.join(["pg_dump", "--format", "custom", "--file", str(target / "bubbot.dump"), *options, database])


BACKUP_COMMANDS = CommandGroup("backup", (back_up,))
