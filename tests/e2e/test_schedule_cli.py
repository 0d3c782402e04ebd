"""`bubbot schedule` from the shell: a job from its first day to its last."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.e2e import bot
from tests.e2e.test_control import daemon


def told(home: Path, *arguments: str) -> str:
    """What the command prints; it succeeds."""
    done = bot.run(home, "schedule", *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_a_job_is_added_paused_resumed_edited_and_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    bot.run(home, "ask", "hello")
    assert "tea" in told(home, "add", "stdin:default", "every 1h", "--text", "a cup", "--name", "tea")
    assert "tea" in told(home, "list")
    told(home, "pause", "tea")
    assert "paused" in told(home, "show", "tea")
    assert "goes on" in told(home, "resume", "tea")
    assert "every 2 hours" in told(home, "edit", "tea", "--when", "every 2h")
    assert "every weekday at 09:00" in told(home, "edit", "tea", "--when", "每个工作日上午9点")
    changed = told(home, "edit", "tea", "--when", "at 5pm")
    assert "every weekday at 17:00" in changed
    assert "bubbot schedule edit" in changed
    assert "every day at 09:00 (America/New_York)" in told(home, "edit", "tea", "--when", "every day at 9am EST")
    assert "every day at 09:00 (America/New_York)" in told(home, "next", "every day at 9am EST", "--zone", "Asia/Tokyo")
    added = told(home, "add", "stdin:default", "every friday at 8am London time", "--text", "rent")
    assert "every Friday at 08:00 (Europe/London)" in added
    refused = bot.run(home, "schedule", "next", "21.30")
    assert refused.returncode == 2
    assert refused.stderr.decode().endswith("You can write:\nbubbot: 21:30\n")
    removed = told(home, "remove", "tea")
    assert removed.startswith("Removed tea (")
    assert "a cup" in removed
    assert "tea" not in told(home, "list")
    assert bot.run(home, "schedule", "show", "tea").returncode == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", ["alone", "chat", "daemon"])
def test_a_job_that_waits_for_the_daemon_says_so(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    places: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
        "chat": lambda sockets: open_chat(home, sockets),
        "daemon": lambda sockets: daemon(home, sockets),
    }
    bot.run(home, "ask", "hello")
    with tempfile.TemporaryDirectory() as folder, places.get(place, nullcontext)(Path(folder)):
        done = bot.run(home, "schedule", "add", "stdin:default", "every 1h", "--text", "a cup")
    assert done.returncode == 0, done.stderr
    assert (b"`bubbot run` fires jobs; it is not running.\n" in done.stdout) is (place != "daemon")


@contextmanager
def open_chat(home: Path, sockets: Path) -> Iterator[None]:
    """A chat that stays open."""
    with bot.opened(home, "chat", XDG_RUNTIME_DIR=str(sockets)) as chat:
        chat.type("hello")
        assert chat.stdout.readline() == b"You said: hello\n"
        yield
        chat.stdin.close()
        assert chat.process.wait(20) == 0
