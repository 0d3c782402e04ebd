"""How late the event loop of a process is, in memory that does not grow."""

from __future__ import annotations

import asyncio
import time
from array import array

TICK = 0.01
"""Seconds between two looks."""
GRAIN = 0.0005
"""Seconds of one step of the histogram."""
STEPS = 20_000
"""Steps; what is later than ten seconds counts as ten."""


class Lag:
    """Sleeps, and counts how much later than asked it woke: what a message would have waited."""

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * STEPS))
        self._most = 0.0
        self._number = 0

    async def watch(self) -> None:
        """Goes on until cancelled."""
        while True:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            late = max(0.0, time.perf_counter() - due)
            self._counts[min(int(late / GRAIN), STEPS - 1)] += 1
            self._number += 1
            self._most = max(self._most, late)

    def figures(self) -> dict[str, float]:
        """Milliseconds since the last call, or since the start: `p50`, `p99`, `max`; and how many `looks` there were."""
        made = {"p50": self._at(0.5), "p99": self._at(0.99), "max": self._most * 1000, "looks": self._number}
        self._counts = array("Q", bytes(8 * STEPS))
        self._most, self._number = 0.0, 0
        return made

    def _at(self, part: float) -> float:
        wanted, seen = part * self._number, 0
        for step, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return min((step + 1) * GRAIN, self._most) * 1000
        return self._most * 1000
