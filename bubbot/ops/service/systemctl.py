"""Asking systemd, through its own command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

LONG_COMMAND_SECONDS = 400.0
"""Seconds a command may take: a start returns when the bot is heard, or is given up."""
SHORT_COMMAND_SECONDS = 20.0
"""Seconds a question may take."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """How a command ended, and what it said."""

    code: int
    said: str


Run: TypeAlias = Callable[[Sequence[str], float], CommandOutput]
"""Runs a command for at most so many seconds."""


def run(command: Sequence[str], seconds: float) -> CommandOutput:
    """Runs a command; one that is not there or takes too long has failed."""
    try:
        done = subprocess.run(  # noqa: S603 - commands are made here, and by exec
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        return CommandOutput(127, f"there is no command {command[0]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandOutput(126, str(error))
    return CommandOutput(done.returncode, done.stdout if done.returncode == 0 else (done.stderr.strip() or done.stdout))


def systemctl(*words: str, user: bool) -> tuple[str, ...]:
    """The command, for the services of this user or of the system."""
    return ("systemctl", *(["--user"] if user else []), *words)


def silent(run: Run, *, user: bool) -> str | None:
    """Why the service manager does not answer; None where it does."""
    done = run(systemctl("show", "--property=Version", user=user), SHORT_COMMAND_SECONDS)
    return (done.said.strip().splitlines() or ["systemctl failed"])[0] if done.code else None


def properties(run: Run, unit: str, names: Sequence[str], *, user: bool) -> Mapping[str, str] | None:
    """What systemd knows of a unit; None where it does not answer."""
    done = run(systemctl("show", f"--property={','.join(names)}", unit, user=user), SHORT_COMMAND_SECONDS)
    if done.code:
        return None
    pairs = (line.partition("=") for line in done.said.splitlines())
    return {name: value for name, _, value in pairs}
