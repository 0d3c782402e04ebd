"""The whole loop: people rate wrong answers, and newer weights answer right. `make loop` installs it; missing, that is a failure in the proof."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.features.learn.weights.digest import digest_weights
from tests.docs.pages import ROOT
from tests.loop.serving import loop_is_installed
from tests.loop.story import GREETING, LESSONS, Loop

MISSING = "training and serving are not installed: make loop"
END_SECONDS = 30.0


@pytest.mark.proof
async def test_the_next_session_answers_right_with_the_weights_that_learned_from_ratings(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not loop_is_installed():
        (pytest.fail if request.config.getoption("--proof") else pytest.skip)(MISSING)

    loop = Loop(tmp_path)
    figures = await loop.run()

    assert GREETING not in figures.newborn
    assert figures.before["greeting"] == GREETING, "the case that must not get worse"
    for lesson in LESSONS:
        assert lesson.held_out not in lesson.questions
        assert lesson.words not in figures.before[lesson.case]
        assert lesson.words in figures.after[lesson.case]
    assert GREETING in figures.after["greeting"]
    cases = [lesson.case for lesson in LESSONS]
    for passed in figures.passed:
        assert passed["before"] == {**dict.fromkeys(cases, False), "greeting": True}
        assert all(passed["after"].values()) == (passed is figures.passed[-1]), "what was refused was not the last"
    assert figures.passed[-1]["after"].keys() == {*cases, "greeting"}
    assert figures.longest > 4_096, "the prompt of a session with its tools"
    assert loop.model(loop.newest) in figures.why
    assert digest_weights(loop.weights(loop.newest))[0] in figures.why
    first, second = figures.receipts
    for number, training in enumerate(figures.trainings):
        assert training["turns"] == (second if number else first)["records"]
        assert 0 < training["good"] < training["turns"], "what people called bad is exported, and not learned"
        assert training["losses"][-1] < training["losses"][0] / 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_the_loop_started_ends_with_it_even_if_it_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = f"import time; file = open({str(pipe)!r}, 'w'); print('up', file=file, flush=True); time.sleep(600)"
    code = (
        "import asyncio, pathlib, sys; from tests.loop.programs import run_program; "
        f"asyncio.run(run_program(sys.executable, '-c', {program!r}, env={{}}, folder=pathlib.Path(), seconds=600))"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as loop:
        try:
            with pipe.open("rb", buffering=0) as file:
                assert file.read(3) == b"up\n"
                loop.send_signal(number)
                assert select.select([file], [], [], END_SECONDS)[0], "the program still runs"
                assert file.read() == b""
        finally:
            loop.kill()
