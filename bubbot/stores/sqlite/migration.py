"""The backup that is made before a database is migrated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from bubbot.errors import BubbotError, StoreUnavailable
from bubbot.stores.sqlite.backups import CONFIG_FILE, ExtraFiles, backups_folder, unused_path, write_backup

MigrationHook: TypeAlias = Callable[[Path, int, datetime], None]
"""Backs up the database at a path, with its version, before it is migrated. Raises `StoreError`."""


def back_up_before_migration(database: Path, version: int, now: datetime) -> None:
    """Make a backup in the default folder next to the database. Raises `StoreUnavailable` if that fails."""
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
