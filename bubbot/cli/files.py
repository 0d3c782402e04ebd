"""Files that commands read and write. They never touch the database and never overwrite a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bubbot.cli.output import raw_output
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.new_files import create_file

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
