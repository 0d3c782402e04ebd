"""The home folder, and the lock that lets one process write to it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from bubbot.errors import ConfigError, HomeLocked

_ELSEWHERE = "or name another folder with --home or BUBBOT_HOME"
_MARK = (
    "This home has a database, bubbot.db. If that file is missing, bubbot says so and begins no other one until "
    "`bubbot restore` brings a backup back, or `bubbot restore --empty` ends the wait for it.\n"
    "The line below, if there is one, is the newest entry that the database surely held: its position and its hash. "
    "A database without that entry is an older one.\n"
)
_NEWEST = re.compile(r"(?m)^([1-9]\d{0,18}):([0-9a-f]{64})$")


class Home(Struct, frozen=True):
    """The folder that holds everything one bot stores. Making the object changes nothing.

    Raises `ConfigError` if its whole path, links followed, is not UTF-8: the database and the tapes hold no other text.
    """

    path: Path

    def __post_init__(self) -> None:
        for path in (os.fspath(self.path), _resolve(self.path)):
            try:
                path.encode()
            except UnicodeEncodeError as error:
                name = os.fsencode(path).decode(errors="backslashreplace")
                raise ConfigError(
                    f"The home {name} has a name that is not UTF-8: rename the folder, {_ELSEWHERE}."
                ) from error

    @property
    def identity(self) -> str:
        """A text that tells this home apart from all others, on any machine, while it exists."""
        folder = self.path.stat()
        return f"{socket.gethostname()}:{folder.st_dev}:{folder.st_ino}:{self.path.resolve()}"

    @property
    def database(self) -> Path:
        """The tapes. Only SQLite may open this file: another open would drop its locks."""
        return self.path / "bubbot.db"

    @property
    def database_mark(self) -> Path:
        """The file that proves an earlier database, so that a missing or shorter database is a loss and not a new home."""
        return self.path / "had-database"

    @property
    def has_database(self) -> bool:
        """True if anything has the name of the database. Raise `ConfigError` if the home is unreadable."""
        if problem := self.find_problem():
            raise ConfigError(problem)
        return self.database.exists()

    def find_problem(self) -> str:
        """Return why the home is unreadable, with the fix; empty if it is readable or missing."""
        try:
            self.database.stat()
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return _unusable_reason(self.path, error)
        return ""

    @property
    def has_lost_database(self) -> bool:
        """True if there was a database, which is missing or an empty file now: a writer would begin another one.

        In homes of versions without the mark, a write-ahead log without its database proves the loss.
        """
        try:
            status = self.database.stat()
        except FileNotFoundError:
            pass
        except OSError:  # whoever opens it reports why
            return False
        else:
            if status.st_size or not stat.S_ISREG(status.st_mode):
                return False
        if os.path.lexists(self.database_mark):
            return True
        log = self.database.with_name(f"{self.database.name}-wal")
        with suppress(OSError):
            return log.stat().st_size > 0  # a reader leaves an empty one
        return False

    def mark_database(self, newest: str = "") -> None:
        """Note that there is a database, and its newest entry as `POSITION:HASH`, which is on the disk already.

        The file is always complete. A full disk is not an error here: the next write reports it.
        """
        mark = self.database_mark
        with suppress(OSError):
            if not newest and os.path.lexists(mark):
                return
            new = mark.with_name(f"{mark.name}.new")
            with new.open("w", encoding="utf-8") as file:
                file.write(f"{_MARK}{newest}\n" if newest else _MARK)
                file.flush()
                os.fsync(file.fileno())
            new.replace(mark)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def read_marked_entry(self) -> tuple[int, str] | None:
        """Return position and hash of the entry that the mark names; None if it names none."""
        with suppress(OSError), self.database_mark.open("rb") as file:
            if found := _NEWEST.search(file.read(4096).decode(errors="replace")):
                return int(found[1]), found[2]
        return None

    @property
    def backups(self) -> Path:
        """The default folder for backups; need not exist."""
        return self.path / "backups"

    @property
    def lock_file(self) -> Path:
        """The file that the writing process locks."""
        return self.path / "daemon.lock"

    @property
    def config(self) -> Path:
        """The settings, unless --config names another file; need not exist."""
        return self.path / "config.toml"

    def ensure(self) -> None:
        """Make the folder (mode 0700) and its parents if missing, and check that files can be made in it.

        An existing folder keeps its mode. Raise `ConfigError` with the reason, the owner and the fix.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass  # checking permissions is not enough: root has them all on a read-only disk
        except (OSError, ValueError) as error:
            raise ConfigError(_unusable_reason(self.path, error)) from error

    def holder_pid(self) -> int | None:
        """Return the process in the lock file, the writer while the lock is held; None if there is none."""
        return self.read_lock_holder()[0]

    def read_lock_holder(self) -> tuple[int | None, str | None]:
        """Return the holder's process id and its control socket, each None if the file lacks it.

        Both are None for a moment when the lock is taken and when it is freed.
        """
        try:
            record = json.loads(self.lock_file.read_bytes()[:4096])
        except (OSError, ValueError, RecursionError):
            return None, None
        pid, address = (record.get("pid"), record.get("address")) if isinstance(record, dict) else (None, None)
        is_pid = isinstance(pid, int) and not isinstance(pid, bool) and pid > 0
        return pid if is_pid else None, address if isinstance(address, str) and address else None


class WriterLock:
    """The writer's lock of a home, for the time of a `with` block; not reentrant.

    It is an flock on `daemon.lock` and on the folder itself: the system frees it when the process ends, however it
    ends. Meanwhile the file holds `{"pid": int, "address": str or null}`. It is never deleted: another process could be
    about to lock it. `address` is the holder's control socket, null if it has none.
    """

    def __init__(self, home: Home, address: str | None = None) -> None:
        self._home = home
        self._address = address
        self._fd: int | None = None
        self._folder = -1

    def __enter__(self) -> WriterLock:
        """Take the lock.

        Raises:
            HomeLocked: at once, if another process holds it.
            ConfigError: the file cannot be used.
        """
        fd = _open(self._home.lock_file)
        folder = -1
        try:
            _lock(fd, self._home)
            folder = _lock_folder(self._home)
            # For people and for other commands only: the content decides nothing.
            os.ftruncate(fd, 0)
            with _ignore_full_disk():
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
        """Release the lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.ftruncate(fd, 0)  # so that nobody mistakes an ended process for the holder
            _close(fd, self._folder)


def _lock_folder(home: Home) -> int:
    """Lock the folder as well: a deleted `daemon.lock` is another file when it is made again.

    Return -1 if this file system has no such lock.
    """
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
def _ignore_full_disk() -> Iterator[None]:
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
        # Python opens close-on-exec: otherwise a child process would hold the lock after this one ends.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a symbolic link, which bubbot never creates: remove it.") from error
        raise ConfigError(
            f"{path} cannot be opened for writing ({error.strerror}){_ownership_note(path)}: "
            f"give it to this user (chown), {_ELSEWHERE}."
        ) from error


def _lock(fd: int, home: Home) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = home.holder_pid()
        holder, stop = ("Another process", "that process") if pid is None else (f"Process {pid}", f"it (kill {pid})")
        raise HomeLocked(
            f"{holder} is writing to the home {home.path} (it holds {home.lock_file.name}): "
            f"commands that only read still work; to write, stop {stop}, {_ELSEWHERE}."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{home.lock_file} cannot be locked ({error.strerror}): use a home on a local disk, {_ELSEWHERE}."
        ) from error


def _resolve(path: Path) -> str:
    """Return the path with its links followed; empty if the path does not exist."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return ""


def _unusable_reason(path: Path, error: OSError | ValueError) -> str:
    """Return the reason why the folder cannot be used, and the fix."""
    number = error.errno if isinstance(error, OSError) else None
    existing = next((folder for folder in (path, *path.parents) if os.path.lexists(folder)), path)
    if number in (errno.EEXIST, errno.ENOTDIR) and not existing.is_dir():
        kind = "a broken link" if existing.is_symlink() else "a file"
        return f"The home {path} cannot be used: {existing} is {kind}, not a folder: move it away, {_ELSEWHERE}."
    if number == errno.EROFS:
        return f"The home {path} is on a read-only disk: make that writable, {_ELSEWHERE}."
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"The home {path} is on a disk without room: free some, {_ELSEWHERE}."
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"The home {path} cannot be written{_ownership_note(existing)}: give it to this user (chown), {_ELSEWHERE}."
        )
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"The home {path} cannot be used ({reason}): correct the name, {_ELSEWHERE}."


def _ownership_note(path: Path) -> str:
    """Describe who owns a path, and as which user this process runs."""
    try:
        status = path.stat()
    except OSError:
        return f" by uid {os.geteuid()}"
    mode = f"{status.st_mode & 0o7777:04o}"
    return f" by uid {os.geteuid()} ({path} belongs to uid {status.st_uid}, mode {mode})"
