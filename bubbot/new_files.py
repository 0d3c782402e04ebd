"""Files and folders that are written whole: no half file looks whole, not even after a kill. New ones overwrite nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bubbot.errors import ConfigError

UNFINISHED = ".part"
"""The end of the name of a file that is not whole yet; one that is left over is replaced."""


@contextmanager
def create_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Create a file that only its owner can read, and yield its write function.

    The file gets its name when it is whole and on disk, at the end of the block. If the block raises, nothing is left.

    Raises:
        ConfigError: there is such a file, or it cannot be written.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} already exists: name another file")
        unfinished.unlink(missing_ok=True)
        number = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): name another file") from error
    own = os.fstat(number)
    try:
        with os.fdopen(number, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        if not _is_same(unfinished, own):
            raise FileExistsError
        _give_name(unfinished, path)
    except FileExistsError as error:
        raise ConfigError(f"{path} already exists: name another file") from error
    except OSError as error:
        raise ConfigError(f"{path} could not be written ({error.strerror}) and was removed") from error
    finally:
        if _is_same(unfinished, own):
            unfinished.unlink(missing_ok=True)


def _is_same(path: Path, file: os.stat_result) -> bool:
    """Return true if a path is still that of a file: another process that writes the same one may have taken its place."""
    try:
        return os.path.samestat(path.lstat(), file)
    except OSError:
        return False


def _give_name(unfinished: Path, path: Path) -> None:
    """Give a file its name, but not that of another file. Raise `FileExistsError`."""
    try:
        os.link(unfinished, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError from None
        unfinished.rename(path)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, in the place of one that may be there. Raise `OSError`; the other one stays then."""
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.unlink(missing_ok=True)
    number = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Let the names in a folder be on disk. Raise `OSError`."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def create_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder that only its owner can read, with these files by their paths below it. Raise `ConfigError`.

    If a file cannot be written, those before it stay.
    """
    try:
        path.mkdir(mode=0o700)
        for folder in sorted({(path / name).parent for name in files} - {path}):
            folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise ConfigError(f"{path} already exists: name another folder") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be made ({error.strerror}): name another folder") from error
    for name, content in files.items():
        with create_file(path / name) as write:
            write(content)
