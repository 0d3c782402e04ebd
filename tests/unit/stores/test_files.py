"""Files and folders beside the database: on the disk when it says so, and nothing left of what was begun."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bubbot.stores.files import scratch_folder, sync, sync_tree


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the disk refuse to sync; returns what it was asked to sync."""
    asked: list[str] = []

    def fsync(fd: int) -> None:
        asked.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    return asked


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_disk_that_cannot_sync_folders_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    asked = failing(monkeypatch, number)
    sync(tmp_path)
    assert asked == [str(tmp_path)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_is_one_for_a_folder_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    failing(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL])
def test_a_file_that_is_not_on_the_disk_is_always_a_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    (tmp_path / "a").write_text("x")
    failing(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync_tree(tmp_path)


def test_a_tree_is_synced_with_all_that_is_in_it_and_itself_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_text("x")
    asked: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: asked.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    sync_tree(tmp_path)
    assert sorted(asked) == [str(tmp_path), str(tmp_path / "b"), str(tmp_path / "b" / "c")]
    assert asked[-1] == str(tmp_path)


def test_a_folder_for_work_is_gone_afterwards_whatever_became_of_it(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "a") as folder:
        (folder / "x").write_text("x")
    assert list(tmp_path.iterdir()) == []
    with scratch_folder(tmp_path, "a") as folder:
        folder.rename(tmp_path / "done")
    assert [one.name for one in tmp_path.iterdir()] == ["done"]
    with pytest.raises(KeyError), scratch_folder(tmp_path, "b") as folder:
        raise KeyError(str(folder))
    assert [one.name for one in tmp_path.iterdir()] == ["done"]
