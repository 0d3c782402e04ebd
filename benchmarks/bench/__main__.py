"""What bubbot costs: `make bench`, or python -m benchmarks.bench [--sizes 1000,10000] [--rounds 7] [--json FILE].

One tape of each size, many sessions at once with the disk as it is and with a slower one, fresh processes, searches; and
in the same run `sqlite3` alone, files of JSON lines, LIKE and a comparison with every text. What counts are the ratios.
A figure that misses its goal is no failure: the exit code is 0 where everything was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.bench.children import ChildFailed
from benchmarks.bench.crowds import crowds
from benchmarks.bench.fresh import build_all, fresh
from benchmarks.bench.goals import goals
from benchmarks.bench.indexing import indexing
from benchmarks.bench.measure import Figures
from benchmarks.bench.plan import Plan, machine
from benchmarks.bench.report import report
from benchmarks.bench.searching import found, searching
from benchmarks.bench.single import single
from benchmarks.bench.talk import TurnFailed


def given() -> tuple[Plan, Path | None, Path | None]:
    """What the command line asks for: the plan, where figures go, and where the tapes are put meanwhile."""
    usual = Plan()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=_numbers, default=usual.sizes, help="entries of the one tape, with commas")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="times that everything takes its turn")
    parser.add_argument("--times", type=int, default=usual.times, help="of one thing in one round")
    parser.add_argument("--sessions", type=_numbers, default=usual.sessions, help="that talk at once, with commas")
    parser.add_argument("--turns", type=int, default=usual.turns, help="of all sessions in one round")
    parser.add_argument("--slow", type=float, default=usual.slow, help="milliseconds that the slow fsync takes longer")
    parser.add_argument("--burst", type=float, default=usual.burst, help="seconds of appends beside the index")
    parser.add_argument("--queries", type=int, default=usual.queries, help="of each class of searches; 0 for none")
    parser.add_argument("--scratch", type=Path, help="a folder for the tapes while they are measured, some GB at 1M")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    asked = parser.parse_args()
    for name in ("rounds", "times", "turns", "burst"):
        if getattr(asked, name) <= 0:
            parser.error(f"--{name} {getattr(asked, name)} measures nothing: give more than 0")
    plan = Plan(
        sizes=asked.sizes,
        rounds=asked.rounds,
        times=asked.times,
        sessions=asked.sessions,
        turns=asked.turns,
        slow=asked.slow,
        burst=asked.burst,
        queries=asked.queries,
    )
    return plan, asked.json, asked.scratch


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part) for part in text.split(",")))


async def bench(
    plan: Plan,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    keep: Callable[[Figures], None] = lambda _: None,
) -> Figures:
    """Every part's figures; `keep` is given what there is so far after each, for a run is long."""

    async def part(name: str, work: Callable[[Path], Awaitable[Figures]]) -> Figures:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as here:
            made = await work(Path(here))
        say(f"{name}: {time.perf_counter() - begun:.0f} s")
        return made

    begun = time.perf_counter()
    built, figures = await build_all(plan, folder)
    say(f"tapes built: {time.perf_counter() - begun:.0f} s")
    made: Figures = {"machine": machine(), "plan": asdict(plan), "built": figures}
    parts: Mapping[str, Callable[[Path], Awaitable[Figures]]] = {
        "fresh": lambda here: fresh(plan, built, here),
        "single": lambda here: single(plan, built, here),
        "crowds": lambda here: crowds(plan, here),
        "indexing": lambda here: indexing(plan, built, here),
        "search": lambda here: searching(plan, built, here),
    }
    if plan.queries:
        parts = {**parts, "found": lambda _: found(plan)}
    for name, work in parts.items():
        made[name] = await part(name, work)
        keep(made)
    return made


def main() -> int:
    """Prints the tables; the exit code."""
    plan, file, scratch = given()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch) as name:
        try:
            figures = asyncio.run(bench(plan, Path(name), _tell, partial(_write, file)))
        except (ChildFailed, TurnFailed) as failed:
            print(failed, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    judged = goals(plan, figures)
    print(report(figures, judged))
    _write(file, {**figures, "goals": [one.as_json() for one in judged]})
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(file: Path | None, figures: Figures) -> None:
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
