"""Queries programs of the system, if they exist."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

TOOL_TIMEOUT_SECONDS = 3.0
"""The time for an answer; a system that is starting or shutting down may never give one."""


def read_output(command: Sequence[str]) -> str | None:
    """Run a program and return its output; None if it is missing, fails, or takes too long."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        process = subprocess.run(  # noqa: S603 - no shell; the commands are ours
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.decode(errors="replace") if process.returncode == 0 else None


def parse_properties(text: str) -> dict[str, str]:
    """Parse the lines `name=value` that systemd's programs print."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
