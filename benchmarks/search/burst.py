"""What filling costs those who append."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bubbot.stores.sqlite.indexer import Indexer, IndexerTiming
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import message
from bubbot.tape.store import Batch

ROUNDS = 6
_TURN = 8  # entries
_DATE = "2026-11-21T12:00:00.000000+00:00"
_BEFORE = 5000  # entries that wait to be indexed when the first appends begin


async def slowdown(folder: Path, texts: Sequence[str], seconds: float) -> tuple[float, float, int]:
    """Turns a second without and with filling, medians of rounds that take turns, and how many entries were indexed."""
    folder.mkdir(parents=True, exist_ok=True)
    store = await open_store(folder / "bubbot.db", salt=os.urandom, now=lambda: datetime.fromisoformat(_DATE))
    try:
        await store.append([_batch(texts, 0, _BEFORE)])
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(ROUNDS):
            filling = number % 2 == 1
            rates[filling].append(await _round(store, texts, seconds / ROUNDS, filling=filling))
        state = await store.index_state()
        plain, filled = (statistics.median(rates[filling]) for filling in (False, True))
        return plain, filled, state.position if state else 0
    finally:
        await store.aclose()


async def _round(store: SqliteStore, texts: Sequence[str], seconds: float, *, filling: bool) -> float:
    filler = Indexer(store, IndexerTiming(start_delay=0.0))
    task = asyncio.create_task(filler.run()) if filling else None
    began, turns = time.perf_counter(), 0
    try:
        while time.perf_counter() - began < seconds:
            await store.append([_batch(texts, turns * _TURN, _TURN)])
            turns += 1
        return turns / (time.perf_counter() - began)
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await filler.aclose()


def _batch(texts: Sequence[str], start: int, count: int) -> Batch:
    some = (texts[place % len(texts)] for place in range(start, start + count))
    return Batch("burst", tuple(message("user", text).with_meta({}, _DATE) for text in some))
