"""Where the control socket of a home is, and who is at its other end."""

from __future__ import annotations

import os
import socket
import stat
import struct
from hashlib import sha256
from pathlib import Path

from bubbot.errors import ConfigError

PATH_LIMIT = 107
"""Bytes of a socket's path, by the system's own structure."""


def socket_path(home: Path, runtime: Path | None, temporary: Path) -> Path:
    """The socket of a home, in a folder of this user alone, which is made where it is missing.

    `runtime` is the user's folder for such things (`XDG_RUNTIME_DIR`), used where there is one that is fit and
    short enough; else a folder of ours in `temporary`. Raises `ConfigError`.
    """
    name = f"{sha256(os.fsencode(home.resolve())).hexdigest()[:16]}.sock"
    if runtime is not None and runtime.is_absolute() and _is_private(runtime):
        found = runtime / "bubbot" / name
        if len(os.fsencode(found)) <= PATH_LIMIT:
            return _made(found)
    found = temporary / f"bubbot-{os.getuid()}" / name
    if len(os.fsencode(found)) > PATH_LIMIT:
        raise ConfigError(
            f"the path of the control socket, {found}, is longer than {PATH_LIMIT} bytes: "
            "set XDG_RUNTIME_DIR or TMPDIR to a shorter one"
        )
    return _made(found)


def check_folder(folder: Path) -> None:
    """Raises `ConfigError` where the folder of a socket is a link, somebody else's, or open to others."""
    way = f"remove {folder}, or set XDG_RUNTIME_DIR to a folder of your own"
    try:
        found = folder.lstat()
    except OSError as error:
        raise ConfigError(f"the folder of the control socket, {folder}, cannot be used ({error.strerror})") from error
    if not stat.S_ISDIR(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise ConfigError(f"the folder of the control socket, {folder}, is {what}: {way}")
    if found.st_uid != os.getuid():
        raise ConfigError(
            f"the folder of the control socket, {folder}, belongs to uid {found.st_uid}, and this is uid "
            f"{os.getuid()}: run this as that user where the bot is theirs; else {way}"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise ConfigError(f"the folder of the control socket, {folder}, is open to others (mode {mode}): chmod 700 it")


def peer_uid(connection: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell, and the folder alone keeps others out."""
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


def _made(path: Path) -> Path:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder of the control socket, {path.parent}, cannot be made ({error.strerror}): "
            "set XDG_RUNTIME_DIR to a folder of your own"
        ) from error
    check_folder(path.parent)
    return path
