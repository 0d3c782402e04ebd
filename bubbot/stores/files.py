"""Files and folders that are complete or absent, even if the process or the machine stops at any moment."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from hashlib import file_digest
from pathlib import Path

_BLOCK = 1 << 20
_PARTIAL = re.compile(r"\.partial-(\d+)-.+")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a new folder, mode 0700, that gets its name only if the block succeeds.

    Until then it has another name next to the target; if the block fails, it is removed. Raise `FileExistsError` if the
    target exists.
    """
    for left in target.parent.glob(f".partial-*-{escape(target.name)}"):  # left by a killed process
        _remove_if_left(left)
    partial = _make_partial(target.with_name(f".partial-{os.getpid()}-{target.name}"))
    try:
        yield partial
        sync_tree(partial)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "it already exists", str(target))
        partial.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_folder(folder: Path) -> None:
    """Remove a folder; rename it first, so that a half-removed folder is never taken for a complete one."""
    partial = folder.with_name(f".partial-{os.getpid()}-{folder.name}")
    folder.rename(partial)
    shutil.rmtree(partial)


def remove_partials(folder: Path) -> None:
    """Remove the partial folders that killed processes left behind."""
    for path in folder.iterdir():
        _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    partial = _PARTIAL.fullmatch(path.name)
    if partial and not _is_running(int(partial[1])):
        shutil.rmtree(path, ignore_errors=True)


def _make_partial(partial: Path) -> Path:
    """Make an empty folder; in a container an earlier process with the same id may have left one."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    return partial


def _is_running(pid: int) -> bool:
    if pid == os.getpid():  # this process has no partial folder while it sweeps
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process
        return True
    return True


def copy_file(source: Path, target: Path) -> None:
    """Copy the content into a new file that only its owner can read."""
    with source.open("rb") as reader, os.fdopen(_create(target), "wb") as writer:
        shutil.copyfileobj(reader, writer, _BLOCK)


def write_file(target: Path, data: bytes) -> None:
    """Write a new file that only its owner can read."""
    with os.fdopen(_create(target), "wb") as writer:
        writer.write(data)


def _create(target: Path) -> int:
    return os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)


def digest_of_file(path: Path) -> str:
    """Hash a file with SHA-256, in hex."""
    with path.open("rb") as reader:
        return file_digest(reader, "sha256").hexdigest()


def sync_tree(folder: Path) -> None:
    """Wait until a folder and everything in it is on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some disks cannot sync folders
            raise
    finally:
        os.close(fd)


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """Make a folder for temporary work and remove it when the block ends.

    If the process is killed, `remove_partials` removes the folder later.
    """
    partial = _make_partial(folder / f".partial-{os.getpid()}-{name}")
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
