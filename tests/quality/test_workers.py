"""The workers: every test runs once, and one that fails, hangs or ends its process costs nothing but itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HANGING = """
import asyncio
import threading

def test_of_threads():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # here it hangs

async def test_of_asyncio():
    await asyncio.Event().wait()

def test_next():
    pass
"""
FAILING = """
import os
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")

def test_before(shared):
    pass

def test_that_fails(shared):
    print("words of", "this test")
    assert not shared.exists()

def test_that_ends_its_process(tmp_path):
    os._exit(7)

def test_after(shared):
    pass  # another process goes on, with a folder of its own

@pytest.mark.parametrize("number", range(20))
def test_many(number, tmp_path):
    assert not list(tmp_path.iterdir())
"""
WAITING = """
import os
import subprocess
import time
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def opened():
    yield
    Path(__file__).with_name(f"closed-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(4))
def test_wait(opened, number):
    Path(__file__).with_name(f"begun-{os.getpid()}").touch()
    time.sleep(100)
"""
LEAVING = """
import gc
import pytest

@pytest.mark.parametrize("number", range(20))
def test_of_a_file_in_a_cycle(number):
    gc.disable()  # so that nobody finds it before the end
    circle = [open(__file__)]
    circle.append(circle)
"""


def command(folder: Path, *options: str) -> list[str]:
    """Run the tests of a folder under the options of this project."""
    words = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    return [*words, f"--basetemp={folder / 'files'}", "-n", "2", *options, str(folder)]


def run(folder: Path, *options: str) -> str:
    """Return what it prints."""
    done = subprocess.run(command(folder, *options), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_what_fails_hangs_or_dies_is_named_and_everything_else_runs_once(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "test_failing.py").write_text(FAILING)
    printed = run(tmp_path, "-o", "timeout=1")
    assert "4 failed, 23 passed" in printed
    assert printed.count("Failed: Timeout") >= 2
    assert "# here it hangs" in printed
    assert "test_of_asyncio" in printed
    assert printed.count("words of this test") == 1
    assert "the process that ran this test ended with 7" in printed
    assert "test_failing.py::test_that_ends_its_process" in printed


@pytest.mark.proof
def test_a_run_that_is_to_stop_at_the_first_failure_stops(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(2000))\ndef test(n):\n    assert n != 3\n"
    )
    printed = run(tmp_path, "-x")
    assert "1 failed" in printed
    assert "stopping after 1 failures" in printed


@pytest.mark.proof
def test_a_run_that_is_interrupted_cleans_up(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITING)
    with subprocess.Popen(command(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        while len(begun := list(tmp_path.glob("begun-*"))) < 2:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        printed, _ = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in printed
    assert {file.name.partition("-")[2] for file in begun} == {
        file.name.partition("-")[2] for file in tmp_path.glob("closed-*")
    }


@pytest.mark.proof
def test_what_fails_behind_the_last_test_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    done = subprocess.run(command(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "20 passed, 2 errors" in done.stdout
    assert "ended with 1, behind the test" in done.stdout
    assert "unclosed file" in done.stdout + done.stderr


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) <= 300
