"""Backups: folders with a copy of the database, other files of the home, and a manifest that lists them."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field, structs

from bubbot import __version__
from bubbot.errors import BubbotError, ConfigError, StoreFull, StoreUnavailable, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseContent, TapeHead
from bubbot.stores.files import copy_file, digest_of_file, new_folder, remove_folder, remove_partials, write_file
from bubbot.stores.sqlite.backup import copy_database, no_room_message
from bubbot.tape.entry import timestamp
from bubbot.tape.query import parse_moment

BACKUP_FORMAT = 2
"""The newest format of a backup; a newer one is refused. Format 2 has no database: it lists what is on a server."""
DATABASE_FILE = "bubbot.db"
CONFIG_FILE = "config.toml"
MANIFEST_FILE = "manifest.json"
BACKUP_NAME_PREFIX = "bubbot-"
"""The prefix of backups in the default folder. Backups made before a migration have another one and are never removed."""


class BackupFile(Struct, frozen=True):
    """A file of a backup.

    Attributes:
        size: in bytes.
        sha256: of its content, in hex.
        source: its original path, for files whose place differs between homes; else empty.
    """

    size: int
    sha256: str
    source: str = ""


class BackupManifest(Struct, frozen=True):
    """The description that a backup carries.

    Attributes:
        bubbot: the version that made it.
        created: the time, ISO 8601 in UTC.
        database: the content of the copied database.
        files: by name, the database included.
        server: the database on a server, which is not in the backup; empty for a file of SQLite.
    """

    bubbot: str
    created: str
    database: DatabaseContent
    files: Mapping[str, BackupFile]
    server: str = ""


class BackupInfo(Struct, frozen=True):
    """A complete backup by its manifest, unchecked.

    Attributes:
        path: its folder.
        created: when it was made.
        bubbot: the version that made it.
        schema: the version of its database.
        head: of the deployment.
        size: bytes of all its files.
    """

    path: Path
    created: datetime
    bubbot: str
    schema: int
    head: str
    size: int


class ExtraFiles(Struct, frozen=True):
    """Files to copy with the database.

    Attributes:
        files: the path of each, by its name in the backup.
        sources: the path to record for a file, by the same name, if a restore needs it.
    """

    files: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def backups_folder(home: Path) -> Path:
    """Return the default folder for the backups of a home."""
    return home / "backups"


def unused_path(folder: Path, name: str) -> Path:
    """Return a path in the folder that does not exist yet."""
    number, path = 1, folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path


def write_backup(
    database: Path, target: Path, extra_files: ExtraFiles, now: datetime, on_progress: OnProgress = ignore_progress
) -> BackupManifest:
    """Make the folder `target`, all or nothing.

    Args:
        database: the file to copy.
        now: the time for the manifest.
        on_progress: receives the count of copied pages.

    Raises:
        ConfigError: the folder cannot be made there.
        StoreFull: there is no room.
        BubbotError: any error of `copy_database`.
    """
    with _translate_errors(target), new_folder(target) as partial:
        content = copy_database(database, partial / DATABASE_FILE, on_progress)
        return _complete(partial, content, extra_files, now, names=(DATABASE_FILE,))


def write_server_backup(
    content: DatabaseContent, server: str, target: Path, extra_files: ExtraFiles, now: datetime
) -> BackupManifest:
    """Make the folder `target` of a bot whose tapes are on a server, which makes copies of them itself.

    Args:
        content: of the database.
        server: the address of the database, without a password.
        target: the new folder.
        extra_files: to copy.
        now: the time for the manifest.

    Raises:
        ConfigError: the folder cannot be made there.
        StoreFull: there is no room.
    """
    with _translate_errors(target), new_folder(target) as partial:
        return _complete(partial, content, extra_files, now, names=(), server=server)


def _complete(
    folder: Path,
    content: DatabaseContent,
    extra: ExtraFiles,
    now: datetime,
    *,
    names: tuple[str, ...],
    server: str = "",
) -> BackupManifest:
    """Copy the other files into the folder of a backup, and write its manifest; `names`: the files that are there."""
    for name, source in extra.files.items():
        copy_file(source, folder / name)
    files = {
        name: BackupFile((folder / name).stat().st_size, digest_of_file(folder / name), extra.sources.get(name, ""))
        for name in (*names, *extra.files)
    }
    manifest = BackupManifest(__version__, timestamp(now), content, files, server)
    write_file(folder / MANIFEST_FILE, encode_manifest(manifest).encode())
    return manifest


@contextmanager
def _translate_errors(target: Path) -> Iterator[None]:
    """Translate errors of the file system into a sentence that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise StoreFull(no_room_message(target.parent)) from error
        path = Path(error.filename or target)
        cause = error.strerror if path.name.startswith(".partial-") else f"{path}: {error.strerror}"
        raise ConfigError(f"the backup {target} cannot be made ({cause}): name another folder") from error


def encode_manifest(manifest: BackupManifest) -> str:
    """Encode a manifest for its file."""
    tapes = [structs.asdict(item) for item in manifest.database.tapes]
    data = {
        "format": BACKUP_FORMAT if manifest.server else 1,
        **({"server": manifest.server} if manifest.server else {}),
        "bubbot": manifest.bubbot,
        "schema": manifest.database.version,
        "created": manifest.created,
        "workspace": manifest.database.workspace,
        "deployment_head": manifest.database.head,
        "tapes": tapes,
        "files": {
            name: {key: value for key, value in structs.asdict(item).items() if value != ""}
            for name, item in manifest.files.items()
        },
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def read_manifest(backup: Path) -> BackupManifest:
    """Read the manifest of a backup. Raise `ConfigError` if it is not one, `TapeCorrupt` if it is unreadable."""
    path = backup / MANIFEST_FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{backup} is not a backup of bubbot: {path.name} cannot be read ({error.strerror}); "
            "name the folder that bubbot backup made"
        ) from error
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise ConfigError(f"{backup} is not a backup of bubbot: its {MANIFEST_FILE} is of another program")
        if data["format"] > BACKUP_FORMAT:
            raise ConfigError(
                f"{backup} has the format {data['format']}, this bubbot knows formats up to {BACKUP_FORMAT}: "
                f"install bubbot {data.get('bubbot', '')} or newer"
            )
        return _parse_manifest(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TapeCorrupt(f"the {MANIFEST_FILE} of {backup} was altered: it cannot be read ({error!r})") from error


def _parse_manifest(data: dict[str, Any]) -> BackupManifest:
    tapes = tuple(TapeHead(str(item["name"]), int(item["id"]), str(item["hash"])) for item in data["tapes"])
    files = {
        str(name): BackupFile(int(item["size"]), str(item["sha256"]), str(item.get("source", "")))
        for name, item in data["files"].items()
    }
    server = str(data.get("server", ""))
    if (DATABASE_FILE in files) == bool(server) or any(
        Path(name).name != name or name == MANIFEST_FILE for name in files
    ):
        raise ValueError("its list of files")
    if parse_moment(data["created"]) is None:
        raise ValueError("its time")
    content = DatabaseContent(int(data["schema"]), str(data["workspace"]), tapes, str(data["deployment_head"]))
    return BackupManifest(str(data["bubbot"]), str(data["created"]), content, files, server)


def list_backups(home: Path) -> list[BackupInfo]:
    """List the complete backups in the default folder of a home, oldest first; those before migrations included."""
    folder = backups_folder(home)
    infos = [_read_info(path) for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    return sorted((info for info in infos if info is not None), key=lambda info: (info.created, info.path.name))


def _read_info(path: Path) -> BackupInfo | None:
    try:
        manifest = read_manifest(path)
    except (ConfigError, TapeCorrupt):
        return None
    created = parse_moment(manifest.created)
    if created is None:
        return None
    size = sum(file.size for file in manifest.files.values())
    return BackupInfo(path, created, manifest.bubbot, manifest.database.version, manifest.database.head, size)


def prune_backups(home: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` backups of the default folder (0 keeps all); return the removed folders.

    It also removes partial folders of killed processes and touches nothing else.
    """
    own = [
        info.path
        for info in list_backups(home)
        if info.path.name.startswith(BACKUP_NAME_PREFIX) and not info.path.is_symlink()
    ]
    excess = own[:-keep] if keep else []
    try:
        for path in excess:
            remove_folder(path)
        remove_partials(backups_folder(home))
    except OSError as error:
        raise ConfigError(f"an old backup cannot be removed: {error.filename}: {error.strerror}") from error
    return excess


def back_up_before_migration(database: Path, version: int, now: datetime) -> None:
    """Make a backup in the default folder next to the database. Raise `StoreUnavailable` if that fails."""
    folder = backups_folder(database.parent)
    target = unused_path(folder, f"before-migration-v{version}-{now:%Y%m%dT%H%M%SZ}")
    config = database.parent / CONFIG_FILE
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_backup(database, target, ExtraFiles({CONFIG_FILE: config} if config.is_file() else {}), now)
    except (BubbotError, OSError) as error:
        raise StoreUnavailable(
            f"the database has the older version {version} and was left as it is, because no backup of it could be made "
            f"first: {error}"
        ) from error


def skip_backup(_database: Path, _version: int, _now: datetime) -> None:
    """Make no backup: the database is itself the copy of one."""
