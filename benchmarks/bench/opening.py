"""A fresh process opens a home: python -m benchmarks.bench.opening HOME SIZE. Standard output gets the figures.

What it imports is loaded before the clock runs: it is the same for every tape. First the store alone with the first
context of the tape, then, after it is closed, the whole bot, and some turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.bench import tapes
from benchmarks.bench.measure import Figures
from benchmarks.bench.talk import talking
from bubbot.app.tapes import new_id, now
from bubbot.runtime.context.view import ContextView
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.service import TapeService

TURNS = 20


async def main(home: Path) -> Figures:
    """Milliseconds and megabytes."""
    begun, before = time.perf_counter(), _held("VmRSS")
    store = await open_store(home / "bubbot.db", salt=os.urandom, now=now)
    shown = await TapeService(store, tapes.name(0), now=now, new_id=new_id).read(ContextView())
    made: Figures = {"store": 1000 * (time.perf_counter() - begun), "messages": len(shown.messages)}
    await store.aclose()
    begun = time.perf_counter()
    async with talking(home) as talk:
        await talk.app.recover_all()
        await talk.tape().read(ContextView())
        made["bot"] = 1000 * (time.perf_counter() - begun)
        for _ in range(TURNS):
            await talk.say()
    return made | {"before": before, "memory": _held("VmRSS"), "peak": _held("VmHWM")}


def _held(name: str) -> float:
    """Megabytes of this process; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
