"""What unit tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bubbot.home import Home


@pytest.fixture
def home(tmp_path: Path, new_database: Path) -> Home:
    """A home with an empty database, as a first chat leaves it."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    shutil.copy(new_database, path / "bubbot.db")
    return Home(path)
