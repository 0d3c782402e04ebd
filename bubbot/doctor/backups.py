"""Whether there are backups, and how old the newest is: one file or folder each, in `backups` of the home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bubbot.doctor.finding import Finding
from bubbot.home import Home
from bubbot.stores.sqlite_check import DatabaseState

OLD = timedelta(days=7)


def check_backups(home: Home, state: DatabaseState | None, *, now: datetime) -> Iterator[Finding]:
    """Whether what was said a week ago would survive the disk. Without anything said, nothing is said here either."""
    if state is None or state.oldest is None:
        return
    folder = home.path / "backups"
    dates = sorted(_dates(folder))
    if not dates and now - state.oldest > OLD:
        cause = f"There is no backup in {folder}, and the home holds what was said since {state.oldest:%Y-%m-%d}."
        yield Finding("backup.none", "warning", cause, "bubbot backup")
    elif not dates:
        yield Finding("backup.young", "ok", f"There is no backup in {folder} yet; the home is younger than a week.")
    elif now - dates[-1] > OLD:
        cause = f"The newest backup in {folder} is of {dates[-1]:%Y-%m-%d}, {(now - dates[-1]).days} days ago."
        yield Finding("backup.old", "warning", cause, "bubbot backup")
    else:
        yield Finding("backup.ok", "ok", f"The newest backup in {folder} is of {dates[-1]:%Y-%m-%d %H:%M} UTC.")


def _dates(folder: Path) -> Iterator[datetime]:
    """When each was made. Hidden ones are being made, and what is empty is none."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as found:
        for one in found:
            full = any(Path(one.path).iterdir()) if one.is_dir() else one.stat().st_size > 0
            if not one.name.startswith(".") and full:
                yield datetime.fromtimestamp(one.stat().st_mtime, UTC)
