"""Doctor findings of files. Each is planted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from tests.planting import found, look, mend, mends, plants

ON = "[tools.files]\nenabled = true\n"


def check(home: Home) -> Any:
    """What is found under the settings of a home."""
    return look("files", home)


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
