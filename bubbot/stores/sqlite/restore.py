"""Restore a backup into a home: check it before writing anything, then restore all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bubbot.errors import ConfigError, StoreFull, StoreTooNew, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.stores.files import copy_file, digest_of_file, remove_partials, scratch_folder, sync, sync_tree
from bubbot.stores.sqlite.backup import read_content
from bubbot.stores.sqlite.backups import CONFIG_FILE, DATABASE_FILE, BackupManifest, read_manifest, unused_path
from bubbot.stores.sqlite.check import check_database
from bubbot.stores.sqlite.schema import MIGRATIONS


def refuse_existing_database(home: Path) -> None:
    """Raise `ConfigError` if the home has a database: a restore never replaces one. An empty file does not count."""
    database = home / DATABASE_FILE
    if os.path.lexists(database) and not (database.is_file() and database.stat().st_size == 0):
        raise ConfigError(f"{home} holds {DATABASE_FILE} already: name a new folder with --home")


def set_aside_remains(home: Path, now: datetime) -> Path | None:
    """Move the remains of a missing database into a folder of the home; return the folder, or None without remains.

    SQLite would delete a write-ahead log next to another database. The log may contain the newest entries of its own.
    """
    remains = [
        path for end in ("", "-wal", "-shm", "-journal") if os.path.lexists(path := home / f"{DATABASE_FILE}{end}")
    ]
    if not remains:
        return None
    folder = unused_path(home, f"lost-database-{now:%Y%m%dT%H%M%SZ}")
    try:
        folder.mkdir(mode=0o700)
        for path in remains:
            path.rename(folder / path.name)
        sync(home)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be moved into {folder}: {error.strerror}") from error
    return folder


def verify_backup(backup: Path, on_progress: OnProgress = ignore_progress) -> BackupManifest:
    """Check that a backup contains exactly what its manifest lists; return the manifest. It writes nothing.

    It reports checked entries as progress.

    Raise `TapeCorrupt` if a file was altered or is missing, `StoreTooNew`, or `ConfigError` if it is not a backup of
    bubbot.
    """
    manifest = read_manifest(backup)
    if manifest.server:
        raise ConfigError(
            f"{backup} is of a bot whose tapes are on a server: let pg_restore make a database of its dump, name that database "
            "in [store] url, and restore then"
        )
    verify_files(backup, manifest)
    _check_database(backup, manifest, on_progress)
    return manifest


def verify_files(backup: Path, manifest: BackupManifest) -> None:
    """Check that each file of a backup is what its manifest says. Raise `TapeCorrupt` or `ConfigError`."""
    for name, entry in manifest.files.items():
        path = backup / name
        if not path.is_file():
            raise TapeCorrupt(f"the backup {backup} is not complete: {name} is missing")
        try:
            intact = path.stat().st_size == entry.size and digest_of_file(path) == entry.sha256
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        if not intact:
            raise TapeCorrupt(f"the backup {backup} was altered: {name} is not what its manifest says")


def _check_database(backup: Path, manifest: BackupManifest, on_progress: OnProgress) -> None:
    if manifest.database.version > len(MIGRATIONS):
        raise StoreTooNew(
            f"the backup {backup} has the database version {manifest.database.version}, this bubbot knows versions up to "
            f"{len(MIGRATIONS)}: it was made by bubbot {manifest.bubbot}; install that one or a newer one"
        )
    if read_content(backup / DATABASE_FILE) != manifest.database:
        raise TapeCorrupt(f"the backup {backup} was altered: its tapes do not end as its manifest says")
    audit = check_database(backup / DATABASE_FILE, deep=True, on_progress=on_progress).audit
    damage = audit.damage if audit else ()
    if damage:
        raise TapeCorrupt(f"the backup {backup} holds a damaged tape: {damage[0].location} {damage[0].problem}")


@contextmanager
def unpack(backup: Path, manifest: BackupManifest, home: Path) -> Iterator[Path]:
    """Make a folder in the home with checked copies of the backup's files; remove it when the block ends."""
    try:
        remove_partials(home)
        with scratch_folder(home, "restore") as folder:
            for name, entry in manifest.files.items():
                copy_file(backup / name, folder / name)
                if digest_of_file(folder / name) != entry.sha256:
                    raise TapeCorrupt(f"{name} was not copied as it is: a disk is failing")
            yield folder
    except OSError as error:
        place = error.filename2 or error.filename or home
        raise StoreFull(f"{place} could not be written: {error.strerror}; nothing was restored") from error


def put_in_place(
    folder: Path, manifest: BackupManifest, home: Path, before_database: Callable[[], None] = lambda: None
) -> list[str]:
    """Move the files to their places in the home, the database last; return notes for people.

    Existing files are never replaced.
    """
    sync_tree(folder)
    notes = []
    for name in [file for file in manifest.files if file != DATABASE_FILE]:
        source = manifest.files[name].source
        place = home / (source if source and not Path(source).is_absolute() else name)
        if not place.resolve().is_relative_to(home.resolve()):
            place = home / name
        if os.path.lexists(place):
            notes.append(f"{place} was there already and is kept; the one of the backup is not used.")
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(place)
        sync(place.parent)
        if name != CONFIG_FILE and Path(source).is_absolute():
            notes.append(f"{name} was at {source}: put it there, or change [bot] persona_file to {place}.")
    if os.path.lexists(folder / f"{DATABASE_FILE}-wal"):
        raise TapeCorrupt("the restored database was not closed properly")
    before_database()
    if manifest.server:
        return notes
    (folder / DATABASE_FILE).rename(home / DATABASE_FILE)
    sync(home)
    return notes
