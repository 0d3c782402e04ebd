"""What a soak measures: samples of processes, and what they come to."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.soak.process import Look, Process

MB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon when so many messages had been answered. `loaded`: while people talked."""

    answered: int
    look: Look
    loaded: bool


@dataclass
class Watch:
    """Looks at the daemon now and then; `people` say how many messages have been answered."""

    daemon: Process
    people: Sequence[Process]
    samples: list[Sample] = field(default_factory=list)
    loaded: bool = False

    @property
    def answered(self) -> int:
        """Messages answered so far."""
        return sum(int(one.progress.get("answered", 0)) for one in self.people)

    def look(self) -> None:
        """One sample."""
        self.samples.append(Sample(self.answered, self.daemon.look(), self.loaded))

    async def go_on(self, every: float) -> None:
        """Goes on until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(every)


@dataclass(frozen=True, slots=True)
class Trend:
    """How a quantity went after warm-up: medians of the first and last third, its slope for 1,000 messages, its peak
    over the whole run."""

    first: float
    last: float
    slope: float
    peak: float


def trend(points: Sequence[tuple[int, float]], warm: int) -> Trend:
    """Of (messages answered, value) in order; what came before `warm` messages counts for the peak alone."""
    after = [point for point in points if point[0] >= warm] or list(points[-1:])
    third = max(1, len(after) // 3)
    first = statistics.median(value for _, value in after[:third])
    last = statistics.median(value for _, value in after[-third:])
    return Trend(first, last, _slope(after) * 1000, max(value for _, value in points))


def _slope(points: Sequence[tuple[int, float]]) -> float:
    if len({at for at, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression([at for at, _ in points], [value for _, value in points]).slope


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """`p50`, `p99` and `max`; zeros where there is nothing."""
    ordered = sorted(values) or [0.0]
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for name, part in at.items()}


@dataclass
class Busy:
    """Processor seconds that processes took between the beginning and the end of a block, and the wall clock's."""

    processes: Sequence[Process]
    took: dict[str, float] = field(default_factory=dict)
    wall: float = 0.0
    _before: Mapping[str, float] = field(default_factory=dict)
    _begun: float = 0.0

    def __enter__(self) -> Busy:
        self._before = {one.name: one.look().processor for one in self.processes}
        self._begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.monotonic() - self._begun
        self.took = {one.name: one.look().processor - self._before[one.name] for one in self.processes}
