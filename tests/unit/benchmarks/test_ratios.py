"""Two revisions take turns, what they take is that of their processes, and the table says what is met."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ratios
from benchmarks.bench import words
from benchmarks.ratios import (
    BASE,
    COMMANDS,
    CURRENT,
    LENGTH,
    STATUS,
    CannotMeasure,
    Command,
    Plan,
    Rounds,
    Row,
    Tree,
    alternate,
    make_rows,
    measure_commands,
    parse,
    processor_seconds,
    report,
    talk,
    uses_aiosqlite,
    worktree,
)
from benchmarks.soak.parts import Bench
from benchmarks.soak.process import Process, ProcessFailed

SPUN = 0.2
SPINNING = f"import time\nwhile time.process_time() < {SPUN}: pass"
"""A program that takes so many seconds of processor time."""
ANSWERS = """
import os, sys
home, command = sys.argv[2], sys.argv[3]
with open(os.path.join(os.path.dirname(os.path.dirname(home)), "calls"), "a") as calls:
    calls.write(f"{os.environ['PYTHONPATH']} {command}\\n")
print("said")
sys.exit(command == "status")
"""


def tree(folder: Path, program: str, name: str = CURRENT) -> Tree:
    """The code of a bubbot that is this program."""
    package = folder / name / "bubbot"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(program)
    return Tree(name, folder / name, sys.executable)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a file that says `old` in the first commit and `new` in the second."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("old", "new"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", text)
    return folder


def test_who_was_last_in_a_round_is_first_in_the_next(tmp_path: Path) -> None:
    base, current = (Tree(name, tmp_path, sys.executable) for name in (BASE, CURRENT))
    assert [one.name for one in alternate(3, (base, current))] == [BASE, CURRENT, CURRENT, BASE, BASE, CURRENT]


def test_a_revision_is_there_for_the_block_alone(repository: Path, tmp_path: Path) -> None:
    with worktree(repository, "HEAD~1", tmp_path) as path:
        assert (path / "file").read_text() == "old"
    assert not path.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("revision", ["nowhere", "--help"])
def test_an_unknown_revision_ends_with_its_name_and_the_exit_code_1(
    repository: Path, revision: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ratios, "ROOT", repository)
    assert ratios.main(["--", revision]) == 1
    assert f"{revision}^{{commit}}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["HEAD", "--rounds", "0"]])
def test_what_would_measure_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
    assert "usage" in capsys.readouterr().err


def test_the_processor_time_of_a_command_is_that_of_its_children_too(tmp_path: Path) -> None:
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPINNING!r}])\nprint('done')"
    assert tree(tmp_path, program).processor_of(Command("spin", [], 1.0), tmp_path) >= SPUN


@pytest.mark.parametrize(
    ("program", "said"), [("raise SystemExit('no such model')", "no such model"), ("pass", "ended with 0")]
)
def test_a_command_that_fails_or_says_nothing_cannot_be_measured(tmp_path: Path, program: str, said: str) -> None:
    with pytest.raises(CannotMeasure, match=said):
        tree(tmp_path, program).processor_of(Command("fail", [], 1.0), tmp_path)


def test_an_installed_copy_is_not_taken_for_the_code_of_a_revision(tmp_path: Path) -> None:
    tree(tmp_path, "").check(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CannotMeasure):
        Tree(BASE, tmp_path / "empty", sys.executable).check(tmp_path)


def test_every_command_runs_once_a_round_with_either_code_and_the_first_time_does_not_count(tmp_path: Path) -> None:
    trees, rounds = [tree(tmp_path, ANSWERS, name) for name in (BASE, CURRENT)], Rounds()
    measure_commands(Plan(rounds=2), trees, tmp_path / "homes", rounds)
    took = {name: [len(values[BASE]), len(values[CURRENT])] for name, values in rounds.taken.items()}
    assert took == {one.name: [2, 2] for one in COMMANDS}
    order = [one.path for one in (trees[0], trees[1], trees[1], trees[0], trees[0], trees[1])]
    expected = [f"{path} {one.arguments[0]}" for path in order for one in COMMANDS]
    assert (tmp_path / "homes" / "calls").read_text().splitlines() == expected


async def test_the_processor_time_of_a_process_is_that_of_its_threads_and_children_too() -> None:
    program = f"""
import subprocess, sys, threading
def spin():
    import time
    while time.thread_time() < {SPUN}: pass
thread = threading.Thread(target=spin)
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", {SPINNING!r}])
child = subprocess.Popen([sys.executable, "-c", {SPINNING + "; print(); input()"!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
input()
"""
    program = program.replace("pass; print()", "pass\\nprint()")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    assert processor_seconds(process.pid) >= 3 * SPUN - 0.02, "the clock of ended children ticks 100 times a second"
    await process.communicate(b"\n")


class Silent(Bench):
    """People who get no answer."""

    async def talk(
        self, messages: int, ahead: int, spread: float = 0.0, chats: Sequence[int] | None = None
    ) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}


@pytest.fixture
async def silent(tmp_path: Path) -> AsyncIterator[Silent]:
    """A daemon that ends if it reads a line."""
    (tmp_path / "log").write_text("no disk")
    command = [sys.executable, "-c", "input()"]
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
    yield Silent(Process("daemon", child, tmp_path / "log"), {})
    await child.communicate(b"\n")


async def test_a_daemon_that_ends_is_not_waited_for(silent: Silent) -> None:
    talking = asyncio.create_task(talk(silent, 1))
    await asyncio.sleep(0)
    await silent.daemon.child.communicate(b"\n")
    with pytest.raises(ProcessFailed, match=r"ended with 0(?s:.*)no disk"):
        async with asyncio.timeout(ratios.TALK_SECONDS / 4):
            await talking


async def test_a_daemon_that_answers_nobody_is_left(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios, "TALK_SECONDS", 0.01)
    with pytest.raises(ProcessFailed, match=r"left people waiting(?s:.*)no disk"):
        await talk(silent, 1)


@pytest.mark.parametrize("size", [1, 1_000, 5_000])
def test_a_tape_ends_at_a_new_window_near_its_size(size: int) -> None:
    near = ratios._to_a_new_window(size)
    assert abs(near - max(size, 85)) <= 40
    assert list(words.tape(near, words.Words()))[-1].payload["name"] == "phase/next"


def test_a_ratio_is_that_of_the_rounds_and_a_limit_is_held_by_the_current_code() -> None:
    rounds = Rounds()
    names = [
        ratios.TURN,
        ratios.CROWDED,
        ratios.THROUGHPUT,
        ratios.MEMORY,
        LENGTH,
        *(one.name for one in (*COMMANDS, STATUS)),
    ]
    for what in names:
        for base, current in ((1.0, 1.5), (10.0, 15.0), (100.0, 1_000.0)):
            rounds.add(what, BASE, base)
            rounds.add(what, CURRENT, current)
    rows = {row.name: row for row in make_rows(rounds, (85, 409))}
    assert rows[ratios.TURN] == Row(ratios.TURN, "ms", 10.0, 15.0, 1.5, 3.0)
    assert rows[STATUS.name].figure == 15.0
    assert rows[STATUS.name].met is False
    assert rows[ratios.THROUGHPUT].met is True
    assert rows[ratios.CROWDED].met is None
    assert rows["a turn at 409 entries to that at 85, processor"].met is False


def test_the_table_says_of_each_goal_whether_it_is_met() -> None:
    rows = [
        Row("slow", "ms", 1.0, 3.0, 3.0, 2.0),
        Row("fast", "/s", 10.0, 9.0, 0.9, 0.8, least=True),
        Row("free", "ms", 4.0, 2.0, 0.5),
    ]
    said = [line.split() for line in report(rows).splitlines()]
    assert said == [
        ["base", "current", "figure", "goal", "met"],
        ["slow", "1.00", "ms", "3.00", "ms", "3.00", "at", "most", "2", "NO"],
        ["fast", "10.00", "/s", "9.00", "/s", "0.90", "at", "least", "0.8", "yes"],
        ["free", "4.00", "ms", "2.00", "ms", "0.50"],
    ]


@pytest.mark.parametrize(("listed", "uses"), [('"aiosqlite>=0.20"', True), ('"aiohttp"', False)])
def test_a_turn_may_take_longer_with_aiosqlite(tmp_path: Path, listed: str, uses: bool) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = [{listed}]\n")
    assert uses_aiosqlite(tmp_path) is uses
