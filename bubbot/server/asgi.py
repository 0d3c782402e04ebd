"""An application of ASGI on our own listener, for programs on this machine that send a token.

The listener limits connections, headers, bodies and idling; who asks is known before a body is read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bubbot.ports.asgi import CLIENT_KEY, AsgiApp, FindClient, Message
from bubbot.server.listener import (
    HttpAddress,
    HttpConnections,
    HttpLimits,
    HttpRefused,
    listen,
    read_body,
    suspend_deadline,
)

log = logging.getLogger(__name__)

MCP_PATH = "/mcp"
ASGI_LIMITS = HttpLimits(connections=2_000, body_bytes=2**20, shutdown_seconds=1.0)
_CLIENT = web.RequestKey("client", str)
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
MAX_TOKEN_CHARS = 500
DISCONNECT_SECONDS = 0.5
"""Seconds between two looks whether the client of a stream is still there."""
HTTP_UNAUTHORIZED, HTTP_FORBIDDEN, HTTP_MISDIRECTED, HTTP_SERVER_ERROR = 401, 403, 421, 500
REFUSED_CODE = -32600
"""The code of JSON-RPC for a request that is none here."""


@asynccontextmanager
async def serve_asgi(
    app: AsgiApp, host: str, port: int, find_client: FindClient | None, limits: HttpLimits = ASGI_LIMITS
) -> AsyncIterator[int]:
    """Serve an application at `MCP_PATH` until the block ends; yield the port.

    Args:
        host: an address of loopback.
        port: 0 for any that is free.
        find_client: finds the program with a token; None: nobody needs one, which is for tests alone.

    Raises:
        ConfigError: the port cannot be used.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        return await _Exchange(request).run(app)

    routes = [web.route("*", MCP_PATH, answer)]
    at = HttpAddress("mcp serve", host, port)
    async with listen(at, routes, HttpConnections(limits), [_guard(find_client)]) as bound:
        yield bound


def _guard(find_client: FindClient | None) -> Middleware:
    """Build the middleware that admits programs of this machine with a token, before it reads a body."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_local(request)
            if find_client is not None:
                request[_CLIENT] = await _find_client(request, find_client)
            return await handler(request)
        except HttpRefused as refused:
            log.warning("request refused: %s", refused, extra={"action": "mcp.refused", "status": refused.status})
            return _refuse(refused.status, refused.reason)
        except web.HTTPClientError as error:  # the library's: no such path
            return _refuse(error.status, f"{error.reason}: programs ask at {MCP_PATH}")
        except ConnectionError:
            raise
        except Exception as error:  # a defect of ours must not cost other programs the server
            log.exception("request failed", extra={"action": "mcp.failed"})
            return _refuse(HTTP_SERVER_ERROR, f"something went wrong here ({type(error).__name__}); see the log")

    return guarded


def check_local(request: web.Request) -> None:
    """Refuse a request under a foreign name, as after DNS rebinding, and one of a page of another site.

    Raises:
        HttpRefused: the host is not loopback, or the origin is another one.
    """
    name = request.host.rpartition(":")[0] if not request.host.endswith("]") and ":" in request.host else request.host
    if name.lower() not in LOCAL_NAMES:
        raise HttpRefused(HTTP_MISDIRECTED, f"the host {request.host[:100]!r} is not this machine: ask 127.0.0.1")
    for origin in request.headers.getall("Origin", []):
        if origin.partition("://")[2].lower() != request.host.lower():
            raise HttpRefused(HTTP_FORBIDDEN, "pages of other sites may not ask here")


async def _find_client(request: web.Request, find_client: FindClient) -> str:
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    token = sent.strip()
    is_token = scheme.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN_CHARS and token.isascii()
    with suspend_deadline(request):  # many programs at once wait for each other here
        client = await find_client(token) if is_token else ""
    if not client:
        raise HttpRefused(
            HTTP_UNAUTHORIZED,
            "the token is missing, wrong, or was taken back: send Authorization: Bearer TOKEN; bubbot mcp client-token makes one",
        )
    return client


def _refuse(status: int, reason: str) -> web.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": REFUSED_CODE, "message": reason}}
    response = web.Response(status=status, text=json.dumps(body), content_type="application/json")
    if status == HTTP_UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.force_close()
    return response


class _Exchange:
    """One request and its response, between the two interfaces."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self._body: bytes | None = b""

    async def run(self, app: AsgiApp) -> web.StreamResponse:
        """Let the application answer. It learns that the client has gone, and ends then."""
        self._body = await read_body(self._request)
        with suspend_deadline(self._request):
            await app(self._scope(), self._receive, self._send)
        assert self._response is not None
        return self._response

    def _scope(self) -> Message:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": "http",
            "path": unquote(request.rel_url.raw_path),
            "raw_path": request.rel_url.raw_path.encode(),
            "query_string": request.rel_url.raw_query_string.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": None,
            "server": None,
            CLIENT_KEY: request.get(_CLIENT, ""),
        }

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while (transport := self._request.transport) is not None and not transport.is_closing():  # noqa: ASYNC110 - the library tells nobody
            await asyncio.sleep(DISCONNECT_SECONDS)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self._response = web.StreamResponse(status=message["status"])
            self._response.headers.extend([each for each in headers if each[0] != "connection"])
        assert self._response is not None
        with suppress(ConnectionError):  # the client has gone; the application learns it by `http.disconnect`
            if message["type"] == "http.response.start":
                await self._response.prepare(self._request)
                return
            await self._response.write(message.get("body", b""))
            if not message.get("more_body", False):
                await self._response.write_eof()
