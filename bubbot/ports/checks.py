"""The port for the checks of `bubbot doctor`: a feature's access to a home without a bot, and its findings."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Struct

from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore

Level: TypeAlias = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True):
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


class HomeReader(Struct, frozen=True):
    """A feature's read-only access to a home. No bot needs to run.

    Attributes:
        config: the file with the settings.
        settings: the validated settings of the feature; None if it has none or they cannot be loaded.
        zone: the time zone of the deployment.
        open_tape: opens a tape that belongs to no session, by its name; raises `StoreError`.
        has_tapes: the home has a store; without one all tapes are empty.
        store: all tapes, to report health from those of chats; None for checks.
    """

    home: Path
    config: Path
    settings: Any
    now: Clock
    zone: ZoneInfo
    open_tape: Callable[[str], AbstractAsyncContextManager[TapeService]]
    has_tapes: bool = True
    store: TapeStore | None = None


class Check(Struct, frozen=True):
    """A check of the doctor. If it raises, the error becomes a finding and the others still run.

    Attributes:
        name: its subject, as in "The check of the schedule failed".
        run: returns the findings.
        reads_tapes: run it only if the home has entries, after the checks of the database.
        needs_settings: run it only if the settings can be loaded.
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
