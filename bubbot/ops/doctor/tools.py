"""Asking programs of the system, where they are there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

TOOL_TIMEOUT_SECONDS = 3.0
"""Seconds; a system that is just starting or ending may never answer."""


def told(command: Sequence[str]) -> str | None:
    """What a program prints; None where there is none, and where it fails or does not come to an end."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the commands are ours
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def fields(text: str) -> dict[str, str]:
    """The lines `name=value` of what systemd's programs print."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
