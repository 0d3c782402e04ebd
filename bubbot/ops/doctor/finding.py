"""Running a check: its failure becomes a finding, and the next checks run anyway."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bubbot.packages import package_command
from bubbot.ports.checks import Finding, shell_quote


def sudo_bubbot(arguments: str, *, uid: int | None = None) -> str:
    """Return the command that runs bubbot as root, or as the user `uid`.

    `sudo` has its own search path, so a bubbot in a virtual environment is named by its full path.
    """
    script = Path(sys.executable).with_name("bubbot")
    is_hidden = sys.prefix != sys.base_prefix and os.access(script, os.X_OK)
    user = "" if uid is None else f"-u '#{uid}' "
    return f"sudo {user}{shell_quote(script) if is_hidden else 'bubbot'} {arguments}"


def run_check(name: str, check: Callable[[], Iterable[Finding]], package: str = "bubbot") -> Iterator[Finding]:
    """Run a check of a package and yield its findings; if it fails, the last one is the failure."""
    try:
        yield from check()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other checks run anyway
        yield failure_finding(name, error, package)


def failure_finding(name: str, error: BaseException, package: str = "bubbot") -> Finding:
    """Make the finding for a failed check; the error's text may be long, so cut it."""
    reason = " ".join(str(error).split())[:300]
    cause = f"The check of {name} failed, so its result is unknown: {type(error).__name__}: {reason or 'no reason'}."
    fix = shlex.join(package_command("install", "--upgrade", package))
    if isinstance(error, PermissionError):
        fix = sudo_bubbot("doctor")
    return Finding("doctor.failed", "problem", cause, fix)
