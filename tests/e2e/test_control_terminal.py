"""The line editor beside a daemon: live text, a stop, another window, the end of the bot."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests.e2e.terminal import CTRL_C, TAB, Terminal
from tests.e2e.test_control import daemon, named, until

SCRIPT = {
    "rules": [
        {"when": "slow", "steps": [{"delay": 60, "text": "late"}]},
        {
            "when": "look",
            "steps": [{"text": "Let me look.", "calls": [{"name": "tape_info"}]}, {"text": "It is **bold**."}],
        },
    ]
}


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short name."""
    path = Path(tempfile.mkdtemp())
    yield path
    rmtree(path)


def test_two_windows_beside_a_daemon(tmp_path: Path, sockets: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with (
        daemon(home, sockets, BUBBOT_MODEL__SCRIPT=str(script)) as bot,
        Terminal(home) as first,
        Terminal(home) as second,
    ):
        first.type(",he" + TAB)
        first.expect(",help")  # the commands are those of the bot
        first.type("\x15")
        first.say("look there")
        for window in (first, second):  # who did not ask is shown the turn, too
            window.expect("· tape_info {}")
            window.expect("It is bold.")
        first.say("slow")
        first.expect("working")
        first.type(CTRL_C)
        first.expect("Stopped.")
        second.expect("Stopped.")
        second.say("and you")
        second.expect("You said: and you")
        until(lambda: len(named(home, "outbox/receipt")) == 3)  # a moment after it was shown
        second.say(",quit")
        second.expect("Bye.")
        assert second.ended() == 0
        first.say("slow")
        first.expect("working")
        bot.kill()
        first.expect("The other end of the control connection is gone.")
        assert first.ended() == 1
        assert first.left_as_found()
