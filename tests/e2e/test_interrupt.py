"""Ctrl-C while the program starts: exit code 130 and not a word, by the launcher that is installed as `bubbot`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.e2e.bot import environment

LAUNCHER = ROOT / "bubbot" / "cli" / "launcher" / "bubbot"
INTERRUPTED = {130, -signal.SIGINT}
"""A shell says 130 for both: Python, before it handles signals at all, ends by the signal."""
OURS = re.compile(rb'File "[^"]*(?:site\.py|bubbot/\w+\.py|bubbot/cli/)')


@pytest.fixture
def bubbot(tmp_path: Path) -> Path:
    """The launcher in an environment, behind a link as uv and pipx make one."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(LAUNCHER, folder)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    (tmp_path / "bubbot").symlink_to(folder / "bubbot")
    return tmp_path / "bubbot"


def start(bubbot: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    folder = bubbot.parent
    variables = environment(folder / "home", PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]), **env)
    pipe = subprocess.PIPE
    return subprocess.Popen([bubbot, *arguments], env=variables, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder)


@pytest.mark.proof
def test_it_runs_as_the_module_does(bubbot: Path) -> None:
    with start(bubbot, "ask", "hello") as process:
        assert process.communicate(timeout=60) == (b"You said: hello\n", b"")
    assert process.returncode == 0
    with start(bubbot, "tpae") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1)


def test_a_folder_as_standard_input_is_refused_before_python_aborts(bubbot: Path) -> None:
    folder = os.open(bubbot.parent, os.O_RDONLY)
    try:
        done = subprocess.run([bubbot, "--help"], stdin=folder, capture_output=True, check=False, timeout=60)
    finally:
        os.close(folder)
    message = b"bubbot: standard input is a folder; < /dev/null runs the command without it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", message)


def test_while_python_loads_its_packages(bubbot: Path) -> None:
    """Where an entry point shows a traceback: Python imports `sitecustomize` before any line of a script."""
    (bubbot.parent / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    with start(bubbot, "--help") as process:
        assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


def test_in_the_background_it_is_ignored(bubbot: Path) -> None:
    (bubbot.parent / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ignored = f"trap '' INT; exec {bubbot} --version"
    variables = environment(bubbot.parent / "home", PYTHONPATH=os.pathsep.join([str(bubbot.parent), str(ROOT)]))
    done = subprocess.run(["sh", "-c", ignored], env=variables, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(b"bubbot ")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("milliseconds", [1, 5, 20, 50, 100, 300])
def test_after_some_milliseconds(bubbot: Path, milliseconds: int) -> None:
    with start(bubbot, "chat") as process:
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # Python's own first steps, which no program can reach, may complain; nothing of ours nor of `site` may be in it.
    assert OURS.search(err) is None, err
    if not err:
        assert (process.returncode in INTERRUPTED, out) == (True, b"")
