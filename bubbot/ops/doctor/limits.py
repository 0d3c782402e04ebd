"""The limits of the process: open files and memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.app.models import needs_litellm
from bubbot.formatting import format_bytes
from bubbot.ports.checks import Finding
from bubbot.settings.loader import Settings

MIN_OPEN_FILES = 1024
"""The usual limit; each conversation, connection and child process takes some files."""
MIN_FREE_MEMORY_BYTES = 250_000_000
"""Bytes of memory: litellm alone takes some 160 MB once loaded."""
BUILTIN_MODELS = ("", "local", "scripted")
MEMINFO_PATH = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")


def check_files() -> Iterator[Finding]:
    maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if maximum != resource.RLIM_INFINITY and maximum < MIN_OPEN_FILES:
        cause = f"Only {maximum} files may be open at once; a bot with many chats needs {MIN_OPEN_FILES}."
        yield Finding("limits.files", "warning", cause, "ulimit -n 4096")
    else:
        number = "Any number of" if maximum == resource.RLIM_INFINITY else str(maximum)
        yield Finding("limits.ok", "ok", f"{number} files may be open at once.")


def check_memory(settings: Settings) -> Iterator[Finding]:
    """Check the free memory if a model needs litellm; report nothing if the system does not tell."""
    name = settings.model.name
    if name.partition("/")[0] in BUILTIN_MODELS or not needs_litellm(settings, name):
        return
    amounts = [amount for amount in (_system_memory(), _container_memory()) if amount is not None]
    if amounts and min(amounts) < MIN_FREE_MEMORY_BYTES:
        cause = f"Only {format_bytes(min(amounts))} of memory are free, and {name} needs litellm, which takes {format_bytes(MIN_FREE_MEMORY_BYTES)}."
        yield Finding("limits.memory", "warning", cause, "ps -eo pid,rss,comm --sort=-rss | head")


def _system_memory() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in MEMINFO_PATH.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _container_memory() -> int | None:
    """Return the memory that the container may still use; None without a limit."""
    with suppress(OSError, ValueError):
        limit, used = ((CONTROL_GROUP / name).read_text(encoding="utf-8") for name in ("memory.max", "memory.current"))
        stat = (CONTROL_GROUP / "memory.stat").read_text(encoding="utf-8").splitlines()
        # Inactive file pages count as used, but the kernel frees them on demand.
        idle = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
        return int(limit) - int(used) + idle
    return None
