"""Queries systemd through its own command."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from msgspec import Struct

LONG_COMMAND_SECONDS = 400.0
"""The time a command may take: a start returns when the bot receives, or has failed."""
SHORT_COMMAND_SECONDS = 20.0
"""The time a query may take."""


class CommandOutput(Struct, frozen=True):
    """The exit code of a command, and its output."""

    code: int
    text: str


def run_command(command: Sequence[str], seconds: float) -> CommandOutput:
    """Run a command; one that is missing or takes too long counts as failed."""
    try:
        process = subprocess.run(  # noqa: S603 - our own commands, without a shell
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
    return CommandOutput(
        process.returncode, process.stdout if process.returncode == 0 else (process.stderr.strip() or process.stdout)
    )


def systemctl(*words: str, user: bool) -> tuple[str, ...]:
    """Build the command for the services of this user or of the system."""
    return ("systemctl", *(["--user"] if user else []), *words)


def find_manager_failure(*, user: bool) -> str | None:
    """Return why the service manager does not answer; None if it does."""
    output = run_command(systemctl("show", "--property=Version", user=user), SHORT_COMMAND_SECONDS)
    return (output.text.strip().splitlines() or ["systemctl failed"])[0] if output.code else None


def read_properties(unit: str, names: Sequence[str], *, user: bool) -> Mapping[str, str] | None:
    """Read properties of a unit from systemd; None if it does not answer."""
    output = run_command(systemctl("show", f"--property={','.join(names)}", unit, user=user), SHORT_COMMAND_SECONDS)
    if output.code:
        return None
    pairs = (line.partition("=") for line in output.text.splitlines())
    return {name: value for name, _, value in pairs}
