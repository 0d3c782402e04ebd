"""The home folder and its lock."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.doctor.finding import sudo_bubbot
from bubbot.ports.checks import Finding, shell_quote

LOCKS_PATH = Path("/proc/locks")


def check_home(home: Home) -> Iterator[Finding]:
    """Check that the folder exists, can be written, and is for its owner alone."""
    path = home.path
    if not os.path.lexists(path):
        if hidden := next((folder for folder in path.absolute().parents if _is_closed(folder)), None):
            cause = f"The folder {hidden} cannot be entered by uid {os.geteuid()}, so it cannot be checked what is in {path}."
            fix = sudo_bubbot(f"doctor --home {shell_quote(path)}", uid=hidden.stat().st_uid)
            yield Finding("home.hidden", "problem", cause, fix)
            return
        if problem := home.find_problem():
            yield Finding("home.unusable", "problem", problem, "env -u BUBBOT_HOME bubbot doctor")
            return
        yield Finding(
            "home.missing", "warning", f"There is no home {path} yet; the first chat makes it.", "bubbot chat"
        )
        return
    if not path.is_dir():
        cause = f"The home {path} is {'a broken link' if path.is_symlink() else 'a file'}, not a folder."
        yield Finding("home.no_folder", "problem", cause, f"mv {shell_quote(path)} {shell_quote(f'{path}.old')}")
        return
    if not os.access(path, os.R_OK | os.X_OK):
        owner = path.stat().st_uid
        cause = f"The home {path} belongs to uid {owner}, and uid {os.geteuid()} may not read it."
        fix = sudo_bubbot(f"doctor --home {shell_quote(path)}", uid=owner)
        yield Finding("home.closed", "problem", cause, fix)
        return
    try:
        home.ensure()  # the folder exists: this only tries to make an unnamed file in it
    except ConfigError as error:
        yield _unwritable(path, error)
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        cause = (
            f"The home {path} can be written by other users of this machine (mode {mode:04o}): they can replace its "
            "database, its settings and its secrets."
        )
        yield Finding("home.writable", "problem", cause, f"chmod 700 {shell_quote(path)}")
    elif mode & 0o077:
        cause = (
            f"The home {path} can be read by other users of this machine (mode {mode:04o}): they can read every chat."
        )
        yield Finding("home.open", "warning", cause, f"chmod 700 {shell_quote(path)}")
    else:
        yield Finding("home.ok", "ok", f"The home is {path}, writable, and for its owner alone.")


def _unwritable(path: Path, error: ConfigError) -> Finding:
    """Make the finding for a home in which no file can be made, with a command that fits the reason."""
    number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
    if number == errno.EROFS:
        mount = next(folder for folder in (path.resolve(), *path.resolve().parents) if folder.is_mount())
        cause = f"The home {path} is on a disk that is mounted read-only at {mount}: nothing can be accepted."
        return Finding("home.read_only", "problem", cause, f"sudo mount -o remount,rw {shell_quote(mount)}")
    fix = f'sudo chown -R "$(id -un)" {shell_quote(path)}'
    if number in (errno.ENOSPC, errno.EDQUOT):
        fix = f"du -xh {shell_quote(path)} | sort -h | tail -20"
    elif path.stat().st_uid == os.geteuid():
        fix = f"chmod u+rwx {shell_quote(path)}"
    return Finding("home.unwritable", "problem", str(error), fix)


def _is_closed(folder: Path) -> bool:
    return os.path.lexists(folder) and not os.access(folder, os.X_OK)


def check_lock(home: Home) -> Iterator[Finding]:
    """Report the process that writes to the home, without trying the lock: that could turn away a starting bot."""
    file = home.lock_file
    if file.is_symlink():
        yield Finding(
            "lock.link", "problem", f"{file} is a symbolic link, which bubbot never creates.", f"rm {shell_quote(file)}"
        )
        return
    if not os.path.lexists(file):
        yield Finding("lock.free", "ok", "No process has written to this home yet.")
        return
    if not file.is_file() or not os.access(file, os.R_OK | os.W_OK):
        cause = f"{file} cannot be opened for writing, so no bot can start here."
        yield Finding("lock.unusable", "problem", cause, f"mv {shell_quote(file)} {shell_quote(f'{file}.old')}")
        return
    pid = home.holder_pid()
    if is_held(home):
        writer = "Another process" if pid is None else f"Process {pid}"
        yield Finding("lock.held", "ok", f"{writer} is writing to this home; a second bot cannot start meanwhile.")
    else:
        yield Finding("lock.free", "ok", "No process is writing to this home.")


def is_held(home: Home) -> bool:
    """Return true if a process holds the lock, by the system's list of locks.

    Without that list, return true if the process that the file names is alive. Does not try the lock itself.
    """
    file, pid = home.lock_file, home.holder_pid()
    with suppress(OSError):
        inode = file.stat().st_ino
        return any(
            line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in LOCKS_PATH.read_text().splitlines()
        )
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
