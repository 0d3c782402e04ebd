"""The folder of a skill: its files, read without following a link, and one digest over all of them."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.skills.document import SKILL_FILE, SkillDocument, read_document
from bubbot.features.skills.facts import SkillFile
from bubbot.folder_digest import join_digests
from bubbot.log import printable

MAX_FILES = 500
MAX_FOLDERS = 200
MAX_DEPTH = 8
MAX_FILE_BYTES = 5_000_000
MAX_BYTES = 20_000_000
"""Bytes of all files of a skill."""
MAX_TEXT_BYTES = 262_144
"""Bytes of the longest file that is shown; files that are not UTF-8 are never shown."""
SETTLING_SECONDS = 2.0
"""Seconds after a file's last change from which its times identify it: a change within the same tick of the clock keeps them."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Stamp: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]
"""A cheap sign that files have changed: name, device, inode, bytes, mtime and ctime (both in ns) of each file and folder."""


class SkillFolder(Struct, frozen=True):
    """A folder of a skill as it was read.

    Attributes:
        path: the folder.
        document: its `SKILL.md`.
        files: all files, sorted by the bytes of their names.
        digest: the one over all files.
        contents: the bytes of each file, by its name.
        programs: the files that are marked as programs.
        stamp: see `Stamp`.
        is_settled: the last change was more than `SETTLING_SECONDS` before the reading, so a later one changes the stamp.
    """

    path: Path
    document: SkillDocument
    files: tuple[SkillFile, ...]
    digest: str
    contents: Mapping[str, bytes]
    programs: frozenset[str]
    stamp: Stamp
    is_settled: bool


def read_folder(path: Path) -> SkillFolder:
    """Read a folder of a skill whole. It blocks: call it in a thread.

    Raises:
        ConfigError: it is no skill, has anything but files and folders, is too large, or was changed meanwhile.
    """
    began = time.time()
    before = read_stamp(path)
    newest = max((max(content, inode) for *_, content, inode in before), default=0) / 1e9
    contents: dict[str, bytes] = {}
    programs = set[str]()
    size = 0
    for name, folder, status in _walk(path):
        if stat.S_ISDIR(status.st_mode):
            continue
        content = _read_file(path, name, folder)
        size += len(content)
        if size > MAX_BYTES:
            raise ConfigError(
                f"{path} has more than {MAX_BYTES} bytes: a skill has less; take away what it does not need"
            )
        contents[name] = content
        if status.st_mode & stat.S_IXUSR:
            programs.add(name)
    contents = {name: contents[name] for name in sorted(contents, key=os.fsencode)}
    if SKILL_FILE not in contents:
        raise ConfigError(f"{path} has no {SKILL_FILE}: name the folder of a skill")
    document = read_document(contents[SKILL_FILE], path.name)
    files = tuple(SkillFile(name, len(content), sha256(content).hexdigest()) for name, content in contents.items())
    digest = join_digests(path, ((file.name, file.sha256) for file in files))
    if read_stamp(path) != before:
        raise ConfigError(f"{path} was changed while it was read: try again when it is whole")
    return SkillFolder(
        path,
        document,
        files,
        digest,
        contents,
        frozenset(programs),
        before,
        is_settled=newest < began - SETTLING_SECONDS,
    )


def read_stamp(path: Path) -> Stamp:
    """Return what tells cheaply that a folder has changed. Raise `ConfigError` as `read_folder` does."""
    return tuple(
        (name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for name, _, status in _walk(path)
    )


def read_file(path: Path, name: str) -> bytes:
    """Read one file of a skill by its name, without following a link. Raise `ConfigError`."""
    for found, folder, status in _walk(path):
        if found == name and stat.S_ISREG(status.st_mode):
            return _read_file(path, name, folder)
    raise ConfigError(f"{path} has no file {printable(name)}")


def decode_text(content: bytes) -> str | None:
    """Return a file as a text; None if it is none, or too long to be shown."""
    if len(content) > MAX_TEXT_BYTES or b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def list_folders(root: Path) -> list[Path]:
    """Return the folders of a root that have a `SKILL.md`, sorted by their names; none if there is no such root.

    Raises:
        ConfigError: the root cannot be read.
    """
    try:
        found = [
            Path(entry.path)
            for entry in os.scandir(root)
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"{root} cannot be read ({error.strerror}): make it a folder that the bot may read"
        ) from error
    return sorted(folder for folder in found if os.path.lexists(folder / SKILL_FILE))


def _walk(path: Path) -> Iterator[tuple[str, int, os.stat_result]]:
    """Yield the name of each file and folder below a folder, the descriptor of the folder that holds it, and its status, in a fixed order.

    Each folder is opened below the one before, so that none can become a link meanwhile.

    Raises:
        ConfigError: there is a link, a device, an odd name, or too much.
    """
    counts = [0, 0]
    with _open_folder(path, path.name, None) as folder:
        yield ".", folder, os.fstat(folder)
        yield from _walk_below(path, "", folder, counts, 1)


def _walk_below(
    path: Path, prefix: str, folder: int, counts: list[int], depth: int
) -> Iterator[tuple[str, int, os.stat_result]]:
    for name in sorted(os.listdir(folder), key=os.fsencode):
        whole = f"{prefix}{name}"
        if not _is_plain(name):
            raise ConfigError(f"{path} has the file {whole!a}, whose name has characters that are not shown: rename it")
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            raise _changed(path, whole, error) from error
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "a device, a pipe or a socket"
            raise ConfigError(f"{path} has {kind}, {whole}: a skill has files and folders only; take it away")
        counts[is_folder] += 1
        if counts[0] > MAX_FILES or counts[1] > MAX_FOLDERS or depth > MAX_DEPTH:
            raise ConfigError(
                f"{path} has more than {MAX_FILES} files, {MAX_FOLDERS} folders, or folders deeper than {MAX_DEPTH}: a skill has "
                "less; take away what it does not need"
            )
        yield whole, folder, status
        if is_folder:
            with _open_folder(path, name, folder) as below:
                yield from _walk_below(path, f"{whole}/", below, counts, depth + 1)


@contextmanager
def _open_folder(path: Path, name: str, parent: int | None) -> Iterator[int]:
    try:
        number = os.open(path if parent is None else name, _FLAGS | os.O_DIRECTORY, dir_fd=parent)
    except (OSError, ValueError) as error:
        raise _changed(path, name, error) from error
    try:
        yield number
    finally:
        os.close(number)


def _read_file(path: Path, name: str, folder: int) -> bytes:
    try:
        number = os.open(name.rpartition("/")[2], _FLAGS, dir_fd=folder)
        with os.fdopen(number, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise ConfigError(f"{path} was changed while it was read: try again when it is whole")
            chunks, size = list[bytes](), 0
            while chunk := file.read(1 << 20):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_FILE_BYTES:
                    raise ConfigError(
                        f"{path} has the file {name} with more than {MAX_FILE_BYTES} bytes: a skill has smaller ones; take it away"
                    )
    except OSError as error:
        raise _changed(path, name, error) from error
    return b"".join(chunks)


def _changed(path: Path, name: str, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.ENOTDIR):
        reason = "it is a link, or no folder"
    where = path if name == path.name else path / printable(name)
    return ConfigError(f"{where} cannot be read ({reason}): name a folder of a skill that the bot may read")


def _is_plain(name: str) -> bool:
    """Return true if a name is shown as it is, and is UTF-8."""
    return name.isprintable() and "\\" not in name


def compare_files(before: Sequence[SkillFile], after: Sequence[SkillFile]) -> list[tuple[str, str]]:
    """Return what is different as pairs of `added`, `changed` or `missing` and the name of the file, by name."""
    old, new = ({file.name: file.sha256 for file in files} for files in (before, after))
    found = [("added", name) for name in new.keys() - old.keys()]
    found += [("missing", name) for name in old.keys() - new.keys()]
    found += [("changed", name) for name in new.keys() & old.keys() if new[name] != old[name]]
    return sorted(found, key=lambda each: each[1])
