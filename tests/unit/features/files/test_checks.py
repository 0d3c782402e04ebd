"""Doctor findings of files. Each is planted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.files.checks import check_roots
from bubbot.home import Home
from bubbot.ports.checks import Finding, HomeReader
from bubbot.settings.loader import load
from tests.planting import found, mend, mends, plants

UNUSED: Any = None
ON = "[tools.files]\nenabled = true\n"


def check(home: Home) -> list[Finding]:
    """What is found under the settings of a home."""
    settings = load(home=home.path).tools.files
    return list(asyncio.run(check_roots(HomeReader(home.path, home.config, settings, UNUSED, UNUSED, UNUSED))))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that exists."""
    made = Home(tmp_path / "home")
    made.path.mkdir()
    return made


@plants("files.on", "files.missing", "config.files")
@mends("files.missing", "config.files")
def test_roots_that_are_missing_or_cannot_be_used(home: Home, tmp_path: Path) -> None:
    assert check(home) == []
    for root, wanted in ((tmp_path / "none", "files.missing"), (home.path, "config.files")):
        home.config.write_text(f'{ON}roots = ["{root}"]\n')
        mend(lambda: check(home), wanted, tmp_path, text=ON)
    assert list(found(check(home))) == ["files.on"]


@plants("files.forbidden")
@mends("files.forbidden")
def test_a_root_that_the_bot_may_not_change(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    home.config.write_text(f'{ON}roots = ["{root}"]\n')
    mend(lambda: check(home), "files.forbidden", tmp_path, text=f'{ON}read_only = ["{root}"]\n')
