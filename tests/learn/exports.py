"""The exports of the rich home, made once for a test run."""

from __future__ import annotations

from pathlib import Path

from tests.e2e import inside
from tests.learn.home import CHAT, TEAM, LearnHome
from tests.learn.validators import CHECKS

SINGLE = ("atif", "inspect", "areal")
"""Formats whose files hold one slice."""


def has_lines(form: str) -> bool:
    """Return true for a format of lines."""
    return form not in SINGLE


def export_all(home: LearnHome, folder: Path) -> dict[str, list[Path]]:
    """Export both chats in every format; return the files of each, that of the chat with one person first."""
    found: dict[str, list[Path]] = {}
    for form in CHECKS:
        slices = [[CHAT, TEAM]] if has_lines(form) else [[CHAT], [TEAM]]
        suffix = "jsonl" if has_lines(form) else "json"
        found[form] = [folder / f"{form}{number}.{suffix}" for number in range(len(slices))]
        for words, path in zip(slices, found[form], strict=True):
            done = inside.run(home.path, "export", form, *words, "--out", str(path))
            assert done.returncode == 0, done.stderr
    return found
