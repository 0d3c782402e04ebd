"""Files that commands read and write: never the database, never over a file that is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bubbot.cli.output import raw_output
from bubbot.errors import ConfigError
from bubbot.home import Home

FILE_LINE_BYTES = 64 * 2**20
"""The longest line of a file that is read."""


def lines_of(path: Path, home: Home) -> list[bytes]:
    """The lines of a file, each with its line feed. Raises `ConfigError` where it cannot be read.

    The database of a home is refused unopened: another open of that file would drop SQLite's locks.
    """
    if path.name.startswith(home.database.name) or _same(path, home.database):
        raise ConfigError(f"{path} is a database; only SQLite may open it. bubbot tape export makes a file to import")
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not an ordinary file")
        with path.open("rb") as file:
            lines = list(iter(lambda: file.readline(FILE_LINE_BYTES + 1), b""))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check the name and its permissions") from error
    if any(len(line) > FILE_LINE_BYTES for line in lines):
        raise ConfigError(f"{path} has a line of more than {FILE_LINE_BYTES} bytes, which cannot be right")
    return lines


def _same(path: Path, other: Path) -> bool:
    with suppress(OSError):
        return path.samefile(other)
    return False


@contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], object]]:
    """A new file for its owner alone, on disk when the block ends and gone where it raises. Raises `ConfigError`."""
    try:
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already and is not written over: name another file") from error
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


@contextmanager
def output(path: str | None, shown: Callable[[str], str]) -> Iterator[Callable[[bytes], object]]:
    """A new file, or standard output where none is named: byte for byte, unless it is a terminal.

    `shown` makes of a piece what a terminal is shown.
    """
    if path is None:
        with raw_output(shown) as write:
            yield write
        return
    with new_file(Path(path)) as write:
        yield write
