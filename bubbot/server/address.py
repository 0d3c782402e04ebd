"""The path of a home's control socket, and the user at the other end of a connection."""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
from hashlib import sha256
from pathlib import Path

from bubbot.errors import ConfigError

log = logging.getLogger(__name__)

PATH_LIMIT = 107
"""Bytes of a socket's path, by the system's own structure."""


def socket_path(home: Path, runtime: Path | None, temporary: Path) -> Path:
    """Choose the socket of a home, in a folder of this user alone, and create that folder.

    It is the first of these folders that is suitable and whose path is short enough. The lock of the home records the
    choice, so other users cannot block it by occupying one of the folders.

    Args:
        home: has a folder `run` for the socket if nothing else is suitable.
        runtime: the user's folder for sockets (`XDG_RUNTIME_DIR`), or None.
        temporary: for a folder of ours, named after the user.

    Raises:
        ConfigError: none is suitable; it names the problem of the first.
    """
    name = f"{sha256(os.fsencode(home.resolve())).hexdigest()[:16]}.sock"
    folders = [temporary / f"bubbot-{os.getuid()}", home.resolve() / "run"]
    if runtime is not None and runtime.is_absolute() and _is_private(runtime):
        folders.insert(0, runtime / "bubbot")
    problems: list[ConfigError] = []
    for folder in folders:
        try:
            path = _create_folder(folder / name)
        except ConfigError as error:
            problems.append(error)
        else:
            if problems:
                log.warning("control socket moved to %s: %s", path, problems[0], extra={"action": "control.elsewhere"})
            return path
    raise problems[0]


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` if the folder of a socket is a link, somebody else's, or open to others."""
    fix = f"remove {folder}, or set XDG_RUNTIME_DIR to a folder of your own"
    try:
        info = folder.lstat()
    except OSError as error:
        raise ConfigError(f"the folder of the control socket, {folder}, cannot be used ({error.strerror})") from error
    if not stat.S_ISDIR(info.st_mode):
        problem = "a link" if stat.S_ISLNK(info.st_mode) else "no folder"
        raise ConfigError(f"the folder of the control socket, {folder}, is {problem}: {fix}")
    if info.st_uid != os.getuid():
        raise ConfigError(
            f"the folder of the control socket, {folder}, belongs to uid {info.st_uid}, and this is uid "
            f"{os.getuid()}: run this as that user where the bot is theirs; else {fix}"
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(info.st_mode):04o}"
        raise ConfigError(f"the folder of the control socket, {folder}, is open to others (mode {mode}): chmod 700 it")


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user at the other end; None if the system does not tell, so that only the folder keeps others out."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return int(uid)


def _is_private(folder: Path) -> bool:
    try:
        check_folder(folder)
    except ConfigError:
        return False
    return True


def _create_folder(path: Path) -> Path:
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise ConfigError(
            f"the path of the control socket, {path}, is longer than {PATH_LIMIT} bytes: "
            "set XDG_RUNTIME_DIR or TMPDIR to a shorter one"
        )
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder of the control socket, {path.parent}, cannot be made ({error.strerror}): "
            "set XDG_RUNTIME_DIR to a folder of your own"
        ) from error
    check_folder(path.parent)
    return path
