"""The disk the home is on: room, entries for files, and kinds of file system that bubbot cannot live on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, Level, quoted, size

SCARCE = 1_000_000_000
NONE_LEFT = 100_000_000
"""Bytes of free disk space from which on it is worth a word, and a problem."""
FEW_FILES = 5_000
NO_FILES = 100
"""The same of entries for files. A file system that counts none says 0 for all of them."""
MOUNTS = Path("/proc/mounts")
NETWORK = frozenset(
    {
        "afs", "ceph", "cifs", "davfs", "fuse.ceph", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "vboxsf",
    }
)  # fmt: skip
"""SQLite's WAL is an area of memory that all who have the database open share: over a network there is none."""
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})


def check_disk(home: Home, *, look: Callable[[Path], os.statvfs_result] = os.statvfs) -> Iterator[Finding]:
    """Whether there is room for what people will say."""
    there = _there(home)
    found = look(there)
    left = found.f_bavail * found.f_frsize
    if left < SCARCE:
        level: Level = "problem" if left < NONE_LEFT else "warning"
        cause = f"Only {size(left)} are free on the disk of {there}; without room nothing can be accepted."
        yield Finding("disk.scarce", level, cause, f"du -xh {quoted(there)} | sort -h | tail -20")
    elif found.f_files and found.f_favail < FEW_FILES:
        cause = (
            f"Only {found.f_favail} more files can be made on the disk of {there}, though it has room: without one "
            "SQLite cannot write."
        )
        fix = f"du -x --inodes {quoted(there)} | sort -n | tail -20"
        yield Finding("disk.files", "problem" if found.f_favail < NO_FILES else "warning", cause, fix)
    else:
        yield Finding("disk.ok", "ok", f"{size(left)} are free on the disk of {there}.")


def check_file_system(home: Home, *, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Whether the home is on a disk of this machine; where the system does not list its mounts, nothing is said."""
    there = _there(home).resolve()
    kind = _kind(there, mounts)
    if kind in NETWORK:
        elsewhere = "/var/lib/bubbot" if there != Path("/var/lib/bubbot") else "/srv/bubbot"
        cause = (
            f"The home {home.path} is on a network file system ({kind}), where SQLite's locks and its WAL do not hold: "
            f"the database can be damaged. Move it to a local disk with the bot stopped, and name that with --home."
        )
        yield Finding("disk.network", "problem", cause, f"sudo mv {quoted(home.path)} {elsewhere}")
    elif kind in MEMORY_FILESYSTEMS:
        cause = f"The home {home.path} is in memory ({kind}): everything said is gone after a restart of the machine."
        yield Finding("disk.memory", "warning", cause, f'mv {quoted(home.path)} "$HOME/bubbot"')
    elif kind:
        yield Finding("disk.local", "ok", f"The home is on a local disk ({kind}).")


def _there(home: Home) -> Path:
    """The home, or the nearest folder above it that is there."""
    return next(folder for folder in (home.path, *home.path.absolute().parents) if os.path.isdir(folder))  # noqa: PTH112 - `Path.is_dir` raises where it may not look


def _kind(path: Path, mounts: Path) -> str:
    """The kind of the file system that a path is on; the last one mounted over a place is what one sees."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = [(Path(_unescaped(line.split()[1])), line.split()[2]) for line in lines if len(line.split()) >= 3]
    over = [
        (len(place.parts), number, kind) for number, (place, kind) in enumerate(found) if path.is_relative_to(place)
    ]
    return max(over)[2] if over else ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
