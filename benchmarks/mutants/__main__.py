"""Draw mutants, run the tests that reach them, and print which test kills which.

    python -m benchmarks.mutants --seed 20261122

The checkout has to be committed: clones of it are changed, never the checkout. The first step runs the whole suite once
with notes at the drawn places, to learn which tests reach them; `--map FILE` keeps that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from benchmarks.mutants.annotate import annotate
from benchmarks.mutants.map import Map
from benchmarks.mutants.sandbox import Ending, Sandbox, python_version
from benchmarks.mutants.sites import Mutant, draw

ROOT = Path(__file__).parents[2]
PACKAGES = ("bubbot", "channels")
FOLDERS = ("contract", "docs", "e2e", "property", "unit")
"""All tests but those of `quality`, which look at the text and not at what it does."""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
RECORD_SECONDS = 3600.0
FIRST = 40
"""How many tests are asked first: most mutants need no more, and the files of thousands take a minute to collect."""
GOAL = 0.97


def record(sandbox: Sandbox, mutants: Sequence[Mutant], folders: Sequence[str]) -> Map:
    """Run the tests of these folders once and note which of them reach the mutants and their files."""
    paths = sorted({mutant.path for mutant in mutants})
    whole = {path: number for number, path in enumerate(paths, len(mutants))}
    annotated = {
        path: annotate(
            path,
            (sandbox.root / path).read_bytes(),
            {number: (one.start, one.end) for number, one in enumerate(mutants) if one.path == path},
            whole[path],
        )
        for path in paths
    }
    found = [f"tests/{one}" for one in folders if (sandbox.root / "tests" / one).is_dir()]
    seconds, noted = sandbox.record(annotated, len(mutants) + len(paths), found, RECORD_SECONDS)
    return Map(
        seconds,
        dict(zip(mutants, noted[: len(mutants)], strict=True)),
        {path: noted[number] for path, number in whole.items()},
    )


def judge(sandboxes: Sequence[Sandbox], known: Map, mutants: Sequence[Mutant]) -> list[Ending]:
    """Run the tests that reach each mutant, and if none notices it those that are about its file."""
    free: Queue[Sandbox] = Queue()
    for sandbox in sandboxes:
        free.put(sandbox)

    def one(mutant: Mutant) -> Ending:
        sandbox, ending, began = free.get(), Ending(), time.monotonic()
        near = known.tests(mutant)
        try:
            for tests in (near[:FIRST], near[FIRST:], known.further_tests(mutant)):
                if tests and not ending.test and not ending.timed_out:
                    ending = sandbox.judge(mutant, tests, sum(known.seconds[test] for test in tests))
        finally:
            free.put(sandbox)
        if not ending.test and not ending.timed_out and (left := known.count_left_out(mutant)):
            ending = Ending(words=f"{left} tests were left out")
        fate = ending.test or ("timed out" if ending.timed_out else "SURVIVED")
        print(f"{mutant.name}: {fate} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
        return ending

    with ThreadPoolExecutor(len(sandboxes)) as threads:
        return list(threads.map(one, mutants))


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Return the reasons why some mutants do the same, by path, whole line, what was there and what came instead."""
    if not EQUIVALENT.exists():
        return {}
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(row["path"], row["line"], row["before"], row["after"]): row["reason"] for row in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, judge, print a table; return 1 if fewer than 97 of 100 are killed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=20261122, help="chooses the mutants")
    parser.add_argument("--count", type=int, default=100, help="how many")
    parser.add_argument("--map", type=Path, help="file that keeps which tests reach these mutants, for the same commit")
    parser.add_argument("--jobs", type=int, default=3, help="clones that run tests at the same time")
    parser.add_argument(
        "--folders", nargs="+", default=FOLDERS, metavar="NAME", help=f"tests to use; all: {' '.join(FOLDERS)}"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="TEXT",
        help="draw from files whose path contains one of these, such as /ops/",
    )
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        sandboxes = [Sandbox(ROOT, Path(folder) / str(place)) for place in range(options.jobs)]
        root = sandboxes[0].root
        drawn = draw(root, PACKAGES, seed=options.seed, count=options.count, only=options.only)
        if not drawn:
            parser.error(f"--only {' '.join(options.only)} --count {options.count} leave nothing to change")
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        ).stdout
        belongs = [f"commit {commit.strip()}", f"seed {options.seed}", f"count {options.count}"]
        belongs += [f"only {' '.join(options.only)}", f"folders {' '.join(options.folders)}"]
        if options.map and options.map.exists():
            try:
                known = Map.load(options.map, belongs)
            except ValueError as error:
                parser.error(str(error))
        else:
            known = record(sandboxes[0], drawn, options.folders)
            print(f"recorded after {time.monotonic() - began:.0f} s", file=sys.stderr)
            if options.map:
                known.save(options.map, belongs)
        endings = judge(sandboxes, known, drawn)
        killers = {ending.test for ending in endings if ending.test and not ending.timed_out}
        doubted = killers.difference(sandboxes[0].passing(sorted(killers)))
        return report(
            root, drawn, endings, doubted, equivalents(), seed=options.seed, minutes=(time.monotonic() - began) / 60
        )


def report(
    root: Path,
    drawn: Sequence[Mutant],
    endings: Sequence[Ending],
    doubted: set[str],
    reasons: Mapping[tuple[str, str, str, str], str],
    *,
    seed: int,
    minutes: float,
) -> int:
    """Print the table and its sums; return the exit code."""
    counts = {"killed": 0, "timed out": 0, "equivalent": 0, "survived": 0}
    print(f"seed {seed}, {len(drawn)} mutants, Python {python_version()}\n")
    for mutant, ending in zip(drawn, endings, strict=True):
        line = (root / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
        reason = reasons.get((mutant.path, line, mutant.before, mutant.after), "")
        if ending.timed_out:
            fate, words = "timed out", ending.test
        elif ending.test and ending.test not in doubted:
            fate, words = "killed", ending.test
        elif reason:
            fate, words = "equivalent", reason
        else:
            fate, words = "survived", "" if ending.test else ending.words
        counts[fate] += 1
        print(f"{fate:<10} {mutant.name}  {words}")
    asked = counts["killed"] + counts["survived"]
    share = counts["killed"] / asked if asked else 1.0
    sums = ", ".join(f"{number} {fate}" for fate, number in counts.items())
    print(f"\n{sums}: {share:.1%} of those that do something else and end; {minutes:.0f} minutes")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
