"""The server on a TCP address, for programs that have the owner's token."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest

from aiohttp import web
from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.server.api import Api
from bubbot.server.completions import Completions, completion_error
from bubbot.server.listener import HttpAddress, HttpConnections, HttpLimits, HttpRefused, check_host, listen
from bubbot.server.routes import Admit, admission, api_routes, error_response, errors_as

log = logging.getLogger(__name__)

NETWORK_LIMITS = HttpLimits(connections=64, body_bytes=32 * 2**20)
HTTP_UNAUTHORIZED, HTTP_FORBIDDEN = 401, 403


class NetworkSettings(Struct, frozen=True):
    """The address of the server, and the requests that it admits.

    Attributes:
        port: the port; 0 for any that is free.
        token: the owner's token, required in every request.
        hosts: further names of this machine in requests.
    """

    host: str
    port: int
    token: str
    hosts: Sequence[str] = ()


@asynccontextmanager
async def serve_network(
    api: Api, settings: NetworkSettings, completions: Completions | None = None, limits: HttpLimits = NETWORK_LIMITS
) -> AsyncIterator[int]:
    """Serve the API, and chat completions if they are switched on, until the block ends; yield the port.

    Raises:
        ConfigError: the address cannot be used.
    """
    routes = [*api_routes(api), *(completions.routes() if completions else ())]
    address = HttpAddress("server", settings.host, settings.port)
    middlewares = [errors_as(_render_error), admission(_admit_owner(settings))]
    on_shutdown = completions.end_all if completions else lambda: None
    async with listen(address, routes, HttpConnections(limits), middlewares, on_shutdown) as port:
        log.info("serving the API", extra={"action": "server.listening", "host": settings.host, "port": port})
        yield port


def _render_error(request: web.Request, status: int, error: BubbotError) -> web.Response:
    if request.path.startswith("/v1/"):
        return completion_error(status, error)
    return error_response(request, status, error)


def _admit_owner(settings: NetworkSettings) -> Admit:
    """Build the middleware that checks a request's host, origin and token."""
    token = settings.token.encode()

    def admit(request: web.Request) -> None:
        check_host(request, "server", (settings.host, *settings.hosts))
        origins = request.headers.getall("Origin", [])
        if any(origin.partition("://")[2] != request.host for origin in origins):
            raise HttpRefused(HTTP_FORBIDDEN, "pages of other sites may not use this bot")
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(sent.strip().encode(errors="replace"), token):
            raise HttpRefused(HTTP_UNAUTHORIZED, "the token is missing or wrong: send [server] token as a bearer token")

    return admit
