"""What a check found."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fix` is one command for the shell; empty where nothing has to be done."""

    id: str
    level: Level
    cause: str
    fix: str = ""


def quoted(path: Path | str) -> str:
    """A path as the shell takes it."""
    return shlex.quote(str(path))
