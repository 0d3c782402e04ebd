"""The display of progress: what it draws on a terminal."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from bubbot.cli.progress import show_progress

SECONDS = 20
"""How long a test waits for what does not come."""


class Screen(io.StringIO):
    """A terminal that says when something was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if "evil" in self.getvalue():
            self.drawn.set()
        return written


@pytest.mark.parametrize("plain", [True, False])
def test_a_terminal_does_not_obey_the_name_of_a_file(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with show_progress("Reading evil\x1b]0;owned\x07.jsonl", plain=plain, start_delay=0):
        assert screen.drawn.wait(SECONDS)
    assert "evil\ufffd]0;owned\ufffd.jsonl" in screen.getvalue()
    assert "\x1b]" not in screen.getvalue()


class Pipe(Screen):
    """It is no terminal."""

    def isatty(self) -> bool:
        return False


def test_a_pipe_gets_lines_and_nothing_if_the_work_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    monkeypatch.setattr(sys, "stderr", pipe)
    with show_progress("Reading evil.jsonl", start_delay=0):
        pass
    assert pipe.getvalue() == ""
    monkeypatch.setattr("bubbot.cli.progress.LINE_SECONDS", 0.01)
    with show_progress("Reading evil.jsonl", "lines") as on_progress:
        on_progress(3, 0)
        assert pipe.drawn.wait(SECONDS)
    assert pipe.getvalue().startswith("Reading evil.jsonl: 3 lines, ")
    assert "\x1b" not in pipe.getvalue()
