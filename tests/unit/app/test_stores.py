"""What stands in place of the database."""

from __future__ import annotations

import os
from pathlib import Path

from bubbot.app.stores import find_special_file
from bubbot.home import Home


def test_what_cannot_be_looked_at_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    assert find_special_file(Home(tmp_path / ("x" * 300))) is None  # no system has such names
    (tmp_path / "bubbot.db").symlink_to("bubbot.db")
    assert find_special_file(Home(tmp_path)) is None
    os.mkfifo(tmp_path / "bubbot.db-shm")
    assert find_special_file(Home(tmp_path)) == tmp_path / "bubbot.db-shm"
