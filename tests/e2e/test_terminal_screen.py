"""What stands on the screen of a real terminal that folds its rows when it is made narrower: tmux."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tmux import chat_in_tmux

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

STORIES = {
    "latin": [f"word{number:02}" for number in range(80)],
    "wide": [f"第{number:02}句🍵话🍀说磁带" for number in range(80)],
}
"""Far longer than where the window is changed last: on a busy machine some words pass between two looks at it."""
KEY = "sk-planted-key-3f91"
UNREACHABLE = {
    "BUBBOT_LOG__LEVEL": "debug",
    "BUBBOT_MODEL__NAME": "openai/test",
    "BUBBOT_MODEL__API_KEY": KEY,
    "BUBBOT_MODEL__API_BASE": f"http://127.0.0.1:9/{KEY}/v1",  # nobody listens
    "BUBBOT_MODEL__RETRIES": "1",
    "BUBBOT_MODEL__RETRY_WAIT": "0.01",
}
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": "slow", "steps": [{"delay": 60, "text": "late"}]},
        *({"when": name, "steps": [{"pace": 0.03, "text": " ".join(words)}]} for name, words in STORIES.items()),
    ]
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


def reached(rows: list[str], words: list[str]) -> int:
    """The place of the last word that is shown."""
    shown = "".join(rows).replace(" ", "")
    return max((place for place, word in enumerate(words) if word in shown), default=-1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("story", "full"), [("latin", True), ("latin", False), ("wide", True)])
def test_a_window_made_narrower_and_wider_in_mid_answer_keeps_no_row_of_the_unfinished_text(
    home: Path, script: Path, story: str, full: bool
) -> None:
    words = STORIES[story]
    with chat_in_tmux(home, script=script) as window:
        window.say(",help" if full else "typed before")
        window.expect("tells more of one" if full else "You said: typed before")
        window.say(story)
        for at, columns in ((20, 43), (24, 31), (28, 97), (32, 50)) if full else ((45, 43), (52, 80)):
            rows = window.until(lambda rows, at=at: reached(rows, words) >= at, words[at])  # type: ignore[misc]
            window.resize(columns)
            # It was drawn anew before the next change: two changes in one moment are another matter. The first word may
            # still come from a drawing that had begun before.
            seen = reached(rows, words)
            window.until(lambda rows, seen=seen: reached(rows, words) > seen + 2, f"words after {seen}")  # type: ignore[misc]
        window.expect(words[-1])
        window.until(lambda rows: not any("Ctrl-C stops" in row for row in rows), "the end of the turn")
        assert window.cursor() == "1"
        rows = window.rows()
    shown = "".join(rows).replace(" ", "")
    assert [word for word in words if shown.count(word) != 1] == []
    assert full or shown.count("Yousaid:typedbefore") == 1
    assert shown.count("writing") == 0
    assert len([row for row in rows if row == ">"]) == 1


def test_the_log_is_printed_above_the_line_that_is_being_typed(home: Path) -> None:
    """Nobody listens where the model should be: the call is repeated, and at this level that is logged."""
    with chat_in_tmux(home, env=UNREACHABLE) as window:
        window.say("hello")
        window.press("-l", "half a line")
        window.expect("I could not answer this")
        rows = window.until(lambda rows: "> half a line" in rows, "> half a line")
    (logged,) = [row for row in rows if " info    model.retry: " in row]
    assert logged[0].isdigit()
    assert KEY not in "".join(rows)
    assert [row for row in rows if row.startswith(">")] == ["> hello", "> half a line"]


@pytest.mark.proof
def test_a_log_that_is_sent_to_a_file_goes_there_and_not_on_the_screen(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "log"
    with chat_in_tmux(home, end=f"2>{file}", env=UNREACHABLE) as window:
        window.say("hello")
        rows = window.expect("I could not answer this")
    assert "model.retry" not in "".join(rows)
    assert "action=model.retry" in file.read_text()


def test_what_was_typed_goes_with_the_session_that_is_erased(home: Path) -> None:
    with chat_in_tmux(home) as window:
        window.say("my secret plan")
        window.expect("You said: my secret plan")
        window.say(",reset erase")
        rows = window.expect("The tape starts anew.")
        assert not any("Warning" in row for row in rows)
        window.press("Up", "Up")
        window.say("after")
        window.expect("You said: after")  # and not what the arrow keys would have found before
    assert [path for path in home.rglob("*") if path.is_file() and b"secret plan" in path.read_bytes()] == []
