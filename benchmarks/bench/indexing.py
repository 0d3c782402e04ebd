"""The search index: what filling it costs those who append, how fast it catches up, and searches meanwhile."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import tapes
from benchmarks.bench.filling import fill, filling, opened
from benchmarks.bench.measure import Figures, Rate, Row, ratio
from benchmarks.bench.plan import Plan
from benchmarks.bench.searching import SPELLING, queries
from benchmarks.bench.words import Words
from bubbot.app.tapes import new_id, now
from bubbot.features.search.view import SearchView
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.service import TapeService

SLICES = 6
"""Parts of the burst, each with and without filling."""
TURNS = 200
"""Different turns that are appended over and over."""


async def indexing(plan: Plan, built: dict[int, Path], folder: Path) -> Figures:
    """The burst, on the shortest tape; the index is full when it begins."""
    homes = {name: tapes.copied(built[min(plan.sizes)], folder / name) for name in ("with", "without")}
    rows, burst = {name: Rate() for name in homes}, _Burst()
    async with AsyncExitStack() as stack:
        stores = {name: await stack.enter_async_context(opened(home)) for name, home in homes.items()}
        await fill(stores["with"])
        beside: list[float] = []
        for _, name in itertools.product(range(SLICES), homes):
            batches = _Batches()
            async with filling(stores["with"], batches.clock) if name == "with" else AsyncExitStack():
                ends = await burst.run(rows[name], stores[name], plan.burst / SLICES)
            if name == "with":
                beside.append(batches.slowdown(ends))
        state = await stores["with"].index_state()
        assert state is not None
        searched = await _searched(stores["with"], plan.searches)
        begun = time.perf_counter()
        await fill(stores["with"])
        figures = {name: rate.figures() for name, rate in rows.items()}
        return figures | {
            "slowdown": ratio(figures["without"], figures["with"]),
            "beside": statistics.median(beside),
            "behind": state.behind,
            "rate": state.behind / (time.perf_counter() - begun),
            "searches": searched,
        }


@dataclass
class _Batches:
    """When the index was at work: the clock of an indexer, which asks it before and after each batch."""

    times: list[float] = field(default_factory=list)

    def clock(self) -> float:
        self.times.append(time.perf_counter())
        return self.times[-1]

    def slowdown(self, ends: Sequence[float]) -> float:
        """How much faster turns were while the index rested than in all the time, in which it worked now and then.

        Both are of the same seconds, so other programs slow both.
        """
        begun, ended = ends[0], ends[-1]
        batches = [(first, min(last, ended)) for first, last in zip(self.times[::2], self.times[1::2], strict=False)]
        batches = [(max(first, begun), last) for first, last in batches if last > begun]
        resting = ended - begun - sum(last - first for first, last in batches)
        turns = [end for end in ends[1:] if not any(first < end <= last for first, last in batches)]
        return (len(turns) / resting) / ((len(ends) - 1) / (ended - begun))


class _Burst:
    """One session that appends turns as fast as it can."""

    def __init__(self) -> None:
        made = Words(13)
        self._turns = itertools.cycle([made.turn(number) for number in range(TURNS)])

    async def run(self, rate: Rate, store: SqliteStore, seconds: float) -> list[float]:
        """So many seconds, as one round; returns when it began, and when each turn was appended."""
        tape = TapeService(store, tapes.name(0), now=now, new_id=new_id)
        before, ends = time.process_time(), [time.perf_counter()]
        while ends[-1] - ends[0] < seconds:
            await tape.append(next(self._turns))
            ends.append(time.perf_counter())
        rate.rates.append((len(ends) - 1) / (ends[-1] - ends[0]))
        rate.processor.append((time.process_time() - before) / (len(ends) - 1))
        rate.fsyncs.append(0.0)
        return ends


async def _searched(store: SqliteStore, times: int) -> Figures:
    """Milliseconds of searches while the index is behind: what was appended since is found all the same."""
    tape = TapeService(store, tapes.name(0), now=now, new_id=new_id)
    marked = await tape.append_system("xylograph quokka")
    found = await tape.read(SearchView("xylograph quokka", kinds=("system",)))
    assert [hit.id for hit in found.hits] == [marked.id], "what was just written is found"
    row = Row()
    for sort in ("a rare word", SPELLING):
        text = queries()[sort]
        await row.take(times, lambda text=text: tape.read(SearchView(text)))  # type: ignore[misc]
    return {"p50": 1000 * statistics.median(row.walls), "worst": 1000 * max(row.walls)}
