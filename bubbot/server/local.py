"""The server on the home's Unix socket, for programs of the bot's own user."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from bubbot.errors import ConfigError
from bubbot.server.address import check_folder, peer_uid
from bubbot.server.api import Api

log = logging.getLogger(__name__)

BACKLOG = 128
"""Connections that may wait to be accepted."""
UidOf: TypeAlias = Callable[[socket.socket], int | None]
OpenListener: TypeAlias = Callable[[Api, socket.socket, UidOf], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def serve_socket(api: Api, path: Path, *, uid_of: UidOf = peer_uid) -> AsyncIterator[None]:
    """Serve the API at this path until the block ends. The caller holds the home's lock.

    Remove a socket that an earlier daemon left. Load the HTTP library, a sixth of an idle daemon's memory, when the first client
    connects.

    Args:
        uid_of: returns the user at the other end of a connection; None if the system does not tell.

    Raises:
        ConfigError: the path cannot be used.
    """
    check_folder(path.parent)
    with _bind(path) as listener:
        serving = asyncio.create_task(_serve(api, listener, uid_of))
        try:
            yield
        finally:
            api.is_stopping = True
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            _remove(path)


async def _serve(api: Api, listener: socket.socket, uid_of: UidOf) -> None:
    loop, connected = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listener)
    try:
        open_listener = await asyncio.to_thread(_load)
        async with open_listener(api, listener, uid_of):
            await loop.create_future()
    except Exception:  # without it the bot goes on: its channels do not need it
        log.exception("control socket failed", extra={"action": "control.failed"})


def _load() -> OpenListener:
    """Load the HTTP library; in a thread, since that takes a while."""
    from bubbot.server.routes import serve_owner

    return serve_owner


def _bind(path: Path) -> socket.socket:
    """Bind the socket, replacing one that a killed daemon left: the caller's lock proves that none lives."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} is not a socket, and bubbot did not create it: remove it")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 - the standard library's
    except OSError as error:
        listener.close()
        raise ConfigError(f"the control socket {path} cannot be made ({error.strerror})") from error
    return listener


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
