"""Taking times, and what they come to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]


@dataclass
class Row:
    """What was measured of one thing: seconds of each time, and processor seconds for one time, by round.

    Processor seconds are those of the whole process, its threads with it.
    """

    walls: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    async def take(self, times: int, work: Callable[[], Awaitable[object]]) -> None:
        """One round."""
        before = time.process_time()
        for _ in range(times):
            begun = time.perf_counter()
            await work()
            self.walls.append(time.perf_counter() - begun)
        self.processor.append((time.process_time() - before) / times)

    def take_plain(self, times: int, work: Callable[[], object]) -> None:
        """One round of a baseline, which knows no event loop."""
        before = time.process_time()
        for _ in range(times):
            begun = time.perf_counter()
            work()
            self.walls.append(time.perf_counter() - begun)
        self.processor.append((time.process_time() - before) / times)

    def figures(self) -> Figures:
        """Milliseconds: half of the times and 99 of 100 were under these; processor time a time, in the middle round."""
        return {
            "times": len(self.walls),
            "p50": 1000 * statistics.median(self.walls),
            "p99": 1000 * percentile(self.walls, 0.99),
            "cpu": 1000 * statistics.median(self.processor),
        }


@dataclass
class Rate:
    """How often something happened in a second, by round."""

    rates: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    fsyncs: list[float] = field(default_factory=list)

    async def take(self, count: int, work: Awaitable[object], counted: Callable[[], int] = lambda: 0) -> None:
        """One round in which `work` makes it happen `count` times; `counted` counts fsyncs."""
        synced, before, begun = counted(), time.process_time(), time.perf_counter()
        await work
        self.rates.append(count / (time.perf_counter() - begun))
        self.processor.append((time.process_time() - before) / count)
        self.fsyncs.append((counted() - synced) / count)

    def figures(self) -> Figures:
        """The middle round's rate, with the lowest and highest, and processor milliseconds and fsyncs for one."""
        return {
            "rate": statistics.median(self.rates),
            "lowest": min(self.rates),
            "highest": max(self.rates),
            "cpu": 1000 * statistics.median(self.processor),
            "fsyncs": statistics.median(self.fsyncs),
        }


def percentile(values: Sequence[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
