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


def edit(file: Path | str) -> str:
    """The command that opens a file in an editor."""
    return f'"${{EDITOR:-vi}}" {quoted(file)}'


def size(number: float) -> str:
    """Bytes as people read them."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
