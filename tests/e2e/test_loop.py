"""The whole loop: people rate wrong answers, and newer weights answer right. `make loop` installs it; missing, that is a failure in the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.features.learn.weights.digest import digest_weights
from tests.loop.serving import loop_is_installed
from tests.loop.story import GREETING, LESSONS, Loop

MISSING = "training and serving are not installed: make loop"


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
    assert figures.passed == {
        "before": {**dict.fromkeys(cases, False), "greeting": True},
        "after": {**dict.fromkeys(cases, True), "greeting": True},
    }
    assert figures.longest > 4_096, "the prompt of a session with its tools"
    assert loop.model(2) in figures.why
    assert digest_weights(loop.weights(2))[0] in figures.why
    for receipt, training in zip(figures.receipts, figures.trainings, strict=True):
        assert training["turns"] == receipt["records"]
        assert 0 < training["good"] < training["turns"], "what people called bad is exported, and not learned"
        assert training["losses"][-1] < training["losses"][0] / 2
