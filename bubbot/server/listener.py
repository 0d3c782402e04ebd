"""An address at which the bot's server listens, with the limits for incomplete requests that the HTTP library lacks.

A connection is in one of three states: it waits for or receives a request (with a deadline), the bot works on a complete request
(without one, because durable messages must be answered), or it is idle (with a longer deadline).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from bubbot.errors import AddressUnavailable, ConfigError

log = logging.getLogger(__name__)

ACCEPT_ERROR_SECONDS = 60.0
"""Seconds between two lines about connections for which the system has no room."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
HTTP_MISDIRECTED = 421
_HOST = re.compile(r"(\[[^\[\]/?#@\\\s]+\]|[^\[\]:/?#@\\\s]+)(?::\d{0,5})?")
"""A name or an address, and perhaps a port. Some parsers also read a name behind `@` or before `/`: not here."""

HTTP_BAD_REQUEST, HTTP_TOO_LARGE, HTTP_UNSUPPORTED_MEDIA = 400, 413, 415
LINGERING_SECONDS = 2.0
"""Seconds for which an unread body is discarded, so that the client can read the reason."""


class HttpLimits(Struct, frozen=True):
    """Limits of a server.

    Attributes:
        connections: open at once.
        request_seconds: seconds for a whole request, from its first byte, or for the first byte of a new connection.
        idle_seconds: seconds between two requests of a connection.
        shutdown_seconds: seconds for running calls at shutdown.
        body_bytes: of one request.
    """

    connections: int = 100
    request_seconds: float = 10.0
    idle_seconds: float = 75.0
    shutdown_seconds: float = 5.0
    body_bytes: int = 2**20


class HttpConnections:
    """The open connections of a listener, and their deadlines.

    Args:
        foreign: returns the answer to a client whose first bytes are not HTTP; None if they may be HTTP.
    """

    def __init__(self, limits: HttpLimits, foreign: Callable[[bytes], bytes | None] = lambda _: None) -> None:
        self.foreign = foreign
        self._limits = limits
        self._open: dict[asyncio.BaseTransport, HttpConnection] = {}
        self._is_closed = False

    @contextmanager
    def suspend(self, request: web.Request) -> Iterator[None]:
        """Suspend the deadline of a request while the bot works on it."""
        connection = None if request.transport is None else self._open.get(request.transport)
        if connection is not None:
            connection.suspend()
        try:
            yield
        finally:
            if connection is not None:
                connection.idle()

    def rest(self, request: web.Request) -> None:
        """Set the deadline for the next request, after any answer."""
        connection = None if request.transport is None else self._open.get(request.transport)
        if connection is not None:
            connection.idle()

    def admit(self, transport: asyncio.Transport, connection: HttpConnection) -> bool:
        """Admit a connection. At the limit, abort the oldest that waits for a request; return false if none waits."""
        if self._is_closed:
            return False
        if len(self._open) >= self._limits.connections:
            waiting = next((key for key, other in self._open.items() if other.is_waiting), None)
            if waiting is None:
                return False
            self._open.pop(waiting).abort()
        self._open[transport] = connection
        return True

    def close(self) -> None:
        """Admit no further connection, not even one that the system has accepted already."""
        self._is_closed = True

    def forget(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that is closed."""
        self._open.pop(transport, None)

    @property
    def limits(self) -> HttpLimits:
        return self._limits


class HttpConnection(asyncio.Protocol):
    """One connection: passes everything on to the HTTP library, and aborts at its deadline."""

    def __init__(self, inner: asyncio.Protocol, connections: HttpConnections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_idle = False
        self._is_new = True
        self.is_waiting = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._connections.admit(transport, self):
            self._transport = None
            transport.abort()
            return
        self._inner.connection_made(transport)
        self._end_after(self._connections.limits.request_seconds)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`. The first byte after a pause begins a request."""
        if self._is_idle:
            self._is_idle = False
            self._end_after(self._connections.limits.request_seconds)
        last_words = self._connections.foreign(data) if self._is_new else None
        self._is_new = False
        if self._transport is not None and last_words is not None:
            self._transport.write(last_words)
            self._transport.close()
        elif self._transport is not None and not self._transport.is_closing():
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_timer()
        if self._transport is not None:
            self._connections.forget(self._transport)
            self._transport = None
            self._inner.connection_lost(exc)

    def suspend(self) -> None:
        """Drop the deadline: the request is complete."""
        self.is_waiting = self._is_idle = False
        self._stop_timer()

    def idle(self) -> None:
        """Set the deadline for the client to read the answer and begin the next request."""
        self.is_waiting = self._is_idle = True
        self._end_after(self._connections.limits.idle_seconds)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            log.debug("connection closed: no complete request in time", extra={"action": "http.timeout"})
            self._transport.abort()

    def _end_after(self, seconds: float) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpErrorLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs the library's errors; errors of the client in one line at debug level."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """See `logging.Logger.log`."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError | ConnectionError):
            level, msg, args = logging.DEBUG, "request incomplete or not HTTP: %s", (type(error).__name__,)
            del kwargs["exc_info"]
        super().log(level, msg, *args, **kwargs)


class HttpAddress(Struct, frozen=True):
    """The host and port at which a server listens, and the section of the settings that says so."""

    section: str
    host: str
    port: int


class HttpRefused(Exception):
    """A request that is refused before its body is read. The connection closes.

    Attributes:
        reason: a sentence for the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_host(request: web.Request, section: str, names: Sequence[str]) -> None:
    """Refuse a request under a foreign name, as after DNS rebinding.

    Args:
        request: the host has to be one of these names, localhost, or an IP address.
        section: the section with `hosts`, for the error.

    Raises:
        HttpRefused: the host is another one.
    """
    match = _HOST.fullmatch(request.host)
    name = match[1].strip("[]").lower() if match else ""
    try:
        is_ours = name in ("localhost", *map(str.lower, names)) or bool(ipaddress.ip_address(name))
    except ValueError:
        is_ours = False
    if not is_ours:
        reason = (
            f"the host {request.host[:100]!r} is not a name of this bot: add it to [{section}] hosts if it is yours"
        )
        raise HttpRefused(HTTP_MISDIRECTED, reason)


CONNECTIONS = web.AppKey("connections", HttpConnections)


def suspend_deadline(request: web.Request) -> AbstractContextManager[None]:
    """Suspend the deadline of a request, which is complete, while the bot works on it."""
    return request.app[CONNECTIONS].suspend(request)


async def read_body(request: web.Request) -> bytes:
    """Read the body of a request.

    Raises:
        HttpRefused: it is too large or compressed, or does not arrive as announced.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefused(HTTP_UNSUPPORTED_MEDIA, "the body is compressed: send it without Content-Encoding")
    limit = request.app[CONNECTIONS].limits.body_bytes
    too_large = f"the request is larger than {limit} bytes"
    if request.content_length is not None and request.content_length > limit:
        raise HttpRefused(HTTP_TOO_LARGE, too_large)
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise HttpRefused(HTTP_TOO_LARGE, too_large) from error
    except (web.RequestPayloadError, OSError) as error:  # a wrong length, or the client is gone
        raise HttpRefused(HTTP_BAD_REQUEST, "the body did not arrive as it was announced") from error


@asynccontextmanager
async def listen(
    at: HttpAddress | socket.socket,
    routes: Sequence[web.RouteDef],
    connections: HttpConnections,
    middlewares: Sequence[Middleware] = (),
    on_shutdown: Callable[[], None] = lambda: None,
) -> AsyncIterator[int]:
    """Serve these routes at an address, and no other route there, until the block ends.

    Args:
        at: where to listen, or a Unix socket that listens already.
        middlewares: the outermost first.
        on_shutdown: called before running calls are cancelled.

    Yields:
        The port; 0 of a Unix socket.

    Raises:
        ConfigError: the address cannot be used.
    """
    limits = connections.limits
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[_resting(connections), *middlewares])
    app[CONNECTIONS] = connections

    async def shut_down(_app: web.Application) -> None:
        on_shutdown()

    app.on_shutdown.append(shut_down)
    app.router.add_routes(routes)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=limits.shutdown_seconds,
        keepalive_timeout=limits.idle_seconds,
        lingering_time=LINGERING_SECONDS,
        auto_decompress=False,  # strangers' bodies would be unpacked before they are refused
        logger=HttpErrorLogger(log, {"action": "http.malformed"}),
    )
    await runner.setup()
    library, server = runner.server, None
    assert library is not None

    def protocol() -> HttpConnection:
        return HttpConnection(library(), connections)

    try:
        server = await _bind(at, protocol)
        yield 0 if isinstance(at, socket.socket) else int(server.sockets[0].getsockname()[1])
    finally:
        connections.close()
        if server is not None:
            server.close()
        await runner.cleanup()


def _resting(connections: HttpConnections) -> Middleware:
    @web.middleware
    async def rest_afterwards(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            connections.rest(request)

    return rest_afterwards


class AcceptErrorHandler:
    """Handles the errors of an event loop: one line a minute if the system has no room for further connections.

    The loop reports that up to a hundred times a second, with a traceback. Other errors go to the default handler.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not ("socket" in context and isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + ACCEPT_ERROR_SECONDS
            log.error(
                "no connection accepted: %s; it is tried again every second, and ulimit -n raises the limit of open files",
                error.strerror,
                extra={"action": "http.exhausted"},
            )


async def _bind(at: HttpAddress | socket.socket, protocol: Callable[[], HttpConnection]) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(AcceptErrorHandler())
    if isinstance(at, socket.socket):
        return await loop.create_unix_server(protocol, sock=at)
    try:
        return await loop.create_server(protocol, at.host, at.port, reuse_address=True)
    except OSError as error:
        may_pass = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
        raise (AddressUnavailable if may_pass else ConfigError)(
            f"[{at.section}] host and port: {at.host}:{at.port} cannot be listened on "
            f"({error.strerror}); choose another port"
        ) from None
