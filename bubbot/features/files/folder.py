"""Reading and changing files below a root, one folder after another, without following a link.

A path is never handed to the system as a whole: each folder is opened relative to the one before it, with `O_NOFOLLOW`, so
that nobody who can change folders meanwhile leads outside. Everything here blocks; call it in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from hashlib import sha256

from msgspec import Struct

from bubbot.errors import CommandRefused
from bubbot.features.files.roots import FilePath
from bubbot.formatting import format_bytes

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
MAX_WALKED = 200_000
"""Files and folders that are looked at for one call: nothing can end its thread."""
TEMPORARY_PREFIX = ".bubbot-"
"""How the name of a file begins that takes the place of another one once it is complete."""


def refuse(code: str, path: FilePath, **values: object) -> CommandRefused:
    """Build the refusal of a file that cannot be read or changed."""
    return CommandRefused(code, path=str(path), **values)


def refuse_size(path: FilePath, size: int, max_bytes: int) -> CommandRefused:
    """Build the refusal of a file that is, or would be, too large."""
    return refuse("file_too_long", path, reason=str(size), limit=format_bytes(max_bytes))


class FolderItem(Struct, frozen=True):
    """Something in a folder.

    Attributes:
        path: relative to the folder that was listed.
        kind: `file`, `folder`, `link` or `other`.
        size: in bytes, of a file.
    """

    path: str
    kind: str
    size: int = 0


class FoundLine(Struct, frozen=True):
    """A line with the text that was searched: the file, relative to the folder, the line's number and the line."""

    path: str
    number: int
    line: str


def read_file(path: FilePath, max_bytes: int) -> bytes | None:
    """Return the bytes of a file; None if there is none.

    Raises:
        CommandRefused: it is a link, no file, or too large, or cannot be read.
    """
    with _translated(path), _open_parent(path) as parent:
        return None if parent is None else _read(parent, path, max_bytes)


def replace_file(path: FilePath, data: bytes | None, before: bytes | None, max_bytes: int) -> None:
    """Put a file with these bytes in its place, in one step; None removes it. Missing folders are made.

    Raises:
        CommandRefused: it does not hold `before` (None: there must be none), or cannot be written.
    """
    with _translated(path), _open_parent(path, create=data is not None) as parent:
        name = path.parts[-1]
        current = None if parent is None else _read(parent, path, max_bytes)
        if current != before:
            raise refuse("file_changed_meanwhile", path)
        if parent is None:
            return
        if data is None:
            if before is not None:
                os.unlink(name, dir_fd=parent)
        else:
            _write(parent, name, data, mode=0o644 if before is None else _mode(parent, name))
        os.fsync(parent)


def list_folder(
    path: FilePath, pattern: str, depth: int, limit: int, *, walked: int = MAX_WALKED
) -> tuple[list[FolderItem], bool]:
    """List what is in a folder, by name, down to this depth; return it with whether there may be more.

    It ends after `limit` items, and after so many were `walked`.

    Raises:
        CommandRefused: it is no folder, or cannot be read.
    """
    items: list[FolderItem] = []
    with _translated(path), _open_folder(path) as folder:
        for number, item in enumerate(_walk(folder, "", depth) if folder is not None else ()):
            if number == walked:
                return items, True
            if pattern and not (fnmatch(item.path, pattern) or fnmatch(item.path.rpartition("/")[2], pattern)):
                continue
            if len(items) == limit:
                return items, True
            items.append(item)
    return items, False


class SearchLimits(Struct, frozen=True):
    """How far a search goes: files and bytes that are read, bytes of one file, lines that are returned, and what is walked."""

    files: int = 5_000
    bytes: int = 50_000_000
    file_bytes: int = 1_000_000
    lines: int = 100
    depth: int = 20
    walked: int = MAX_WALKED


def search_files(path: FilePath, text: str, pattern: str, limits: SearchLimits) -> tuple[list[FoundLine], bool]:
    """Find the lines of text files that contain a text, in any case; return them with whether the search was cut short.

    Raises:
        CommandRefused: it is no folder, or cannot be read.
    """
    wanted, files, size = text.casefold(), 0, 0
    found: list[FoundLine] = []
    with _translated(path), _open_folder(path) as folder:
        for number, item in enumerate(_walk(folder, "", limits.depth) if folder is not None else ()):
            if number == limits.walked:
                return found, True
            if item.kind != "file" or item.size > limits.file_bytes or not _matches(item.path, pattern):
                continue
            files, size = files + 1, size + item.size
            if files > limits.files or size > limits.bytes:
                return found, True
            inner = FilePath(path.root, (*path.parts, *item.path.split("/")))
            with suppress(CommandRefused):  # it went away, or is not ours to read
                data = read_file(inner, limits.file_bytes)
                for place, line in enumerate(_lines(data), 1):
                    if wanted in line.casefold():
                        if len(found) == limits.lines:
                            return found, True
                        found.append(FoundLine(item.path, place, line))
    return found, False


def folder_size(path: FilePath) -> int:
    """Return the bytes of all files below a folder; 0 if there is none."""
    with _translated(path), _open_folder(path) as folder:
        return 0 if folder is None else sum(item.size for item in _walk(folder, "", depth=100))


def digest(data: bytes | None) -> str:
    """Return the digest of a file's bytes, as blobs have it; empty if there is no file."""
    return "" if data is None else sha256(data).hexdigest()


def _matches(path: str, pattern: str) -> bool:
    return not pattern or fnmatch(path, pattern) or fnmatch(path.rpartition("/")[2], pattern)


def _lines(data: bytes | None) -> list[str]:
    """Return the lines of a text file; none of a file that is not UTF-8."""
    try:
        return (data or b"").decode().splitlines()
    except UnicodeDecodeError:
        return []


def _walk(folder: int, prefix: str, depth: int) -> Iterator[FolderItem]:
    """Yield what is in an open folder and, down to this depth, in the folders below."""
    with os.scandir(folder) as scan:
        found = sorted(scan, key=lambda item: item.name)
    for item in found:
        if item.name.startswith(TEMPORARY_PREFIX):
            continue
        path = prefix + item.name
        if item.is_symlink():
            yield FolderItem(path, "link")
        elif item.is_dir(follow_symlinks=False):
            yield FolderItem(path, "folder")
            if depth > 1:
                with suppress(OSError):  # it went away, or is not ours to read
                    inner = os.open(item.name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        yield from _walk(inner, f"{path}/", depth - 1)
                    finally:
                        os.close(inner)
        elif item.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):
                yield FolderItem(path, "file", os.stat(item.name, dir_fd=folder, follow_symlinks=False).st_size)
        else:
            yield FolderItem(path, "other")


@contextmanager
def _open_parent(path: FilePath, *, create: bool = False) -> Iterator[int | None]:
    """Open the folder of a file; None if it is missing."""
    if not path.parts:
        raise refuse("file_is_folder", path)
    with _open_folder(FilePath(path.root, path.parts[:-1]), create=create) as folder:
        yield folder


@contextmanager
def _open_folder(path: FilePath, *, create: bool = False) -> Iterator[int | None]:
    """Open a folder, step by step; None if it is missing. A workspace is made by the first file in it."""
    if create and path.root.is_workspace:
        path.root.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder: int | None = None
    try:
        folder = os.open(path.root.path, _FOLDER_FLAGS)
        for part in path.parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            inner = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
    except FileNotFoundError:
        if folder is not None:
            os.close(folder)
        yield None
        return
    except BaseException:
        if folder is not None:
            os.close(folder)
        raise
    try:
        yield folder
    finally:
        os.close(folder)


def _read(parent: int, path: FilePath, max_bytes: int) -> bytes | None:
    try:
        # Not blocking: a named pipe without a writer would hold the thread for ever. A terminal must not become the bot's.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(path.parts[-1], flags, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise refuse("file_is_folder", path)
        if not stat.S_ISREG(status.st_mode):
            raise refuse("file_not_regular", path)
        chunks, left = [], max_bytes + 1
        while left > 0 and (chunk := os.read(file, left)):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(file)
    if left <= 0:
        raise refuse_size(path, max(status.st_size, max_bytes + 1), max_bytes)
    return b"".join(chunks)


def _mode(parent: int, name: str) -> int:
    return stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode) & 0o777


def _write(parent: int, name: str, data: bytes, mode: int) -> None:
    # Always the same name: what a killed process left there goes with the next try.
    temporary = TEMPORARY_PREFIX + sha256(os.fsencode(name)).hexdigest()[:16]
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=parent), "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


@contextmanager
def _translated(path: FilePath) -> Iterator[None]:
    """Translate errors of the system into refusals."""
    try:
        yield
    except NotADirectoryError:
        raise refuse("file_not_folder", path) from None
    except PermissionError:
        raise refuse("file_forbidden", path) from None
    except OSError as error:
        # With O_NOFOLLOW a link is ELOOP, or ENOTDIR for a folder.
        kind = "file_is_link" if error.errno == errno.ELOOP else "file_system_error"
        raise refuse(kind, path, reason=error.strerror or str(error)) from error
    except ValueError as error:
        raise refuse("file_system_error", path, reason=str(error)) from error
