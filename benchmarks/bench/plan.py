"""What a run of the benchmarks measures, and on what."""

from __future__ import annotations

import os
import platform
import sqlite3
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """`sizes`: entries of the one tape. `rounds`: times that everything takes its turn with its baselines. `times`: of one
    thing in one round. `sessions`: how many talk at once, each with `history` entries behind it, `turns` in one round over
    all of them. `slow`: milliseconds that the slow fsync takes longer. `burst`: seconds of the burst of appends."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    rounds: int = 7
    times: int = 12
    searches: int = 5
    sessions: tuple[int, ...] = (1, 10, 100)
    history: int = 1_000
    turns: int = 200
    slow: float = 8.0
    opens: int = 5
    burst: float = 60.0


def machine() -> dict[str, Any]:
    """What the figures were measured on; nothing that names the machine."""
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
