"""A clone of the project with an environment of its own, in which files can be changed and tests run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants import reached, recorder
from benchmarks.mutants.sites import Mutant

TOOL = Path(__file__).parents[2]
RUN_SECONDS = 600.0
"""How long the tests of one mutant may take; less if they are quick."""
START_SECONDS = 60.0
SLOWER = 20.0
"""How much slower a mutant may be, with others beside it, before its tests are ended."""
HANG_SECONDS = 60
"""How long one test may take."""
EPOCH = 1_600_000_000
"""When all files changed last: compiled ones are told by size and second, so each mutant is a second of its own."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run of tests ended.

    Attributes:
        test: the first test that failed; empty if none did.
        words: what it said; which tests were not asked, if none failed.
        timed_out: it, or the whole run, took too long.
    """

    test: str = ""
    words: str = ""
    timed_out: bool = False


class Sandbox:
    """See the module. Tests of `tests/quality` never run: they look at the text, not at what it does."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.root = folder / "project"
        self._out = folder / "out"
        self._out.mkdir(parents=True)
        self._changes = 0
        subprocess.run(
            ["git", "clone", "-c", "advice.detachedHead=false", "--quiet", "--local", str(project), str(self.root)],
            check=True,
        )
        for path in self.root.rglob("*.py"):
            os.utime(path, (EPOCH, EPOCH))
        self._environment = self.root / ".venv"
        venv.create(self._environment, symlinks=True)
        self._python = self._environment / "bin" / "python"
        self._reached = str(self._environment / "reached")
        self._link_packages()

    def _link_packages(self) -> None:
        """Offer the packages of the running environment, with this clone before the project."""
        command = [str(self._python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        theirs = sysconfig.get_path("purelib")
        lines = [
            str(self.root),
            f"import site; site.addsitedir({theirs!r})",
            str(TOOL),  # for a project that has no `benchmarks`
            # Only while somebody records: some tests count what is loaded.
            f"import os; os.path.exists({self._reached!r}) and __import__({reached.__name__!r}, fromlist='*').start()",
        ]
        (packages / "mutants.pth").write_text("\n".join(lines) + "\n")
        script = self._environment / "bin" / "bubbot"
        script.write_text(f"#!{self._python}\nimport sys\nfrom bubbot.__main__ import main\nsys.exit(main())\n")
        script.chmod(0o755)

    def record(
        self, annotated: Mapping[str, bytes], places: int, folders: Sequence[str], seconds: float
    ) -> tuple[dict[str, float], list[set[str]]]:
        """Run the tests in these folders with notes in the sources.

        Args:
            annotated: path -> the source with notes.
            places: how many numbers the notes have.
            folders: relative to the root.
            seconds: how long it may take.

        Returns:
            the tests that pass, with their seconds, and for each place the tests that have reached it
        """
        reached.create(self._reached, places)
        with self._changed(annotated):
            passed, failed = self._run_all(folders, (), seconds)
        tests: list[str] = json.loads((self._out / recorder.TESTS).read_text())
        notes = reached.Reached(self._reached)
        noted = [{tests[number - 1] for number in notes.tests(place) if number} for place in range(places)]
        Path(self._reached).unlink()
        # Notes are calls, which some tests count.
        return passed | self.passing(failed), noted

    def passing(self, tests: Sequence[str]) -> dict[str, float]:
        """Return which of these tests pass without a mutant, with their seconds."""
        return self._run_all(_files(tests), tests, RUN_SECONDS)[0] if tests else {}

    def _run_all(
        self, paths: Sequence[str], chosen: Sequence[str], seconds: float
    ) -> tuple[dict[str, float], list[str]]:
        """Run tests as `make test` does; return those that passed, with their seconds, and those that failed."""
        (self._out / recorder.RESULTS).unlink(missing_ok=True)
        if not self._run(paths, chosen, seconds, ["--continue-on-collection-errors"]):
            raise TimeoutError(f"the tests took longer than {seconds:.0f} seconds")
        results = json.loads((self._out / recorder.RESULTS).read_text())
        return results["passed"], results["failed"]

    def judge(self, mutant: Mutant, tests: Sequence[str], usual_seconds: float) -> Ending:
        """Run tests until one fails with a mutant in place.

        Args:
            mutant: what to change.
            tests: in this order.
            usual_seconds: what they take without it.
        """
        failure = self._out / recorder.FAILURE
        failure.unlink(missing_ok=True)
        limit = min(RUN_SECONDS, START_SECONDS + SLOWER * usual_seconds)
        source = (self.root / mutant.path).read_bytes()
        with self._changed({mutant.path: mutant.apply(source)}):
            in_time = self._run(_files(tests), tests, limit, ["-n", "0", "-x", "-o", f"timeout={HANG_SECONDS}"])
        if not failure.exists():
            return Ending(timed_out=not in_time)
        found = json.loads(failure.read_text())
        return Ending(found["test"], found["words"], "Timeout (>" in found["words"])

    @contextmanager
    def _changed(self, sources: Mapping[str, bytes]) -> Iterator[None]:
        before = {path: (self.root / path).read_bytes() for path in sources}
        self._changes += 1
        try:
            self._write(sources, EPOCH + self._changes)
            yield
        finally:
            self._write(before, EPOCH)

    def _write(self, sources: Mapping[str, bytes], changed: int) -> None:
        for path, data in sources.items():
            (self.root / path).write_bytes(data)
            os.utime(self.root / path, (changed, changed))

    def _run(self, paths: Sequence[str], chosen: Sequence[str], seconds: float, options: Sequence[str]) -> bool:
        """Run pytest in a process group of its own; return False if it had to be ended.

        Args:
            paths: what is collected.
            chosen: the tests among it that run, in this order; all if empty.
            seconds: how long they may take.
            options: for pytest.
        """
        file = self._out / recorder.CHOSEN
        file.unlink(missing_ok=True)
        if chosen:
            file.write_text(json.dumps([*chosen]))
        env = {**os.environ, "MUTANTS_OUT": str(self._out)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        plugin = ["-p", "benchmarks.mutants.recorder"]
        command = [str(self._python), "-m", "pytest", "-q", "--tb=line", *plugin, *options, *paths]
        with (self._out / "printed.txt").open("w") as printed:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        else:
            return True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _files(tests: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(test.partition("::")[0] for test in tests)]


def python_version() -> str:
    """Name the interpreter, for the report."""
    return sys.version.split()[0]
