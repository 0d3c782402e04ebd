"""What stands in place of the database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbot.app.stores import find_special_file, refuse_unusable_database
from bubbot.errors import ConfigError
from bubbot.home import Home


def test_what_cannot_be_looked_at_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    assert find_special_file(Home(tmp_path / ("x" * 300))) is None  # no system has such names
    (tmp_path / "bubbot.db").symlink_to("bubbot.db")
    assert find_special_file(Home(tmp_path)) is None
    os.mkfifo(tmp_path / "bubbot.db-shm")
    assert find_special_file(Home(tmp_path)) == tmp_path / "bubbot.db-shm"


def test_a_home_whose_name_no_folder_can_have_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used \(File name too long\): correct the name"):
        refuse_unusable_database(Home(tmp_path / ("x" * 300)))
    refuse_unusable_database(Home(tmp_path / "not yet there"))
