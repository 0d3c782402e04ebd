"""A process that was forked behaves as one of an interpreter of its own: what the other tests rest on."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e import forked
from tests.e2e.bot import environment, run


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", [["--help"], ["chta"], ["chat"], ["tape", "show", "stdin:nobody"]], ids=" ".join)
def test_output_errors_and_exit_code_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    ways = []
    for way in ("fork", "anew"):
        if way == "anew":
            monkeypatch.setenv(forked.ANEW, "yes")
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        done = run(tmp_path / "home", *arguments, lines=["grüße", ",help"])
        ways.append((done.returncode, done.stdout, done.stderr))
    assert ways[0] == ways[1]
    assert ways[0][1] or ways[0][2]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_is_told(tmp_path: Path, number: signal.Signals) -> None:
    given, ours = os.pipe()
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        env, streams = environment(tmp_path / "home"), (given, nothing, nothing)
        waiting = "import sys; sys.stdin.read()"  # for what nobody writes, so that it does not end by itself
        child = forked.start(forked.PROGRAM, [waiting], env=env, cwd=tmp_path, streams=streams)
        assert child.pid != os.getpid()
        child.send_signal(number)
        assert child.wait(20) == -number
        assert child.returncode == -number
    finally:
        for end in (given, ours, nothing):
            os.close(end)
