"""A clone of the project with an environment of its own, in which files can be changed and tests run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage

from benchmarks.mutants import recorder
from benchmarks.mutants.sites import Mutant

_CHILD = '''\
"""Measures a child process of a test; started by a .pth file."""
import atexit, os

def start():
    if os.environ.get("MUTANTS_OUT"):
        return
    try:
        with open({context!r}) as file:
            context = file.read()
    except OSError:
        return
    import coverage
    measured = coverage.Coverage({data!r}, data_suffix=True, source={source!r}, context=context, config_file=False)
    measured.start()
    atexit.register(lambda: (measured.stop(), measured.save()))

start()
'''


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run of tests ended.

    Attributes:
        test: the first test that failed; empty if none did.
        words: what it said.
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
        subprocess.run(["git", "clone", "--quiet", "--local", str(project), str(self.root)], check=True)
        venv.create(self.root / ".venv", symlinks=True)
        self._python = self.root / ".venv" / "bin" / "python"
        self._link_packages()

    def _link_packages(self) -> None:
        """Offer the packages of the running environment, with this clone before the project."""
        command = [str(self._python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        theirs = sysconfig.get_path("purelib")
        sources = [str(self.root / "bubbot"), str(self.root / "channels")]
        context, data = str(self._out / recorder.CONTEXT), str(self._out / "data")
        (packages / "mutants_child.py").write_text(_CHILD.format(context=context, data=data, source=sources))
        lines = [str(self.root), f"import site; site.addsitedir({theirs!r})", "import mutants_child"]
        (packages / "mutants.pth").write_text("\n".join(lines) + "\n")
        script = self.root / ".venv" / "bin" / "bubbot"
        script.write_text(f"#!{self._python}\nimport sys\nfrom bubbot.__main__ import main\nsys.exit(main())\n")
        script.chmod(0o755)

    def record(self, files: Sequence[str], seconds: float) -> dict[str, float]:
        """Run test files and measure them; return the tests that passed with their seconds."""
        self._run(files, seconds, record=True)
        (self._out / recorder.CONTEXT).unlink(missing_ok=True)
        found: dict[str, float] = json.loads((self._out / recorder.RESULTS).read_text())
        return found

    def lines(self) -> dict[str, dict[int, set[str]]]:
        """Return which tests ran which line of which file, as far as `record` has seen."""
        whole = coverage.CoverageData(no_disk=True)
        for path in sorted(self._out.glob("data.*")):
            part = coverage.CoverageData(str(path))
            try:
                part.read()
            except coverage.CoverageException:  # of a child that a test killed while it was writing the file
                continue
            whole.update(part)
        found: dict[str, dict[int, set[str]]] = {}
        for measured in whole.measured_files():
            relative = Path(measured).relative_to(self.root).as_posix()
            lines = whole.contexts_by_lineno(measured)
            found[relative] = {line: {one for one in tests if one} for line, tests in lines.items()}
        return found

    def run(self, mutant: Mutant | None, tests: Sequence[str], seconds: float) -> Ending:
        """Run tests until one fails, with a mutant in place, or none."""
        (self._out / recorder.FAILURE).unlink(missing_ok=True)
        if mutant is None:
            return self._ending(in_time=self._run(tests, seconds, record=False))
        before = mutant.apply(self.root)
        try:
            return self._ending(in_time=self._run(tests, seconds, record=False))
        finally:
            (self.root / mutant.path).write_bytes(before)

    def _ending(self, *, in_time: bool) -> Ending:
        file = self._out / recorder.FAILURE
        if not file.exists():
            return Ending(timed_out=not in_time)
        failure = json.loads(file.read_text())
        return Ending(failure["test"], failure["words"], "Timeout (>" in failure["words"])

    def _run(self, tests: Sequence[str], seconds: float, *, record: bool) -> bool:
        """Run pytest in a process group of its own; return False if it had to be ended."""
        chosen = self._out / "tests.txt"
        chosen.write_text("".join(f"{one}\n" for one in tests))
        options = [] if record else ["-x", "-o", "timeout=60"]
        plugin = ["-p", "benchmarks.mutants.recorder"]
        more = {"MUTANTS_RECORD": "1", "TESTS_START_ANEW": "yes"} if record else {}
        env = {**os.environ, **more, "MUTANTS_OUT": str(self._out), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [str(self._python), "-m", "pytest", "-n", "0", "-q", "--tb=line", *plugin, *options, f"@{chosen}"],
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=(self._out / "printed.txt").open("w"),
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


def python_version() -> str:
    """Name the interpreter, for the report."""
    return sys.version.split()[0]
