"""Files that commands read and write. They never touch the database and never overwrite a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bubbot.cli.output import raw_output
from bubbot.errors import ConfigError
from bubbot.home import Home

FILE_LINE_BYTES = 64 * 2**20
"""The longest line that commands read from a file."""


def read_file_lines(path: Path, home: Home) -> list[bytes]:
    """Read the lines of a file, each with its line feed. Raise `ConfigError` if it is unreadable.

    Refuse a home's database without opening it: opening that file a second time would drop SQLite's locks.
    """
    if path.name.startswith(home.database.name) or _is_same_file(path, home.database):
        raise ConfigError(f"{path} is a database; only SQLite may open it. bubbot tape export makes a file to import")
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a regular file: name another file")
        with path.open("rb") as file:
            lines = list(iter(lambda: file.readline(FILE_LINE_BYTES + 1), b""))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check the name and its permissions") from error
    if any(len(line) > FILE_LINE_BYTES for line in lines):
        raise ConfigError(f"{path} has a line of more than {FILE_LINE_BYTES} bytes, which cannot be right")
    return lines


def _is_same_file(path: Path, other: Path) -> bool:
    with suppress(OSError):
        return path.samefile(other)
    return False


@contextmanager
def create_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Create a file that only its owner can read, and yield its write function.

    The file is on disk when the block ends, and removed if the block raises. Raise `ConfigError`.
    """
    try:
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} already exists: name another file") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): name another file") from error
    try:
        with os.fdopen(number, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"{path} could not be written ({error.strerror}) and was removed") from error
        raise


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


@contextmanager
def open_output(path: str | None, escape: Callable[[str], str]) -> Iterator[Callable[[bytes], object]]:
    """Yield the write function of a new file, or of standard output if `path` is None.

    Standard output gets the bytes unchanged, unless it is a terminal: it gets `escape(text)`.
    """
    if path is None:
        with raw_output(escape) as write:
            yield write
        return
    with create_file(Path(path)) as write:
        yield write
