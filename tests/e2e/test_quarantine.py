"""Whoever talks in the terminal with a restored bot is told that it is in quarantine, until it is released."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import bot
from tests.e2e.inside import run, said

LINE = "This home was restored from copy ("


def test_terminal_and_status_say_it_until_the_release(tmp_path: Path) -> None:
    home, other, copy = tmp_path / "home", tmp_path / "other", tmp_path / "copy"
    said(home, "hello")
    assert run(home, "backup", str(copy)).returncode == 0
    assert run(other, "restore", str(copy)).returncode == 0
    for done in (bot.run(other, "chat", lines="hi\n"), run(other, "ask", "hi")):
        assert (done.returncode, done.stdout) == (0, b"You said: hi\n")
        told = [one for one in done.stderr.decode().splitlines() if one.startswith(LINE)]
        assert len(told) == 1
        assert told[0].endswith("`bubbot restore --release`.")
    status = run(other, "status", "--json")
    assert (status.returncode, json.loads(status.stdout)["quarantine"]["name"]) == (1, "copy")

    assert run(other, "restore", "--release").returncode == 0
    assert LINE not in run(other, "ask", "hi").stderr.decode()
    assert "quarantine" not in json.loads(run(other, "status", "--json").stdout)
