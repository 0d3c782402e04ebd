"""Which tests reach the drawn mutants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from benchmarks.mutants.sites import Mutant

TESTS_SECONDS = 600.0
"""How long the tests of a mutant took together while the suite was recorded; the rest is left out."""


@dataclass(frozen=True)
class Map:
    """What one run of the whole suite showed.

    Attributes:
        seconds: the tests that passed, with their duration.
        mutants: mutant -> the tests that reach its place.
        files: path -> the tests that run any function of this file; only files of mutants.
    """

    seconds: Mapping[str, float]
    mutants: Mapping[Mutant, set[str]]
    files: Mapping[str, set[str]]

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach a mutant, in the order in which they should be asked."""
        return self._choose(self.mutants[mutant])

    def further_tests(self, mutant: Mutant) -> list[str]:
        """Return the other tests of a mutant's file, and those of its folder under `tests/unit`.

        What runs once in a process, such as a cached function, is reached by the test that came first; what runs while a
        module is imported, or in a sandbox, by none.
        """
        return self._choose(self._about(mutant) - self.mutants[mutant])

    def count_left_out(self, mutant: Mutant) -> int:
        """Return how many tests that might notice a mutant are not asked."""
        related = [one for one in self._about(mutant) | self.mutants[mutant] if one in self.seconds]
        return len(related) - len(self.tests(mutant)) - len(self.further_tests(mutant))

    def _about(self, mutant: Mutant) -> set[str]:
        mirrored = f"tests/unit/{PurePosixPath(mutant.path.removeprefix('bubbot/')).parent}/"
        return self.files[mutant.path] | {one for one in self.seconds if one.startswith(mirrored)}

    def _choose(self, tests: Iterable[str]) -> list[str]:
        """Put those first that are quick and reach little else, and drop what would take too long altogether."""
        known = [one for one in tests if one in self.seconds]
        ordered = sorted(known, key=lambda one: ((self.seconds[one] + 0.01) * (1 + self._breadth.get(one, 0)), one))
        chosen, total = [], 0.0
        for one in ordered:
            total += self.seconds[one]
            if total > TESTS_SECONDS:
                break
            chosen.append(one)
        return chosen

    @cached_property
    def _breadth(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for tests in (*self.mutants.values(), *self.files.values()):
            for test in tests:
                counts[test] = counts.get(test, 0) + 1
        return counts

    def save(self, file: Path, draw: Sequence[str]) -> None:
        """Write it as JSON, with what it belongs to."""
        mutants = [[asdict(mutant), sorted(tests)] for mutant, tests in self.mutants.items()]
        files = {path: sorted(tests) for path, tests in self.files.items()}
        content = {"draw": [*draw], "seconds": dict(self.seconds), "mutants": mutants, "files": files}
        file.write_text(json.dumps(content))

    @classmethod
    def load(cls, file: Path, draw: Sequence[str]) -> Map:
        """Read what `save` wrote. Raises `ValueError` if it belongs to something else, or is no such file."""
        try:
            data = json.loads(file.read_text())
        except ValueError as error:
            raise ValueError(f"{file} is no map: {error}") from error
        if data.get("draw") != [*draw]:
            raise ValueError(f"{file} belongs to {' '.join(data.get('draw', ['another version']))}")
        mutants = {Mutant(**fields): set(tests) for fields, tests in data["mutants"]}
        return cls(data["seconds"], mutants, {path: set(tests) for path, tests in data["files"].items()})
