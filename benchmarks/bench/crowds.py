"""Many sessions at once, with the disk as it is and with a slower one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.bench import tapes
from benchmarks.bench.children import child, compiled
from benchmarks.bench.measure import Figures
from benchmarks.bench.plan import Plan


async def crowds(plan: Plan, folder: Path) -> Figures:
    """Figures of both disks; `skipped` says why there are none of the slow one."""
    built, most = folder / "built", max(plan.sessions)
    seconds = await tapes.build(built, plan.history, most)
    library = await compiled(folder)
    made: Figures = {"built in": seconds, "fast": await _measured(plan, folder, built, library, 0.0)}
    if library is None:
        made["skipped"] = "there is no C compiler here that makes a library of slow_fsync.c"
    else:
        made["slow"] = await _measured(plan, folder, built, library, plan.slow)
    return made


async def _measured(plan: Plan, folder: Path, built: Path, library: Path | None, slow: float) -> Figures:
    """In a process of its own, on fresh copies. A slow disk gets fewer rounds and no files of JSON lines."""
    here = folder / f"with-{slow:g}"
    here.mkdir()
    tapes.copied(built, here / "talk")
    tapes.copied(built, here / "raw")
    if not slow:
        tapes.write_lines(here / "000.jsonl", plan.history)
        for chat in range(1, max(plan.sessions)):
            shutil.copyfile(here / "000.jsonl", here / f"{chat:03}.jsonl")
    rounds = min(plan.rounds, 3) if slow else plan.rounds
    given = {"sessions": plan.sessions, "rounds": rounds, "turns": plan.turns}
    made: Figures = await child("sessions", str(here), json.dumps(given), log=here / "log", library=library, slow=slow)
    shutil.rmtree(here)
    return made
