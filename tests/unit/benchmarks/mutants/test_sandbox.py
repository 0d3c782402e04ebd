"""Mutants of a small project, recorded and judged as those of bubbot are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.mutants import sandbox as sandboxes
from benchmarks.mutants.__main__ import record, report
from benchmarks.mutants.map import Map
from benchmarks.mutants.sandbox import Ending, Sandbox
from benchmarks.mutants.sites import Mutant, draw

# One worker: a process that cannot tell its test counts for all that run.
PYPROJECT = """
[tool.pytest.ini_options]
addopts = "-n 0 -p no:simcord -p no:cacheprovider -p no:hypothesispytest -p no:asyncio -p no:anyio -p no:playwright"
"""
SOURCE = '''"""A small project."""

import time


def double(number):
    return number * 2


TABLE = double(4)


def fork(number):
    return number + 1


def start(number):
    print(number - 1, flush=True)
    time.sleep(60)


def count(limit):
    number = 0
    while True:
        number += 1
        if number == limit:
            break
    return number


def never(number):
    return number // 5


def unnoticed(number):
    return number in (1, 2)
'''
TESTS = """
import os, subprocess, sys

from bubbot import small


def test_table():
    assert small.TABLE == 8


def test_fork():
    source, sink = os.pipe()
    if os.fork() == 0:
        os.write(sink, str(small.fork(1)).encode())
        os._exit(0)
    os.wait()
    assert os.read(source, 9) == b"2"


def test_start():
    code = "from bubbot import small; small.start(6)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, cwd="/"
    )
    with child:
        line = child.stdout.readline()
        child.kill()
    assert line == b"5\\n"


def test_nameless():
    code = "from bubbot import small; print(small.count(2))"
    assert subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, cwd="/").stdout == b"2\\n"


def test_unnoticed():
    small.unnoticed(1)
"""
MUTANTS = ("number * 2", "number + 1", "print(number - 1, flush=True)", "break", "number // 5", "in")


@dataclass(frozen=True)
class Project:
    """The sandbox, what was recorded in it, and the mutants by what they replace."""

    sandbox: Sandbox
    known: Map
    mutants: dict[str, Mutant]

    def tests(self, text: str) -> set[str]:
        """Return the names of the tests that reach a mutant."""
        return {test.partition("::")[2] for test in self.known.mutants[self.mutants[text]]}

    def judge(self, text: str) -> Ending:
        """Run all tests with a mutant in place."""
        ending = self.sandbox.judge(self.mutants[text], [*self.known.seconds], 1.0)
        return Ending(ending.test.partition("::")[2], "", ending.timed_out)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("small") / "checkout"
    for path, text in {
        "pyproject.toml": PYPROJECT,
        "bubbot/__init__.py": "",
        "bubbot/small.py": SOURCE,
        "tests/unit/test_small.py": TESTS,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "begin"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandboxes, "HANG_SECONDS", 1)
        sandbox = Sandbox(root, root.with_name("clone"))
        drawn = [one for one in draw(sandbox.root, ("bubbot",), seed=1, count=100) if one.before in MUTANTS]
        yield Project(sandbox, record(sandbox, drawn, ["unit"]), {one.before: one for one in drawn})


def test_the_tests_that_reach_a_place_are_known_also_if_another_process_does(project: Project) -> None:
    assert project.tests("number + 1") == {"test_fork"}
    assert project.tests("print(number - 1, flush=True)") == {"test_start"}  # its process was killed
    assert project.tests("in") == {"test_unnoticed"}


def test_a_process_that_does_not_know_its_test_counts_for_all_that_run(project: Project) -> None:
    assert "test_nameless" in project.tests("break")


def test_what_nothing_or_only_the_import_reaches_belongs_to_no_test(project: Project) -> None:
    assert project.tests("number // 5") == set()
    assert project.tests("number * 2") <= {"test_start", "test_nameless"}  # whose processes imported it


def test_a_mutant_is_killed_or_survives_or_takes_too_long(project: Project) -> None:
    assert project.judge("number * 2") == Ending("test_table")
    assert project.judge("number + 1") == Ending("test_fork")
    assert project.judge("in") == Ending()
    assert project.judge("break").timed_out
    assert (project.sandbox.root / "bubbot" / "small.py").read_text() == SOURCE


def test_the_report_counts_what_became_of_them(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    endings = {
        "number * 2": Ending("a"),
        "number + 1": Ending("b"),
        "in": Ending(words="3 tests were left out"),
        "break": Ending("c", "", timed_out=True),
    }
    drawn = [project.mutants[text] for text in endings]
    reasons = {("bubbot/small.py", "return number in (1, 2)", "in", "not in"): "Nobody asks."}
    code = report(project.sandbox.root, drawn, [*endings.values()], {"b"}, reasons, seed=1, minutes=2.0)
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[2:6]] == ["killed", "survived", "equivalent", "timed"]
    assert "1 killed, 1 timed out, 1 equivalent, 1 survived: 50.0% of those that do something else" in printed
    assert code == 1
