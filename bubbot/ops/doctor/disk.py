"""The disk of the home: free space, free inodes, and file systems that bubbot cannot use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bubbot.formatting import format_bytes
from bubbot.home import Home
from bubbot.ports.checks import Finding, Level, shell_quote

LOW_SPACE_BYTES = 1_000_000_000
MIN_SPACE_BYTES = 100_000_000
"""Free bytes below which there is a warning, and a problem."""
LOW_FREE_INODES = 5_000
MIN_FREE_INODES = 100
"""The same for free inodes. A file system without inodes reports 0 for all counts."""
MOUNTS_PATH = Path("/proc/mounts")
NETWORK_FILESYSTEMS = frozenset(
    {
        "afs", "ceph", "cifs", "davfs", "fuse.ceph", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "vboxsf",
    }
)  # fmt: skip
"""Network file systems: SQLite's WAL needs memory that all processes share, which these lack."""
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})


def check_disk(home: Home) -> Iterator[Finding]:
    """Check the free space and the free inodes."""
    folder = _existing_folder(home)
    stats = os.statvfs(folder)
    free = stats.f_bavail * stats.f_frsize
    if free < LOW_SPACE_BYTES:
        level: Level = "problem" if free < MIN_SPACE_BYTES else "warning"
        cause = f"Only {format_bytes(free)} are free on the disk of {folder}; without space no message can be accepted."
        yield Finding("disk.scarce", level, cause, f"du -xh {shell_quote(folder)} | sort -h | tail -20")
    elif stats.f_files and stats.f_favail < LOW_FREE_INODES:
        cause = (
            f"Only {stats.f_favail} more files can be made on the disk of {folder}, though it has room: without one "
            "SQLite cannot write."
        )
        fix = f"du -x --inodes {shell_quote(folder)} | sort -n | tail -20"
        yield Finding("disk.files", "problem" if stats.f_favail < MIN_FREE_INODES else "warning", cause, fix)
    else:
        yield Finding("disk.ok", "ok", f"{format_bytes(free)} are free on the disk of {folder}.")


def check_file_system(home: Home) -> Iterator[Finding]:
    """Check that the home is on a local disk; report nothing if the system does not list its mounts."""
    folder = _existing_folder(home).resolve()
    kind = _file_system_kind(folder)
    if kind in NETWORK_FILESYSTEMS:
        elsewhere = "/var/lib/bubbot" if folder != Path("/var/lib/bubbot") else "/srv/bubbot"
        cause = (
            f"The home {home.path} is on a network file system ({kind}), where SQLite's locks and its WAL do not hold: "
            f"the database can be damaged. Move it to a local disk with the bot stopped, and name that with --home."
        )
        yield Finding("disk.network", "problem", cause, f"sudo mv {shell_quote(home.path)} {elsewhere}")
    elif kind in MEMORY_FILESYSTEMS:
        cause = f"The home {home.path} is in memory ({kind}): everything said is gone after a restart of the machine."
        yield Finding("disk.memory", "warning", cause, f'mv {shell_quote(home.path)} "$HOME/bubbot"')
    elif kind:
        yield Finding("disk.local", "ok", f"The home is on a local disk ({kind}).")


def _existing_folder(home: Home) -> Path:
    """Return the home, or its nearest existing parent."""
    return next(folder for folder in (home.path, *home.path.absolute().parents) if os.path.isdir(folder))  # noqa: PTH112 - `Path.is_dir` raises without permission


def _file_system_kind(path: Path) -> str:
    """Return the kind of a path's file system; the last mount on a folder hides earlier ones."""
    try:
        lines = MOUNTS_PATH.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    points = [(Path(_unescape(line.split()[1])), line.split()[2]) for line in lines if len(line.split()) >= 3]
    candidates = [
        (len(point.parts), number, kind) for number, (point, kind) in enumerate(points) if path.is_relative_to(point)
    ]
    return max(candidates)[2] if candidates else ""


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
