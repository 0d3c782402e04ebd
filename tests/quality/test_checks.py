"""Style, form, types and layers: a green test run means that all four are green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _check(*command: str) -> None:
    """Runs a tool of this environment on the whole project; what it prints is what the test says."""
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=550,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(command[1:])}\n{ran.stdout}"


def test_ruff_finds_nothing() -> None:
    _check(sys.executable, "-m", "ruff", "check")


def test_every_file_is_formatted() -> None:
    _check(sys.executable, "-m", "ruff", "format", "--check")


@pytest.mark.timeout(600)  # the first time in a checkout it has no cache, and beside other work that is long
def test_mypy_finds_nothing() -> None:
    _check(sys.executable, "-m", "mypy")


def test_imports_keep_to_the_layers() -> None:
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    _check(sys.executable, "-P", "-c", script)
