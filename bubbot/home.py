"""The home folder, and the lock that lets one process write to it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bubbot.errors import ConfigError, HomeLocked

_ELSEWHERE = "or name another folder with --home or BUBBOT_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds everything one bot keeps. Making the object changes nothing.

    Raises `ConfigError` if its whole path, links followed, is not UTF-8: the database and the tapes hold no other text.
    """

    path: Path

    def __post_init__(self) -> None:
        for path in (os.fspath(self.path), _real(self.path)):
            try:
                path.encode()
            except UnicodeEncodeError as error:
                shown = os.fsencode(path).decode(errors="backslashreplace")
                raise ConfigError(
                    f"The home {shown} has a name that is not UTF-8: rename the folder, {_ELSEWHERE}."
                ) from error

    @property
    def database(self) -> Path:
        """The tapes. Nothing but SQLite ever opens this file: another open would drop its locks."""
        return self.path / "bubbot.db"

    @property
    def lock_file(self) -> Path:
        """The file the writing process locks."""
        return self.path / "daemon.lock"

    @property
    def config(self) -> Path:
        """The settings, where --config names no other file; need not exist."""
        return self.path / "config.toml"

    def ensure(self) -> None:
        """Makes the folder (mode 0700) and its parents where missing, and checks that files can be made in it.

        A folder that is there keeps its mode. Raises `ConfigError` with the reason, the owner and what to do.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass  # asking for permissions is not enough: root has them all on a read-only disk
        except (OSError, ValueError) as error:
            raise ConfigError(_unusable(self.path, error)) from error

    def holder(self) -> int | None:
        """The process the lock file names: the writer while the lock is held. None where it names none."""
        return self.held_by()[0]

    def held_by(self) -> tuple[int | None, str | None]:
        """The process that the lock file names, and its control socket; None where it names none.

        Both are None for a moment at the beginning and at the end of the lock's time.
        """
        try:
            held = json.loads(self.lock_file.read_bytes()[:4096])
        except (OSError, ValueError, RecursionError):
            return None, None
        pid, address = (held.get("pid"), held.get("address")) if isinstance(held, dict) else (None, None)
        known = isinstance(pid, int) and not isinstance(pid, bool) and pid > 0
        return pid if known else None, address if isinstance(address, str) and address else None


class WriterLock:
    """The writer's lock of a home, for the time of a `with` block; not reentrant.

    It is an flock on `daemon.lock`, and on the folder itself: the system frees it when the process ends, however it ends. The file holds
    `{"pid": int, "address": str or null}` meanwhile, and is never deleted: another process could be about to lock it.
    `address`: where the holder will take the requests of commands, if it does.
    """

    def __init__(self, home: Home, address: str | None = None) -> None:
        self._home = home
        self._address = address
        self._fd: int | None = None
        self._folder = -1

    def __enter__(self) -> WriterLock:
        """Raises `HomeLocked` at once where another holds it, `ConfigError` where the file cannot be used."""
        fd = _open(self._home.lock_file)
        folder = -1
        try:
            _lock(fd, self._home)
            folder = _lock_folder(self._home)
            # For people and for other commands: what it says decides nothing.
            os.ftruncate(fd, 0)
            with _full_disk_is_no_fault():
                os.pwrite(fd, json.dumps({"pid": os.getpid(), "address": self._address}).encode() + b"\n", 0)
        except OSError as error:
            _close(fd, folder)
            raise ConfigError(f"{self._home.lock_file} cannot be written: {error.strerror}.") from error
        except ConfigError:
            _close(fd, folder)
            raise
        self._fd, self._folder = fd, folder
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Frees the lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.ftruncate(fd, 0)  # so that nobody takes a process that is gone for the holder
            _close(fd, self._folder)


def _lock_folder(home: Home) -> int:
    """Lock the folder as well, which nobody removes: a `daemon.lock` that was deleted is another file when it is made
    again. Return -1 if this file system has no such lock."""
    folder = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise HomeLocked(
            f"Another process is writing to the home {home.path}, and its {home.lock_file.name} was removed: "
            f"commands that only read still work; to write, stop that process, {_ELSEWHERE}."
        ) from None
    except OSError:
        os.close(folder)
        return -1
    return folder


@contextmanager
def _full_disk_is_no_fault() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def _open(path: Path) -> int:
    try:
        # Python opens close-on-exec: a child process would hold the lock beyond the end of this one.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a link, which nothing of bubbot makes: remove it.") from error
        raise ConfigError(
            f"{path} cannot be opened for writing ({error.strerror}){_ownership(path)}: "
            f"give it to this user (chown), {_ELSEWHERE}."
        ) from error


def _lock(fd: int, home: Home) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = home.holder()
        who, stop = ("Another process", "that process") if pid is None else (f"Process {pid}", f"it (kill {pid})")
        raise HomeLocked(
            f"{who} is writing to the home {home.path} (it holds {home.lock_file.name}): "
            f"commands that only read still work; to write, stop {stop}, {_ELSEWHERE}."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{home.lock_file} cannot be locked ({error.strerror}): use a home on a local disk, {_ELSEWHERE}."
        ) from error


def _real(path: Path) -> str:
    """The path with its links followed; empty if there is no such path, which whoever uses it reports."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return ""


def _unusable(path: Path, error: OSError | ValueError) -> str:
    """Why the folder cannot be used, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    there = next((folder for folder in (path, *path.parents) if os.path.lexists(folder)), path)
    if number in (errno.EEXIST, errno.ENOTDIR) and not there.is_dir():
        what = "a broken link" if there.is_symlink() else "a file"
        return f"The home {path} cannot be used: {there} is {what}, not a folder: move it away, {_ELSEWHERE}."
    if number == errno.EROFS:
        return f"The home {path} is on a read-only disk: make that writable, {_ELSEWHERE}."
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"The home {path} is on a disk without room: free some, {_ELSEWHERE}."
    if number in (errno.EACCES, errno.EPERM):
        return f"The home {path} cannot be written{_ownership(there)}: give it to this user (chown), {_ELSEWHERE}."
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"The home {path} cannot be used ({reason}): correct the name, {_ELSEWHERE}."


def _ownership(path: Path) -> str:
    """Who owns a path, and as whom this process runs."""
    try:
        status = path.stat()
    except OSError:
        return f" by uid {os.geteuid()}"
    mode = f"{status.st_mode & 0o7777:04o}"
    return f" by uid {os.geteuid()} ({path} belongs to uid {status.st_uid}, mode {mode})"
