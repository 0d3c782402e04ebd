"""The edits of `init`: which secrets there are to write."""

from __future__ import annotations

from pathlib import Path

from bubbot.home import Home
from bubbot.ops.onboarding.changes import PendingEdits, new_secrets


def test_a_secret_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    home, edits = Home(tmp_path), PendingEdits()
    folder = tmp_path / "secrets"
    (folder / "mail-key").mkdir(parents=True)
    for name, text in (("telegram-token", "same\n"), ("discord-token", "old\n"), ("web-token", "no end")):
        (folder / name).write_text(text)
    for channel, text in (("telegram", "same"), ("discord", "new"), ("web", "no end"), ("irc", "first")):
        edits.set_secret(("channels", channel), "token", text)
    edits.set_secret(("channels", "mail"), "key", "behind a folder")
    assert new_secrets(edits, home) == {
        folder / "discord-token": "new",
        folder / "web-token": "no end",
        folder / "irc-token": "first",
        folder / "mail-key": "behind a folder",
    }
    edits.set_secret(("channels", "discord"), "token", "old")
    assert folder / "discord-token" not in new_secrets(edits, home)
