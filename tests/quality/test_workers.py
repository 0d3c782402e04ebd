"""A test that hangs ends with a failure that shows where, and the suite goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PLANTED = """
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


def test_a_planted_deadlock_fails_with_its_place_and_the_next_test_runs(tmp_path: Path) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [*command, "-n", "1", "-o", "timeout=1", str(planted)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "2 failed, 1 passed" in ran.stdout
    assert ran.stdout.count("Failed: Timeout") >= 2
    assert "# here it hangs" in ran.stdout
    assert "test_of_asyncio" in ran.stdout


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) <= 300
