"""A disk of its own for a home: small, so that it can be full; or one that is read-only from some moment on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


class SmallDisk:
    """A mounted file system in memory, of a few megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                while True:
                    try:
                        file.write(b"\0" * size)
                    except OSError:
                        break

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()

    def make_read_only(self) -> None:
        """Mount it read-only from now on."""
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk at `path` for the block; skip the test if nothing can be mounted here."""
    path.mkdir(mode=0o700)
    options = f"size={megabytes}m,mode=700"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=False).returncode:
        pytest.skip("this sandbox mounts nothing")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
