"""Cold open and memory: a fresh process for each size and round."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

from benchmarks.bench import tapes
from benchmarks.bench.children import child
from benchmarks.bench.measure import Figures
from benchmarks.bench.plan import Plan


async def fresh(plan: Plan, built: dict[int, Path], folder: Path) -> Figures:
    """Medians by size, and what it takes to read a file of JSON lines of that size for the first time."""
    rounds: dict[int, list[Figures]] = {size: [] for size in plan.sizes}
    homes = {size: tapes.copied(built[size], folder / f"fresh-{size}") for size in plan.sizes}
    for _ in range(plan.opens):
        for size in plan.sizes:
            rounds[size].append(await child("opening", str(homes[size]), log=folder / "fresh.log"))
    for home in homes.values():
        shutil.rmtree(home)
    return {str(size): _medians(found) for size, found in rounds.items()}


def _medians(found: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


async def build_all(plan: Plan, folder: Path) -> tuple[dict[int, Path], Figures]:
    """A home for each size, and what building took: seconds, bytes of the database for each entry."""
    built, figures = {}, {}
    for size in plan.sizes:
        built[size] = folder / f"built-{size}"
        begun = time.perf_counter()
        await tapes.build(built[size], size)
        took = time.perf_counter() - begun
        figures[str(size)] = {"seconds": took, "bytes": tapes.bytes_of(built[size]) / size}
    return built, figures
