"""Draw mutants, run the tests that reach them, and print which test kills which.

    python -m benchmarks.mutants --seed 20261122

The checkout has to be committed: clones of it are changed, never the checkout. The first step runs the whole suite
once with coverage, to learn which tests reach which line (about 25 minutes on two cores, eight with `--folders contract
docs property unit`); `--map FILE` keeps that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from queue import Queue

from benchmarks.mutants.sandbox import Ending, Sandbox, python_version
from benchmarks.mutants.sites import Mutant, draw

ROOT = Path(__file__).parents[2]
PACKAGES = ("bubbot", "channels")
FOLDERS = ("contract", "docs", "e2e", "property", "unit")
"""All tests but those of `quality`, which look at the text and not at what it does."""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
RECORD_SECONDS = 5400.0
RUN_SECONDS = 900.0
GOAL = 0.97


@dataclass(frozen=True)
class Map:
    """What one run of the whole suite showed.

    Attributes:
        seconds: the tests that passed, with their duration.
        lines: file -> line -> the tests that ran it; none for a line that ran only while its module was imported.
    """

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, set[str]]]

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant's line, those that reach little else first.

        Importing a module belongs to no test: a line that ran only then gets the tests of all lines of its file.
        """
        lines = self.lines.get(mutant.path, {})
        found = lines.get(mutant.line, set())
        if mutant.line in lines and not found:
            found = set().union(*lines.values())
        return self._narrow_first(found)

    def further_tests(self, mutant: Mutant) -> list[str]:
        """Return the other tests of a mutant's file, and those of its folder under `tests/unit`.

        A line that runs once in a process, such as one of a cached function, has only the test that came first; one that
        runs in a sandbox has none.
        """
        near, known = self.tests(mutant), self.lines.get(mutant.path, {})
        mirrored = f"tests/unit/{PurePosixPath(mutant.path.removeprefix('bubbot/')).parent}/"
        found = set().union(*known.values()) | {one for one in self.seconds if one.startswith(mirrored)}
        return self._narrow_first(found.difference(near))

    def _narrow_first(self, tests: Iterable[str]) -> list[str]:
        breadth = self._breadth
        return sorted((one for one in tests if one in self.seconds), key=lambda one: (breadth.get(one, 0), one))

    @cached_property
    def _breadth(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for lines in self.lines.values():
            for tests in lines.values():
                for test in tests:
                    counts[test] = counts.get(test, 0) + 1
        return counts

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        lines = {path: {str(line): sorted(tests) for line, tests in of.items()} for path, of in self.lines.items()}
        file.write_text(json.dumps({"seconds": dict(self.seconds), "lines": lines}))

    @classmethod
    def load(cls, file: Path) -> Map:
        """Read what `save` wrote."""
        data = json.loads(file.read_text())
        lines = {path: {int(line): set(tests) for line, tests in of.items()} for path, of in data["lines"].items()}
        return cls(data["seconds"], lines)


def record(sandboxes: Sequence[Sandbox], folders: Sequence[str]) -> Map:
    """Run the tests of these folders once, shared among the sandboxes."""
    tests = sandboxes[0].root / "tests"
    files = sorted(path for folder in folders for path in (tests / folder).rglob("test_*.py"))
    names = [path.relative_to(sandboxes[0].root).as_posix() for path in files]
    with ThreadPoolExecutor(len(sandboxes)) as threads:
        jobs = [
            threads.submit(sandbox.record, names[place :: len(sandboxes)], RECORD_SECONDS)
            for place, sandbox in enumerate(sandboxes)
        ]
        seconds = {test: took for job in jobs for test, took in job.result().items()}
    lines: dict[str, dict[int, set[str]]] = {}
    for sandbox in sandboxes:
        for path, of in sandbox.lines().items():
            for line, found in of.items():
                lines.setdefault(path, {}).setdefault(line, set()).update(found)
    return Map(seconds, lines)


def judge(sandboxes: Sequence[Sandbox], known: Map, mutants: Sequence[Mutant]) -> list[Ending]:
    """Run the tests that reach each mutant, and if none notices it those that are about its file."""
    free: Queue[Sandbox] = Queue()
    for sandbox in sandboxes:
        free.put(sandbox)

    def one(mutant: Mutant) -> Ending:
        sandbox, ending = free.get(), Ending()
        try:
            for tests in (known.tests(mutant), known.further_tests(mutant)):
                if tests and not ending.test and not ending.timed_out:
                    ending = sandbox.run(mutant, tests, RUN_SECONDS)
        finally:
            free.put(sandbox)
        print(f"{mutant.name}: {ending.test or ('timed out' if ending.timed_out else 'SURVIVED')}", file=sys.stderr)
        return ending

    with ThreadPoolExecutor(len(sandboxes)) as threads:
        return list(threads.map(one, mutants))


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Return the reasons why some mutants do the same, by path, whole line, what was there and what came instead."""
    if not EQUIVALENT.exists():
        return {}
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(row["path"], row["line"], row["before"], row["after"]): row["reason"] for row in rows}


def main() -> int:
    """Draw, judge, print a table; return 1 if fewer than 97 of 100 are killed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=20261122, help="chooses the mutants")
    parser.add_argument("--count", type=int, default=100, help="how many")
    parser.add_argument("--map", type=Path, help="file that keeps which tests reach which line")
    parser.add_argument("--jobs", type=int, default=2, help="clones that run tests at the same time")
    parser.add_argument(
        "--folders", nargs="+", default=FOLDERS, metavar="NAME", help=f"tests to use; all: {' '.join(FOLDERS)}"
    )
    parser.add_argument("--only", default="", help="only mutants whose path contains this text")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        sandboxes = [Sandbox(ROOT, Path(folder) / str(place)) for place in range(options.jobs)]
        if options.map and options.map.exists():
            known = Map.load(options.map)
        else:
            known = record(sandboxes, options.folders)
            if options.map:
                known.save(options.map)
        root = sandboxes[0].root
        drawn = [
            one for one in draw(root, PACKAGES, seed=options.seed, count=options.count) if options.only in one.path
        ]
        endings = judge(sandboxes, known, drawn)
        killers = sorted({ending.test for ending in endings if ending.test and not ending.timed_out})
        doubted = {test for test in killers if sandboxes[0].run(None, [test], RUN_SECONDS).test}
        return report(root, drawn, endings, doubted, seed=options.seed, minutes=(time.monotonic() - began) / 60)


def report(
    root: Path, drawn: Sequence[Mutant], endings: Sequence[Ending], doubted: set[str], *, seed: int, minutes: float
) -> int:
    """Print the table and its sums; return the exit code."""
    reasons, counts = equivalents(), {"killed": 0, "timed out": 0, "equivalent": 0, "survived": 0}
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
            fate, words = "survived", ""
        counts[fate] += 1
        print(f"{fate:<10} {mutant.name}  {words}")
    asked = counts["killed"] + counts["survived"]
    share = counts["killed"] / asked if asked else 1.0
    sums = ", ".join(f"{number} {fate}" for fate, number in counts.items())
    print(f"\n{sums}: {share:.1%} of those that do something else and end; {minutes:.0f} minutes")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
