"""The complete backups in `list_backups` of the home, and the age of the newest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from bubbot.home import Home
from bubbot.ports.checks import Finding
from bubbot.stores.sqlite.backups import backups_folder, list_backups
from bubbot.stores.sqlite.check import DatabaseState

MAX_BACKUP_AGE = timedelta(days=7)


def check_backups(home: Home, state: DatabaseState | None, *, now: datetime) -> Iterator[Finding]:
    """Check that a backup covers week-old entries; report nothing for a home without entries."""
    if state is None or state.oldest is None:
        return
    folder = backups_folder(home.path)
    dates = [backup.created for backup in list_backups(home.path)]
    if not dates and now - state.oldest > MAX_BACKUP_AGE:
        cause = f"There is no backup in {folder}, and the home holds what was said since {state.oldest:%Y-%m-%d}."
        yield Finding("backup.none", "warning", cause, "bubbot backup")
    elif not dates:
        yield Finding("backup.young", "ok", f"There is no backup in {folder} yet; the home is younger than a week.")
    elif now - dates[-1] > MAX_BACKUP_AGE:
        cause = f"The newest backup in {folder} is of {dates[-1]:%Y-%m-%d}, {(now - dates[-1]).days} days ago."
        yield Finding("backup.old", "warning", cause, "bubbot backup")
    else:
        yield Finding("backup.ok", "ok", f"The newest backup in {folder} is of {dates[-1]:%Y-%m-%d %H:%M} UTC.")
