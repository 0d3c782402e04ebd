"""Files and folders that are complete or not there, whenever the process or the machine ends."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

_BLOCK = 1 << 20
_PARTIAL = re.compile(r"\.partial-(\d+)-.+")


@contextmanager
def growing(target: Path) -> Iterator[Path]:
    """A new folder, mode 0700, that gets its name when the block ends well, and is removed where it does not.

    Meanwhile it has a name beside the target that nothing takes for it. Raises `FileExistsError` for one that is there.
    """
    partial = _begun(target.with_name(f".partial-{os.getpid()}-{target.name}"))
    try:
        yield partial
        sync_tree(partial)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "it is there already", str(target))
        partial.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove(folder: Path) -> None:
    """Removes a folder; it loses its name first, so that half of it is never taken for the whole."""
    partial = folder.with_name(f".partial-{os.getpid()}-{folder.name}")
    folder.rename(partial)
    shutil.rmtree(partial)


def sweep(folder: Path) -> None:
    """Removes what processes that were killed have left half done."""
    for found in folder.iterdir():
        left = _PARTIAL.fullmatch(found.name)
        if left and not _lives(int(left[1])):
            shutil.rmtree(found, ignore_errors=True)


def _begun(partial: Path) -> Path:
    """Makes it anew: in a container every process may have had the same number."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    return partial


def _lives(pid: int) -> bool:
    if pid == os.getpid():  # nothing of its own is half done while it sweeps
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's process
        return True
    return True


def copy_file(source: Path, target: Path) -> None:
    """Copies the content into a new file for its owner alone."""
    with source.open("rb") as given, os.fdopen(_new(target), "wb") as made:
        shutil.copyfileobj(given, made, _BLOCK)


def write_file(target: Path, data: bytes) -> None:
    """Writes a new file for its owner alone."""
    with os.fdopen(_new(target), "wb") as made:
        made.write(data)


def _new(target: Path) -> int:
    return os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    whole = sha256()
    with path.open("rb") as given:
        while block := given.read(_BLOCK):
            whole.update(block)
    return whole.hexdigest()


def sync_tree(folder: Path) -> None:
    """Waits until a folder and everything in it is on the disk."""
    for found in folder.rglob("*"):
        sync(found)
    sync(folder)


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some disks cannot sync folders
            raise
    finally:
        os.close(fd)


@contextmanager
def working(folder: Path, name: str) -> Iterator[Path]:
    """A folder for work under way, gone when the block ends; what a killed process leaves of it, `sweep` removes."""
    made = _begun(folder / f".partial-{os.getpid()}-{name}")
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
