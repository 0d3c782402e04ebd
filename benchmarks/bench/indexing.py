"""The search index: what filling it costs those who append, how fast it catches up, and searches meanwhile."""

from __future__ import annotations

import itertools
import statistics
import time
from contextlib import AsyncExitStack
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
        for _, name in itertools.product(range(SLICES), homes):
            async with filling(stores["with"]) if name == "with" else AsyncExitStack():
                await burst.run(rows[name], stores[name], plan.burst / SLICES)
        state = await stores["with"].index_state()
        assert state is not None
        searched = await _searched(stores["with"], plan.searches)
        begun = time.perf_counter()
        await fill(stores["with"])
        figures = {name: rate.figures() for name, rate in rows.items()}
        return figures | {
            "slowdown": ratio(figures["without"], figures["with"]),
            "behind": state.behind,
            "rate": state.behind / (time.perf_counter() - begun),
            "searches": searched,
        }


class _Burst:
    """One session that appends turns as fast as it can."""

    def __init__(self) -> None:
        made = Words(13)
        self._turns = itertools.cycle([made.turn(number) for number in range(TURNS)])

    async def run(self, rate: Rate, store: SqliteStore, seconds: float) -> None:
        """So many seconds, as one round."""
        tape = TapeService(store, tapes.name(0), now=now, new_id=new_id)
        count, before, begun = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - begun < seconds or not count:
            await tape.append(next(self._turns))
            count += 1
        rate.rates.append(count / (time.perf_counter() - begun))
        rate.processor.append((time.process_time() - before) / count)
        rate.fsyncs.append(0.0)


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
