"""What the system lets a process have: open files and memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.ops.doctor.finding import Finding, size
from bubbot.settings.loader import Settings

MIN_OPEN_FILES = 1024
"""Open files: the usual limit. Each conversation, connection and child process takes some."""
NEEDED = 250_000_000
"""Bytes of memory: litellm alone takes some 160 MB when it is loaded."""
OURS = ("", "local", "scripted")
MEMINFO_PATH = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")


def check_files(limit: int | None = None) -> Iterator[Finding]:
    """Whether enough files may be open at once."""
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if found != resource.RLIM_INFINITY and found < MIN_OPEN_FILES:
        cause = f"Only {found} files may be open at once; a bot with many chats needs {MIN_OPEN_FILES}."
        yield Finding("limits.files", "warning", cause, "ulimit -n 4096")
    else:
        shown = "Any number of" if found == resource.RLIM_INFINITY else str(found)
        yield Finding("limits.ok", "ok", f"{shown} files may be open at once.")


def check_memory(settings: Settings, *, memory: Path = MEMINFO_PATH, group: Path = CONTROL_GROUP) -> Iterator[Finding]:
    """Whether there is memory for litellm, where a model needs that; where the system does not tell, nothing is said."""
    if settings.model.name.partition("/")[0] in OURS:
        return
    known = [one for one in (_free(memory), _left(group)) if one is not None]
    if known and min(known) < NEEDED:
        cause = f"Only {size(min(known))} of memory are free, and the models of providers need {size(NEEDED)}."
        yield Finding("limits.memory", "warning", cause, "ps -eo pid,rss,comm --sort=-rss | head")


def _free(memory: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in memory.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left(group: Path) -> int | None:
    """What a container may still take; None where it has no limit."""
    with suppress(OSError, ValueError):
        limit, used = ((group / name).read_text(encoding="utf-8") for name in ("memory.max", "memory.current"))
        stat = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        # Pages of files that nobody uses just now count as used, and go when they are wanted.
        idle = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
        return int(limit) - int(used) + idle
    return None
