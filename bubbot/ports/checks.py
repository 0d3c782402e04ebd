"""The port for the checks of `bubbot doctor`: what a feature may read of a home without a bot, and what it finds."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from bubbot.records import dataclass
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService

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


@dataclass(frozen=True, slots=True)
class HomeReader:
    """What a feature may read of a home. No bot has to run; nothing is written.

    Attributes:
        home: the home folder.
        config: the file with the settings.
        settings: the validated settings of the feature; None if it has none, or if they cannot be loaded.
        now: the clock.
        zone: the time zone of the deployment.
        open_tape: opens a tape that belongs to no session, by its name. Raises `StoreError`.
        has_tapes: there is a store; without one every tape is empty.
    """

    home: Path
    config: Path
    settings: Any
    now: Clock
    zone: ZoneInfo
    open_tape: Callable[[str], AbstractAsyncContextManager[TapeService]]
    has_tapes: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the doctor. One that raises becomes a finding, and the others run anyway.

    Attributes:
        name: its subject, as in "The check of the schedule failed".
        run: returns the findings.
        reads_tapes: it runs only if the home has entries, after the checks of the database.
        needs_settings: it runs only if the settings can be loaded.
    """

    name: str
    run: Callable[[HomeReader], Awaitable[Sequence[Finding]]]
    reads_tapes: bool = False
    needs_settings: bool = True


def shell_quote(path: Path | str) -> str:
    """Quote a path for the shell."""
    return shlex.quote(str(path))


def edit_command(file: Path | str) -> str:
    """Return the command that opens a file in an editor."""
    return f'"${{EDITOR:-vi}}" {shell_quote(file)}'
