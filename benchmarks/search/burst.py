"""What filling costs those who append."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


async def slowdown(folder: Path, texts: Sequence[str], seconds: float) -> list[Any]:
    return []
