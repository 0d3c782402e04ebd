"""Files that a self-hosted Bot API server keeps on this machine."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from bubbot.errors import FetchFailed
from channels.telegram.files import LocalFiles, read_local_file


def _open_paths(folder: Path) -> list[Path]:
    """The paths at and below a folder that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the descriptors
            found.append(descriptor.readlink())
    return [path for path in found if path.is_relative_to(folder)]


def test_a_file_is_read_and_everything_closed(tmp_path: Path) -> None:
    folder = tmp_path / "bot" / "photos"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(b"photo")
    local = LocalFiles("tg", tmp_path / "bot", tmp_path / "home")
    assert read_local_file(folder / "a.jpg", 5, local) == b"photo"
    assert read_local_file(folder / "a.jpg", 4, local) is None
    with pytest.raises(FetchFailed, match="is not a file"):
        read_local_file(folder, 5, local)
    assert _open_paths(tmp_path) == []


def test_a_folder_that_fails_to_close_leaks_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"photo")
    close, failures = os.close, [OSError(errno.EIO, "Input/output error")]

    def fail_once(descriptor: int) -> None:
        close(descriptor)
        if failures:
            raise failures.pop()

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", fail_once)
        with pytest.raises(FetchFailed):
            read_local_file(tmp_path / "photos" / "a.jpg", 5, LocalFiles("tg", tmp_path, tmp_path / "home"))
    assert _open_paths(tmp_path) == []
