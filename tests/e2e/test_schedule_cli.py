"""`bubbot schedule` from the shell: a job from its first day to its last."""

from __future__ import annotations

from pathlib import Path

from tests.e2e import bot


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
    removed = told(home, "remove", "tea")
    assert "(tea)" in removed
    assert "a cup" in removed
    assert "tea" not in told(home, "list")
    assert bot.run(home, "schedule", "show", "tea").returncode == 2
