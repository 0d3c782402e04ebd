"""Files that commands write: new ones, for their owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.new_files import create_folder


def test_a_folder_holds_the_files_by_their_paths_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    create_folder(tmp_path / "anna", {"page.html": b"page", "attachments/one": b"1", "attachments/two": b"2"})
    found = {file.relative_to(tmp_path).as_posix(): file for file in tmp_path.rglob("*")}
    assert {name: file.read_bytes() for name, file in found.items() if file.is_file()} == {
        "anna/page.html": b"page",
        "anna/attachments/one": b"1",
        "anna/attachments/two": b"2",
    }
    assert {file.stat().st_mode & 0o077 for file in found.values()} == {0}


def test_a_folder_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "anna").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        create_folder(tmp_path / "anna", {"page.html": b"page"})
    assert list((tmp_path / "anna").iterdir()) == []


def test_a_place_without_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        create_folder(tmp_path / "missing" / "anna", {})
