"""The result of a check, also of one that fails: its failure becomes a finding, and the next checks run anyway."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of a check.

    Attributes:
        id: a stable name, such as `disk.scarce`.
        level: the severity.
        cause: the facts, in one or more sentences.
        fix: one shell command that fixes the problem; empty if there is nothing to fix.
    """

    id: str
    level: Level
    cause: str
    fix: str = ""


def shell_quote(path: Path | str) -> str:
    """Quote a path for the shell."""
    return shlex.quote(str(path))


def sudo_bubbot(arguments: str, *, uid: int | None = None) -> str:
    """Return the command that runs bubbot as root, or as the user `uid`.

    `sudo` has its own search path, so a bubbot in a virtual environment is named by its full path.
    """
    script = Path(sys.executable).with_name("bubbot")
    is_hidden = sys.prefix != sys.base_prefix and os.access(script, os.X_OK)
    user = "" if uid is None else f"-u '#{uid}' "
    return f"sudo {user}{shell_quote(script) if is_hidden else 'bubbot'} {arguments}"


def edit_command(file: Path | str) -> str:
    """Return the command that opens a file in an editor."""
    return f'"${{EDITOR:-vi}}" {shell_quote(file)}'


def run_check(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run a check and yield its findings; if it fails, the last one is the failure."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - the other checks run anyway
        yield failure_finding(name, error)


def failure_finding(name: str, error: BaseException) -> Finding:
    """Make the finding for a failed check; the error's text may be long, so cut it."""
    reason = " ".join(str(error).split())[:300]
    cause = f"The check of {name} failed, so its result is unknown: {type(error).__name__}: {reason or 'no reason'}."
    fix = f"{shell_quote(sys.executable)} -m pip install --upgrade bubbot"
    if isinstance(error, PermissionError):
        fix = sudo_bubbot("doctor")
    return Finding("doctor.failed", "problem", cause, fix)
