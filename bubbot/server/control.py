"""The server's side of the control socket, for a daemon that holds the lock of its home."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from bubbot.errors import BubbotError, ConfigError, ControlError
from bubbot.server.address import check_folder, peer_uid
from bubbot.server.codec import JsonObject, encode_error
from bubbot.server.lines import CONTROL_LINE_BYTES, encode_lines, read_message
from bubbot.server.peer import PROTOCOL, ControlPeer

log = logging.getLogger(__name__)

HELLO_TIMEOUT_SECONDS = 5.0
"""Seconds a client may take to identify itself."""
MAX_CONTROL_CLIENTS = 200
"""Connections at once."""

Handler: TypeAlias = Callable[[ControlPeer, JsonObject], Awaitable[JsonObject]]
"""Answers one kind of request; a `BubbotError` becomes the answer."""


class ControlServer:
    """Answers requests on the control socket.

    Args:
        handlers: one for each name of a request.
        on_disconnect: called for each client that has disconnected.
        uid_of: returns the user at the other end of a connection; None if the system does not tell.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        on_disconnect: Callable[[ControlPeer], None] = lambda _peer: None,
        *,
        uid_of: Callable[[socket.socket], int | None] = peer_uid,
    ) -> None:
        self._handlers = handlers
        self._left = on_disconnect
        self._uid = uid_of
        self._clients: set[asyncio.Task[None]] = set()
        self._stopping = False

    @asynccontextmanager
    async def listen(self, path: Path) -> AsyncIterator[None]:
        """Serve at this path until the block ends. The caller holds the home's lock.

        Removes what an earlier daemon left there.

        Raises:
            ConfigError: the path cannot be used.
        """
        check_folder(path.parent)
        listener = _bind(path)
        server = await asyncio.start_unix_server(self._serve, sock=listener, limit=CONTROL_LINE_BYTES, backlog=128)
        try:
            yield
        finally:
            self.quiesce()
            server.close()
            for client in self._clients:
                client.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            await server.wait_closed()
            _remove(path)

    def quiesce(self) -> None:
        """Refuse requests from now on; those under way are still answered."""
        self._stopping = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._clients.add(task)
        peer = ControlPeer(reader, writer, self._answer)
        try:
            if await self._accept_client(reader, writer):
                await peer.run()
        except (ControlError, OSError, TimeoutError) as error:
            log.warning("control client rejected: %s", error, extra={"action": "control.refused"})
        except asyncio.CancelledError:
            pass  # the daemon ends; asyncio's streams would log it as an error
        finally:
            self._clients.discard(task)
            peer.close()
            self._left(peer)

    async def _accept_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return true if the client runs as the right user and speaks the right protocol version."""
        uid = self._uid(writer.get_extra_info("socket"))
        refusal: BubbotError | None = None
        if uid not in (None, os.getuid()):
            refusal = ConfigError(
                f"the running bot belongs to uid {os.getuid()}, and this is uid {uid}: run the command as the user of the bot"
            )
        elif len(self._clients) > MAX_CONTROL_CLIENTS:
            refusal = ControlError(f"{MAX_CONTROL_CLIENTS} clients are connected to the running bot already")
        async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
            if refusal is None:
                hello = await read_message(reader)
                if hello is None:
                    return False
                if hello.get("hello") != PROTOCOL:
                    refusal = ConfigError(
                        f"the running bot speaks version {PROTOCOL} of the control protocol and this command "
                        f"{hello.get('hello')!r}: restart the bot after an update"
                    )
            reply = {"error": encode_error(refusal)} if refusal else {"hello": PROTOCOL, "pid": os.getpid()}
            writer.writelines(encode_lines(reply))
            await writer.drain()
        if refusal is not None:
            log.warning("control client rejected: %s", refusal, extra={"action": "control.refused"})
        return refusal is None

    async def _answer(self, peer: ControlPeer, do: str, body: JsonObject) -> JsonObject:
        if self._stopping:
            raise ControlError("the bot is shutting down: try again when it has stopped or restarted")
        handler = self._handlers.get(do)
        if handler is None:
            raise ControlError(f"the running bot does not know the request {do!r}: restart it after an update")
        return await handler(peer, body)


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
    except OSError as error:
        listener.close()
        raise ConfigError(f"the control socket {path} cannot be made ({error.strerror})") from error
    return listener


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
