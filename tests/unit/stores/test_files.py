"""Files and folders beside the database: on the disk when it says so, and nothing left of what was begun."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from bubbot.stores.files import (
    copy_file,
    digest_of_file,
    new_folder,
    remove_folder,
    remove_partials,
    scratch_folder,
    sync,
    sync_tree,
    write_file,
)


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


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_has_its_name_only_if_it_is_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    with new_folder(target) as partial:
        (partial / "x").write_text("x")
        assert (mode(partial), partial.parent, target.exists()) == (0o700, tmp_path, False)
        synced = failing_never(monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]
    assert synced == [str(partial / "x"), str(partial), str(tmp_path)]
    with pytest.raises(FileExistsError, match="already exists"), new_folder(target) as partial:
        (partial / "y").write_text("y")
    with pytest.raises(KeyError), new_folder(tmp_path / "other") as partial:
        raise KeyError(str(partial))
    assert [path.name for path in tmp_path.rglob("*")] == ["backup", "x"]


def failing_never(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is synced from now on."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    return synced


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "inner").mkdir(parents=True)
    remove_folder(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_partial_folders_are_removed_if_their_process_is_gone(tmp_path: Path) -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    gone = [f".partial-{child}-a", f".partial-{os.getpid()}-b"]
    kept = [f".partial-{os.getppid()}-c", f".partial-{child}-", f"x.partial-{child}-a", f".partial-{10**30}-d", "a"]
    for name in (*gone, *kept):
        (tmp_path / name / "inner").mkdir(parents=True)
    remove_partials(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_new_folder_removes_what_a_killed_process_left_of_it_alone(tmp_path: Path) -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    names = [f".partial-{child}-a[1]", f".partial-{os.getppid()}-a[1]", f".partial-{child}-a1", f".partial-{child}-b"]
    for name in names:
        (tmp_path / name / "inner").mkdir(parents=True)
    with new_folder(tmp_path / "a[1]"):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], f".partial-{os.getpid()}-a[1]"])


def test_what_an_earlier_process_with_this_id_left_is_not_in_a_new_folder(tmp_path: Path) -> None:
    left = tmp_path / f".partial-{os.getpid()}-a"
    left.mkdir()
    (left / "old").write_text("x")
    with scratch_folder(tmp_path, "a") as folder:
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1])
def test_files_are_copied_and_hashed_whole_for_their_owner_alone(tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    written, copied = tmp_path / "written", tmp_path / "copied"
    write_file(written, data[:size])
    written.chmod(0o644)
    copy_file(written, copied)
    assert (copied.read_bytes(), digest_of_file(copied)) == (data[:size], sha256(data[:size]).hexdigest())
    with pytest.raises(FileExistsError):
        write_file(written, b"")
    written.unlink()
    write_file(written, b"")
    assert (mode(written), mode(copied)) == (0o600, 0o600)


def test_a_file_that_was_synced_is_closed(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        sync(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
