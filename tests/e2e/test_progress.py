"""Progress on a terminal: counts that are drawn, or lines for who asks for them; nothing in a pipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bubbot.cli.progress import format_counts
from tests.e2e import forked
from tests.e2e.bot import environment
from tests.e2e.terminal import Terminal

PROGRAM = """
import sys
from bubbot.cli.progress import show_progress
with show_progress("Checking the tapes", "entries", plain={plain}, start_delay={delay}) as on_progress:
    on_progress(2500, 10_000)
    print("begun", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""
COUNTS = "2,500 of 10,000 entries"
DRAWN = re.compile(r"\x1b\[\d*[A-KST]|\r(?!\n)")
"""What moves the cursor or removes what is there."""


def shown(home: Path, *, plain: bool = False, delay: float = 0, first: str = COUNTS, **env: str) -> str:
    """Everything that a terminal is sent, until the work was seen, and then is done."""
    program = PROGRAM.format(plain=plain, delay=delay)
    env = {"COLUMNS": "200", **env}
    with Terminal(home, program, script=None, target=forked.PROGRAM, first=first, **env) as terminal:
        terminal.say("")
        terminal.expect("done")
        return terminal.sent


def test_counts_rate_and_remaining_time_are_drawn_and_removed(home: Path) -> None:
    sent = shown(home)
    assert re.search(r"2,500 of 10,000 entries, [\d,]+ a second, \d+ s left", sent)
    assert DRAWN.search(sent)
    assert "\x1b[?25h" in sent, "the cursor is shown again"


def test_without_colours_none_are_sent(home: Path) -> None:
    colours = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)\d[;m]")
    assert colours.search(shown(home))
    assert not colours.search(shown(home, NO_COLOR="1"))


@pytest.mark.parametrize("columns", ["20", "200"])
def test_a_line_is_printed_if_nothing_may_be_drawn_twice(home: Path, columns: str) -> None:
    sent = shown(home, plain=True, delay=0.2, COLUMNS=columns)  # by then there are counts
    assert "\x1b" not in sent
    assert not DRAWN.search(sent)
    assert sent.count("Checking the tapes: 2,500 of 10,000 entries, ") == 1


def test_short_work_shows_nothing(home: Path) -> None:
    assert "Checking" not in shown(home, delay=3600, first="begun")


def test_a_pipe_gets_nothing(tmp_path: Path) -> None:
    program = PROGRAM.format(plain=False, delay=0)
    home = tmp_path / "home"
    env = environment(home, FORCE_COLOR="1", TERM="xterm-256color")
    done = forked.run(forked.PROGRAM, [program], b"\n", env=env, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (b"begun\ndone\n", b"")


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (500, 2000, 10, "500 of 2,000 entries, 50 a second, 30 s left"),
        (2000, 2000, 10, "2,000 of 2,000 entries, finishing"),
        (500, 0, 10, "500 entries, 50 a second"),
        (10, 40_000, 10, "10 of 40,000 entries, 1 a second, 11 h 6 min left"),
        (10, 100, 10, "10 of 100 entries, 1 a second, 1 min 30 s left"),
    ],
)
def test_counts_in_words(done: int, total: int, seconds: float, text: str) -> None:
    assert format_counts(done, total, "entries", seconds) == text
