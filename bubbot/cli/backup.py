"""`bubbot backup`: a copy of everything the bot keeps, also while it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from bubbot.cli.output import show, show_json
from bubbot.cli.setup import CommandSetup, setup
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.settings.sources import written_secrets
from bubbot.stores.files import sweep
from bubbot.stores.sqlite.backups import (
    BACKUP_NAME_PREFIX,
    CONFIG,
    DATABASE_FILE,
    BackupManifest,
    ExtraFiles,
    backups_folder,
    free_name,
    thin_out,
    write_backup,
)
from bubbot.wiring.app import now

EXIT_OK = 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Copy the database, config.toml and the persona file into a folder, checked, also beside a running bot. "
        "Files with secrets are not copied; secrets in config.toml itself are, and you are told so. What is erased later "
        "stays in backups made before."
    )
    parser.add_argument(
        "target",
        nargs="?",
        type=Path,
        help="the folder to make, or one that is there and gets it; HOME/backups where left out",
    )
    parser.add_argument(
        "--keep", type=_count, metavar="N", help="afterwards remove all but the newest N in HOME/backups"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Makes a backup and says where it is and what its deployment head is."""
    if args.target is not None and args.keep is not None:
        raise ConfigError("--keep removes backups in HOME/backups only: leave out the folder, or --keep")
    made = setup(args)
    target = _target(made.home, args.target)
    config = getattr(args, "config", None) or made.home.config
    manifest = write_backup(made.home.database, target, _beside(made, config), now())
    removed = thin_out(made.home.path, args.keep) if args.keep is not None else []
    secrets = written_secrets(target / CONFIG) if CONFIG in manifest.files else []
    if args.json:
        show_json(_as_data(target, manifest, removed, secrets))
    else:
        _tell(target, manifest, removed, secrets)
    return EXIT_OK


def _target(home: Home, wanted: Path | None) -> Path:
    """The folder to make. The default one is made where it is missing, and rid of what was left half done."""
    stamp = f"{BACKUP_NAME_PREFIX}{now():%Y%m%dT%H%M%SZ}"
    if wanted is not None:
        if wanted.exists() and not wanted.is_dir():
            raise ConfigError(f"{wanted} is a file; name a folder that is there, or one to make")
        return free_name(wanted, stamp) if wanted.is_dir() else wanted.absolute()
    folder = backups_folder(home.path)
    if home.database.exists():  # else the copying says that there is nothing
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            sweep(folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used ({error.strerror}): name another folder") from error
    return free_name(folder, stamp)


def _beside(made: CommandSetup, config: Path) -> ExtraFiles:
    files = {CONFIG: config} if config.is_file() else {}
    persona = made.settings.bot.persona_file
    if persona is None or not persona.is_file():
        return ExtraFiles(files)
    name = persona.name if persona.name not in (DATABASE_FILE, CONFIG, "manifest.json") else f"persona-{persona.name}"
    return ExtraFiles({**files, name: persona}, {name: _place(persona, made.home.path)})


def _place(file: Path, home: Path) -> str:
    """Where a file is: within the home, or anywhere."""
    whole = file.absolute()
    return str(whole.relative_to(home.absolute())) if whole.is_relative_to(home.absolute()) else str(whole)


def _as_data(target: Path, manifest: BackupManifest, removed: list[Path], secrets: list[str]) -> dict[str, object]:
    return {
        "path": str(target),
        "created": manifest.created,
        "head": manifest.database.head,
        "tapes": len(manifest.database.tapes),
        "size": _size(manifest),
        "files": sorted(manifest.files),
        "secrets": secrets,
        "removed": [str(path) for path in removed],
    }


def _size(manifest: BackupManifest) -> int:
    return sum(one.size for one in manifest.files.values())


def _tell(target: Path, manifest: BackupManifest, removed: list[Path], secrets: list[str]) -> None:
    others = " and ".join(sorted(name for name in manifest.files if name != DATABASE_FILE))
    show(f"{target}: {len(manifest.database.tapes)} tapes, {_size(manifest):,} bytes, checked.")
    show(f"With the database: {others or 'no other file'}.")
    if secrets:
        show(f"{CONFIG} holds secrets ({', '.join(secrets)}), and so does this backup: keep it as safe as them.")
    else:
        show("No secrets are in it; files with secrets stay where they are.")
    show(f"head {manifest.database.head}")
    if removed:
        show(f"Removed: {', '.join(path.name for path in removed)}.")
