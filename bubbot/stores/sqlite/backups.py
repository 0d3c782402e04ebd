"""Backups: folders with a copy of the database, the files beside it, and a manifest that says what has to be there."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bubbot import __version__
from bubbot.errors import ConfigError, StoreFull, TapeCorrupt
from bubbot.stores.files import copy_file, digest_of_file, growing, remove, sweep, write_file
from bubbot.stores.sqlite.backup import DatabaseContent, TapeHead, copy_database, no_room
from bubbot.tape.entry import timestamp
from bubbot.tape.query import moment

FORMAT = 1
"""The format of a backup; a newer one is refused."""
DATABASE_FILE = "bubbot.db"
CONFIG = "config.toml"
MANIFEST = "manifest.json"
BACKUP_NAME_PREFIX = "bubbot-"
"""What the names of backups in the default folder begin with; those before a migration begin otherwise and stay."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup. `source`: where it was, for files that are not at the same place in every home."""

    size: int
    sha256: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup says of itself: by which bubbot it was made, when (ISO 8601, UTC), and what is in it."""

    bubbot: str
    created: str
    database: DatabaseContent
    files: Mapping[str, BackupFile]


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """A complete backup, as its manifest tells; nothing of it was checked. `size` in bytes, of all its files."""

    path: Path
    created: datetime
    bubbot: str
    schema: int
    head: str
    size: int


@dataclass(frozen=True, slots=True)
class ExtraFiles:
    """Files to be copied with the database, by the name they get; `sources` where their place has to be known."""

    files: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def backups_folder(home: Path) -> Path:
    """Where the backups of a home are, if no other place was named."""
    return home / "backups"


def free_name(folder: Path, name: str) -> Path:
    """A path in the folder that is not there yet."""
    number, path = 1, folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path


def write_backup(database: Path, target: Path, beside: ExtraFiles, now: datetime) -> BackupManifest:
    """Makes the folder `target`, complete or not at all, and returns what is in it.

    Raises `ConfigError` where it cannot be made there, `StoreFull` where there is no room, and what `copy_database`
    raises.
    """
    with _told(target), growing(target) as partial:
        found = copy_database(database, partial / DATABASE_FILE)
        for name, source in beside.files.items():
            copy_file(source, partial / name)
        names = (DATABASE_FILE, *beside.files)
        files = {
            name: BackupFile(
                (partial / name).stat().st_size, digest_of_file(partial / name), beside.sources.get(name, "")
            )
            for name in names
        }
        made = BackupManifest(__version__, timestamp(now), found, files)
        write_file(partial / MANIFEST, manifest_text(made).encode())
    return made


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """Says in a sentence why a folder could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise StoreFull(no_room(target.parent)) from error
        where = error.filename or target
        raise ConfigError(f"the backup {target} cannot be made: {where}: {error.strerror}") from error


def manifest_text(made: BackupManifest) -> str:
    """A manifest as it is written."""
    tapes = [asdict(one) for one in made.database.tapes]
    data = {
        "format": FORMAT,
        "bubbot": made.bubbot,
        "schema": made.database.version,
        "created": made.created,
        "workspace": made.database.workspace,
        "deployment_head": made.database.head,
        "tapes": tapes,
        "files": {
            name: {key: value for key, value in asdict(one).items() if value != ""} for name, one in made.files.items()
        },
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def read_manifest(backup: Path) -> BackupManifest:
    """The manifest of a backup. Raises `ConfigError` for what is none, `TapeCorrupt` for one that cannot be read."""
    path = backup / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{backup} is no backup of bubbot: {path.name} cannot be read ({error.strerror}); "
            "name the folder that bubbot backup made"
        ) from error
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise ConfigError(f"{backup} is no backup of bubbot: its {MANIFEST} is of another program")
        if data["format"] > FORMAT:
            raise ConfigError(
                f"{backup} has the format {data['format']}, this bubbot knows formats up to {FORMAT}: "
                f"install bubbot {data.get('bubbot', '')} or newer"
            )
        return _manifest(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TapeCorrupt(f"the {MANIFEST} of {backup} was altered: it cannot be read ({error!r})") from error


def _manifest(data: dict[str, Any]) -> BackupManifest:
    tapes = tuple(TapeHead(str(one["name"]), int(one["id"]), str(one["hash"])) for one in data["tapes"])
    files = {
        str(name): BackupFile(int(one["size"]), str(one["sha256"]), str(one.get("source", "")))
        for name, one in data["files"].items()
    }
    if DATABASE_FILE not in files or any(Path(name).name != name or name == MANIFEST for name in files):
        raise ValueError("its list of files")
    if moment(data["created"]) is None:
        raise ValueError("its time")
    content = DatabaseContent(int(data["schema"]), str(data["workspace"]), tapes, str(data["deployment_head"]))
    return BackupManifest(str(data["bubbot"]), str(data["created"]), content, files)


def backups(home: Path) -> list[BackupInfo]:
    """The complete backups in the default folder of a home, oldest first; those before a migration too."""
    folder = backups_folder(home)
    found = [_info(path) for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    return sorted((one for one in found if one is not None), key=lambda one: (one.created, one.path.name))


def _info(path: Path) -> BackupInfo | None:
    try:
        made = read_manifest(path)
    except (ConfigError, TapeCorrupt):
        return None
    created = moment(made.created)
    if created is None:
        return None
    size = sum(one.size for one in made.files.values())
    return BackupInfo(path, created, made.bubbot, made.database.version, made.database.head, size)


def thin_out(home: Path, keep: int) -> list[Path]:
    """Removes all but the newest so many backups of the default folder, and what killed processes left there half
    done. Returns the folders that are gone; nothing else in the folder is touched."""
    own = [
        one.path for one in backups(home) if one.path.name.startswith(BACKUP_NAME_PREFIX) and not one.path.is_symlink()
    ]
    doomed = own[:-keep] if keep else []
    try:
        for path in doomed:
            remove(path)
        sweep(backups_folder(home))
    except OSError as error:
        raise ConfigError(f"an old backup cannot be removed: {error.filename}: {error.strerror}") from error
    return doomed
